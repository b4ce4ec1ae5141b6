"""The figure of the task stream: rows of workers, and what is drawn on them in layers.

From below: how busy each worker was, in cells that are always whole; single pieces of work that are
wide enough, which lead to their task; what runs; time in which a task only waited; ends of workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bokeh.models import (
    CDSView,
    ColumnDataSource,
    FixedTicker,
    GroupFilter,
    HoverTool,
    NoOverlap,
    OpenURL,
    Range1d,
    TapTool,
)
from bokeh.plotting import figure

from scaler_monitoring.dashboard.links import task_pattern
from scaler_monitoring.figures import HATCH, LOOK, STATES, TASK_STREAM_COLUMNS, add_time, dress
from scaler_monitoring.texts import short
from scaler_monitoring.theme import FAILED, PATTERNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bokeh.models.renderers import GlyphRenderer

    from scaler_monitoring.theme import Theme

ROW_PIXELS_MIN, ROW_PIXELS = 9, 26
"""What the row of a worker is high, many or few."""
ROWS_PIXELS = 1000
"""Of all of them together, unless they are few."""
BAR = 0.84
"""What a bar takes of its row."""
NAME_CHARS = 24
"""Of a worker, beside its row."""
BOX = ("left", "right", "bottom", "top")
CELL_COLUMNS = (*BOX, "worker", "function", "colour", "pattern", "busy", "part", "functions")
WORK_COLUMNS = (*TASK_STREAM_COLUMNS, "bottom", "top", "memory", "task")
RUNNING_COLUMNS = (
    *BOX, "worker", "function", "colour", "pattern", "took", "task", "state",
)  # fmt: skip
END_COLUMNS = ("x", "y", "worker", "marker", "colour", "why")


def _source(columns: Sequence[str]) -> ColumnDataSource:
    return ColumnDataSource({name: [] for name in columns})


class StreamFigure:
    """The figure, and the sources of its layers."""

    def __init__(self, theme: Theme, links: Mapping[str, str], x_range: Range1d) -> None:
        self.past, self.now = _source(CELL_COLUMNS), _source(CELL_COLUMNS)
        """Cells that change no more; those of the last second."""
        self.works, self.running = _source(WORK_COLUMNS), _source(RUNNING_COLUMNS)
        self.waits, self.ends = _source((*BOX, "worker")), _source(END_COLUMNS)
        self.root = figure(
            x_axis_type="datetime", x_range=x_range, y_range=Range1d(start=0.5, end=-0.5),
            tools=[], **LOOK,
        )  # fmt: skip
        self._rows: list[str] | None = None
        cells = [*self._bars(self.past), *self._bars(self.now)]
        works, running = self._works(), self._bars(self.running)
        self.root.quad(
            source=self.waits, fill_alpha=0.0, line_color=None,
            hatch_pattern=":", hatch_color=theme.text, hatch_scale=6, hatch_alpha=0.8,
        )  # fmt: skip
        ends = self.root.scatter(
            "x", "y", marker="marker", color="colour", size=10, line_width=3, source=self.ends
        )
        for renderer in (*works, *running):
            # Else all that is not clicked would be grey.
            renderer.nonselection_glyph = renderer.selection_glyph = None
        link = OpenURL(url=task_pattern(links, "task"), same_tab=True)
        self.root.add_tools(
            TapTool(renderers=[*works, *running], callback=link),
            _hover(cells, _CELL),
            _hover(works, _WORK),
            _hover(running, _RUNNING),
            _hover([ends], (("worker", "@worker"), ("it", "@why"))),
        )
        self.root.ygrid.grid_line_color = None
        self.root.yaxis.major_label_policy = NoOverlap()
        self.root.toolbar.active_scroll = add_time(self.root)
        dress(self.root, theme)
        self.show_rows([])

    def show_rows(self, names: Sequence[str]) -> None:
        """Let there be these rows, from the top."""
        if self._rows == list(names):
            return
        self._rows = list(names)
        count = max(len(names), 1)
        # The first one is on top.
        self.root.y_range.update(start=count - 0.5, end=-0.5)
        self.root.yaxis.update(
            ticker=FixedTicker(ticks=list(range(len(names)))),
            major_label_overrides={
                place: short(name, NAME_CHARS) for place, name in enumerate(names)
            },
        )
        # Bokeh makes no room for labels that came later.
        self.root.min_border_left = min(max(map(len, names), default=0), NAME_CHARS) * 8 + 16
        pixels = min(max(ROWS_PIXELS / count, ROW_PIXELS_MIN), ROW_PIXELS)
        self.root.height = 90 + round(pixels * max(count, 3))

    def _bars(self, source: ColumnDataSource) -> list[GlyphRenderer[Any]]:
        """Return bars in the look of their function, each pattern being a layer."""
        return [
            self.root.quad(
                source=source,
                view=CDSView(filter=GroupFilter(column_name="pattern", group=pattern)),
                fill_color="colour", line_color=None,
                hatch_pattern=pattern, hatch_color=HATCH, hatch_alpha=0.6, hatch_scale=7,
            )
            for pattern in PATTERNS
        ]  # fmt: skip

    def _works(self) -> list[GlyphRenderer[Any]]:
        """Return single pieces of work: done in the look of their function, or with a mark."""
        looks: dict[str, tuple[str, str | None]] = {one: (one, None) for one in PATTERNS}
        looks |= {name: look for name, look in STATES.items() if look[0] != "pattern"}
        return [
            self.root.quad(
                source=self.works,
                view=CDSView(filter=GroupFilter(column_name="pattern", group=group)),
                fill_color="colour",
                line_color=edge or HATCH, line_width=2 if edge else 1,
                line_alpha=0.8 if edge else 0.4,
                hatch_pattern=pattern, hatch_color=edge or HATCH, hatch_alpha=0.7, hatch_scale=7,
            )
            for group, (pattern, edge) in looks.items()
        ]  # fmt: skip


def box(row: int, share: float = 1.0) -> tuple[float, float]:
    """Return bottom and top of a bar that takes so much of its row."""
    bottom = row + BAR / 2
    return bottom, bottom - BAR * share


def marker(is_death: bool) -> tuple[str, str]:
    """Return how the end of a worker is drawn: its sign, and its colour."""
    return ("x", FAILED) if is_death else ("dash", HATCH)


_CELL = (
    ("worker", "@worker"),
    ("from", "@left{%H:%M:%S.%3N}"),
    ("to", "@right{%H:%M:%S.%3N}"),
    ("busy", "@busy{0 %}"),
    ("mostly", "@function, @part{0 %} of it"),
    ("functions", "@functions"),
)
_WORK = (
    ("function", "@function"),
    ("task", "@task"),
    ("tasks", "@tasks{0,0}"),
    ("took", "@took"),
    ("worker", "@worker"),
    ("state", "@state"),
    ("attempt", "@attempt"),
    ("why", "@why"),
    ("memory", "@memory{0.0 b}"),
)
_RUNNING = (
    ("function", "@function"),
    ("task", "@task"),
    ("for at most", "@took"),
    ("worker", "@worker"),
    ("state", "@state"),
)


def _hover(renderers: list[Any], tooltips: Sequence[tuple[str, str]]) -> HoverTool:
    return HoverTool(
        renderers=renderers,
        point_policy="follow_mouse",
        tooltips=list(tooltips),
        formatters={"@left": "datetime", "@right": "datetime"},
        # One button is enough to switch what the pointer shows.
        visible=tooltips is _CELL,
    )
