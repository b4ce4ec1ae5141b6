"""The figure of when tasks were sampled, of which a part can be chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bokeh.events import SelectionGeometry
from bokeh.models import (
    BoxSelectTool,
    ColumnDataSource,
    DataRange1d,
    DatetimeTicker,
    DatetimeTickFormatter,
    HoverTool,
)
from bokeh.models.annotations import BoxAnnotation
from bokeh.plotting import figure

from scaler_monitoring.figures import CLOCK, LOOK, TIMES, axis_ms, dress
from scaler_monitoring.profiled import BUCKET_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_monitoring.profiled import Profiled
    from scaler_monitoring.theme import Theme

HEIGHT = 130
SET_S = 1.0


class SeenFigure:
    """A bar for each bucket of samples; a box over it chooses a range of time."""

    def __init__(self, theme: Theme, chosen: Callable[[tuple[float, float] | None], None]) -> None:
        self._offset = 0.0
        """What makes of a moment of whoever listened one of the axis, in seconds since 1970."""
        self._chosen = chosen
        self.source = ColumnDataSource({"left": [], "right": [], "tasks": []})
        self.box = BoxAnnotation(
            fill_color=theme.accent, fill_alpha=0.15, line_color=theme.accent, visible=False
        )
        self.root = figure(
            x_axis_type="datetime", x_range=DataRange1d(range_padding=0.01),
            y_range=DataRange1d(start=0), y_axis_label="tasks", height=HEIGHT, tools=[],
            toolbar_location=None, **LOOK,
        )  # fmt: skip
        bars = self.root.quad(
            left="left", right="right", bottom=0, top="tasks", source=self.source,
            color=theme.accent, line_color=theme.panel, nonselection_fill_alpha=1.0,
        )  # fmt: skip
        self.root.add_layout(self.box)
        self.root.add_tools(
            BoxSelectTool(dimensions="width", renderers=[bars]),
            HoverTool(
                renderers=[bars],
                point_policy="follow_mouse",
                tooltips=[("at", "@left{%H:%M:%S}"), ("tasks at once", "@tasks{0.0}")],
                formatters={"@left": "datetime"},
            ),
        )
        self.root.on_event(SelectionGeometry, self._on_box)
        self.root.xaxis.ticker = DatetimeTicker(desired_num_ticks=TIMES)
        self.root.xaxis.formatter = DatetimeTickFormatter(**CLOCK)
        dress(self.root, theme)

    def update(self, profiled: Profiled, times: tuple[float, float], offset: float) -> None:
        """Show what is known, and of which time there is more to see.

        The ``offset`` makes of a moment of whoever listened one since 1970.
        """
        # A clock that is set a little while it runs would move all bars.
        if abs(offset - self._offset) > SET_S:
            self._offset = offset
        seen = profiled.by_time()
        data = {
            "left": [self._axis(start) for start, _ in seen],
            "right": [self._axis(start + BUCKET_S) for start, _ in seen],
            "tasks": [tasks for _, tasks in seen],
        }
        if data != self.source.data:
            self.source.data = data
        start, end = times
        self.box.update(left=self._axis(start), right=self._axis(end), visible=bool(seen))

    def _axis(self, at: float) -> float:
        return axis_ms(at + self._offset)

    def _on_box(self, event: Any) -> None:
        """Somebody has drawn a box."""
        if not event.final:
            return
        here = axis_ms(self._offset)
        start, end = ((event.geometry[side] - here) / 1e3 for side in ("x0", "x1"))
        self.source.selected.indices = []
        self._chosen((start, end))
