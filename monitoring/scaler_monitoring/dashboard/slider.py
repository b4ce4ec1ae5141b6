"""The slider over a recording, in one tab: the moment that all tabs show, and how fast it goes."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from bokeh.models.widgets.markups import Div

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.address import Address
    from scaler_monitoring.dashboard.watch import Replay

NAME = "moment"
"""By which the script of the page finds it."""
AT = "at"
"""The moment in the address: seconds since the first snapshot of the recording."""

SPEEDS = (0, 1, 10, 60)
"""How many seconds pass in one; 0: it stands still."""


class Slider:
    """Goes where the address says, then where its user or another tab wants.

    What the browser draws is in the page; it is told the moment and the speed, and tells them. It
    tells no moment if the one that is shown is to stay.
    """

    def __init__(self, replay: Replay, address: Address) -> None:
        self._replay = replay
        self._address = address
        self._shown: tuple[object, ...] = ()
        self._heard: Any = 0
        """The number of what the browser wanted last: it ignores what was said before that."""
        self._visit()
        self.root = Div(name=NAME, visible=False, tags=self._tags())
        self.root.on_change("tags", self._on_tags)
        address.on_visit(self._visit)

    def has_come(self) -> bool:
        """Return True if the replay shows what it did not when this was asked last.

        Where it is, or goes, is then said, here and in the address.
        """
        replay = self._replay
        if self.root.tags != self._tags():
            self.root.tags = self._tags()
        self._address.set(is_step=False, **{AT: str(replay.wanted)})
        shown = replay.model, replay.wanted
        if replay.is_moving or shown == self._shown:
            return False
        self._shown = shown
        return True

    def _tags(self) -> list[Any]:
        return [self._replay.wanted, self._replay.speed, self._heard]

    def _visit(self) -> None:
        moment = _moment(self._address.get(AT))
        if moment is not None and moment != self._replay.wanted:
            self._replay.go(moment)

    def _on_tags(self, name: str, old: object, new: list[Any]) -> None:
        # What we said ourselves is no news.
        if new == self._tags() or len(new) != 3 or new[1] not in SPEEDS:
            return
        self._heard = new[2]
        moment = _moment(str(new[0]))
        self._replay.go(self._replay.wanted if moment is None else moment, int(new[1]))


def _moment(text: str) -> float | None:
    """Return the moment that an address has; None: it has none."""
    try:
        moment = float(text)
    except ValueError:
        return None
    return moment if isfinite(moment) else None
