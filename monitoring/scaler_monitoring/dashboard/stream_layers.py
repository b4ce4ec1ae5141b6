"""What the layers of the task stream have in them: bounded, whatever the cluster and the window."""

from __future__ import annotations

from heapq import nlargest
from itertools import chain
from math import inf, nan
from typing import TYPE_CHECKING, Any, cast

from scaler_monitoring import texts, view
from scaler_monitoring.activity import LONG_S
from scaler_monitoring.cells import blocks, waits
from scaler_monitoring.dashboard.stream_figure import (
    CELL_COLUMNS,
    END_COLUMNS,
    RUNNING_COLUMNS,
    WORK_COLUMNS,
    box,
    marker,
)
from scaler_monitoring.figures import axis_ms, stream_columns
from scaler_monitoring.theme import look_of
from scaler_monitoring.tracks import Grid
from scaler_monitoring.work import DONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bokeh.models.sources import ColumnDataSource

    from scaler_monitoring.activity import Activity, Life
    from scaler_monitoring.dashboard.stream_figure import StreamFigure
    from scaler_monitoring.model import Model
    from scaler_monitoring.work import Work

COLUMNS_MAX = 500
"""Cells in a row of the window: about one for each two pixels."""
CELLS_MAX = 12_000
"""Cells of all rows: with many rows they are wider."""
BLOCKS_MAX = 30_000
"""Blocks that pages of a moving window have gathered: then they are made anew."""
WORKS_MAX = 4000
"""Pieces of work that are drawn one by one, those that failed and the longest ones first."""
WIDE = 3
"""In cells: a narrower piece of work is a part of its cells only, unless something is wrong."""


class Layers:
    """Fills the sources of a figure: everything once, and then what is new."""

    def __init__(self, figure: StreamFigure, activity: Activity) -> None:
        self._figure = figure
        self._activity = activity
        self._lives: list[Life] = []
        self._rows: dict[bytes, int] = {}
        self._names: list[str] = []
        self._only: str | None = None
        self._offset_ms = 0.0
        self._until = inf
        """What is later is not drawn."""
        self._drawn = 0
        """The first cell that may still change."""
        self.grid = Grid(0.0, 1.0, 1, 1.0)
        self.left_out = 0
        """Pieces of work that came to another end than done, for which there was no room."""

    def begin(
        self, model: Model, lives: list[Life], start: float, end: float, only: str | None,
        *, is_still: bool,
    ) -> None:  # fmt: skip
        """Draw a time anew, on these rows; if it is not ``is_still``, what comes after as well."""
        self._lives, self._only, self._until = lives, only, end if is_still else inf
        self._rows = {life.worker: row for row, life in enumerate(lives)}
        self._names = [model.label(life.worker) for life in lives]
        self._figure.show_rows(self._names)
        columns = min(COLUMNS_MAX, CELLS_MAX // max(len(lives), 1))
        self.grid = Grid(start, end, columns * (2 if is_still else 1), self._activity.clock)
        self._look(model)
        self._drawn = self._settled
        self._figure.past.data = cast("Any", self._cells(self.grid.first, self._drawn))
        self._figure.works.data = cast("Any", self._works(model, self._all(model, start, end)))
        self._latest()

    def add(self, model: Model, works: Iterable[Work]) -> bool:
        """Draw what is new; return False if all has to be drawn anew."""
        self._look(model)
        settled = self._settled
        if settled > self._drawn:
            cells = self._cells(self._drawn, settled)
            count = len(self._figure.past.data["left"]) + len(cells["left"])
            if count > BLOCKS_MAX:
                return False
            self._drawn = settled
            if cells["left"]:
                self._figure.past.stream(cast("Any", cells))
        wide = [work for work in works if self._is_wide(work) and work.start <= self._until]
        if wide:
            data = self._figure.works.data
            gone = max(len(data["state"]) + len(wide) - WORKS_MAX, 0)
            start: float = cast("Any", self._figure.root.x_range).start
            self.left_out += sum(
                state != DONE and right >= start
                for state, right in zip(data["state"][:gone], data["right"][:gone], strict=True)
            )
            self._figure.works.stream(cast("Any", self._works(model, wide)), rollover=WORKS_MAX)
        self._latest()
        return True

    @property
    def end(self) -> int:
        """The cell before which all is drawn."""
        return self.grid.cell_of(min(self._activity.clock, self._until)) + 1

    def _look(self, model: Model) -> None:
        clock = self._activity.clock
        self._offset_ms = axis_ms(model.time_of(clock)) - clock * 1e3

    def _ms(self, at: float) -> float:
        return round(at * 1e3 + self._offset_ms, 1)

    @property
    def _settled(self) -> int:
        """The cell from which on it may still change what is drawn."""
        settled = min(self._activity.settled, self._until)
        return max(self.grid.cell_of(settled), self.grid.first)

    def _cells(self, first: int, last: int) -> dict[str, list[Any]]:
        rows: list[tuple[Any, ...]] = []
        grid, ms = self.grid, self._ms
        for row, life in enumerate(self._lives):
            name = self._names[row]
            for one in blocks(life, grid, first, last, self._only):
                look = look_of(one.function)
                left, right = ms(one.first * grid.width_s), ms(one.last * grid.width_s)
                bottom, top = box(row, one.share)
                rows.append((
                    left, right, bottom, round(top, 3), name, view.function_name(one.function),
                    look.colour, look.pattern, round(one.share, 4), round(one.part, 4),
                    one.functions,
                ))  # fmt: skip
        return _columns(CELL_COLUMNS, rows)

    def _latest(self) -> None:
        """Draw what changes all the time."""
        figure = self._figure
        _put(figure.now, self._cells(self._drawn, self.end))
        _put(figure.running, _columns(RUNNING_COLUMNS, self._running()))
        _put(figure.waits, _columns((*_BOX, "worker"), self._waits()))
        _put(figure.ends, _columns(END_COLUMNS, self._ends()))

    def _running(self) -> Iterator[tuple[Any, ...]]:
        clock = self._activity.clock
        for row, life in enumerate(self._lives):
            one = life.running
            if one is None or one.start > self._until or self._only not in (None, one.function):
                continue
            if clock - one.start >= WIDE * self.grid.width_s:
                look = look_of(one.function)
                yield (
                    self._ms(one.start), self._ms(clock), *box(row), self._names[row],
                    view.function_name(one.function), look.colour, look.pattern,
                    view.duration(clock - one.start), view.task_name(one.session, one.task),
                    "waits for other tasks" if one.is_blocked else "running",
                )  # fmt: skip

    def _waits(self) -> Iterator[tuple[Any, ...]]:
        grid = self.grid
        for row, life in enumerate(self._lives):
            for first, last in waits(life, grid, grid.first, self.end):
                left, right = self._ms(first * grid.width_s), self._ms(last * grid.width_s)
                yield left, right, *box(row), self._names[row]

    def _ends(self) -> Iterator[tuple[Any, ...]]:
        start = self.grid.first * self.grid.width_s
        for row, life in enumerate(self._lives):
            if life.ended_at is not None and start <= life.ended_at <= self._until:
                sign, colour = marker(bool(life.ending))
                why = f"died: {texts.short(life.ending)}" if life.ending else "ended"
                yield self._ms(life.ended_at), row, self._names[row], sign, colour, why

    # -- single pieces of work -----------------------------------------------------------------

    def _is_wide(self, work: Work) -> bool:
        return (
            work.worker in self._rows
            and self._only in (None, work.function)
            and (work.state != DONE or work.end - work.start >= WIDE * self.grid.width_s)
        )

    def _all(self, model: Model, start: float, end: float) -> list[Work]:
        """Return those that are wide enough, in the order in which they ended."""
        short: list[Work] = []
        if WIDE * self.grid.width_s < LONG_S:
            for work in reversed(model.stream):
                if work.end < start:
                    break
                if work.state == DONE and work.end - work.start < LONG_S and work.start <= end:
                    short.append(work)
        kept = self._activity.kept(start, end)
        found = [work for work in chain(kept, short) if self._is_wide(work)]
        troubles = sum(work.state != DONE for work in found)
        self.left_out = max(troubles - WORKS_MAX, 0)
        if len(found) > WORKS_MAX:
            found = nlargest(WORKS_MAX, found, key=_weight)
        return sorted(found, key=lambda work: work.end)

    def _works(self, model: Model, works: list[Work]) -> dict[str, list[Any]]:
        columns = stream_columns(works, model.label, model.time_of)
        columns["pattern"] = [
            pattern if state == DONE else state
            for pattern, state in zip(columns["pattern"], columns["state"], strict=True)
        ]
        boxes = [box(self._rows[work.worker]) for work in works]
        columns["bottom"], columns["top"] = ([one[side] for one in boxes] for side in (0, 1))
        columns["memory"] = memory_then(model, works)
        columns["task"] = [view.task_name(one.session, one.first, one.count) for one in works]
        return {name: columns[name] for name in WORK_COLUMNS}


_BOX = CELL_COLUMNS[:4]


def _weight(work: Work) -> tuple[bool, float]:
    return work.state != DONE, work.end - work.start


def _columns(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Any]]:
    columns = list(zip(*rows, strict=True))
    return {name: list(columns[place]) if columns else [] for place, name in enumerate(names)}


def _put(source: ColumnDataSource, data: dict[str, list[Any]]) -> None:
    """Let a source have this, unless it has."""
    if source.data != data:
        source.data = cast("Any", data)


def memory_then(model: Model, works: Sequence[Work]) -> list[float]:
    """Return the memory of the worker of each work, by the last sample before its end.

    ``works`` are in the order in which they ended. nan: not known.
    """
    found = [nan] * len(works)
    samples = iter(reversed(model.worker_samples.taken))
    sample = next(samples, None)
    index: dict[bytes, int] = {}
    for place in range(len(works) - 1, -1, -1):
        work = works[place]
        while sample is not None and sample.clock > work.end:
            sample, index = next(samples, None), {}
        if sample is None:
            break
        index = index or {key: at for at, key in enumerate(sample.keys)}
        if work.worker in index:
            found[place] = sample.columns[1][index[work.worker]]
    return found
