"""Draws a model into a terminal, with rich."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.table import Table
from rich.text import Text

from scaler_monitoring import view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

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
BAR = " | "


def draw(
    model: Model, order: view.Order, now: float, width: int, height: int | None, top: int = 0
) -> RenderableType:
    """Return what fits into a terminal, beginning with the ``top``-th worker.

    Without a height, everything.
    """
    snapshot = model.snapshot
    assert snapshot is not None
    limit = None if height is None else max(min(UPPER_LINES, height // 3), 1)
    head = _upper(view.sections(model), width, limit)
    head.append(Text("-" * width, style="dim"))
    head += [Text(line, style="dim") for line in wrap(view.shortcuts(), width)]
    head.append(_line(view.totals(snapshot)))
    head += [_line(trouble, "bold red") for trouble in view.troubles(model, now)]
    news = [_line(text, "cyan") for text in view.news(model, BELOW_LINES)]
    rows = order.sort(view.worker_rows(snapshot))
    functions, clients = view.functions(model), view.clients(snapshot)
    has_side = width >= SIDE_WIDTH
    if height is not None:
        room = height - len(head) - len(news) - 1
        most = max(room // 2 - 2, 0) if has_side else BELOW_LINES
        functions, clients = functions[:most], clients[:most]
        if not has_side:
            room -= len(functions) + len(clients) + 2
        room = max(room, ROWS_MIN)
        top = max(min(top, len(rows) - room), 0)
        rows = rows[top : top + room]
    side = [
        _table(view.FUNCTION_COLUMNS, functions),
        _table(("client_manager", "tasks"), clients),
    ]
    if has_side:
        grid = Table.grid(padding=(0, 3, 0, 0))
        beside = max(_width_of(view.FUNCTION_COLUMNS, functions), _width_of(("",), clients)) + 4
        grid.add_row(_workers(rows, order, width - beside), Group(*side))
        return Group(*head, grid, *news)
    return Group(*head, _workers(rows, order, width), *side, *news)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _upper(
    sections: dict[str, list[view.Line]], width: int, limit: int | None
) -> list[RenderableType]:
    """Return tables side by side; those that find no room, below."""
    shelf: list[list[str]] = []
    lines: list[RenderableType] = []
    for title, content in sections.items():
        block = _block(title, content[:limit])
        if shelf and sum(cell_len(one[0]) + len(BAR) for one in (*shelf, block)) > width:
            lines += _shelf(shelf, width)
            shelf = []
        shelf.append(block)
    return lines + _shelf(shelf, width)


def _block(title: str, lines: Sequence[view.Line]) -> list[str]:
    """Return a table as lines of one length, the title first."""
    if not any("".join(line[2:]) for line in lines):
        lines = [line[:2] for line in lines]
    columns = max(map(len, lines), default=1)
    padded = [line + ("",) * (columns - len(line)) for line in lines]
    widths = [max(map(cell_len, cells)) for cells in zip(*padded, strict=True)] or [0]
    widths[-1] += max(cell_len(title) - sum(widths) - columns + 1, 0)
    made = [title.ljust(sum(widths) + columns - 1)]
    for label, *rest in padded:
        cells = [set_cell_size(label, widths[0])]
        cells += [" " * (width - cell_len(cell)) + cell
                  for cell, width in zip(rest, widths[1:], strict=True)]  # fmt: skip
        made.append(" ".join(cells))
    return made


def _shelf(blocks: Sequence[list[str]], width: int) -> list[RenderableType]:
    """Return blocks side by side."""
    lines: list[RenderableType] = []
    for index in range(max(map(len, blocks))):
        cells = [one[index] if index < len(one) else " " * cell_len(one[0]) for one in blocks]
        text = set_cell_size(BAR.join(cells), width)
        lines.append(Text(text, "bold" if index == 0 else "", no_wrap=True, overflow="crop"))
    return lines


def _table(names: Sequence[str], lines: Sequence[view.Line]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for index, name in enumerate(names):
        justify, most = ("right", None) if index else ("left", NAME_WIDTH)
        table.add_column(
            name, justify=justify, no_wrap=True, overflow="ellipsis", max_width=most  # type: ignore[arg-type]
        )  # fmt: skip
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _width_of(names: Sequence[str], lines: Sequence[view.Line]) -> int:
    """Return how wide a table is."""
    columns = list(zip(*lines, strict=True)) or [(name,) for name in names]
    return sum(min(max(map(cell_len, column)), NAME_WIDTH) + 2 for column in columns)


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
