"""What pages are put together from: panels, tiles with a number, tables, text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from math import floor, nan
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column, row
from bokeh.models.css import InlineStyleSheet
from bokeh.models.sources import ColumnDataSource
from bokeh.models.widgets.markups import Div

from scaler_monitoring.figures import axis_ms
from scaler_monitoring.theme import DARK, FAILED, LIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.model import Model
    from scaler_monitoring.theme import Theme

BAD = {LIGHT.name: FAILED, DARK.name: "#ff7b7b"}
"""Of words: on dark pages the colour of edges is too dark to read."""
ROW_PX = 27
ROWS_SENT = 100
"""Rows of a table that a browser gets at first; it asks for so many more."""
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


def not_on_phones(content: UIElement) -> UIElement:
    """Return content that a phone does without: it has a page of its own."""
    content.stylesheets = [
        *content.stylesheets,
        InlineStyleSheet(css="@media (max-width: 40rem) { :host { display: none !important; } }"),
    ]
    return content


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
            @media (max-width: 40rem) {
                dl { grid-template-columns: repeat(3, 1fr); gap: .35rem; }
                div.tile { padding: .2rem .5rem; }
                dd { font-size: 16px; }
                dt, small { font-size: 11px; line-height: 1.25; }
            }
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
FINE = "fine"
"""A number with six digits after the point, as of microseconds."""


@dataclass(frozen=True)
class Column:
    """A column of a table. Its unit, if it has one, belongs into its title: it sorts by number."""

    field: str
    title: str
    kind: str = TEXT
    width: int = 90
    """In pixels, enough for each word of its title; where there is more room, all columns share
    it."""
    link: str = ""
    """The field that has where its text leads to; empty: nowhere."""
    is_minor: bool = False
    """A phone does without it."""
    look: str = ""
    """The field that has how what it names is drawn elsewhere, as CSS; empty: it is not."""


class Table:
    """Rows that can be sorted by each column; one can be chosen, and stays so wherever it goes.

    The server sorts all rows and sends the first of them: further ones are sent when asked for.

    Args:
        columns: What is shown.
        theme: In which colours.
        rows: How many are seen at once; further ones are scrolled to.
        key: The field by which a row is known again, shown or not; empty: none can be chosen.
        nothing: What it says instead as long as there are no rows.
        order: The field by which it is sorted at first, with a "-" before it the other way round;
            empty: as the rows are given.
        label: What it is called to those who cannot see where it stands.

    """

    def __init__(
        self,
        columns: Sequence[Column],
        theme: Theme,
        rows: int = TABLE_ROWS,
        key: str = "",
        nothing: str = "",
        order: str = "",
        label: str = "",
    ) -> None:
        self._columns = {one.field: one for one in columns}
        links = [field for one in columns for field in (one.link, one.look) if field]
        self._fields = list(dict.fromkeys([*self._columns, *links, *([key] * bool(key))]))
        self._key = key
        self._told: Callable[[str], None] | None = None
        self._asked: Callable[[], None] | None = None
        self._order = order
        self._known: list[Any] = [order.lstrip("-"), order.startswith("-"), ROWS_SENT, ""]
        """By which field it is sorted, if the other way round, how many rows are sent, the key of
        what is chosen. What is told that is not new is ours: while a document collects changes,
        their listeners are called later."""
        self._all: Sequence[Mapping[str, Any]] = []
        self._has_nothing = bool(nothing)
        self.source = ColumnDataSource({field: [] for field in self._fields})
        self.source.tags = [*self._known]
        # How many rows there are.
        self.source.name = "0"
        self.source.on_change("tags", self._on_tags)
        shown = [
            {"field": one.field, "title": one.title, "kind": one.kind, "width": one.width,
             "link": one.link, "is_minor": one.is_minor, "look": one.look}
            for one in columns
        ]  # fmt: skip
        self._frame = text(
            f'<scaler-table data-source="{self.source.id}" data-key="{escape(key)}" '
            f'data-label="{escape(label or columns[0].title)}" '
            f"data-columns='{escape(json.dumps(shown), quote=True)}'></scaler-table>",
            theme,
            _TABLE_CSS + f"scaler-table {{ max-height: {(rows + 1) * ROW_PX + 18}px; }}"
            f"table {{ min-width: {sum(one.width for one in columns)}px; }}" + _CARDS_CSS,
        )
        # So that the browser has it.
        self._frame.tags = [self.source]
        self._frame.visible = not self._has_nothing
        self._nothing = text(
            f"<p>{escape(nothing)}</p>", theme, "p { margin: 0 0 .5rem; color: var(--muted); }"
        )
        self._nothing.visible = self._has_nothing
        self.root = column(self._nothing, self._frame, sizing_mode="stretch_width")

    def on_choose(self, told: Callable[[str], None]) -> None:
        """Let ``told`` know the key of the row that somebody chooses; empty: it is none now."""
        self._told = told

    def on_order(self, asked: Callable[[], None]) -> None:
        """Let ``asked`` know that somebody wants another order, or more rows."""
        self._asked = asked

    @property
    def order(self) -> str:
        """The field that sorts it, with a "-" before it the other way round; empty: none does."""
        field, is_down = self._known[:2]
        return f"-{field}" if is_down else str(field)

    @property
    def limit(self) -> int:
        """How many rows are sent."""
        return int(self._known[2])

    def sort(self, order: str) -> None:
        """Sort it by this, as :attr:`order` has it, or else as at first; nobody is told of it."""
        if order.lstrip("-") not in self._columns:
            order = self._order
        self._tell([order.lstrip("-"), order.startswith("-"), self.limit, self.chosen])

    @property
    def chosen(self) -> str:
        """The key of the row that was chosen last, there or not; empty: none is."""
        return str(self._known[3])

    def choose(self, key: str) -> None:
        """Choose a row, once it is there; empty: none. Nobody is told of it."""
        self._tell([*self._known[:3], key])

    def update(self, rows: Sequence[Mapping[str, Any]], total: int | None = None) -> None:
        """Show these rows, of which only what changed is sent.

        With a ``total`` they are the first of so many, in the order that was asked for.
        """
        self._all = rows if total is None else []
        if total is None:
            rows, total = self._first(rows), len(rows)
        if self.source.name != str(total):
            self.source.name = str(total)
        data = {field: [row[field] for row in rows] for field in self._fields}
        known = self.source.data
        changed = [field for field in self._fields if data[field] != known[field]]
        if not changed:
            return
        if len(rows) == len(known[self._fields[0]]) and self._key not in changed:
            self.source.patch(
                {field: _changes(list(known[field]), data[field]) for field in changed}
            )
        else:
            self.source.data = data
        is_empty = not rows and self._has_nothing
        if is_empty is not self._nothing.visible:
            self._nothing.visible = is_empty
            self._frame.visible = not is_empty

    def _first(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        field = self.order.lstrip("-")
        if field:
            known = [row for row in rows if row[field] == row[field]]
            known.sort(key=lambda row: row[field], reverse=self.order.startswith("-"))
            rows = known + [row for row in rows if row[field] != row[field]]
        return rows[: self.limit]

    def _tell(self, state: list[Any]) -> None:
        if state != self._known:
            self._known = state
            self.source.tags = [*state]

    def _on_tags(self, name: str, old: object, new: list[Any]) -> None:
        before, self._known = self._known, list(new)
        if self._known[:3] != before[:3]:
            if self._asked is not None:
                self._asked()
            if self._all:
                self.update(self._all)
        # By its key: another row may be in its place by now.
        if self.chosen != before[3] and self._told is not None:
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


_TABLE_CSS = """
    scaler-table { display: block; overflow: auto; margin-bottom: .4rem; }
    table { border-collapse: collapse; width: 100%; table-layout: fixed; background: var(--panel);
        font-size: 13px; font-variant-numeric: tabular-nums; }
    th { position: sticky; top: 0; background: var(--panel); padding: 0; text-align: left;
        vertical-align: bottom;
        box-shadow: inset 0 -1px var(--grid); }
    th button, .more { font: inherit; font-weight: 600; color: var(--muted); background: none;
        border: 0; padding: .3rem .45rem; cursor: pointer; text-align: inherit; width: 100%;
        overflow: hidden; text-overflow: ellipsis; }
    th[aria-sort=ascending] button::after { content: " \\25b4"; }
    th[aria-sort=descending] button::after { content: " \\25be"; }
    td { padding: .2rem .45rem; border-bottom: 1px solid var(--grid); height: 27px;
        overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    .whole, .number, .fine, .bytes, .percent { text-align: right; }
    tr[data-key] { cursor: pointer; }
    tr[data-key]:hover td { background: var(--background); }
    tr[aria-current] td, tr[aria-current] a { background: var(--accent) !important;
        color: var(--panel); }
    a { color: var(--accent); }
    td i { display: inline-block; width: 14px; height: 14px; margin-right: .4em;
        border-radius: 3px; vertical-align: -2px; flex: none; }
    scaler-table:focus-visible, tr:focus-visible, button:focus-visible, a:focus-visible {
        outline: 3px solid var(--accent); outline-offset: -3px; }
    .more[hidden] { display: none; }
"""
_CARDS_CSS = """
    @media (max-width: 40rem) {
        scaler-table { max-height: 75vh; }
        table { min-width: 0; table-layout: auto; }
        table, tbody { display: block; }
        thead, colgroup { display: none; }
        tr { display: grid; grid-template-columns: 1fr 1fr; grid-auto-flow: dense; gap: 0 .8rem;
            padding: .45rem .3rem; border-bottom: 2px solid var(--grid); }
        td { display: flex; justify-content: space-between; gap: .6rem; border: 0; height: auto;
            min-width: 0; padding: .1rem .3rem; white-space: normal; overflow-wrap: anywhere;
            text-align: right; }
        td::before { content: attr(data-title); color: var(--muted); font-size: 12px;
            text-align: left; overflow-wrap: normal; }
        td i { margin-left: auto; }
        td:first-child, td.wide { grid-column: 1 / -1; }
        td:first-child { font-weight: 600; }
        td.minor { display: none; }
        tr[aria-current] td::before { color: inherit; }
    }
"""
"""On a phone, each row is a card."""
