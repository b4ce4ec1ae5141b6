"""The processes of a simulated cluster: real cores and exchanges, simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core import invariants
from scaler_cluster.core.exchange import Exchange
from scaler_cluster.core.scheduler import SchedulerConfig, SchedulerCore
from scaler_cluster.core.supervisor import Exit, SupervisorConfig, SupervisorCore
from scaler_cluster.core.worker import FLUSH_S, Work, WorkerCore
from scaler_cluster.links.link import HUB
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.tasks import Task
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.testing.simulation import Simulation
    from scaler_cluster.wire.batch import Buffer

HUB_NAME = b"hub"


class Node:
    """Somebody with an exchange and a timer."""

    def __init__(self, simulation: Simulation, name: bytes) -> None:
        self.simulation = simulation
        self.name = name
        self.paused_until = 0.0
        self.exchange = Exchange(simulation.random.getrandbits(31) + 1)
        self._timer_at = float("inf")
        if name != HUB_NAME:
            simulation.nodes[name] = self

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """An envelope arrived."""
        raise NotImplementedError

    def turn(self) -> None:
        """Act on what is due, and send what is to be sent."""
        raise NotImplementedError

    def is_alive(self) -> bool:
        """Return True unless it crashed or left."""
        return self.name == HUB_NAME or self.simulation.nodes.get(self.name) is self

    def stop(self) -> None:
        """Vanish."""
        self.simulation.nodes.pop(self.name, None)

    def tell_hub(self, messages: list[m.Message]) -> None:
        """Send messages and what the exchange has due, and set the timer for the next time."""
        now, carry = self.simulation.now, self.simulation.carry
        if messages:
            carry(self.name, HUB_NAME, self.exchange.send(HUB, messages, now))
        for _, frames in self.exchange.tick(now):
            carry(self.name, HUB_NAME, frames)

    def set_timer(self, when: float) -> None:
        """Have a turn then, unless one comes before."""
        if when < self._timer_at:
            self._timer_at = max(when, self.simulation.now)
            self.simulation.at(self._timer_at, self._on_timer)

    def _on_timer(self) -> None:
        if not self.is_alive() or self.simulation.now < self._timer_at:
            return
        if self.paused_until > self.simulation.now:
            self._timer_at = self.paused_until
            self.simulation.at(self.paused_until, self._on_timer)
            return
        self._timer_at = float("inf")
        self.turn()


class SchedulerNode(Node):
    """The scheduler."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, HUB_NAME)
        config = SchedulerConfig(
            PYTHON,
            client_timeout_s=30.0,
            supervisor_timeout_s=10.0,
            tasks_waiting_max=simulation.plan.tasks_waiting_max,
        )
        self.core = SchedulerCore(config, 0.0)
        self._steps = 0

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        now = self.simulation.now
        messages = self.exchange.receive(source, frames, now)
        if messages and type(messages[0]) is m.Unknown:
            self.simulation.carry(HUB_NAME, source, self.exchange.unknown())
        else:
            self.core.receive(source, messages, now)
        self.turn()

    def turn(self) -> None:
        now, carry = self.simulation.now, self.simulation.carry
        if now >= self.core.deadline:
            self.core.tick(now)
        for peer, messages in self.core.take_actions(now).items():
            carry(HUB_NAME, peer, self.exchange.send(peer, messages, now))
        for peer in self.core.take_gone():
            self.exchange.drop(peer)
        for peer, frames in self.exchange.tick(now):
            carry(HUB_NAME, peer, frames)
        self._steps += 1
        if self._steps % self.simulation.plan.check_every == 0:
            invariants.check(self.core)
        self.set_timer(min(self.core.deadline, self.exchange.deadline))


class SupervisorNode(Node):
    """A machine: a supervisor and its workers."""

    def __init__(self, simulation: Simulation, name: bytes, workers: int) -> None:
        super().__init__(simulation, name)
        self.core = SupervisorCore(SupervisorConfig(workers), name, "simulated", simulation.now)
        self.core.start(simulation.now)
        self._workers: dict[int, WorkerNode] = {}
        self.tell_hub(
            [m.Hello(m.SUPERVISOR, m.PROTOCOL_VERSION, PYTHON, 1, "simulated", workers=workers)]
        )
        self.turn()

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.core.receive(self.exchange.receive(HUB, frames, self.simulation.now))
        self.turn()

    def turn(self) -> None:
        simulation, core = self.simulation, self.core
        if core.leave is not None:
            self.crash(15)
            return
        core.tick(simulation.now)
        for index, peer in core.to_spawn:
            self._workers[index] = WorkerNode(simulation, peer, self, index)
            core.spawned(index, index + 100)
        core.to_spawn.clear()
        kills, core.to_kill[:] = list(core.to_kill), []
        for index in kills:
            if index in self._workers:
                self._workers[index].crash(9)
        self.tell_hub(core.take_actions())
        self.set_timer(min(core.deadline, self.exchange.deadline))

    def reap(self, worker: WorkerNode, number: int | None) -> None:
        """A worker of this machine ended."""
        if not self.is_alive() or self._workers.get(worker.index) is not worker:
            return
        del self._workers[worker.index]
        session, task = worker.running
        code = None if number is not None else 0
        end = Exit(worker.index + 100, code, number, 0, "", True, False, session, task)
        self.core.died(worker.index, end, self.simulation.now)
        self.turn()

    def crash(self, number: int) -> None:
        """The machine is gone, with its workers; another one comes."""
        self.stop()
        self.simulation.machines_lost += 1
        for worker in list(self._workers.values()):
            worker.stop()
        self.simulation.at(self.simulation.now + 0.5, self.simulation.add_machine)


class WorkerNode(Node):
    """A worker process: runs tasks one after the other, each for a simulated while."""

    def __init__(
        self, simulation: Simulation, name: bytes, supervisor: SupervisorNode, index: int
    ) -> None:
        super().__init__(simulation, name)
        self.core = WorkerCore()
        self.index = index
        self.running = (0, 0)
        self._supervisor = supervisor
        self._in_task = False
        self._run = 0
        self._flush_at = 0.0
        hello = m.Hello(m.WORKER, m.PROTOCOL_VERSION, PYTHON, 1, "simulated", supervisor.name)
        self.tell_hub([hello])

    def crash(self, number: int) -> None:
        """The process is killed; its supervisor notices."""
        if self.is_alive():
            self.stop()
            now = self.simulation.now
            self.simulation.at(now + 0.001, lambda: self._supervisor.reap(self, number))

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.core.receive(self.exchange.receive(HUB, frames, self.simulation.now))
        if self._in_task and self.core.interrupt_due():
            work = self.core.queue[0]
            if not Task(work.session, work.first + work.cursor).is_stubborn:
                self.core.last_end = self.simulation.now
                self._end(lambda: self.core.interrupted(work))
        self.turn()

    def turn(self) -> None:
        core, now = self.core, self.simulation.now
        if not self._in_task:
            self._begin_next()
        if now >= self._flush_at or not core.queue:
            core.flush()
            self._flush_at = now + FLUSH_S
        self.tell_hub(core.take_actions())
        if core.leave is not None and not core.queue:
            self.stop()
            self.simulation.at(now, lambda: self._supervisor.reap(self, None))
            return
        due = self._flush_at if core.queue else float("inf")
        self.set_timer(min(due, self.exchange.deadline))

    def _begin_next(self) -> None:
        core, simulation = self.core, self.simulation
        while core.queue:
            work = core.queue[0]
            work.cursor += 1
            if work.cursor >= work.stop:
                core.finish(work)
                continue
            if work.cursor == 0 or not core.results:
                core.begin(work, simulation.now)
            if work.message.report_start:
                core.started(work)
            self._start(work)
            return

    def _start(self, work: Work) -> None:
        simulation = self.simulation
        task = Task(work.session, work.first + work.cursor)
        payload = bytes(list(work.batch)[work.cursor])
        assert payload == task.payload, f"{task} got {payload!r}"
        self.running = (task.session, task.number)
        key = (task.session, task.number)
        simulation.started[key] = simulation.started.get(key, 0) + 1
        self._in_task = True
        self._run += 1
        run = self._run
        simulation.at(simulation.now + task.takes_s, lambda: self._on_task_end(run, work, task))

    def _on_task_end(self, run: int, work: Work, task: Task) -> None:
        if not self.is_alive() or run != self._run or not self._in_task:
            return
        if self.paused_until > self.simulation.now:
            self.simulation.at(self.paused_until, lambda: self._on_task_end(run, work, task))
            return
        core = self.core
        if task.crashes:
            self.crash(11)
            return
        core.last_end = self.simulation.now
        if task.raises:
            self._end(lambda: core.erred(work, m.FAILED_EXCEPTION, task.result, {}))
        else:
            core.results.append(task.result)
            self._in_task = False
        self.turn()

    def _end(self, report: Callable[[], None]) -> None:
        report()
        self._in_task = False
