"""What the tasks of one worker submit: run right there, or sent away to run elsewhere.

A new task is *held* for a moment: who waits for it at once runs it itself, without a word to
anybody. What nobody has come for goes *away*, to the scheduler; as long as it only waits there it
can be recalled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.events import InputWanted, NodeRan, Released
from scaler_cluster.core.worker.graph_inputs import GraphInputs
from scaler_cluster.core.worker.held_tasks import HOLD_S, HeldTasks
from scaler_cluster.core.worker.inlined import InlinedTasks
from scaler_cluster.core.worker.own_graphs import OwnGraphs
from scaler_cluster.core.worker.subtasks import HandedOver
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import CALL_BITS, INDEX_MASK
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch, numbers

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence

    from scaler_cluster.core.client.client import Handlers, MapSink
    from scaler_cluster.core.client.requests import Function, Objects
    from scaler_cluster.core.worker.subtasks import OwnGraph, Subtask

RECALL_MAX = 64
"""Tasks that are recalled at once, at most."""
RECALL_OTHERS = 8
"""Of many tasks that somebody waits for at once, so many are asked for each time."""
MEMORY = 0.8
"""What earlier measurements weigh when a new one enters the mean."""


class NestedCore(ClientCore):
    """The client's side of the protocol in a worker: knows which tasks may run right here."""

    def __init__(self, may_run: Callable[[m.TaskOptions], bool] = lambda _: True) -> None:
        # A worker that the scheduler does not know leaves, with its tasks.
        super().__init__(asks_again=False)
        self._may_run = may_run
        """Whether this worker has what tasks with these options demand."""
        self.held = HeldTasks()
        self.inlined = InlinedTasks()
        self.inputs = GraphInputs()
        self.graphs = OwnGraphs()
        self.owned: dict[int, dict[int, None]] = {}
        """Single tasks that have not come back, by who submitted them; maps by their first one."""
        self.views: dict[bytes, memoryview] = {}
        """The bytes of objects that tasks stored, by their ids: for those that run here."""
        self._callers: dict[int, int] = {}
        """Who submitted a map, by its number."""
        self._unit_s = HOLD_S
        """What one task that ran here took, in the mean."""
        self._waiting = 0
        """Threads that wait for what runs elsewhere, and tasks that have seceded."""

    @property
    def is_idle(self) -> bool:
        """Return True if no task has anything here: nothing pending, held, owed or blocked."""
        parts = self.held.is_empty and self.inputs.is_empty and self.graphs.is_empty
        parts = parts and self.coordination.is_idle
        return parts and not (self.owned or self.views or self._callers or self._waiting)

    # -- asking ------------------------------------------------------------------------------

    def hold(self, child: Subtask, waiter: object, now: float) -> int:
        """Take in a single task; return its id."""
        task = child.first = self.requests.reserve(1)
        self.waiters[task] = waiter
        self.owned.setdefault(child.owner, {})[task] = None
        self._hold(child, now)
        return task

    def hold_piece(self, child: Subtask, first: int, now: float) -> None:
        """Take in a piece of a map."""
        child.first = first
        self._hold(child, now)

    def _hold(self, child: Subtask, now: float) -> None:
        if self._may_run(child.options):
            self.held.hold(child, now)
        else:
            self.send(child)

    def submit_graph(
        self,
        function: Function,
        part: m.Graph,
        waiters: dict[int, object],
        inputs: Sequence[object],
    ) -> bool:
        """Ask for a graph; see :class:`ClientCore`."""
        is_asked = super().submit_graph(function, part, waiters, inputs)
        if is_asked:
            self.inputs.expect(part.first, numbers(part.inputs, "Q"))
        return is_asked

    def own_graph(self, graph: OwnGraph, tasks: Iterable[int]) -> None:
        """Note a graph that was submitted, and which of its nodes are waited for."""
        awaited = [task for task in tasks if task in self.waiters]
        for task in awaited:
            self.owned.setdefault(graph.owner, {})[task] = None
        self.graphs.add(graph, awaited)
        if not awaited:
            self._let_go(graph.kept)

    def with_needs(self, tasks: Iterable[int]) -> list[int]:
        """Return tasks, each after those that it takes the results of and that are pending."""
        return self.graphs.with_needs(tasks, self.is_pending)

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
        for child, is_here in self.held.drop_map(first, (number + 1) << CALL_BITS):
            if is_here:
                self.inlined.given_up(child)
            self._let_go(child.kept)
        super().close_call(first, asked)

    def release(self, objects: Objects) -> None:
        """Say that objects will not be named again; see :class:`ClientCore`."""
        for one in objects:
            self.views.pop(one, None)
        super().release(objects)

    def is_pending(self, task: int) -> bool:
        """Return True if a single task has not come back, or something of its map has not."""
        if self.graphs.of(task) is not None:
            return True
        call = self.calls.get(task >> CALL_BITS)
        return call.outstanding > 0 if call is not None else task in self.waiters

    # -- what is to run here -----------------------------------------------------------------

    def is_held(self, task: int) -> bool:
        """Return True if :meth:`claim` returns something."""
        graph = self.graphs.of(task)
        return bool(graph.handed_over) if graph is not None else self.held.is_here(task)

    def is_any_held(self, tasks: Iterable[int]) -> bool:
        """Return True if one of these may run here."""
        return any(map(self.is_held, tasks))

    def claim(self, task: int) -> Subtask | None:
        """Take one task out, to run it here; None if it is not held.

        Of a node that is one that may come before it.
        """
        graph = self.graphs.of(task)
        if graph is None:
            return self.held.take(task)
        for node in graph.handed_over.values():
            return self._take_node(node)
        return None

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

    def _take_node(self, node: HandedOver) -> HandedOver:
        del node.graph.handed_over[node.first]
        self.held.drop_node(node)
        return node

    def settle(
        self, child: Subtask, outcome: object, took_s: float, profile: m.Profile | None = None
    ) -> None:
        """A claimed task ended with a result in bytes, or a Failed.

        None: it was interrupted, with the task that waits for it.
        """
        is_node = type(child) is HandedOver
        if not is_node:
            self.inlined.ended(child, outcome, took_s)
        if is_node and isinstance(outcome, m.Failed) and outcome.kind == m.FAILED_MISSING:
            # It has not run. The scheduler knows whether what it needs can be had again: it lets
            # the node run, or answers with the failure.
            self.events.wanted.append(NodeRan(child.first, outcome))
        elif not is_node and child.first >> CALL_BITS:
            self._settle_piece(child, outcome, took_s)
        elif not is_node or outcome is not None:
            waiter = self.came_back(child, took_s)
            if waiter is not None:
                if profile is not None:
                    self.events.profiles[child.first] = profile
                self.events.settle(child.first, waiter, outcome)
            if is_node:
                # Other nodes may wait for it, which the scheduler gives it to.
                is_wanted = waiter is not None
                self.events.wanted.append(
                    InputWanted(child.first, waiter) if is_wanted else NodeRan(child.first, outcome)
                )

    def _settle_piece(self, child: Subtask, outcome: object, took_s: float) -> None:
        call = self.calls.get(child.first >> CALL_BITS)
        index = child.first & INDEX_MASK
        if isinstance(outcome, bytes):
            self._measure(took_s)
            if call is not None:
                call.settle(index, Batch.single(outcome))
        elif isinstance(outcome, m.Failed) and call is not None:
            call.fail(index, outcome)

    def _measure(self, took_s: float) -> None:
        self._unit_s = MEMORY * self._unit_s + (1 - MEMORY) * took_s

    def came_back(self, child: Subtask, took_s: float) -> object:
        """A claimed single task ended; return who waits for it, None if nobody does any more."""
        self._measure(took_s)
        self._pay(child.first)
        if type(child) is HandedOver:
            self._unlink(child.first)
        else:
            self._disown(child.owner, child.first)
            self._let_go(child.kept)
        return self.waiters.pop(child.first, None)

    # -- what runs elsewhere -----------------------------------------------------------------

    def recall(self, task: int) -> None:
        """Ask for a task that is away, and for some that are likely to be wanted after it.

        Those that have not gone to a worker are held again once the scheduler answers.
        """
        if self.graphs.of(task) is not None:
            self.requests.say(m.Cancel(task, 1, queued_only=True))
            return
        child = self.held.find_away(task)
        may_ask = self.is_pending(task)
        if child is not None and may_ask:
            # Whether a task that needs several cores may run here is for the scheduler to say.
            may_ask = self._may_run(replace(child.options, cores=1))
        if not may_ask:
            # There is nothing to ask for; nor for what has the next numbers.
            return
        count = max(1, min(int(HOLD_S / max(self._unit_s, 1e-6)), RECALL_MAX))
        if task >> CALL_BITS == 0:
            stop = task + 1
            while stop < task + count and self.held.is_away(stop):
                stop += 1
            count = stop - task
        self.requests.say(m.Cancel(task, count, queued_only=True))

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
        self.requests.say(m.Blocked(self._waiting > 0))
        return True

    @property
    def deadline(self) -> float:
        """When :meth:`send_away` is to be called."""
        return min(self.held.deadline, self.inlined.due_at)

    def send_away(self, now: float) -> None:
        """Let go of what has been held for long enough, and tell what ran here."""
        for told in self.inlined.take_due(now, is_idle=self.is_idle):
            self.requests.say(told)
        for child in self.held.take_due(now):
            if type(child) is HandedOver:
                del child.graph.handed_over[child.first]
            self.send(child)

    def send_now(self, tasks: Iterable[int]) -> None:
        """Let go of single tasks: they are not to run here."""
        for task in tasks:
            child = self.held.take_single(task)
            if child is not None:
                self.send(child)

    def send(self, child: Subtask) -> None:
        """Let others run a task, or a piece of a map, that is not held any more."""
        function, requests = child.function, self.requests
        if type(child) is HandedOver:
            requests.say(m.ProvideInputs(child.first, m.NOT_RUN, b""))
            return
        if child.is_recalled:
            requests.say(self.inlined.goes_again(child))
        self.held.goes_away(child)
        if child.first >> CALL_BITS:
            requests.pack_asked()
            requests.teach(*function)
            requests.submit_run(
                child.first, function[0], child.call, child.options, child.objects, child.batch
            )
            return
        waiter = self.waiters[child.first]
        key = function, child.call, child.options, child.objects
        requests.asked.append((child.first, key, bytes(child.batch.data), waiter))

    # -- the end of a task -------------------------------------------------------------------

    def give_up(self, owner: int, error: BaseException) -> list[object]:
        """A task ended: cancel what it submitted; return who waits for that.

        Whoever takes results of its maps gets the error.
        """
        singles = []
        for task in list(self.owned.get(owner, ())):
            call = self.calls.get(task >> CALL_BITS)
            if call is not None:
                self.close_call(task, call.asked)
                call.abort(error)
            elif not task >> CALL_BITS or self.graphs.of(task) is not None:
                singles.append(task)
        self.owned.pop(owner, None)
        self.coordination.give_up(owner)
        return self.cancel(singles)

    def cancel(self, tasks: Sequence[int]) -> list[object]:
        """Give single tasks up; see :class:`ClientCore`."""
        here = []
        away = []
        for task in tasks:
            self._pay(task)
            if self._unlink(task):
                away.append(task)
                continue
            child, was_away = self.held.give_up(task)
            if child is not None:
                self._disown(child.owner, task)
                self._let_go(child.kept)
            if was_away:
                away.append(task)
                continue
            if child is not None:
                self.inlined.given_up(child)
            # It was held, or runs here: the scheduler does not have it.
            waiter = self.waiters.pop(task, None)
            if waiter is not None:
                here.append(waiter)
        return here + super().cancel(away)

    # -- answers -----------------------------------------------------------------------------

    def _on_results(self, message: m.Results) -> None:
        if not message.first >> CALL_BITS or not self.graphs.is_empty:
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
        stop = message.first + message.count
        if self.graphs.has_any(message.first, stop):
            # Nodes end together, and are not run here.
            for task in range(message.first, stop):
                self._came_from_away(task)
            super()._on_cancelled(message)
            return
        self.inlined.given_back(message.count)
        for child in self.held.take_back(message.first, stop):
            self.inputs.is_here_again(child.first)
            self.held.hold(child, self.heard_at)

    def _on_request_inputs(self, message: m.RequestInputs) -> None:
        """Note who is to tell the scheduler what becomes of which input."""
        inputs = self._inputs.take(message.graph)
        wanted = numbers(message.inputs)
        if any(node >= len(inputs) for node in wanted):
            raise RemoteProtocolError("asked for an input of no graph")
        is_pending = self.waiters.__contains__
        for node in self.inputs.answer(message.graph, wanted, self.held.is_away, is_pending):
            self.events.wanted.append(InputWanted(message.graph + node, inputs[node]))

    def _on_assign_nodes(self, message: m.AssignNodes) -> None:
        """A node of a graph was recalled, and this one is ready: hold it."""
        graph = self.graphs.beginning_at(message.graph)
        if graph is not None:
            node = graph.handed_over[message.first] = HandedOver(graph, message)
            self.held.hold_node(node, self.heard_at)

    _HANDLERS: ClassVar[Handlers] = {
        **ClientCore._HANDLERS,
        m.Results: _on_results,
        m.Returned: _on_returned,
        m.Failed: _on_failed,
        m.Cancelled: _on_cancelled,
        m.RequestInputs: _on_request_inputs,
        m.AssignNodes: _on_assign_nodes,
    }

    def _came_from_away(self, task: int) -> None:
        self._pay(task)
        if not self._unlink(task):
            child = self.held.comes_back(task)
            if child is not None:
                self._disown(child.owner, task)
                self._let_go(child.kept)

    def _pay(self, task: int) -> None:
        """A task comes back, or is given up: let the scheduler be told if it waits for that."""
        for node in self.inputs.pay(task):
            self.events.wanted.append(InputWanted(node, self.waiters[task]))

    def _unlink(self, task: int) -> bool:
        """A node of a graph is not waited for any more; return False if it was not."""
        graph = self.graphs.drop(task)
        if graph is None:
            return False
        self._disown(graph.owner, task)
        if not graph.pending:
            for node in list(graph.handed_over.values()):
                self._take_node(node)
            self._let_go(graph.kept)
        return True

    def _disown(self, owner: int, task: int) -> None:
        tasks = self.owned.get(owner)
        if tasks is not None:
            tasks.pop(task, None)
            if not tasks:
                del self.owned[owner]

    def _let_go(self, kept: Objects) -> None:
        if kept:
            self.events.wanted.append(Released(kept))

    # -- as a client -------------------------------------------------------------------------

    @property
    def single_in_flight(self) -> bool:
        """Return False: nobody spins for an answer where tasks run."""
        return False
