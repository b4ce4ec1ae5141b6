"""Draws a model into a terminal, with rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from scaler_monitoring import view
from scaler_monitoring.health import ALARM, NOTE, WARNING, health
from scaler_monitoring.layers import told as told_of_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, JustifyMethod, RenderableType

    from scaler_cluster.wire.feed import Snapshot
    from scaler_monitoring.model import Model

UPPER_LINES = 10
"""Of the tables above the workers: all states of tasks, and the commonest messages."""
BELOW_LINES = 4
"""Of functions, of clients and of news, where they stand below the workers."""
ROWS_MIN = 3
"""Workers that are shown however low the terminal is."""
SIDE_WIDTH = 150
"""From this width on, functions and clients stand beside the workers."""
NAME_WIDTH = 40
"""Longer names of functions and tasks are cut."""
LAYER_COLUMNS = ("layer of a graph", "ended", "")
STYLES = {ALARM: "bold red", WARNING: "bold yellow", NOTE: "bold"}
"""Of what is to be said."""
LOW = 30
"""A terminal of fewer lines has no room for everything."""
LOW_SENTENCES = 3
GAP = 3
"""Between tables that stand side by side."""


def draw(
    model: Model, order: view.Order, now: float, console: Console, height: int | None, top: int = 0
) -> RenderableType:
    """Return what fits into a console of so many lines, beginning with the ``top``-th worker.

    Without a height, everything.
    """
    snapshot = model.snapshot
    assert snapshot is not None
    limit = None if height is None else max(min(UPPER_LINES, height // 3), 1)
    upper = [_block(title, lines[:limit]) for title, lines in view.sections(model).items()]
    told = health(model, now)
    is_low = height is not None and height < LOW
    if is_low:
        upper, told = _first_that_fit(upper, console), told[:LOW_SENTENCES]
    head = Group(
        Columns(upper, padding=(0, GAP, 0, 0)),
        *([] if is_low else [Rule(characters="-", style="dim")]),
        *([] if is_low else [Text(view.shortcuts(), style="dim")]),
        _line(view.totals(snapshot)),
        *_managers(snapshot),
        *(_line(one.text, STYLES[one.severity]) for one in told),
    )
    news = [_line(text, "cyan") for text in view.news(model, BELOW_LINES)]
    rows = order.sort(view.worker_rows(snapshot))
    functions, clients = view.functions(model), view.clients(snapshot)
    layers = [] if is_low else told_of_layers(snapshot, BELOW_LINES)
    has_side = console.width >= SIDE_WIDTH
    if height is not None:
        room = height - len(console.render_lines(head, pad=False)) - len(news) - 1
        most = max(room // (3 if layers else 2) - 2, 0) if has_side else BELOW_LINES
        if is_low and not has_side:
            # What it does matters more than who asked for it, and than what was.
            most, clients = max(min(room - ROWS_MIN - 3, BELOW_LINES), 1), []
            news = news[: max(room - ROWS_MIN - most - 3, 0)]
            room = height - len(console.render_lines(head, pad=False)) - len(news) - 1
        functions, clients, layers = functions[:most], clients[:most], layers[:most]
        if not has_side:
            room -= len(functions) + len(clients) + (1 if is_low else 2)
            room -= len(layers) + bool(layers)
        room = max(room, ROWS_MIN)
        top = max(min(top, len(rows) - room), 0)
        rows = rows[top : top + room]
    side = Group(
        _table(view.FUNCTION_COLUMNS, functions),
        *([_table(LAYER_COLUMNS, layers)] if layers else []),
        *([_table(("client_manager", "tasks"), clients)] if clients or not is_low else []),
    )
    if has_side:
        grid = Table.grid(padding=(0, GAP, 0, 0))
        left = console.width - console.measure(side).maximum - 2 * GAP
        grid.add_row(_workers(rows, order, left), side)
        return Group(head, grid, *news)
    return Group(head, _workers(rows, order, console.width), side, *news)


def _first_that_fit(blocks: Sequence[Group], console: Console) -> list[Group]:
    """Return those of some tables that have room beside each other, the tasks first of all."""
    scheduler, objects, tasks, *messages = blocks
    chosen, room = [], console.width
    for block in (tasks, scheduler, objects, *messages):
        room -= console.measure(block).maximum + GAP
        if room < -GAP:
            break
        chosen.append(block)
    return chosen


def _managers(snapshot: Snapshot) -> list[Table]:
    """Return the managers, if there are any; the first ones of many."""
    lines = view.managers(snapshot)[:BELOW_LINES]
    return [_table(view.MANAGER_COLUMNS, lines)] if lines else []


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _block(title: str, lines: Sequence[view.Line]) -> Group:
    """Return a table with its title above it."""
    table = Table.grid(padding=(0, 1))
    for index in range(max(map(len, lines), default=0)):
        table.add_column(justify="right" if index else "left", no_wrap=True)
    for line in lines:
        table.add_row(*map(Text, line))
    return Group(Text(title, "bold", no_wrap=True), table)


def _table(names: Sequence[str], lines: Sequence[view.Line]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for index, name in enumerate(names):
        justify: JustifyMethod = "right" if index else "left"
        most = None if index else NAME_WIDTH
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", max_width=most)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _workers(rows: Sequence[view.Row], order: view.Order, width: int) -> Table:
    texts = {}
    for column in view.COLUMNS:
        values = map(column.value, rows)
        texts[column] = ["-" if value is None else column.show(value) for value in values]
    widths = [
        min(max(len(column.name) + 2, *map(cell_len, ["", *cells])), NAME_WIDTH)
        for column, cells in texts.items()
    ]
    table = Table(box=None, padding=(0, 1, 0, 0))
    chosen = view.fitting(view.COLUMNS, widths, width)
    for column in chosen:
        is_sorted = column is order.column
        table.add_column(
            Text(f"[{column.name}]" if is_sorted else column.name),
            justify="left" if column.is_text else "right", no_wrap=True, overflow="ellipsis",
            header_style="bold reverse" if is_sorted else "bold", max_width=NAME_WIDTH,
        )  # fmt: skip
    for index in range(len(rows)):
        table.add_row(*(Text(texts[column][index]) for column in chosen))
    return table
