"""What a scenario is: a name, the figures it yields, and the function that measures them once."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.peer import Peer


EVERY_PEER = (
    "ours",
    "ppe",
    "pool",
    "loky",
    "joblib",
    "mpire",
    "parsl",
    "executorlib",
    "ray",
    "scaler",
    "dask",
)
"""All that run a function in processes of their own. The others run graphs of Dask, or nothing."""


class WrongResult(Exception):
    """A peer returned something else than the task did; its figures mean nothing."""


@dataclass(frozen=True)
class Metric:
    """One figure of a scenario."""

    key: str
    unit: str
    better: str = ""
    """``more``, ``less``, or empty where neither is."""


@dataclass(frozen=True)
class Size:
    """How large the real workloads of Dask are, as multiples of what their summaries say."""

    chunks: float = 1.0
    """Of the number of chunks, partitions or files."""
    nbytes: float = 1.0
    """Of the bytes in each of them."""

    def count(self, number: int) -> int:
        """Return how many chunks there are, instead of ``number``; at least two."""
        return max(round(number * self.chunks), 2)

    def blocks(self, number: int) -> int:
        """Return how many chunks there are along each side of a square."""
        return max(round(number * self.chunks**0.5), 2)

    def rows(self, number: int) -> int:
        """Return how many rows, or numbers, there are in a chunk."""
        return max(round(number * self.nbytes), 1)

    def side(self, number: int) -> int:
        """Return how many rows and columns there are in a square chunk."""
        return max(round(number * self.nbytes**0.5), 1)


@dataclass(frozen=True)
class Run:
    """One run of one scenario on one peer, in a process of its own."""

    peer: Peer
    full: bool
    """Whether slow peers get as many tasks as the others."""
    place: Path
    """A directory that all runs of one command share, and that is removed in the end."""
    size: Size
    is_open: bool = False
    """Whether the peer was started for several scenarios."""
    less: int = 1
    """What the number of tasks is divided by at least, but for ours."""

    def count(self, number: int) -> int:
        """Return how many of ``number`` tasks this peer gets."""
        if self.full or self.peer.name == "ours":
            return number
        return number // max(self.peer.scale, self.less)

    @contextmanager
    def opened(self) -> Iterator[Peer]:
        """Start the peer, and end it also where the scenario fails."""
        if self.is_open:
            yield self.peer
            return
        self.peer.open()
        try:
            yield self.peer
        finally:
            self.peer.close()


@dataclass(frozen=True)
class Scenario:
    """A named measurement; ``measure`` is called once per repeat, each in a fresh process."""

    name: str
    summary: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Run], dict[str, float]]
    peers: tuple[str, ...] = EVERY_PEER
    prepare: Callable[[Run], None] | None = None
    """Puts what it needs into the place of the runs, unless it is there."""
    shares: str = ""
    """Names those with which it may share a cluster."""
    without: dict[str, str] = field(default_factory=dict)
    """Peers that cannot do it, each with the reason."""
    too_slow: dict[str, str] = field(default_factory=dict)
    """Peers that do it only when asked for everything, each with the reason."""

    def left_out(self, *, full: bool) -> dict[str, str]:
        """Return the peers that will not run it, each with the reason."""
        reasons = self.without if full else self.without | self.too_slow
        return {peer: why for peer, why in reasons.items() if peer in self.peers}


def check(results: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise WrongResult unless both are equal."""
    if list(results) != list(expected):
        raise WrongResult(f"{len(results)} results differ from the {len(expected)} expected")


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return how many seconds the call took, and what it returned."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result
