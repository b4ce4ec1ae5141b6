"""What snapshots counted, one after the other: the source of curves."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

from bokeh.models.sources import ColumnDataSource

from scaler_monitoring.figures import axis_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler_monitoring.model import Figures, Model


class History:
    """Some figures over the time window, of which only new ones are sent.

    Args:
        columns: What a column of the source is made of; None: not known.
        window_s: How far back it reaches.

    """

    def __init__(
        self, columns: Mapping[str, Callable[[Figures], float | None]], window_s: float
    ) -> None:
        self._columns = columns
        self._window_s = window_s
        self._restarts = -1
        self._clock = 0.0
        """Of the last one that was sent."""
        self.source = ColumnDataSource({name: [] for name in ("time", *columns)})

    def update(self, model: Model) -> None:
        """Show what is known now."""
        if not model.history:
            return
        since = model.history[-1].clock - self._window_s
        recent = [one for one in model.history if one.clock >= since]
        is_new = model.restarts != self._restarts
        added = recent if is_new else [one for one in recent if one.clock > self._clock]
        if not added:
            return
        columns: dict[str, list[Any]] = {
            name: [nan if value is None else value for value in map(of, added)]
            for name, of in self._columns.items()
        }
        columns["time"] = [axis_ms(model.time_of(one.clock)) for one in added]
        if is_new:
            self.source.data = columns
        else:
            self.source.stream(columns, rollover=len(recent))
        self._restarts, self._clock = model.restarts, added[-1].clock
