"""The session of the tasks of a simulated worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.nested import NestedCore
from scaler_cluster.core.subtasks import HandedOver, OwnGraph, Subtask
from scaler_cluster.ids import call_of
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.clients import FUNCTIONS, SessionNode, Slots, Waiter
from scaler_cluster.testing.tasks import Task
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.client import Function
    from scaler_cluster.testing.graphs import SimulatedGraph
    from scaler_cluster.testing.machines import WorkerNode
    from scaler_cluster.wire.batch import Buffer


class NestedNode(SessionNode):
    """What the tasks of a worker submit; one for all of them."""

    core: NestedCore

    def __init__(self, worker: WorkerNode) -> None:
        core = NestedCore(worker.may_run)
        super().__init__(worker.simulation, worker.simulation.name("N"), core)
        self.owner = 0
        """The task that submits, by the number of its run."""
        self.paused_until = worker.paused_until
        self._worker = worker
        hello = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "simulated", worker=worker.name)
        self.core.say(hello)
        self.turn()

    @property
    def is_over(self) -> bool:
        """Return True if nothing will ever come back."""
        return bool(self.core.lost or self.core.refused)

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
        if core.lost:
            # What the shell does is break.
            self.cancelled(core.cancel(core.pending()))
            for call in list(core.calls.values()):
                self.give_up([call.first])  # type: ignore[attr-defined]
        core.send_away(now)
        while core.ended:
            self.release(core.ended.pop())
        self.supply_unmet()
        self.tell_hub(core.take_actions())
        self.set_timer(min(self._heartbeat_at, core.deadline))

    # -- asking ------------------------------------------------------------------------------

    def _submit(
        self, task: Task, options: m.TaskOptions, function: Function, objects: tuple[bytes, ...]
    ) -> int:
        batch = Batch.single(task.payload)
        child = Subtask(self.owner, function, m.CALL_ARGS, options, objects, batch, objects)
        waiter = Waiter()
        waiter.task = self.core.hold(child, waiter, self.simulation.now)
        self.set_timer(self.core.deadline)
        return waiter.task

    def open_call(self, call: Slots) -> int:
        return self.core.open_nested_call(call, self.owner)

    def _submit_run(
        self, first: int, batch: Batch, options: m.TaskOptions, function: Function
    ) -> None:
        child = Subtask(self.owner, function, m.CALL_ARGS, options, (), batch)
        self.core.hold_piece(child, first, self.simulation.now)
        self.set_timer(self.core.deadline)

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
        waiters, calls = self.core.give_up(owner)
        for call in calls:
            assert isinstance(call, Slots)
            self.give_up([call.first])
        self.cancelled(waiters)
        self.turn()

    def settle(self, child: Subtask, outcome: Any, took_s: float) -> None:
        """A task that ran here ended; None: it was interrupted."""
        if type(child) is HandedOver:
            self._settle_lent(child, outcome, took_s)
            return
        if call_of(child.first):
            if isinstance(outcome, bytes):
                self.core.returned_here(child, outcome, took_s)
            elif outcome is not None:
                self.core.failed_here(child, outcome)
            return
        waiter = self.core.came_back(child, took_s)
        if waiter is not None:
            if outcome is None:
                self.given_up.add(child.first)
            self.resolve(child.first, outcome)
        self.turn()

    def _settle_lent(self, lent: HandedOver, outcome: Any, took_s: float) -> None:
        """The same of a node: the scheduler is told as well."""
        if outcome is None:
            return
        if self.core.came_back(lent, took_s) is not None:
            self.resolve(lent.first, outcome)
        if isinstance(outcome, m.Failed):
            self.core.say(m.ProvideInputs(lent.first, outcome.kind, outcome.payload))
        elif Task.of(bytes(lent.batch.data)).segments:
            one = self.store_bytes(outcome)
            self.core.say(m.ProvideInputs(lent.first, "", b"large", (one,)))
            self.release((one,))
        else:
            self.core.say(m.ProvideInputs(lent.first, "", outcome))
        self.turn()

    def check_over(self) -> None:
        """See :class:`SessionNode`."""
        super().check_over()
        core = self.core
        left = core.owned, core.ended, core.views, core._callers
        held = core._local, core._local_pieces, core._submitted, core._submitted_pieces
        graphs = core._linked, core.graphs, core._input_tasks, core._watched, core._owed
        assert not any(left + held + graphs), f"left in the core: {left}, {held}, {graphs}"
        assert core._waiting == 0, "still blocked"
