"""The slider over a recording, or over what was before, in one tab: the moment that it shows."""

from __future__ import annotations

from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

from bokeh.models.widgets.markups import Div

from scaler_monitoring.dashboard.watch import Replay

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.tab_view import View
    from scaler_monitoring.dashboard.watch import Watch

NAME = "moment"
"""By which the script of the page finds it."""
AT = "at"
"""The moment in the address: seconds since the first snapshot of a recording, or since 1970."""

SPEEDS = (0, 1, 10, 60)
"""How many seconds pass in one; 0: it stands still."""
NOW = "now"
"""In place of a moment: what happens is shown, as it happens."""
STEP_S = 5
"""As often a history that grows is longer for the browser."""


class Slider:
    """Goes where the address says, then where its user or another tab wants.

    Tabs that look at a moment all look at the same one. What the browser draws is in the page; it
    is told the moment, the speed, and the first and the last moment that there are. It tells a
    moment, or none if the one that is shown is to stay, and the speed.
    """

    def __init__(self, view: View, past: Replay) -> None:
        self._view = view
        self._past = past
        self._live: Watch | None = view.watch if view.watch is not past else None
        """What goes on; None: it is a recording, and nothing does."""
        self._shown: tuple[object, ...] = ()
        self._heard: Any = 0
        """The number of what the browser wanted last: it ignores what was said before that."""
        self._visit()
        self.root = Div(name=NAME, visible=False, tags=self._tags())
        self.root.on_change("tags", self._on_tags)
        view.address.on_visit(self._visit)

    @classmethod
    def over(cls, view: View) -> Slider | None:
        """Return the one of a tab; None: what it shows has no past."""
        watch = view.watch
        past = watch if isinstance(watch, Replay) else watch.past
        return None if past is None else cls(view, past)

    @property
    def has_now(self) -> bool:
        """Whether there is more to be shown than what was."""
        return self._live is not None

    @property
    def first(self) -> float:
        """The first moment that there is."""
        return self._past.first

    @property
    def last(self) -> float:
        """The last one, or a little later."""
        last = self._past.last
        return last if self._live is None else float(ceil(last / STEP_S) * STEP_S)

    @property
    def has_dates(self) -> bool:
        """Whether moments are seconds since 1970."""
        return self._past.has_dates

    def has_come(self) -> bool:
        """Return True if the tab may show what it did not when this was asked last.

        Where it is, or goes, is then said, here and in the address.
        """
        if self.root.tags != self._tags():
            self.root.tags = self._tags()
        past = self._past
        if self._view.watch is not past:
            self._view.address.set(is_step=False, **{AT: ""})
            return True
        if past.is_moving and self._view.model.snapshot is None:
            # The last moment, if nobody asked for another one, may not be known as yet.
            return False
        self._view.address.set(is_step=False, **{AT: str(past.wanted)})
        shown = past.model, past.wanted, past.failure
        if past.is_moving or shown == self._shown:
            return False
        self._shown = shown
        return True

    def _tags(self) -> list[Any]:
        at = self._past.wanted if self._view.watch is self._past else NOW
        return [at, self._past.speed, self._heard, self.first, self.last]

    def _visit(self) -> None:
        moment = _moment(self._view.address.get(AT))
        if moment is not None:
            if self._view.watch is not self._past or moment != self._past.wanted:
                self._go(moment)
        elif self._live is not None:
            self._view.watch = self._live

    def _go(self, moment: float, speed: int = 0) -> None:
        self._view.watch, self._shown = self._past, ()
        self._past.go(moment, speed)

    def _on_tags(self, name: str, old: object, new: list[Any]) -> None:
        # What we said ourselves is no news.
        if new == self._tags() or len(new) != 5 or new[1] not in SPEEDS:
            return
        self._heard = new[2]
        if new[0] == NOW and self._live is not None:
            self._view.watch = self._live
            return
        moment = _moment(str(new[0]))
        self._go(self._past.wanted if moment is None else moment, int(new[1]))


def seen(watch: Watch, at: str) -> Watch:
    """Return what a tab sees whose address has this moment; empty: it has none."""
    return watch if watch.past is None or _moment(at) is None else watch.past


def _moment(text: str) -> float | None:
    """Return the moment that an address has; None: it has none."""
    try:
        moment = float(text)
    except ValueError:
        return None
    return moment if isfinite(moment) else None
