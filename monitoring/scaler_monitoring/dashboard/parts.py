"""What pages are put together from: panels, tiles with a number, tables, text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import floor, nan
from typing import TYPE_CHECKING, Any

from bokeh.core.property.vectorization import Field
from bokeh.layouts import column, row
from bokeh.models.css import InlineStyleSheet
from bokeh.models.sources import ColumnDataSource
from bokeh.models.widgets.markups import Div
from bokeh.models.widgets.tables import (
    DataTable,
    DateFormatter,
    NumberFormatter,
    StringFormatter,
    TableColumn,
)

from scaler_monitoring.figures import axis_ms
from scaler_monitoring.theme import DARK, FAILED, LIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bokeh.models.ui.ui_element import UIElement
    from bokeh.models.widgets.tables import CellFormatter

    from scaler_monitoring.model import Model
    from scaler_monitoring.theme import Theme

BAD = {LIGHT.name: FAILED, DARK.name: "#ff7b7b"}
"""Of words: on dark pages the colour of edges is too dark to read."""
ROW_PX = 27
TABLE_ROWS = 14
"""A table with more rows scrolls."""


def style_of(theme: Theme) -> str:
    """Return the CSS that every element of ours begins with: it sees nothing of the page's."""
    return f"""
        :host {{ --background: {theme.background}; --panel: {theme.panel}; --text: {theme.text};
            --muted: {theme.muted}; --grid: {theme.grid}; --accent: {theme.accent};
            --bad: {BAD[theme.name]}; color: var(--text); font: 14px/1.4 system-ui, sans-serif; }}
        .bk-clearfix {{ width: 100%; }}
    """


def text(html: str, theme: Theme, css: str = "") -> Div:
    """Return an element with HTML in it, in which what came from users must be escaped already."""
    return Div(
        text=html,
        # A name with "$$" in it would be taken for mathematics, and MathJax be looked for outside.
        disable_math=True,
        visible=bool(html),
        sizing_mode="stretch_width",
        stylesheets=[style_of(theme) + css],
    )


def show(element: Div, html: str) -> None:
    """Put HTML into an element of :func:`text`, unless it is there; nothing takes no room."""
    if element.text != html:
        element.text = html
        element.visible = bool(html)


def panel(title: str, theme: Theme, *content: UIElement, about: str = "") -> UIElement:
    """Return content under a heading."""
    more = f"<p>{escape(about)}</p>" if about else ""
    head = text(
        f"<h2>{escape(title)}</h2>{more}",
        theme,
        """
        h2 { font-size: 16px; margin: .6rem 0 .2rem; }
        p { margin: 0 0 .3rem; color: var(--muted); }
        """,
    )
    return column(head, *content, sizing_mode="stretch_width")


def inputs_style(theme: Theme) -> str:
    """Return the CSS of what can be typed into, chosen from or pressed."""
    return (
        style_of(theme)
        + f"""
        :host {{ color-scheme: {theme.name}; }}
        .bk-input, .bk-btn {{ color: var(--text) !important; background: var(--panel) !important;
            border: 1px solid var(--muted) !important; border-radius: 6px; font: inherit;
            min-height: 34px; padding: .2rem .7rem; }}
        .bk-btn:hover {{ border-color: var(--accent) !important; }}
        .bk-btn.bk-active {{ background: var(--accent) !important; color: var(--panel) !important;
            border-color: var(--accent) !important; font-weight: 600; }}
        .bk-input::placeholder {{ color: var(--muted); }}
        .bk-input:focus-visible, .bk-btn:focus-visible {{
            outline: 3px solid var(--accent) !important; outline-offset: -1px; }}
        select.bk-input {{ appearance: auto !important; background-image: none !important; }}
        label {{ color: var(--muted); font-size: 12px; }}
        """
    )


def controls(*inputs: UIElement) -> UIElement:
    """Return inputs beside each other, as far as there is room."""
    return row(
        *inputs,
        sizing_mode="stretch_width",
        styles={"flex-wrap": "wrap", "align-items": "flex-end", "gap": "8px"},
    )


def beside(*content: UIElement, width: str = "27rem") -> UIElement:
    """Return panels beside each other, each at least so wide, or else below each other."""
    for one in content:
        one.styles = {"flex": f"1 1 {width}", "min-width": f"min({width}, 100%)"}
    return row(
        *content,
        sizing_mode="stretch_width",
        styles={"flex-wrap": "wrap", "column-gap": "1rem"},
    )


# -- tiles -----------------------------------------------------------------------------------


class Tiles:
    """Numbers, each with what it is, as many beside each other as there is room for."""

    def __init__(self, theme: Theme) -> None:
        self.root = text(
            "",
            theme,
            """
            dl { display: grid; gap: .5rem; margin: 0 0 .5rem;
                 grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
            div.tile { background: var(--panel); border: 1px solid var(--grid); border-radius: 6px;
                 padding: .4rem .7rem; min-width: 0; }
            dt { color: var(--muted); font-size: 12px; overflow-wrap: anywhere; }
            dt::first-letter { text-transform: uppercase; }
            dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums;
                 overflow-wrap: anywhere; }
            dd.bad { color: var(--bad); font-weight: 700; }
            small { display: block; min-height: 1.4em; color: var(--muted); font-size: 12px;
                 font-weight: 400; }
            /* What comes and goes keeps its room, unless there is nothing of it at all. */
            dl:not(:has(small:not(:empty))) small { display: none; }
            """,
        )

    def update(self, tiles: Sequence[Tile]) -> None:
        """Show these."""
        show(self.root, f"<dl>{''.join(map(_tile, tiles))}</dl>")


@dataclass(frozen=True)
class Tile:
    """A number, as text, with what it is."""

    name: str
    value: str
    more: str = ""
    """What follows it in small letters."""
    is_bad: bool = False
    """Something is wrong."""


def _tile(tile: Tile) -> str:
    kind = "bad" if tile.is_bad else "good"
    return (
        f'<div class="tile"><dt>{escape(tile.name)}</dt><dd class="{kind}">{escape(tile.value)} '
        f"<small>{escape(tile.more)}</small></dd></div>"
    )


# -- tables ----------------------------------------------------------------------------------

TEXT, WHOLE, NUMBER, BYTES, PERCENT, TIME = "text", "whole", "number", "bytes", "percent", "time"
COLOUR = "colour"
"""A field of a colour, with which its cell is filled."""
FINE = "fine"
"""A number with six digits after the point, as of microseconds."""


@dataclass(frozen=True)
class Column:
    """A column of a table. Its unit, if it has one, belongs into its title: it sorts by number."""

    field: str
    title: str
    kind: str = TEXT
    width: int = 90
    """In pixels; where there is more room, all columns share it."""


class Table:
    """Rows that can be sorted by each column; one can be chosen, and stays so wherever it goes.

    Args:
        columns: What is shown.
        theme: In which colours.
        rows: How many are seen at once; further ones are scrolled to.
        key: The field by which a row is known again, shown or not; empty: none can be chosen.
        nothing: What it says instead as long as there are no rows.

    """

    def __init__(
        self,
        columns: Sequence[Column],
        theme: Theme,
        rows: int = TABLE_ROWS,
        key: str = "",
        nothing: str = "",
    ) -> None:
        self._fields = list(dict.fromkeys([*(one.field for one in columns), *([key] * bool(key))]))
        self._rows = rows
        self._key = key
        self._told: Callable[[str], None] | None = None
        self._is_updating = False
        self._updates = 0
        self._has_nothing = bool(nothing)
        self.source = ColumnDataSource({field: [] for field in self._fields})
        self.source.selected.on_change("indices", self._on_indices)
        width = sum(one.width for one in columns)
        self.table = DataTable(
            source=self.source,
            columns=[
                TableColumn(
                    field=one.field,
                    title=one.title,
                    width=one.width,
                    formatter=_formatter(one),
                )
                for one in columns
            ],
            index_position=None,
            row_height=ROW_PX,
            min_width=width,
            # Its own height never changes: it would forget by what it is sorted.
            sizing_mode="stretch_both",
            # "fit_columns" raises an exception in Bokeh's own script.
            autosize_mode="force_fit",
            selectable=bool(key),
            scroll_to_selection=False,
            reorderable=False,
            # Before it is laid out as well: columns that were squeezed once stay alike.
            styles={"min-width": f"{width}px"},
            stylesheets=[InlineStyleSheet(css=style_of(theme) + _TABLE_CSS)],
        )
        # A narrow window moves the table, not the page.
        self._frame = column(
            self.table,
            sizing_mode="stretch_width",
            height=2 * ROW_PX,
            styles={"overflow-x": "auto", "overflow-y": "hidden"},
            visible=not self._has_nothing,
        )
        self._nothing = text(
            f"<p>{escape(nothing)}</p>", theme, "p { margin: 0 0 .5rem; color: var(--muted); }"
        )
        self._nothing.visible = self._has_nothing
        self.root = column(self._nothing, self._frame, sizing_mode="stretch_width")

    def on_choose(self, told: Callable[[str], None]) -> None:
        """Let ``told`` know the key of the row that somebody chooses; empty: it is none now."""
        self._told = told

    @property
    def chosen(self) -> str:
        """The key of the row that was chosen last; empty: none is."""
        indices = self.source.selected.indices
        return str(self.source.data[self._key][indices[-1]]) if indices and self._key else ""

    def choose(self, key: str) -> None:
        """Choose a row, if it is there; empty: none."""
        keys = list(self.source.data[self._key])
        self._choose([keys.index(key)] if key in keys else [])

    def update(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show these rows, of which only what changed is sent."""
        data = {field: [row[field] for row in rows] for field in self._fields}
        known, chosen = self.source.data, self.chosen
        changed = [field for field in self._fields if data[field] != known[field]]
        if not changed:
            return
        if len(rows) == len(known[self._fields[0]]) and self._key not in changed:
            self.source.patch(
                {field: _changes(list(known[field]), data[field]) for field in changed}
            )
        else:
            # Else the browser would for a moment choose what is now in the place of another.
            self._choose([])
            self.source.data = data
            if chosen:
                self.choose(chosen)
        # Bokeh's script draws the same number of rows anew only if their view says it changed.
        self._updates += 1
        self.table.view.tags = [self._updates]
        # It never shrinks again, as what is below would jump.
        height = (min(len(rows), self._rows) + 1) * ROW_PX + 18
        if height > (self._frame.height or 0):
            self._frame.height = height
        is_empty = not rows and self._has_nothing
        if is_empty is not self._nothing.visible:
            self._nothing.visible = is_empty
            self._frame.visible = not is_empty

    def _choose(self, indices: list[int]) -> None:
        self._is_updating = True
        try:
            if self.source.selected.indices != indices:
                self.source.selected.indices = indices
        finally:
            self._is_updating = False

    def _on_indices(self, name: str, old: object, new: object) -> None:
        if self._told is not None and not self._is_updating:
            self._told(self.chosen)


def _changes(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, Any]]:
    return [
        (index, after)
        for index, (before, after) in enumerate(zip(old, new, strict=True))
        if before is not after and before != after
    ]


UNKNOWN = nan
"""A number in a table that is not known: it is sorted as one, and equal to itself."""


def as_number(number: float | None) -> float:
    """Return a number as tables and curves want it."""
    return UNKNOWN if number is None else number


def as_time(at: float | None, model: Model) -> float:
    """Return a moment of the scheduler's clock as tables want it; None: not known.

    In whole seconds: else it would be told a bit differently after each snapshot, and sent again.
    """
    return UNKNOWN if at is None else axis_ms(floor(model.time_of(at)))


def _formatter(one: Column) -> CellFormatter:
    kind = one.kind
    if kind == COLOUR:
        colour = Field(one.field)
        return StringFormatter(text_color=colour, background_color=colour)
    if kind == TEXT:
        return StringFormatter(nan_format="-")
    if kind == TIME:
        return DateFormatter(format="%H:%M:%S", nan_format="-")
    formats = {
        FINE: "0,0.000000",
        WHOLE: "0,0",
        NUMBER: "0,0.[000]",
        BYTES: "0.0 b",
        PERCENT: "0.0%",
    }
    return NumberFormatter(format=formats[kind], text_align="right", nan_format="-")


_TABLE_CSS = """
    .slick-header-columns, .slick-header-column, .bk-header-row {
        background: var(--panel) !important; color: var(--muted) !important; font-weight: 600; }
    .bk-data-table, .slick-viewport, .grid-canvas { background: transparent !important; }
    .slick-row, .slick-cell { background: var(--panel) !important; color: var(--text) !important; }
    .slick-row.odd .slick-cell { background: var(--background) !important; }
    .slick-header-columns, .slick-header-column { border-color: var(--grid) !important; }
    .slick-cell { border-color: var(--grid) !important; font-variant-numeric: tabular-nums; }
    .slick-row .slick-cell.selected, .slick-row.odd .slick-cell.selected {
        background: var(--accent) !important; color: var(--panel) !important; }
"""
