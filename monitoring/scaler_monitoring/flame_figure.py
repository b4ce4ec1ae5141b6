"""The figure of a flame graph, made with Bokeh: see :mod:`scaler_monitoring.figures`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d, TapTool
from bokeh.plotting import figure

from scaler_monitoring.figures import LOOK, dress
from scaler_monitoring.texts import plain, short
from scaler_monitoring.theme import look_of
from scaler_monitoring.view import duration

if TYPE_CHECKING:
    from scaler_cluster.call_tree import CallTree
    from scaler_monitoring.flame import Bar, Flame
    from scaler_monitoring.theme import Theme

ROW_PIXELS = 19
FRAME_PIXELS = 10
"""What a figure has besides its rows."""
CHAR_PIXELS = 7.3
"""Of the font in bars: all characters are alike."""
CHARS_MIN = 3
"""A bar that has no room for so many has no text."""
GAP = 0.06
"""Between rows."""
BLACK, WHITE = "#000000", "#ffffff"
BRIGHT = 0.18
"""Black is read better than white on what is brighter."""
COLUMNS = (
    "left", "right", "bottom", "top", "colour", "ink", "alpha", "text", "name", "where", "own",
    "whole", "took", "y",
)  # fmt: skip


class FlameFigure:
    """A figure that shows one flame graph after the other."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self.source = ColumnDataSource({name: [] for name in COLUMNS})
        self._rows = Range1d(start=-1, end=0)
        self.root = figure(
            x_range=Range1d(start=0, end=1), y_range=self._rows,
            x_axis_location=None, y_axis_location=None, toolbar_location=None,
            tools=[], height=FRAME_PIXELS + 3 * ROW_PIXELS, **LOOK,
        )  # fmt: skip
        bars = self.root.quad(
            source=self.source, fill_color="colour", fill_alpha="alpha",
            line_color=theme.panel, line_width=1,
            nonselection_fill_alpha="alpha", nonselection_line_alpha=1.0,
        )  # fmt: skip
        self.root.text(
            x="left", y="y", text="text", source=self.source, text_color="ink",
            text_font={"value": "monospace"}, text_font_size="12px", text_baseline="middle",
            x_offset=4,
            nonselection_text_alpha=1.0,
        )  # fmt: skip
        self.root.add_tools(
            HoverTool(
                renderers=[bars],
                point_policy="follow_mouse",
                tooltips=[
                    ("function", "@name"),
                    ("where", "@where"),
                    ("with all it calls", "@whole{0.0 %}, @took"),
                    ("itself", "@own{0.0 %}"),
                ],
            ),
            TapTool(renderers=[bars]),
        )
        self.root.grid.grid_line_color = None
        dress(self.root, theme)

    def show(self, tree: CallTree, shown: Flame, width: int, found: str = "") -> None:
        """Show a flame graph, in a figure of so many pixels; functions ``found`` stand out."""
        rows = [self._row(tree, bar, shown.total_us, width, found) for bar in shown.bars]
        data: dict[str, Any] = {
            name: [row[place] for row in rows] for place, name in enumerate(COLUMNS)
        }
        if data != self.source.data:
            self.source.data = data
        # It never shrinks again, as what is below would jump.
        depth = max((bar.depth for bar in shown.bars), default=0) + 1
        height = max(FRAME_PIXELS + ROW_PIXELS * depth, self.root.height or 0)
        if height != self.root.height:
            self.root.height = height
        rows_pixels = (height - FRAME_PIXELS) / ROW_PIXELS
        if self._rows.start != -rows_pixels:
            self._rows.start = -rows_pixels

    def _row(
        self, tree: CallTree, bar: Bar, total_us: int, width: int, found: str
    ) -> tuple[Any, ...]:
        frame = tree.frames[bar.node]
        theme = self._theme
        colour = theme.grid if bar.is_above else look_of(frame.name).colour
        chars = int((bar.right - bar.left) * width / CHAR_PIXELS) - 1
        is_found = not found or found in frame.name.lower()
        alpha = 1.0 if is_found else 0.25
        ink = theme.text if bar.is_above or not is_found else ink_on(colour)
        return (
            bar.left, bar.right, -bar.depth - 1 + GAP, -bar.depth - GAP,
            colour, ink, alpha,
            short(frame.name, chars) if chars >= CHARS_MIN else "",
            short(frame.name),
            plain(f"{frame.file}:{frame.line}") if frame.file else "a function of tasks",
            bar.own_us / total_us, bar.whole_us / total_us,
            duration(bar.whole_us / 1e6),
            -bar.depth - 0.5,
        )  # fmt: skip


def ink_on(colour: str) -> str:
    """Return what text is read best in on a colour, ``#rrggbb``."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    brightness = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return BLACK if brightness > BRIGHT else WHITE
