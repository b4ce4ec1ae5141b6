"""The session of the tasks of a simulated worker."""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client.events import InputWanted, NodeRan, Released
from scaler_cluster.core.worker.nested import NestedCore
from scaler_cluster.core.worker.subtasks import HandedOver, OwnGraph, Subtask
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.sessions import FUNCTIONS, SessionNode, Slots, Waiter
from scaler_cluster.testing.tasks import Task
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.client.events import ClientEvent
    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.testing.graphs import SimulatedGraph
    from scaler_cluster.testing.world import SessionHost
    from scaler_cluster.wire.batch import Buffer


class NestedNode(SessionNode):
    """What the tasks of a worker submit; one for all of them."""

    core: NestedCore

    def __init__(self, worker: SessionHost) -> None:
        core = NestedCore(worker.may_run)
        super().__init__(worker.simulation, worker.simulation.name("N"), core, worker.host)
        self.owner = 0
        """The task that submits, by the number of its run."""
        self.paused_until = worker.paused_until
        self.uninterrupted = nullcontext()
        self._ran: dict[int, Task] = {}
        """Nodes of graphs that ran here, until the scheduler is told."""
        self._worker = worker
        hello = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "simulated", worker=worker.name)
        self.core.requests.say(hello)
        self.turn()

    @property
    def is_over(self) -> bool:
        """Return True if nothing will ever come back."""
        return self.is_lost or self.is_refused

    @property
    def is_idle(self) -> bool:
        """See :class:`Node`."""
        return not self.core.busy

    def pause(self, until: float) -> None:
        """See :class:`Node`."""
        self._worker.pause(until)

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.take_in(frames)
        self.turn()
        self._worker.turn()

    def turn(self) -> None:
        core, now = self.core, self.simulation.now
        self.beat()
        if self.is_lost:
            # What the shell does is break.
            self.cancelled(core.cancel(core.pending()))
            core.abort_calls(CancelledError())
        core.send_away(now)
        self.handle(core.events.take())
        self.tell_hub(core.take_actions())
        self.set_timer(min(self._liveness.heartbeat_at, core.deadline))

    def handle(self, events: Sequence[ClientEvent]) -> None:
        """See :class:`SessionNode`."""
        for event in events:
            if isinstance(event, Released):
                self.release(event.objects)
            elif isinstance(event, NodeRan):
                self._supply_node(event.task, event.outcome)
            elif isinstance(event, InputWanted) and event.task in self._ran:
                self._supply_node(event.task, self.resolved[event.task])
            else:
                super().handle([event])

    def _supply_node(self, task: int, outcome: object) -> None:
        """Tell the scheduler what became of a node that ran here."""
        node = self._ran.pop(task)
        if isinstance(outcome, m.Failed):
            self.core.requests.say(m.ProvideInputs(task, outcome.kind, outcome.payload))
            return
        assert isinstance(outcome, bytes)
        if node.segments:
            one = self.store_bytes(outcome)
            self.core.requests.say(m.ProvideInputs(task, "", b"large", (one,)))
            self.release((one,))
        else:
            self.core.requests.say(m.ProvideInputs(task, "", outcome))

    # -- asking ------------------------------------------------------------------------------

    def _submit(
        self, task: Task, options: m.TaskOptions, function: Function, objects: tuple[bytes, ...]
    ) -> int:
        batch = Batch.single(task.payload)
        child = Subtask(self.owner, function, m.CALL_ARGS, options, objects, batch, objects)
        waiter = Waiter()
        waiter.task = self.core.hold(child, waiter, self.simulation.now)
        self.set_timer(self.core.held.deadline)
        return waiter.task

    def open_call(self, call: Slots) -> int:
        return self.core.open_nested_call(call, self.owner)

    def _submit_run(
        self, first: int, batch: Batch, options: m.TaskOptions, function: Function
    ) -> None:
        child = Subtask(self.owner, function, m.CALL_ARGS, options, (), batch)
        self.core.hold_piece(child, first, self.simulation.now)
        self.set_timer(self.core.held.deadline)

    def ask_graph(
        self, graph: SimulatedGraph, inputs: Sequence[int] = (), parts: int = 1
    ) -> list[int]:
        """See :class:`SessionNode`."""
        pending = [task for task in inputs if task not in self.resolved]
        wanted = super().ask_graph(graph, inputs, parts)
        first = wanted[0] - graph.wanted[0]
        options, kinds = tuple(graph.options), graph.kinds
        own = OwnGraph(self.owner, first, FUNCTIONS[0], options, kinds, pending)
        self.core.own_graph(own, wanted)
        self.turn()
        return wanted

    def stored(self, one: bytes, content: bytes) -> None:
        """See :class:`SessionNode`."""
        self.core.views[one] = memoryview(content)

    # -- what ran here -----------------------------------------------------------------------

    def end_owner(self, owner: int) -> None:
        """A task ended: nobody waits for what it submitted."""
        if owner not in self.core.owned:
            return
        self.cancelled(self.core.give_up(owner, CancelledError()))
        self.turn()

    def settle(self, child: Subtask, outcome: Any, took_s: float) -> None:
        """A task that ran here ended; None: it was interrupted."""
        if type(child) is HandedOver and outcome is not None:
            self._ran[child.first] = Task.of(bytes(child.batch.data))
        elif outcome is None:
            self.given_up.add(child.first)
        self.core.settle(child, outcome, took_s)
        self.turn()

    # -- for a thread that waits -------------------------------------------------------------

    def with_needs(self, tasks: deque[int]) -> deque[int]:
        """See :class:`WaitingSession`."""
        return deque(self.core.with_needs(tasks))

    def is_held(self, tasks: deque[int]) -> bool:
        """See :class:`WaitingSession`."""
        return self.core.is_any_held(list(tasks))

    def send_now(self, tasks: deque[int]) -> None:
        """See :class:`WaitingSession`."""
        self.core.send_now(tasks)

    def recall(self, tasks: deque[int], turn: int) -> None:
        """See :class:`WaitingSession`."""
        self.core.recall_some(tasks, turn)

    def count_waiting(self, change: int) -> None:
        """See :class:`WaitingSession`."""
        if self.is_alive() and self.core.count_waiting(change):
            self.turn()

    def check_over(self) -> None:
        """See :class:`SessionNode`."""
        super().check_over()
        assert self.core.is_idle, "something is left in the core"
