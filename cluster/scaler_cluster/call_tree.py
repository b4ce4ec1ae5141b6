"""Where time went: stacks that were sampled, merged into one tree, and its bytes.

A tree says for each path of functions how long it was seen at its end: its *own* time, in whole
microseconds. Trees are added up without loss: whatever there is no room for counts at the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from scaler_cluster.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NODES_MAX = 5000
"""Far more than anybody can look at; some 500 KB."""
FUNCTIONS_MAX = 64
"""Tasks of so many functions have a tree each in one answer of a worker; others share one."""
DEPTH_MAX = 200
"""Of a stack, so many frames from the outermost one on: a recursion may have any number."""
TEXT_CHARS_MAX = 300
"""Of the name of a function, and of the end of a path."""
US_MAX = 1 << 62

ROOT = 0


class Frame(NamedTuple):
    """A function, as a stack has it."""

    name: str
    file: str
    line: int
    """Where its definition begins; 0: unknown."""

    @classmethod
    def of(cls, name: str, file: str, line: int) -> Frame:
        """Return one whose texts are not too long."""
        return cls(name[:TEXT_CHARS_MAX], file[-TEXT_CHARS_MAX:], line)


class CallTree:
    """Own times by path. Node 0 is the root, which no frame stands for; a parent comes first."""

    __slots__ = ("_nodes", "_nodes_max", "frames", "own_us", "parents")

    def __init__(self, nodes_max: int = NODES_MAX) -> None:
        self.frames: list[Frame] = [Frame("", "", 0)]
        self.parents: list[int] = [ROOT]
        self.own_us: list[int] = [0]
        self._nodes: dict[tuple[int, Frame], int] = {}
        self._nodes_max = nodes_max

    def __len__(self) -> int:
        """Return the number of nodes, besides the root."""
        return len(self.frames) - 1

    @property
    def total_us(self) -> int:
        """The time of all nodes together."""
        return sum(self.own_us)

    def copy(self) -> CallTree:
        """Return another one that has the same, and goes its own way from here."""
        other = CallTree(self._nodes_max)
        other.frames, other.parents = self.frames.copy(), self.parents.copy()
        other.own_us, other._nodes = self.own_us.copy(), self._nodes.copy()
        return other

    def add(self, stack: Iterable[Frame], us: int) -> None:
        """Count time at the end of a stack, whose outermost frame comes first."""
        node = ROOT
        for depth, frame in enumerate(stack):
            if depth == DEPTH_MAX:
                break
            below = self._below(node, frame)
            if below is None:
                break
            node = below
        self.own_us[node] += us

    def merge(self, other: CallTree, under: Frame | None = None) -> None:
        """Add another tree to this one, below a frame if there is one."""
        own_us = self.own_us
        top = ROOT if under is None else self._below(ROOT, under)
        here: list[int] = [top or ROOT]
        full: list[bool] = [top is None]
        own_us[here[0]] += other.own_us[ROOT]
        for node in range(1, len(other.frames)):
            parent = other.parents[node]
            below = None if full[parent] else self._below(here[parent], other.frames[node])
            # Below what there is no room for, a function of another place must not be met.
            full.append(below is None)
            here.append(here[parent] if below is None else below)
            own_us[here[node]] += other.own_us[node]

    def merge_nodes(
        self, frames: Sequence[Frame], numbers: Sequence[int], under: Frame | None = None
    ) -> None:
        """Do the same with what :func:`nodes_of` returned, which is quicker than with a tree."""
        own_us, find = self.own_us, self._nodes.get
        top = ROOT if under is None else self._below(ROOT, under)
        here: list[int | None] = [top]
        """The node of each of theirs; None: there is no room for it."""
        counted = [top or ROOT]
        """The node at which its time counts."""
        own_us[counted[0]] += numbers[0]
        parts = iter(numbers)
        next(parts)
        for parent, number, us in zip(parts, parts, parts, strict=True):
            above, frame = here[parent], frames[number]
            below = None if above is None else find((above, frame)) or self._below(above, frame)
            here.append(below)
            counted.append(counted[parent] if below is None else below)
            own_us[counted[-1]] += us

    def _below(self, parent: int, frame: Frame) -> int | None:
        """Return the node of a frame below another one; None: there is no room for it."""
        key = parent, frame
        node = self._nodes.get(key)
        if node is None:
            node = len(self.frames)
            if node > self._nodes_max:
                return None
            self._nodes[key] = node
            self.frames.append(frame)
            self.parents.append(parent)
            self.own_us.append(0)
        return node

    # -- what it says ------------------------------------------------------------------------

    def whole_us(self) -> list[int]:
        """Return the time of each node together with all below it."""
        whole = list(self.own_us)
        for node in range(len(whole) - 1, ROOT, -1):
            whole[self.parents[node]] += whole[node]
        return whole

    def path(self, node: int) -> list[int]:
        """Return the nodes from the outermost one to this one; of the root, none."""
        found = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        found.reverse()
        return found

    def stacks(self) -> Iterator[tuple[list[Frame], int]]:
        """Yield each path that has a time of its own, and that."""
        for node, us in enumerate(self.own_us):
            if us:
                yield [self.frames[one] for one in self.path(node)], us

    def by_frame(self, top: int = ROOT) -> dict[Frame, tuple[int, int]]:
        """Return the own time and the whole time of each function; a recursion counts once.

        Only what is at or below the node ``top`` counts.
        """
        frames, parents, whole_us = self.frames, self.parents, self.whole_us()
        own: dict[Frame, int] = {}
        whole: dict[Frame, int] = {}
        counts = [False] * len(frames)
        counts[top] = True
        for node in range(max(top, 1), len(frames)):
            up = parents[node]
            if not (whole_us[node] and (node == top or counts[up])):
                continue
            counts[node], frame = True, frames[node]
            own[frame] = own.get(frame, 0) + self.own_us[node]
            while up != ROOT and counts[up] and frames[up] != frame:
                up = parents[up]
            if up == ROOT or not counts[up]:
                whole[frame] = whole.get(frame, 0) + whole_us[node]
        return {frame: (own[frame], us) for frame, us in whole.items()}

    # -- bytes -------------------------------------------------------------------------------

    def packed(self) -> bytes:
        """Return it as bytes: msgpack of its frames, then of a parent, a frame, a time each."""
        numbers: dict[Frame, int] = {}
        for frame in self.frames[1:]:
            numbers.setdefault(frame, len(numbers))
        nodes = [self.own_us[ROOT]]
        for node in range(1, len(self.frames)):
            nodes += (self.parents[node], numbers[self.frames[node]], self.own_us[node])
        packer = msgpack.Packer(use_bin_type=True, unicode_errors="backslashreplace")
        packed: bytes = packer.pack([[list(one) for one in numbers], nodes])
        return packed


def unpacked(data: bytes) -> CallTree:
    """Return the tree of these bytes; raises RemoteProtocolError, and nothing else."""
    tree = CallTree()
    tree.merge_nodes(*nodes_of(data))
    return tree


def nodes_of(data: bytes) -> tuple[list[Frame], list[int]]:
    """Return what these bytes have of a tree, as :meth:`CallTree.merge_nodes` takes it.

    Raises RemoteProtocolError, and nothing else, if that cannot be a tree.
    """
    try:
        frames, numbers = msgpack.unpackb(data, raw=False)
        return [_frame(*one) for one in frames], _checked(numbers, len(frames))
    except RemoteProtocolError:
        raise
    except Exception as error:
        raise RemoteProtocolError(f"no tree of calls: {error!r:.200}") from error


def _frame(name: Any, file: Any, line: Any) -> Frame:
    if not (type(name) is type(file) is str and type(line) is int):
        raise RemoteProtocolError("a frame is a name, a file and a line")
    return Frame.of(name, file, line)


def _checked(numbers: list[int], frames: int) -> list[int]:
    nodes = (len(numbers) - 1) // 3
    if len(numbers) != 1 + 3 * nodes or nodes > NODES_MAX:
        raise RemoteProtocolError("a tree of calls of too many nodes, or of parts of them")
    if not all(type(one) is int and 0 <= one <= US_MAX for one in numbers):
        raise RemoteProtocolError("a tree of calls is of numbers")
    if nodes and max(numbers[2::3]) >= frames:
        raise RemoteProtocolError("a tree of calls with a frame that it does not have")
    depths = [0]
    for parent in numbers[1::3]:
        depths.append(depths[parent] + 1)
    if max(depths) > DEPTH_MAX:
        raise RemoteProtocolError("a tree of calls that is too deep")
    return numbers
