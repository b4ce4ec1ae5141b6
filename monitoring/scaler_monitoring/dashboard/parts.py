"""What pages are put together from: panels, tiles with a number, tables, text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

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

from scaler_monitoring.theme import FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bokeh.models.ui.ui_element import UIElement
    from bokeh.models.widgets.tables import CellFormatter

    from scaler_monitoring.theme import Theme

ROW_PX = 27
TABLE_ROWS = 14
"""A table with more rows scrolls."""


def style_of(theme: Theme) -> str:
    """Return the CSS that every element of ours begins with: it sees nothing of the page's."""
    return f"""
        :host {{ --background: {theme.background}; --panel: {theme.panel}; --text: {theme.text};
            --muted: {theme.muted}; --grid: {theme.grid}; --accent: {theme.accent};
            --bad: {FAILED}; color: var(--text); font: 14px/1.4 system-ui, sans-serif; }}
        .bk-clearfix {{ width: 100%; }}
    """


def text(html: str, theme: Theme, css: str = "") -> Div:
    """Return an element with HTML in it, in which what came from users must be escaped already."""
    return Div(
        text=html,
        # A name with "$$" in it would be taken for mathematics, and MathJax be looked for outside.
        disable_math=True,
        sizing_mode="stretch_width",
        stylesheets=[style_of(theme) + css],
    )


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


def beside(*content: UIElement) -> UIElement:
    """Return content side by side, or one below the other where there is no room for that."""
    for one in content:
        one.styles = {"flex": "1 1 26rem", "min-width": "0"}
    return row(*content, sizing_mode="stretch_width", styles={"flex-wrap": "wrap"})


# -- tiles -----------------------------------------------------------------------------------


class Tiles:
    """Numbers, each with what it is, as many beside each other as there is room for."""

    def __init__(self, theme: Theme) -> None:
        self.root = text(
            "",
            theme,
            """
            dl { display: grid; gap: .5rem; margin: 0 0 .5rem;
                 grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); }
            div.tile { background: var(--panel); border: 1px solid var(--grid); border-radius: 6px;
                 padding: .4rem .7rem; min-width: 0; }
            dt { color: var(--muted); font-size: 12px; }
            dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums;
                 overflow-wrap: anywhere; }
            dd.bad { color: var(--bad); font-weight: 700; }
            small { color: var(--muted); font-size: 12px; }
            """,
        )

    def update(self, tiles: Sequence[Tile]) -> None:
        """Show these."""
        html = f"<dl>{''.join(map(_tile, tiles))}</dl>"
        if html != self.root.text:
            self.root.text = html


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


@dataclass(frozen=True)
class Column:
    """A column of a table. Its unit, if it has one, belongs into its title: it sorts by number."""

    field: str
    title: str
    kind: str = TEXT
    width: int = 90
    """In pixels; where there is more room, all columns share it."""


class Table:
    """Rows that can be sorted by each column, chosen and searched by whoever looks.

    Args:
        columns: What it shows of each row.
        theme: Its colours.
        rows: If there are more, it scrolls.
        nothing: What it says as long as there are no rows.
        key: The field by which a chosen row is known again, wherever it has come to stand.

    """

    def __init__(
        self,
        columns: Sequence[Column],
        theme: Theme,
        rows: int = TABLE_ROWS,
        *,
        nothing: str,
        key: str = "",
    ) -> None:
        self._fields = list(dict.fromkeys([*(one.field for one in columns), *([key] * bool(key))]))
        self._rows = rows
        self._key = key
        self.source = ColumnDataSource({field: [] for field in self._fields})
        width = sum(one.width for one in columns)
        self.table = DataTable(
            source=self.source,
            columns=[
                TableColumn(
                    field=one.field,
                    title=one.title,
                    width=one.width,
                    formatter=_formatter(one.kind),
                )
                for one in columns
            ],
            index_position=None,
            row_height=ROW_PX,
            height=2 * ROW_PX,
            min_width=width,
            sizing_mode="stretch_width",
            # "fit_columns" raises in Bokeh's own script, reordering needs jQuery UI.
            autosize_mode="force_fit",
            reorderable=False,
            # Else each update would scroll back to it.
            scroll_to_selection=False,
            stylesheets=[InlineStyleSheet(css=style_of(theme) + _TABLE_CSS)],
        )
        self._nothing = text(f"<p>{escape(nothing)}</p>", theme, _NOTHING_CSS)
        # A narrow window moves the table, not the page.
        self._scrolled = column(
            self.table, sizing_mode="stretch_width", styles={"overflow-x": "auto"}, visible=False
        )
        self.root = column(self._nothing, self._scrolled, sizing_mode="stretch_width")

    def update(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show these rows; who had chosen one has it still."""
        data = {field: [row[field] for row in rows] for field in self._fields}
        if data == self.source.data:
            return
        chosen = self.chosen()
        self.source.data = data
        if chosen:
            keys = data[self._key]
            self.choose([key for key in chosen if key in keys])
        # It never shrinks, as what is below would jump.
        height = max((min(len(rows), self._rows) + 1) * ROW_PX + 18, self.table.height or 0)
        if height != self.table.height:
            self.table.height = height
        if bool(rows) is self._nothing.visible:
            self._nothing.visible = not rows
            self._scrolled.visible = bool(rows)

    def chosen(self) -> list[Any]:
        """Return the keys of the rows that are chosen; none if the rows have no key."""
        keys = self.source.data[self._key] if self._key else []
        return [keys[index] for index in self.source.selected.indices if index < len(keys)]

    def choose(self, chosen: Sequence[Any]) -> None:
        """Choose the rows that have these keys."""
        keys = self.source.data[self._key]
        indices = [keys.index(key) for key in chosen]
        if indices != self.source.selected.indices:
            self.source.selected.indices = indices


def _formatter(kind: str) -> CellFormatter:
    if kind == TEXT:
        return StringFormatter(nan_format="-")
    if kind == TIME:
        return DateFormatter(format="%H:%M:%S", nan_format="-")
    formats = {WHOLE: "0,0", NUMBER: "0,0.[000]", BYTES: "0.0 b", PERCENT: "0.0%"}
    return NumberFormatter(format=formats[kind], text_align="right", nan_format="-")


_NOTHING_CSS = "p { margin: 0 0 .5rem; color: var(--muted); }"
_TABLE_CSS = """
    .slick-header-columns, .slick-header-column, .bk-header-row {
        background: var(--panel) !important; color: var(--muted) !important; font-weight: 600; }
    .slick-row, .slick-cell, .slick-viewport, .grid-canvas {
        background: var(--panel) !important; color: var(--text) !important; }
    .slick-row.odd .slick-cell { background: var(--background) !important; }
    .slick-cell { border-color: var(--grid) !important; font-variant-numeric: tabular-nums; }
    .slick-cell.selected { background: var(--accent) !important; color: var(--panel) !important; }
"""
