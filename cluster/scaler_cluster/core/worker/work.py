"""Contiguous tasks that a worker was sent, and the functions that it was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster.core.worker.kept_results import KeptResults
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from scaler_cluster.wire.batch import Buffer

    Values: TypeAlias = dict[int, tuple[Buffer, tuple[bytes, ...]]]
    """Results of nodes that came with others, as payload and segments."""


class FunctionEntry:
    """A function that this worker was sent, and what it became when it was unpickled."""

    __slots__ = ("call", "code", "objects", "payload", "runs", "set_classes")

    def __init__(self, payload: Buffer, objects: tuple[bytes, ...]) -> None:
        self.payload = payload
        self.objects = objects
        self.call: Callable[..., Any] | None = None
        self.code: Any = None
        """The code of its client with which it was unpickled; None: it brought none."""
        self.runs: dict[int, Callable[..., Any]] = {}
        """What runs a task, by how it is called, for works that ask for nothing special."""
        self.set_classes: int | None = None
        """What ``by_value.set_classes()`` was when it was unpickled; None: it set no class."""


NO_GRAPH = KeptResults()
"""What tasks have that are not nodes: nothing is ever kept of them."""


class Work:
    """Contiguous tasks to run."""

    __slots__ = (
        "batch", "cursor", "first", "function", "is_begun", "is_once", "kept", "message",
        "session", "stop", "values",
    )  # fmt: skip

    def __init__(
        self,
        message: m.Assign | m.AssignNodes,
        function: FunctionEntry,
        values: Values | None = None,
        kept: KeptResults = NO_GRAPH,
    ) -> None:
        self.message = message
        self.function = function
        self.session = message.session
        self.first = message.first
        self.batch = message.batch
        self.cursor = -1
        """Index of the task that runs, or ran last."""
        self.stop = len(message.batch.ends)
        """Index after the last task to run."""
        self.is_once = type(message) is m.Assign and message.at_most_once
        """Its tasks must never start twice."""
        self.is_begun = False
        """Whether what becomes of its tasks is being reported."""
        self.values = values
        """Of nodes: the results that came with them, by node, as payload and segments."""
        self.kept = kept
        """What nodes of the same graph returned here."""

    @property
    def task(self) -> int:
        """Id of the task at the cursor."""
        return self.first + self.cursor

    @property
    def node(self) -> int:
        """Number of the node at the cursor, in its graph."""
        assert isinstance(self.message, m.AssignNodes)
        return self.task - self.message.graph

    @property
    def must_send(self) -> bool:
        """Return True if the result of the node at the cursor must come with the report."""
        message = self.message
        assert isinstance(message, m.AssignNodes)
        return bool(message.sent) and bool(message.sent[self.task - message.first])

    @property
    def uses(self) -> int:
        """How many nodes need the result of the node at the cursor."""
        message = self.message
        assert isinstance(message, m.AssignNodes)
        return int(numbers(message.uses)[self.task - message.first]) if message.uses else 0

    @property
    def segments(self) -> tuple[bytes, ...]:
        """The segments that it came with."""
        message = self.message
        return message.segments if isinstance(message, m.AssignNodes) else message.objects

    def shrink(self, stop: int) -> int:
        """Let it end at ``stop``, or after what is claimed by now; return where it ends."""
        old_stop = self.stop
        self.stop = stop
        # A cursor beyond the old end has claimed nothing: the loop is about to finish the work.
        self.stop = max(stop, min(self.cursor + 1, old_stop))
        return self.stop

    def part(self, start: int, stop: int) -> Work:
        """Return the tasks ``start <= index < stop`` of this one as a work of their own."""
        part = Work(self.message, self.function, self.values, self.kept)
        part.first = self.first + start
        part.batch = self.batch.cut(start, stop)
        part.stop = stop - start
        return part


def values_of(message: m.AssignNodes) -> Values:
    """Return the results that came with nodes."""
    values: Values = {}
    ends = numbers(message.segment_ends)
    low = 0
    for index, (node, payload) in enumerate(
        zip(numbers(message.inputs), message.results, strict=False)
    ):
        high = ends[index] if ends else 0
        values[node] = payload, message.segments[low:high]
        low = high
    return values


def take_out(queue: deque[Work], session: int, first: int, stop: int) -> list[tuple[int, int]]:
    """Remove the tasks of this range that are not claimed; return them as ranges.

    From the end, where the scheduler begins to ask, until the range is found: it may ask for
    each of thousands.
    """
    removed = []
    left = stop - first
    for index in range(len(queue) - 1, -1, -1):
        work = queue[index]
        low = max(first - work.first, 0)
        high = min(stop - work.first, work.stop)
        if work.session != session or low >= high:
            continue
        left -= high - low
        old_stop = work.stop
        low = work.shrink(low)
        if low < high:
            removed.append((work.first + low, work.first + high))
        if high < old_stop:
            queue.insert(index + 1, work.part(max(low, high), old_stop))
        if not work.stop and index:
            # The main thread looks at the first one without a lock: that one stays.
            del queue[index]
        if not left:
            break
    removed.reverse()
    return removed


def has_more(queue: deque[Work]) -> bool:
    """Return True if tasks wait behind the one that runs, or that ended last."""
    return len(queue) > 1 or (bool(queue) and queue[0].cursor + 1 < queue[0].stop)
