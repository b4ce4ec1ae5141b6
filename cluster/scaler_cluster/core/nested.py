"""What the tasks of one worker submit: run right there, or sent away to run elsewhere.

A new task is *held* for a moment: who waits for it at once runs it itself, without a word to
anybody. What nobody has come for goes *away*, to the scheduler; as long as it only waits there it
can be recalled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from sortedcontainers import SortedDict

from scaler_cluster.core.client import ClientCore, Function, Handlers, MapSink, Objects
from scaler_cluster.core.subtasks import HandedOver, Subtask
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import CALL_BITS, INDEX_MASK
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch, numbers

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence

    from scaler_cluster.core.subtasks import OwnGraph

HOLD_S, HOLD_MAX_S = 0.001, 0.016
"""How long a new task is held. Three round trips, which is what it costs to send a task away and
to take it back; longer, as long as others have no time for what is sent away."""
LINGER_S = 0.005
"""So long after the last task was submitted the next is expected: somebody looks then anyway."""
RECALL_MAX = 64
"""Tasks that are recalled at once, at most."""
RECALL_OTHERS = 8
"""Of many tasks that somebody waits for at once, so many are asked for each time."""
MEMORY = 0.8
"""What earlier measurements weigh when a new one enters the mean."""


Pieces: TypeAlias = "SortedDict[int, Subtask]"


class NestedCore(ClientCore):
    """The client's side of the protocol in a worker: knows which tasks may run right here."""

    def __init__(self, may_run: Callable[[m.TaskOptions], bool] = lambda _: True) -> None:
        super().__init__()
        self._may_run = may_run
        """Whether this worker has what tasks with these options demand."""
        self.owned: dict[int, dict[int, None]] = {}
        """Single tasks that have not come back, by who submitted them; maps by their first one."""
        self.ended: list[Objects] = []
        """What tasks that ended had kept; the shell empties it."""
        self._local: dict[int, Subtask] = {}
        """By their first task; the oldest first."""
        self._local_pieces: Pieces = SortedDict()
        """Those of maps."""
        self.views: dict[bytes, memoryview] = {}
        """The bytes of objects that tasks stored, by their ids: for those that run here."""
        self._submitted: dict[int, Subtask] = {}
        """Single tasks that the scheduler has."""
        self._submitted_pieces: Pieces = SortedDict()
        """Pieces of maps that were sent away; tasks of theirs may have come back."""
        self._linked: dict[int, OwnGraph] = {}
        """Nodes of graphs that have not come back, of those that are waited for."""
        self.graphs: dict[int, OwnGraph] = {}
        """The same graphs by their first node: those that are waited for."""
        self._input_tasks: dict[int, Sequence[int]] = {}
        """Tasks that the inputs of graphs are of, until the scheduler has said which it knows."""
        self._watched: dict[int, list[int]] = {}
        """Inputs of graphs by the task that each is of, which the scheduler has: it will see by
        itself what becomes of it."""
        self._owed: dict[int, list[int]] = {}
        """The same of tasks that it has not: it is to be told."""
        self._callers: dict[int, int] = {}
        """Who submitted a map, by its number."""
        self._hold_s = HOLD_S
        self._linger_until = -math.inf
        self._looked_at = 0.0
        self._unit_s = HOLD_S
        """What one task that ran here took, in the mean."""
        self._waiting = 0
        """Threads that wait for what runs elsewhere, and tasks that have seceded."""

    # -- asking ------------------------------------------------------------------------------

    def hold(self, child: Subtask, waiter: object, now: float) -> int:
        """Take in a single task; return its id."""
        task = child.first = self.next_task
        self.next_task = task + 1
        self.waiters[task] = waiter
        self.owned.setdefault(child.owner, {})[task] = None
        self._hold(child, now)
        return task

    def hold_piece(self, child: Subtask, first: int, now: float) -> None:
        """Take in a piece of a map."""
        child.first = first
        self._local_pieces[first] = child
        self._hold(child, now)

    def _hold(self, child: Subtask, now: float) -> None:
        child.at = now
        if self._may_run(child.options):
            self._local[child.first] = child
            self._linger_until = now + LINGER_S
        else:
            self._send(child)

    def submit_graph(
        self,
        function: Function,
        part: m.Graph,
        waiters: dict[int, object],
        inputs: Sequence[object],
    ) -> None:
        """Ask for a graph; see :class:`ClientCore`."""
        super().submit_graph(function, part, waiters, inputs)
        if inputs:
            self._input_tasks[part.first] = numbers(part.inputs, "Q")

    def own_graph(self, graph: OwnGraph, tasks: Iterable[int]) -> None:
        """Note a graph that was submitted, and which of its nodes are waited for."""
        for task in tasks:
            if task in self.waiters:
                self._linked[task] = graph
                graph.pending += 1
                self.owned.setdefault(graph.owner, {})[task] = None
        if graph.pending:
            self.graphs[graph.first] = graph
        elif graph.kept:
            self.ended.append(graph.kept)

    def with_needs(self, tasks: Iterable[int]) -> list[int]:
        """Return tasks, each after those that it takes the results of and that are pending."""
        found: dict[int, None] = {}
        opened: dict[int, None] = {}
        stack = list(tasks)
        stack.reverse()
        while stack:
            task = stack[-1]
            graph = self._linked.get(task)
            if graph is None or task in opened:
                found[stack.pop()] = None
                continue
            opened[task] = None
            stack += [one for one in reversed(graph.inputs) if self.is_pending(one)]
        return list(found)

    def open_nested_call(self, call: MapSink, owner: int) -> int:
        """Return the id that the first task of a new map will have."""
        first = self.open_call(call)
        self._callers[first >> CALL_BITS] = owner
        self.owned.setdefault(owner, {})[first] = None
        return first

    def close_call(self, first: int, asked: int) -> None:
        """Nobody waits for a map any more; see :class:`ClientCore`."""
        number = first >> CALL_BITS
        owner = self._callers.pop(number, None)
        if owner is not None:
            self._disown(owner, first)
        stop = (number + 1) << CALL_BITS
        for pieces in (self._local_pieces, self._submitted_pieces):
            for key in list(pieces.irange(first, stop, inclusive=(True, False))):
                child = pieces.pop(key)
                self._local.pop(key, None)
                self._end(child)
        super().close_call(first, asked)

    def release(self, objects: Objects) -> None:
        """Say that objects will not be named again; see :class:`ClientCore`."""
        for one in objects:
            self.views.pop(one, None)
        super().release(objects)

    def is_pending(self, task: int) -> bool:
        """Return True if a single task has not come back, or something of its map has not."""
        if task in self._linked:
            return True
        call = self.calls.get(task >> CALL_BITS)
        return call.outstanding > 0 if call is not None else task in self.waiters

    # -- what is to run here -----------------------------------------------------------------

    def is_held(self, task: int) -> bool:
        """Return True if :meth:`claim` returns something."""
        graph = self._linked.get(task)
        if graph is not None:
            return bool(graph.lent)
        return task in self._local or (task >> CALL_BITS > 0 and self._piece(task) is not None)

    def claim(self, task: int) -> Subtask | None:
        """Take one task out, to run it here; None if it is not held.

        Of a node that is one that may come before it.
        """
        graph = self._linked.get(task)
        if graph is not None:
            for lent in graph.lent.values():
                return self._take_lent(lent)
            return None
        child = self._local.pop(task, None) if task >> CALL_BITS == 0 else None
        if child is not None or task >> CALL_BITS == 0:
            return child
        piece = self._piece(task)
        if piece is None:
            return None
        index = task - piece.first
        self._drop_piece(piece)
        # What is before it is there only if somebody waits for a map out of order.
        for part in (piece.part(0, index), piece.part(index + 1, len(piece.batch))):
            if len(part.batch):
                part.at = piece.at
                self._local[part.first] = self._local_pieces[part.first] = part
        single = piece.part(index, index + 1)
        self._remember(piece)
        return single

    def is_any_held(self, tasks: Iterable[int]) -> bool:
        """Return True if one of these may run here."""
        return any(map(self.is_held, tasks))

    def claim_first(self, tasks: deque[int]) -> Subtask | None:
        """Take out the first of these tasks that may run here.

        Those at the head that have come back are dropped.
        """
        while tasks and not self.is_pending(tasks[0]):
            tasks.popleft()
        for task in tasks:
            child = self.claim(task)
            if child is not None:
                return child
        return None

    def _piece(self, task: int) -> Subtask | None:
        """Return the held piece of a map that has this task."""
        return _find(self._local_pieces, task)

    def _remember(self, piece: Subtask) -> None:
        """Keep the payloads of a map's piece, and the objects in them, until the map has ended."""
        if _find(self._submitted_pieces, piece.first) is None:
            self._submitted_pieces[piece.first] = piece

    def _drop_piece(self, piece: Subtask) -> None:
        del self._local_pieces[piece.first]
        del self._local[piece.first]

    def _take_lent(self, lent: HandedOver) -> HandedOver:
        del lent.graph.lent[lent.first], self._local[lent.first]
        return lent

    def came_back(self, child: Subtask, took_s: float) -> object:
        """A claimed single task ended; return who waits for it, None if nobody does any more."""
        self._unit_s = MEMORY * self._unit_s + (1 - MEMORY) * took_s
        if self._watched or self._owed:
            self._pay(child.first)
        if type(child) is HandedOver:
            self._unlink(child.first)
            return self.waiters.pop(child.first, None)
        self._disown(child.owner, child.first)
        self._end(child)
        return self.waiters.pop(child.first, None)

    def returned_here(self, child: Subtask, payload: bytes, took_s: float) -> None:
        """A claimed task of a map returned."""
        self._unit_s = MEMORY * self._unit_s + (1 - MEMORY) * took_s
        call = self.calls.get(child.first >> CALL_BITS)
        if call is not None:
            call.settle(child.first & INDEX_MASK, Batch.single(payload))

    def failed_here(self, child: Subtask, failure: m.Failed) -> None:
        """A claimed task of a map failed."""
        call = self.calls.get(child.first >> CALL_BITS)
        if call is not None:
            call.fail(child.first & INDEX_MASK, failure)

    def recall(self, task: int) -> None:
        """Ask for a task that is away, and for some that are likely to be wanted after it.

        Those that have not gone to a worker are held again once the scheduler answers.
        """
        if task in self._linked:
            self.say(m.Cancel(task, 1, queued_only=True))
            return
        child = self._submitted.get(task) or _find(self._submitted_pieces, task)
        if not self.is_pending(task) or (child is not None and not self._may_run(child.options)):
            # There is nothing to ask for; nor for what has the next numbers.
            return
        count = max(1, min(int(HOLD_S / max(self._unit_s, 1e-6)), RECALL_MAX))
        if task >> CALL_BITS == 0:
            stop = task + 1
            while stop < task + count and stop in self._submitted:
                stop += 1
            count = stop - task
        self._pack_asked()
        self._outbox.append(m.Cancel(task, count, queued_only=True))

    def recall_some(self, tasks: Sequence[int], turn: int) -> None:
        """Ask for the first of these tasks, and for some of the others in turn."""
        if not tasks:
            return
        self.recall(tasks[0])
        for index in range(1, min(RECALL_OTHERS, len(tasks))):
            self.recall(tasks[(turn * RECALL_OTHERS + index) % len(tasks)])

    def count_waiting(self, change: int) -> bool:
        """One more thread waits for what runs elsewhere, or one less; return True if that is said.

        With the first one the worker is blocked, with the last one no more.
        """
        before = self._waiting
        self._waiting += change
        if before and self._waiting:
            return False
        self.say(m.Blocked(self._waiting > 0))
        return True

    # -- time --------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When :meth:`send_away` is due."""
        for child in self._local.values():
            return child.at + self._hold_s
        # Not only when there is something: to be woken for each new task would cost more.
        return self._linger_until if self._linger_until > self._looked_at else math.inf

    def send_away(self, now: float) -> None:
        """Let go of what has been held for long enough."""
        self._looked_at = now
        while self._local:
            child = next(iter(self._local.values()))
            if child.at + self._hold_s > now:
                return
            if type(child) is HandedOver:
                self._take_lent(child)
            else:
                del self._local[child.first]
            self._send(child)

    def send_now(self, task: int) -> None:
        """Let go of one single task: it is not to run here."""
        child = self._local.pop(task, None)
        if child is not None:
            self._send(child)

    def hand_over(self, child: Subtask) -> None:
        """Let go of a claimed task after all."""
        if child.first >> CALL_BITS:
            self._local_pieces[child.first] = child
        self._send(child)

    def _send(self, child: Subtask) -> None:
        function, batch = child.function, child.batch
        if type(child) is HandedOver:
            self.say(m.ProvideInputs(child.first, m.NOT_RUN, b""))
            return
        if child.first >> CALL_BITS:
            del self._local_pieces[child.first]
            self._remember(child)
            self._pack_asked()
            self.teach(*function)
            self.submit_run(
                child.first, function[0], child.call, child.options, child.objects, batch
            )
            return
        self._submitted[child.first] = child
        waiter = self.waiters[child.first]
        key = function, child.call, child.options, child.objects
        self._asked.append((child.first, key, bytes(batch.data), waiter))

    # -- the end of a task -------------------------------------------------------------------

    def give_up(self, owner: int) -> tuple[list[object], list[MapSink]]:
        """A task ended: cancel what it submitted; return who waits for that, and its maps."""
        tasks = self.owned.pop(owner, None)
        if not tasks:
            return [], []
        calls, singles = [], []
        for task in tasks:
            call = self.calls.get(task >> CALL_BITS)
            if call is not None:
                calls.append(call)
            elif not task >> CALL_BITS or task in self._linked:
                singles.append(task)
        return self.cancel(singles), calls

    def cancel(self, tasks: Sequence[int]) -> list[object]:
        """Give single tasks up; see :class:`ClientCore`."""
        here = []
        away = []
        for task in tasks:
            if self._watched or self._owed:
                self._pay(task)
            if self._unlink(task):
                away.append(task)
                continue
            child = self._local.pop(task, None)
            if child is None:
                child = self._submitted.pop(task, None)
                if child is not None:
                    away.append(task)
                    self._disown(child.owner, task)
                    self._end(child)
                    continue
            else:
                self._disown(child.owner, task)
                self._end(child)
            # It was held, or runs here: the scheduler has never heard of it.
            waiter = self.waiters.pop(task, None)
            if waiter is not None:
                here.append(waiter)
        return here + super().cancel(away)

    # -- answers -----------------------------------------------------------------------------

    def _on_results(self, message: m.Results) -> None:
        if not message.first >> CALL_BITS or self._linked:
            for task in range(message.first, message.first + len(message.batch)):
                self._came_from_away(task)
        super()._on_results(message)

    def _on_failed(self, message: m.Failed) -> None:
        self._came_from_away(message.task)
        super()._on_failed(message)

    def _on_returned(self, message: m.Returned) -> None:
        self._came_from_away(message.task)
        super()._on_returned(message)

    def _on_cancelled(self, message: m.Cancelled) -> None:
        """Tasks that were recalled had not started: hold them again."""
        now, stop = self.heard_at, message.first + message.count
        if not self._linked.keys().isdisjoint(range(message.first, stop)):
            # Nodes end together, and are not run here.
            for task in range(message.first, stop):
                self._came_from_away(task)
            super()._on_cancelled(message)
            return
        self._hold_s = min(2 * self._hold_s, HOLD_MAX_S)
        if not message.first >> CALL_BITS:
            for task in range(message.first, stop):
                child = self._submitted.pop(task, None)
                if child is not None:
                    if task in self._watched:
                        self._owed.setdefault(task, []).extend(self._watched.pop(task))
                    self._hold(child, now)
            return
        task = message.first
        while task < stop and (piece := _find(self._submitted_pieces, task)) is not None:
            end = min(stop, piece.stop)
            again = piece.part(task - piece.first, end - piece.first)
            self._local_pieces[again.first] = again
            self._hold(again, now)
            task = end

    def _on_request_inputs(self, message: m.RequestInputs) -> None:
        """Note who is to tell the scheduler what becomes of which input."""
        inputs = self._inputs.pop(message.graph, ())
        tasks = self._input_tasks.pop(message.graph, ())
        unmet = bytearray(len(inputs))
        for node in numbers(message.inputs):
            if node >= len(inputs):
                raise RemoteProtocolError("asked for an input of no graph")
            unmet[node] = 1
        for node, task in enumerate(tasks):
            if not unmet[node]:
                if task in self._submitted:
                    self._watched.setdefault(task, []).append(message.graph + node)
            elif task in self.waiters:
                self._owed.setdefault(task, []).append(message.graph + node)
            else:
                self.unmet.append((message.graph + node, inputs[node]))

    def _pay(self, task: int) -> None:
        """A task comes back, or is given up: let the scheduler be told if it waits for that."""
        self._watched.pop(task, None)
        owed = self._owed.pop(task, None)
        if owed is not None:
            waiter = self.waiters[task]
            self.unmet += [(node, waiter) for node in owed]

    def _on_assign_nodes(self, message: m.AssignNodes) -> None:
        """A node of a graph was recalled, and this one is ready: hold it."""
        graph = self.graphs.get(message.graph)
        if graph is not None:
            lent = HandedOver(graph, message)
            lent.at = self.heard_at
            self._local[lent.first] = graph.lent[lent.first] = lent

    _HANDLERS: ClassVar[Handlers] = {
        **ClientCore._HANDLERS,
        m.Results: _on_results,
        m.Returned: _on_returned,
        m.Failed: _on_failed,
        m.Cancelled: _on_cancelled,
        m.RequestInputs: _on_request_inputs,
        m.AssignNodes: _on_assign_nodes,
    }

    def _unlink(self, task: int) -> bool:
        """A node of a graph is not waited for any more; return False if it was not."""
        graph = self._linked.pop(task, None)
        if graph is None:
            return False
        self._disown(graph.owner, task)
        graph.pending -= 1
        if not graph.pending:
            del self.graphs[graph.first]
            for lent in list(graph.lent.values()):
                self._take_lent(lent)
            if graph.kept:
                self.ended.append(graph.kept)
        return True

    def _came_from_away(self, task: int) -> None:
        if self._watched or self._owed:
            self._pay(task)
        if self._unlink(task):
            return
        child = self._submitted.pop(task, None)
        if child is not None:
            self._hold_s = max(self._hold_s / 2, HOLD_S)
            self._disown(child.owner, task)
            self._end(child)

    def _disown(self, owner: int, task: int) -> None:
        tasks = self.owned.get(owner)
        if tasks is not None:
            tasks.pop(task, None)
            if not tasks:
                del self.owned[owner]

    def _end(self, child: Subtask) -> None:
        if child.kept:
            self.ended.append(child.kept)

    # -- as a client -------------------------------------------------------------------------

    @property
    def single_in_flight(self) -> bool:
        """Return False: nobody spins for an answer where tasks run."""
        return False


def _find(pieces: Pieces, task: int) -> Subtask | None:
    index = pieces.bisect_right(task) - 1
    if index < 0:
        return None
    child: Subtask = pieces.peekitem(index)[1]
    return child if task < child.stop else None
