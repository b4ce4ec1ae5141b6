"""The picture of a graph, collapsed by layer: see :mod:`scaler_monitoring.figures`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.plotting import figure

from scaler_monitoring.figures import LOOK, dress
from scaler_monitoring.layers import (
    STATES,
    left_of,
    nodes_of,
    plan,
    progress,
    short,
    state_of,
    waits_for,
)
from scaler_monitoring.texts import short as cut
from scaler_monitoring.theme import FAILED, SERIES
from scaler_monitoring.view import duration

if TYPE_CHECKING:
    from scaler_monitoring.layers import Layers
    from scaler_monitoring.theme import Theme

DRAWN_MAX = 60
"""Layers in a picture: more cannot be told apart."""
LINKS_MAX = 300
ROW_PIXELS, FRAME_PIXELS, ROWS_MIN = 52, 16, 2
NAME_CHARS = 22
WIDTH, HEIGHT = 0.78, 0.66
"""Of a box, where the next one is 1 away."""
COLOURS = {
    "done": SERIES[2], "assigned": SERIES[0], "ready": SERIES[4], "failed": FAILED,
}  # fmt: skip
"""Of a box, by its state; others have none. Its text says the state as well."""
BOXES = (
    "x", "y", "left", "right", "bottom", "top", "share", "colour", "edge", "width", "name", "says",
    "title", "waits", "busy", *STATES,
)  # fmt: skip
LINKS = ("xs", "ys", "colour", "width")


class LayerFigure:
    """A figure that shows the layers of one graph after the other, from left to right."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self.boxes = ColumnDataSource({name: [] for name in BOXES})
        self.links = ColumnDataSource({name: [] for name in LINKS})
        self._columns = Range1d(start=-0.5, end=0.5)
        self._rows = Range1d(start=-ROWS_MIN + 0.5, end=0.5)
        self.root = figure(
            x_range=self._columns, y_range=self._rows, x_axis_location=None, y_axis_location=None,
            toolbar_location=None, tools=[], height=FRAME_PIXELS + ROWS_MIN * ROW_PIXELS, **LOOK,
        )  # fmt: skip
        self.root.multi_line("xs", "ys", source=self.links, line_color="colour", line_width="width")
        boxes = self.root.quad(
            left="left", right="right", bottom="bottom", top="top", source=self.boxes,
            fill_color=theme.panel, line_color="edge", line_width="width",
        )  # fmt: skip
        # As much of a box is filled as has ended.
        self.root.quad(
            left="left", right="share", bottom="bottom", top="top", source=self.boxes,
            fill_color="colour", fill_alpha=0.35, line_color=None,
        )  # fmt: skip
        for column, offset, ink in (("title", -8, theme.text), ("says", 8, theme.text)):
            self.root.text(
                x="x", y="y", text=column, source=self.boxes, text_color=ink, y_offset=offset,
                text_align="center", text_baseline="middle", text_font_size="12px",
            )  # fmt: skip
        counts = [(state, f"@{state}") for state in STATES]
        self.root.add_tools(
            HoverTool(
                renderers=[boxes],
                point_policy="follow_mouse",
                tooltips=[("layer", "@name"), *counts, ("", "@waits"), ("time", "@busy")],
            )
        )
        self.root.grid.grid_line_color = None
        dress(self.root, theme)

    def show(self, layers: Layers) -> None:
        """Show the layers of a graph, the first ones if there are many."""
        names = list(layers.rows)[:DRAWN_MAX]
        drawn = set(names)
        links = [one for one in layers.links if drawn.issuperset(one)][:LINKS_MAX]
        placed = plan(names, links)
        on_path = set(placed.longest)
        pairs = set(zip(placed.longest, placed.longest[1:], strict=False))
        rows = [self._box(layers, name, *placed.places[name], name in on_path) for name in names]
        lines = [self._line(placed.places[a], placed.places[b], (a, b) in pairs) for a, b in links]
        _set(self.boxes, BOXES, rows)
        _set(self.links, LINKS, lines)
        columns = max((column for column, _ in placed.places.values()), default=0)
        depth = max((row for _, row in placed.places.values()), default=0) + 1
        # It never shrinks again, as what is below would jump.
        height = max(FRAME_PIXELS + ROW_PIXELS * depth, self.root.height or 0)
        if height != self.root.height:
            self.root.height = height
        bottom = 0.5 - (height - FRAME_PIXELS) / ROW_PIXELS
        if self._rows.start != bottom:
            self._rows.start = bottom
        if self._columns.end != columns + 0.5:
            self._columns.end = columns + 0.5

    def _box(
        self, layers: Layers, name: str, column: int, row: int, is_on_path: bool
    ) -> tuple[Any, ...]:
        layer, theme = layers.rows[name], self._theme
        state, total = state_of(layer), nodes_of(layer)
        left, right = column - WIDTH / 2, column + WIDTH / 2
        share = left + (right - left) * ((total - left_of(layer)) / total if total else 0)
        edge = COLOURS.get(state, theme.muted)
        return (
            column, -row, left, right, -row - HEIGHT / 2, -row + HEIGHT / 2, share,
            COLOURS.get(state, theme.grid), edge, 4 if is_on_path else 1.5, short(name),
            f"{progress(layer)} {_word(state)}", cut(short(name), NAME_CHARS),
            waits_for(layers, name), duration(layer.busy_s),
            *(getattr(layer, one) for one in STATES),
        )  # fmt: skip

    def _line(
        self, source: tuple[int, int], target: tuple[int, int], is_on_path: bool
    ) -> tuple[Any, ...]:
        theme = self._theme
        xs = [source[0] + WIDTH / 2, target[0] - WIDTH / 2]
        ys = [-source[1], -target[1]]
        return xs, ys, theme.accent if is_on_path else theme.muted, 3 if is_on_path else 1


def _word(state: str) -> str:
    return "running" if state == "assigned" else state


def _set(source: ColumnDataSource, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    data: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    if data != source.data:
        source.data = data
