"""A graph in the scheduler: which of its nodes wait, which are ready, what is still needed.

Nodes are numbered so that each comes after those it depends on, one branch after the other. So the
first ready one is the one to run next, and those that follow it mostly depend on it and on what
was done before: contiguous nodes go to one worker together, which finds there what they need.
A node is in a :class:`Run` only as long as a worker has it.
"""

from __future__ import annotations

import operator
from array import array
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.core.lifecycle import State
from scaler_cluster.core.placement import may_run
from scaler_cluster.core.ready_nodes import ReadyNodes
from scaler_cluster.core.tasks import Run
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler_cluster.core.critical_path import CriticalPath
    from scaler_cluster.core.records import WorkerRecord
    from scaler_cluster.wire.batch import Batch, Buffer

Result: TypeAlias = tuple[bytes, tuple[bytes, ...]]
"""What a node returned: its payload and the segments of its large buffers."""

LOOK = 8
"""Ready nodes looked at for one that many others follow."""
LOOK_FAR = 16
"""Nodes looked at to see whether a worker could run them without what another one has."""
SUPPLIED = (1 << 64) - 1
"""In place of the task that an input is of: the client sends it."""

WAITING, READY, ASSIGNED = int(State.WAITING), int(State.READY), int(State.ASSIGNED)
DONE, FAILED, CANCELLED = int(State.DONE), int(State.FAILED), int(State.CANCELLED)
LIVE = (WAITING, READY, ASSIGNED)


class Nodes:
    """What a Graph message says of its nodes, checked."""

    __slots__ = (
        "batch", "dependencies", "ends", "is_last", "kinds", "options", "owned", "start", "uses",
        "wanted",
    )  # fmt: skip

    def __init__(self, message: m.Graph) -> None:
        self.start = message.start
        self.batch = message.batch
        self.ends = numbers(message.ends)
        self.dependencies = numbers(message.dependencies)
        self.uses = numbers(message.uses)
        self.wanted = bytes(message.wanted)
        self.is_last = message.is_last
        self.options = message.options
        self.kinds = numbers(message.kinds)
        owners = numbers(message.owners)
        count = len(message.batch)
        if not count == len(self.ends) == len(self.uses) == len(self.wanted):
            raise RemoteProtocolError("a graph whose parts are of different lengths")
        if self.wanted.strip(b"\0\1") or any(map(operator.lt, self.uses, self.wanted)):
            raise RemoteProtocolError("a graph in which a node is wanted and of no use")
        if self.kinds and len(self.kinds) != count:
            raise RemoteProtocolError("a graph in which some nodes have no options")
        if len(owners) != len(message.objects):
            raise RemoteProtocolError("objects of a graph that belong to no node")
        self.owned: dict[int, tuple[bytes, ...]] = {}
        for owner, one in zip(owners, message.objects, strict=True):
            self.owned[owner] = (*self.owned.get(owner, ()), one)


class GraphRecord:
    """One graph of a session. Methods that end nodes leave it to the caller to tell the client.

    What they set aside for it: ``ended`` (nodes that were wanted, with what made them fail; None:
    they were cancelled), ``stopped`` (nodes that a worker is to stop) and ``dropped`` (segments
    nobody needs any more).
    """

    def __init__(self, session: int, first: int, function: bytes) -> None:
        self.session = session
        self.first = first
        self.function = function
        self.groups: list[ReadyNodes] = []
        """Its nodes by their options."""
        self._group_of_node = array("I")
        """Which group each node is in; empty as long as all are in the first."""
        self._touched: dict[ReadyNodes, None] = {}
        """Groups, if there are several, of which other nodes are ready than before."""
        self.objects: list[bytes] = []
        """Ids of the objects its payloads refer to, as often; held as long as the graph is."""
        self.is_begun = False
        """True once a worker was given something of it."""
        self.inputs = 0
        """Number of its first nodes, which are not run."""
        self.is_whole = False
        """True once the last of its messages has come."""
        self.open = 0
        """Number of nodes that no worker has, and that have not ended."""
        self.live = 0
        """Number of nodes that have not ended."""
        self.results: dict[int, Result] = {}
        """What was returned, as long as a node needs it that has not ended."""
        self.ended: list[tuple[int, m.Failed | None]] = []
        self.stopped: list[int] = []
        self.dropped: list[bytes] = []
        self.missing: list[int] = []
        """How many dependencies of each node have not returned."""
        self.uses: list[int] = []
        """How many nodes that have not ended need each; one more while the client waits for it."""
        self.states = bytearray()
        self.wanted = bytearray()
        self._failures: dict[int, m.Failed] = {}
        """Why nodes failed, as long as more may come that depend on them."""
        self._declared: list[int] = []
        """How many nodes depend on each, in all that is still to come as well."""
        self._dependents: list[list[int]] = []
        self._dependencies: list[int] = []
        self._ends: list[int] = [0]
        """Where the dependencies of each node begin, and those of the last one end."""
        self.workers: dict[bytes, None] = {}
        """Peers that were given nodes of it."""
        self._holders: list[WorkerRecord | None] = []
        """Which worker was given each node last."""
        self._parts: list[tuple[int, Batch]] = []
        self._owned: dict[int, tuple[bytes, ...]] = {}
        self._marks: dict[int, tuple[int, int]] = {}
        """Tries and losses of nodes that have any."""
        self.lent: dict[int, Run] = {}
        """Nodes that the task which submitted them runs itself."""
        self._lost_input: dict[int, None] = {}
        """Nodes that lost something they need while a worker had them."""
        self.losses = 0
        """How often nodes had to be run again as what they returned was lost."""
        self.chain: CriticalPath | None = None
        """Its longest paths; None: nobody has watched since it came."""

    # -- looks -------------------------------------------------------------------------------

    @property
    def stop(self) -> int:
        """Id after the last task."""
        return self.first + len(self.states)

    @property
    def count(self) -> int:
        """Number of nodes that are ready."""
        return sum(group.count for group in self.groups)

    @property
    def is_over(self) -> bool:
        """Return True once all of its nodes have come and ended."""
        return self.is_whole and not self.live

    def dependencies(self, node: int) -> list[int]:
        """Return what a node depends on."""
        return self._dependencies[self._ends[node] : self._ends[node + 1]]

    def dependents(self, node: int) -> list[int]:
        """Return what depends on a node, of all that has come."""
        return self._dependents[node]

    def group_of(self, node: int) -> ReadyNodes:
        """Return the nodes that share their options with this one."""
        return self.groups[self._group_of_node[node]] if self._group_of_node else self.groups[0]

    def take_touched(self) -> Iterable[ReadyNodes]:
        """Return the groups of which other nodes may be ready than when this was last asked."""
        if not self._group_of_node:
            return self.groups
        touched, self._touched = self._touched, {}
        return touched

    def is_live(self, node: int) -> bool:
        """Return True for a node that has not ended."""
        return self.states[node] in LIVE

    def is_ready(self, node: int) -> bool:
        """Return True for a node that waits for nothing; False past the last one that is there."""
        return node < len(self.states) and self.states[node] == READY

    def __str__(self) -> str:
        """Tell the graph's story in one line, for errors and logs."""
        return (
            f"graph {self.first}..{self.stop - 1} of session {self.session}: {self.live} live, "
            f"{self.count} ready, {len(self.results)} results"
        )

    # -- nodes come --------------------------------------------------------------------------

    def add(self, nodes: Nodes, inputs: int) -> None:
        """Take nodes in, of which the first ``inputs`` are not to be run.

        Raises RemoteProtocolError if they are not what may come next.
        """
        start = len(self.states)
        if nodes.start != start or self.is_whole or (inputs and start):
            raise RemoteProtocolError("a part of a graph out of turn")
        self.inputs = self.inputs or inputs
        count = len(nodes.ends)
        flat, offset = nodes.dependencies, len(self._dependencies)
        low = 0
        for high in nodes.ends:
            if not low <= high <= len(flat):
                raise RemoteProtocolError("dependencies of a graph out of bounds")
            low = high
        self._add_lanes(nodes, count)
        states, missing, dependents = self.states, self.missing, self._dependents
        self._parts.append((start, nodes.batch))
        self._owned.update(nodes.owned)
        self._dependencies += flat
        self._ends += [offset + end for end in nodes.ends]
        self.uses += nodes.uses
        self.wanted += nodes.wanted
        declared = self._declared
        declared += map(operator.sub, nodes.uses, nodes.wanted)
        self.live += count
        self.is_whole = nodes.is_last
        states += bytes((WAITING,)) * count
        dependents += [[] for _ in range(count)]
        self._holders += [None] * count
        fresh, lost = [], []
        low = 0
        for node, high in enumerate(nodes.ends, start):
            lack = 0
            for one in flat[low:high]:
                if one >= node:
                    raise RemoteProtocolError("a node that depends on a later one")
                dependents[one].append(node)
                if len(dependents[one]) > declared[one]:
                    raise RemoteProtocolError("a node that more depend on than was said")
                state = states[one]
                if state != DONE:
                    lack += 1
                    if state >= FAILED:
                        lost.append(one)
            low = high
            missing.append(lack)
            if not lack and node >= inputs:
                states[node] = READY
                fresh.append(node)
        self.open += count
        if self._group_of_node:
            for node in fresh:
                self._touch(node).push(node)
        else:
            self.groups[0].extend(fresh)
        for one in dict.fromkeys(lost):
            self._end_dependents(one, self._failures.get(one))
        if self.is_whole:
            self._failures.clear()

    def _add_lanes(self, nodes: Nodes, count: int) -> None:
        groups, kinds, start = self.groups, self._group_of_node, len(self.states)
        known = len(groups) + len(nodes.options)
        if not known or any(kind >= known for kind in nodes.kinds):
            raise RemoteProtocolError("a graph whose nodes have no options")
        groups += [ReadyNodes(self, options) for options in nodes.options]
        if nodes.kinds and not kinds:
            kinds.frombytes(bytes(4 * start))
            self._touched.update(dict.fromkeys(groups))
        if kinds or nodes.kinds:
            kinds.extend(nodes.kinds or [0] * count)

    def _touch(self, node: int) -> ReadyNodes:
        group = self.groups[self._group_of_node[node]]
        self._touched[group] = None
        return group

    # -- nodes go to workers and come back -----------------------------------------------------

    def cut_head(
        self, group: ReadyNodes, limit: int, worker: WorkerRecord, least: int
    ) -> Run | None:
        """Take up to ``limit`` nodes of a group out for a worker; there is one that is ready.

        None if it looks as if there were no ``least`` that go together: others come to them sooner.
        """
        count = len(self.states)
        short: list[int] = []
        first = group.pop()
        while first >= 0:
            stop = first + least
            node = first + 1
            while node < stop and node < count and self._fits(node, first, worker):
                node += 1
            if node >= stop:
                break
            short.append(first)
            first = group.pop() if len(short) < LOOK else -1
        for node in short:
            group.put_back(node)
        return self._cut(first, limit, worker) if first >= 0 else None

    def is_apart(self, first: int, stop: int) -> bool:
        """Return True if most of what comes first in a range depends on nothing close before it."""
        stop = min(stop, first + LOOK_FAR)
        apart = 0
        for node in range(first, stop):
            below = self.dependencies(node)
            apart += all(one >= first or self.states[one] == DONE for one in below)
        return 2 * apart > stop - first

    def cut_after(self, run: Run, limit: int, worker: WorkerRecord) -> Run | None:
        """Take up to ``limit`` nodes out that follow on what a worker has, if they can."""
        first = run.stop - self.first
        if first == len(self.states) or self.group_of(first) is not self.group_of(first - 1):
            return None
        return self._cut(first, limit, worker) if self._fits(first, first, worker) else None

    def _fits(self, node: int, first: int, worker: WorkerRecord) -> bool:
        """Return True if a worker that has the nodes from ``first`` on can be given this one.

        What it waits for must be before it there.
        """
        states, kinds = self.states, self._group_of_node
        if not WAITING <= states[node] <= READY or node < self.inputs:
            return False
        if kinds and kinds[node] != kinds[first]:
            return False
        if self.missing[node]:
            holders = self._holders
            for one in self._dependencies[self._ends[node] : self._ends[node + 1]]:
                state = states[one]
                if (
                    one < first
                    and state != DONE
                    and (state != ASSIGNED or holders[one] is not worker)
                ):
                    return False
        return True

    def _cut(self, first: int, limit: int, worker: WorkerRecord) -> Run:
        states, holders = self.states, self._holders
        batch_start, batch = self._part_of(first)
        stop = min(first + limit, batch_start + len(batch))
        owned, marks = self._owned, self._marks
        objects, mark = owned.get(first, ()), marks.get(first, (0, 0))
        node = first
        ready = 0
        while True:
            ready += states[node] == READY
            states[node] = ASSIGNED
            holders[node] = worker
            node += 1
            if node >= stop or not self._fits(node, first, worker):
                break
            if (owned and owned.get(node, ()) != objects) or (
                marks and marks.get(node, (0, 0)) != mark
            ):
                break
        group = self._touch(first) if self._group_of_node else self.groups[0]
        group.count -= ready
        self.open -= node - first
        self.is_begun = True
        self.workers[worker.peer] = None
        part = batch.cut(first - batch_start, node - batch_start)
        run = Run(self.session, self.first + first, self.function, m.CALL_NODE, group.options, part)
        run.objects = objects
        run.tries, run.losses = mark
        run.graph = self
        return run

    def hand_over(self, last: int, worker: WorkerRecord) -> Run | None:
        """Take the first node out that is ready, up to ``last``, if there is one.

        The task runs it that has submitted it and waits, on this worker, which knows nothing of it.
        """
        first = last + 1
        for group in self.groups:
            node = group.peek()
            if 0 <= node < first and may_run(worker, group.options):
                first = node
        if first > last:
            return None
        self.group_of(first).pop()
        run = self.lent[first] = self._cut(first, 1, worker)
        self._holders[first] = None
        return run

    def next_objects(self, group: ReadyNodes) -> tuple[bytes, ...]:
        """Return the objects that the next node of a group needs."""
        node = group.peek()
        if node < 0:
            return ()
        segments = [self.results[one][1] for one in self.dependencies(node) if one in self.results]
        return (*self._owned.get(node, ()), *chain.from_iterable(segments))

    def inputs_of(self, run: Run) -> list[int]:
        """Return the nodes whose results must come with a run, in order of first use.

        Others that it depends on are before it on its worker.
        """
        first, states = run.first - self.first, self.states
        flat = self._dependencies[self._ends[first] : self._ends[first + run.count]]
        return [one for one in dict.fromkeys(flat) if one < first and states[one] == DONE]

    def needed_by(self, run: Run) -> tuple[bytes, ...]:
        """Return the objects that a run needs, with those of the results that come with it."""
        segments = (self.results[node][1] for node in self.inputs_of(run))
        return (*run.objects, *chain.from_iterable(segments))

    def has_lost_input(self, run: Run) -> bool:
        """Return True for a single node that lost something it needs while a worker had it."""
        return run.first - self.first in self._lost_input

    def put_back(self, run: Run) -> None:
        """Take the nodes of a run back that a worker did not run."""
        states, missing = self.states, self.missing
        first = run.first - self.first
        for node in range(first, first + run.count):
            if states[node] != ASSIGNED:
                continue
            self.open += 1
            self._lost_input.pop(node, None)
            if run.tries or run.losses:
                self._marks[node] = (run.tries, run.losses)
            states[node] = WAITING
            if not missing[node]:
                self._release(node)

    def _part_of(self, node: int) -> tuple[int, Batch]:
        parts = self._parts
        low, high = 0, len(parts)
        while high - low > 1:
            middle = (low + high) // 2
            if parts[middle][0] <= node:
                low = middle
            else:
                high = middle
        return parts[low]

    def _release(self, node: int) -> None:
        self.states[node] = READY
        (self._touch(node) if self._group_of_node else self.groups[0]).push(node)

    def _unready(self, node: int) -> None:
        (self._touch(node) if self._group_of_node else self.groups[0]).count -= 1

    # -- nodes end ---------------------------------------------------------------------------

    def returned(self, first: int, payloads: Iterable[Buffer]) -> None:
        """Contiguous nodes returned; the client knows of those that are wanted."""
        states, missing, uses, wanted = self.states, self.missing, self.uses, self.wanted
        dependents, results = self._dependents, self.results
        flat, ends = self._dependencies, self._ends
        node = first
        for payload in payloads:
            if states[node] != ASSIGNED:
                # An input: no worker had it.
                self.open -= 1
            states[node] = DONE
            if wanted[node]:
                wanted[node] = 0
                uses[node] -= 1
            if uses[node]:
                results[node] = (bytes(payload), ())
                for one in dependents[node]:
                    missing[one] -= 1
                    if not missing[one] and states[one] == WAITING:
                        self._release(one)
            for one in flat[ends[node] : ends[node + 1]]:
                uses[one] -= 1
                if not uses[one]:
                    self._drop(one)
            node += 1
        self.live -= node - first

    def stored(self, node: int, payload: Buffer, segments: tuple[bytes, ...]) -> None:
        """A node returned a value that lies in segments, which are now held by this graph."""
        self.returned(node, (payload,))
        if node in self.results:
            self.results[node] = (self.results[node][0], segments)
        else:
            self.dropped += segments

    def end(self, node: int, failure: m.Failed | None) -> None:
        """A node failed, or was cancelled (None), and with it all that depends on it."""
        if self.is_live(node):
            self._end(node, failure)
            self._end_dependents(node, failure)

    def give_up(self, nodes: Sequence[int]) -> None:
        """The client does not want these nodes any more: end what only they needed."""
        for node in nodes:
            if self.wanted[node] and self.is_live(node):
                self.wanted[node] = 0
                self.uses[node] -= 1
                if not self.uses[node]:
                    self._drop(node)

    def lose(self, nodes: Iterable[int]) -> list[int]:
        """What these nodes returned is lost: run them again, with what they need that was dropped.

        Return those that cannot be, as an input that they need was dropped.
        """
        self.losses += 1
        lost: dict[int, None] = {}
        todo = [node for node in nodes if node >= self.inputs and self.uses[node]]
        while todo:
            node = todo.pop()
            if node in lost:
                continue
            lost[node] = None
            self.dropped += self.results.pop(node, (b"", ()))[1]
            self.states[node] = WAITING
            self.live += 1
            self.open += 1
            for one in self.dependencies(node):
                self.uses[one] += 1
                if one >= self.inputs and self.states[one] == DONE and one not in self.results:
                    todo.append(one)
        hopeless = []
        for node in sorted(lost):
            for one in self._dependents[node]:
                if one not in lost and self.is_live(one):
                    self.missing[one] += 1
                    if self.states[one] == READY:
                        self.states[one] = WAITING
                        self._unready(one)
                    elif self.states[one] == ASSIGNED:
                        self._lost_input[one] = None
            dependencies = self.dependencies(node)
            self.missing[node] = sum(self.states[one] != DONE for one in dependencies)
            if not self.missing[node]:
                self._release(node)
            if any(one < self.inputs and one not in self.results for one in dependencies):
                hopeless.append(node)
        return hopeless

    def _end(self, node: int, failure: m.Failed | None) -> None:
        if self.wanted[node]:
            self.wanted[node] = 0
            self.ended.append((node, failure))
        if failure is not None and not self.is_whole:
            self._failures[node] = failure
        self._leave(node, CANCELLED if failure is None else FAILED)
        for one in self.dependencies(node):
            self.uses[one] -= 1
            if not self.uses[one]:
                self._drop(one)

    def _end_dependents(self, node: int, failure: m.Failed | None) -> None:
        todo = [node]
        while todo:
            for one in self._dependents[todo.pop()]:
                if self.is_live(one):
                    self._end(one, failure)
                    todo.append(one)

    def _drop(self, node: int) -> None:
        """Nothing needs a node any more: forget what it returned, or cancel it."""
        todo = [node]
        while todo:
            node = todo.pop()
            if self.states[node] == DONE:
                result = self.results.pop(node, None)
                if result is not None:
                    self.dropped += result[1]
            elif self.is_live(node):
                self._leave(node, CANCELLED)
                for one in self.dependencies(node):
                    self.uses[one] -= 1
                    if not self.uses[one]:
                        todo.append(one)

    def _leave(self, node: int, state: int) -> None:
        before = self.states[node]
        if before == ASSIGNED:
            self.stopped.append(node)
        else:
            self.open -= 1
            if before == READY:
                self._unready(node)
        self.states[node] = state
        self.live -= 1
