"""What a figure of workers' time draws, of the seconds that were counted. Pure.

A *cell* is a worker's time that is as wide as about a pixel. Neighbours that look alike are one
*block*: as high as the worker was busy, in the colour of the function that took most of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_monitoring.activity import Life
    from scaler_monitoring.tracks import Grid

HEIGHTS = 8
"""Shares of a cell that are told apart: neighbours that differ by less are one block."""
NOTHING_S = 1e-6
"""So little in a cell is a matter of rounding."""
WAITED = 0.5
"""A cell is shaded if a task waited for so much of it."""


@dataclass(frozen=True)
class Block:
    """Neighbouring cells of one worker that look alike."""

    first: int
    last: int
    """After its last cell."""
    function: str
    """What took most of it."""
    share: float
    """How much of it the worker was busy, from 0 to 1."""
    part: float
    """How much of that was this function."""
    functions: int
    """How many ran in it."""


def blocks(life: Life, grid: Grid, first: int, last: int, only: str | None = None) -> list[Block]:
    """Return the blocks of a worker between two cells; ``only`` counts one function alone."""
    names = [name for name in life.tracks if only is None or name == only]
    if last <= first or not names:
        return []
    seconds = np.stack([grid.read(life.tracks[name], first, last) for name in names])
    total = seconds.sum(axis=0)
    heights = np.minimum(np.ceil(total / grid.width_s * HEIGHTS), HEIGHTS)
    looks = np.where(total > NOTHING_S, seconds.argmax(axis=0) * (HEIGHTS + 1) + heights, -1)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(looks)) + 1])
    stops = np.append(starts[1:], last - first)
    sums = np.add.reduceat(seconds, starts, axis=1)
    totals, tops, ran = sums.sum(axis=0), sums.argmax(axis=0), (sums > NOTHING_S).sum(axis=0)
    parts = sums.max(axis=0)
    return [
        Block(
            first + start, first + stop, names[top],
            min(whole / ((stop - start) * grid.width_s), 1.0), part / whole, count,
        )
        for start, stop, top, whole, part, count, look in zip(
            starts.tolist(), stops.tolist(), tops.tolist(), totals.tolist(), parts.tolist(),
            ran.tolist(), looks[starts].tolist(), strict=True,
        )
        if look >= 0
    ]  # fmt: skip


def waits(life: Life, grid: Grid, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield from which cell to before which one the task of a worker only waited for others."""
    if life.waits is None or last <= first:
        return
    waited = grid.read(life.waits, first, last) >= grid.width_s * WAITED
    edges = np.flatnonzero(np.diff(np.concatenate([[False], waited, [False]]).astype(np.int8)))
    for start, stop in edges.reshape(-1, 2).tolist():
        yield first + start, first + stop


def seconds_of(lives: list[Life], grid: Grid, first: int, last: int) -> dict[str, float]:
    """Return how long each function ran on these workers, between two cells."""
    found: dict[str, float] = {}
    for life in lives:
        for name, track in life.tracks.items():
            seconds = float(grid.read(track, first, last).sum())
            if seconds > NOTHING_S:
                found[name] = found.get(name, 0.0) + seconds
    return found
