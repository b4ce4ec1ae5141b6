"""Simulated clients, which check what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client import ClientCore
from scaler_cluster.links.link import HUB
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.nodes import Node
from scaler_cluster.testing.tasks import Task
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.client import Function
    from scaler_cluster.testing.simulation import Simulation
    from scaler_cluster.wire.batch import Buffer


class Slots:
    """The results of one map of the simulated client."""

    def __init__(self, client: ClientNode, count: int) -> None:
        self.first = 0
        self.count = count
        self._client = client
        self._done = 0

    def settle(self, index: int, batch: Any) -> None:
        for task, payload in enumerate(batch, self.first + index):
            self._client.resolve(task, bytes(payload))
        self._done += len(batch)

    def returned(self, index: int, result: object) -> None:
        raise AssertionError("no simulated task returns an object")

    def fail(self, index: int, failure: m.Failed) -> None:
        self._client.resolve(self.first + index, failure)
        self._done += 1

    def cancelled(self, index: int, count: int) -> None:
        for task in range(self.first + index, self.first + index + count):
            self._client.resolve(task, None)
        self._done += count

    @property
    def outstanding(self) -> int:
        return self.count - self._done


class ClientNode(Node):
    """A client that submits, maps and cancels."""

    def __init__(self, simulation: Simulation, name: bytes) -> None:
        super().__init__(simulation, name)
        self.core = ClientCore()
        self.resolved: dict[int, object] = {}
        self.asked: dict[int, m.TaskOptions] = {}
        self._heartbeat_at = 1.0
        self._to_submit = simulation.plan.tasks
        self.core.say(m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "simulated"))
        self.turn()
        simulation.at(simulation.now, self._submit_some)

    @property
    def is_done(self) -> bool:
        """Return True if it is gone, or has everything it will ever ask for."""
        return not self.is_alive() or (not self._to_submit and not self.core.busy)

    def resolve(self, task: int, outcome: object) -> None:
        """A task came back; never twice, and with what it should."""
        assert task not in self.resolved, f"{task} came back twice"
        self.resolved[task] = outcome
        what = Task(self.core.welcome.session, task)
        if isinstance(outcome, bytes):
            assert outcome == what.result, f"{task} came back with {outcome!r}"
            assert not what.raises
            assert not what.crashes
        elif isinstance(outcome, m.Failed) and outcome.kind == m.FAILED_EXCEPTION:
            assert what.raises, f"{task} raised"

    def check_all(self) -> None:
        """Check what is left of the promises at the end."""
        if not self.is_alive():
            return
        assert self.resolved.keys() == self.asked.keys()
        for task, options in self.asked.items():
            if options.at_most_once:
                starts = self.simulation.started.get((self.core.welcome.session, task), 0)
                assert starts <= 1, f"{task} was started {starts} times"

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.core.receive(self.exchange.receive(HUB, frames, self.simulation.now), 0.0)
        assert not self.core.refused
        assert not self.core.broken
        self.turn()

    def turn(self) -> None:
        core, now = self.core, self.simulation.now
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + 1.0
            core.say(m.Heartbeat())
        settled, core.settled = core.settled, []
        for waiter, outcome in settled:
            plain = bytes(outcome) if isinstance(outcome, memoryview) else outcome
            self.resolve(waiter.task, plain)  # type: ignore[attr-defined]
        if core.lost:
            # The scheduler gave it up while it was paused: what the shell does is break.
            self.stop()
            return
        self.tell_hub(core.take_actions())
        self.set_timer(min(self._heartbeat_at, self.exchange.deadline))

    def _submit_some(self) -> None:
        if not self.is_alive() or not self._to_submit:
            return
        if self.simulation.plan.tasks_waiting_max >= 0 and not self.core.welcome.session:
            # It will be told that it has to ask first.
            self.simulation.at(self.simulation.now + 0.1, self._submit_some)
            return
        dice = self.simulation.random
        count = min(self._to_submit, dice.randint(1, 30))
        self._to_submit -= count
        function = bytes([dice.randint(1, 3)]) * 16, b"function", ()
        options = dice.choice(
            (
                m.DEFAULT_OPTIONS,
                m.TaskOptions(priority=dice.randint(-1, 1)),
                m.TaskOptions(retries=2),
                m.TaskOptions(at_most_once=True),
                m.TaskOptions(timeout_s=0.03),
            )
        )
        if dice.random() < 0.5:
            self._map(function, count, options)
        else:
            self._submit(function, count, options)
        self.turn()
        self.simulation.at(self.simulation.now + dice.uniform(0, 0.5), self._submit_some)

    def _map(self, function: Function, count: int, options: m.TaskOptions) -> None:
        from scaler_cluster.wire.batch import Batch

        call = Slots(self, count)
        call.first = self.core.open_call(call)
        numbers = range(call.first, call.first + count)
        batch = Batch.of([Task(0, number).payload for number in numbers])
        self.core.teach(*function)
        self.core.submit_run(call.first, function[0], m.CALL_ARGS, options, (), batch)
        self.asked.update(dict.fromkeys(numbers, options))

    def _submit(self, function: Function, count: int, options: m.TaskOptions) -> None:
        waiters = []
        for _ in range(count):
            waiter = Waiter()
            number = self.core.next_task
            payload = Task(0, number).payload
            waiter.task = self.core.submit(function, m.CALL_ARGS, options, (), payload, waiter)
            self.asked[waiter.task] = options
            waiters.append(waiter.task)
        if self.simulation.random.random() < 0.3:
            some = self.simulation.random.sample(waiters, max(1, count // 3))
            later = self.simulation.now + self.simulation.random.uniform(0, 1)
            self.simulation.at(later, lambda: self._cancel(some))

    def _cancel(self, tasks: list[int]) -> None:
        if self.is_alive():
            for waiter in self.core.cancel(tasks):
                self.resolve(waiter.task, None)  # type: ignore[attr-defined]
            self.turn()


class Waiter:
    """Stands for a future."""

    task = -1
