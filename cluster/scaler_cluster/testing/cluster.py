"""A whole cluster in one thread: real cores and exchanges, a simulated network, one seed.

The seed decides every delay, drop, duplicate, crash, pause and task. After each step of the
scheduler its invariants are checked, and what workers and clients see is checked against the
promises; when the faults end, everything that live clients asked for has to come back.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaler_cluster.core import invariants
from scaler_cluster.core.client import ClientCore
from scaler_cluster.core.exchange import Exchange
from scaler_cluster.core.scheduler import SchedulerConfig, SchedulerCore
from scaler_cluster.core.supervisor import Exit, SupervisorConfig, SupervisorCore
from scaler_cluster.core.worker import FLUSH_S, Work, WorkerCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.links.link import HUB
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.wire.batch import Buffer

PYTHON = "3.11"
HUB_NAME = b"hub"
END_S = 600.0
"""Simulated seconds after which whatever is still pending will never come."""


@dataclass(frozen=True)
class Plan:
    """What a simulation consists of."""

    machines: int = 2
    workers: int = 3
    clients: int = 2
    tasks: int = 60
    """Tasks of each client."""
    faults_s: float = 8.0
    """Until when things go wrong, in simulated seconds."""
    drop: float = 0.03
    duplicate: float = 0.03
    worker_crashes: int = 4
    machine_crashes: int = 1
    pauses: int = 3
    leavers: int = 0
    """Clients that vanish."""
    check_every: int = 1
    """Steps of the scheduler between two looks at its invariants."""


class Simulation:
    """Time, the network and everybody in it."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self.random = random.Random(seed)  # noqa: S311 - it is to be repeated
        self.now = 0.0
        self.faulty = True
        self.digest = hashlib.blake2b()
        self.machines_lost = 0
        self.started: dict[tuple[int, int], int] = {}
        """How often each task of each session was started."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._arrives: dict[tuple[bytes, bytes], float] = {}
        self.nodes: dict[bytes, Node] = {}
        self.hub = SchedulerNode(self)
        self._names = itertools.count(1)
        for _ in range(self.plan.machines):
            self.add_machine()
        self.clients = [ClientNode(self, self.name("C")) for _ in range(self.plan.clients)]
        self._plan_faults()

    def name(self, letter: str) -> bytes:
        """Return a new peer id."""
        return letter.encode() + next(self._names).to_bytes(12, "big")

    def add_machine(self) -> None:
        """Start a supervisor."""
        SupervisorNode(self, self.name("S"), self.plan.workers)

    def _plan_faults(self) -> None:
        plan, moment = self.plan, self.random.uniform
        for _ in range(plan.worker_crashes):
            self.at(moment(0, plan.faults_s), lambda: self._crash(WorkerNode))
        for _ in range(plan.machine_crashes):
            self.at(moment(0, plan.faults_s), lambda: self._crash(SupervisorNode))
        for _ in range(plan.pauses):
            self.at(moment(0, plan.faults_s), self._pause)
        for client in self.clients[: plan.leavers]:
            self.at(moment(0, plan.faults_s), client.stop)
        self.at(plan.faults_s, self._heal)

    def _some(self, kind: type[Any]) -> Any:
        found = [node for node in self.nodes.values() if isinstance(node, kind)]
        return self.random.choice(found) if found else None

    def _crash(self, kind: type[Any]) -> None:
        victim = self._some(kind)
        if victim is not None:
            victim.crash(9)

    def _pause(self) -> None:
        victim = self._some(Node)
        victim.paused_until = self.now + self.random.uniform(0.01, 3.0)

    def _heal(self) -> None:
        self.faulty = False

    # -- time --------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call ``act`` then."""
        heapq.heappush(self._events, (max(when, self.now), next(self._count), act))

    def run(self) -> str:
        """Run until everything has come back; return a digest of all that was sent.

        Raises AssertionError if a promise is broken.
        """
        while self.faulty or not self._is_quiet():
            assert self._events, f"{self.now:.3f}: nothing will ever happen any more"
            self.now, _, act = heapq.heappop(self._events)
            assert self.now < END_S, f"never came back: {self._pending()}"
            act()
        for client in self.clients:
            client.check_all()
        return self.digest.hexdigest()

    def _is_quiet(self) -> bool:
        table = self.hub.core.table
        idle = not table.in_flight and not table.ready.count
        return idle and all(client.is_done for client in self.clients)

    def _pending(self) -> list[str]:
        table = self.hub.core.table
        runs = [str(run) for session in table.sessions.values() for run in session.runs.values()]
        waiting = [str(list(client.core.waiters)) for client in self.clients if not client.is_done]
        return runs[:5] + waiting[:5]

    # -- the network -------------------------------------------------------------------------

    def carry(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        """Deliver an envelope after a while, in order, unless it is lost or repeated."""
        self.digest.update(source + target + b"".join(bytes(frame) for frame in frames))
        luck = self.random.random()
        copies = 1
        if self.faulty and luck < self.plan.drop:
            copies = 0
        elif self.faulty and luck > 1 - self.plan.duplicate:
            copies = 2
        copy: list[Buffer] = [bytes(frame) for frame in frames]
        for _ in range(copies):
            delay = self.random.choice((0.00005, 0.0002, 0.001, 0.02))
            arrives = max(self.now + delay, self._arrives.get((source, target), 0.0))
            self._arrives[source, target] = arrives
            self.at(arrives, lambda: self._deliver(source, target, copy))

    def _deliver(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        node = self.hub if target == HUB_NAME else self.nodes.get(target)
        if node is None:
            return
        if node.paused_until > self.now:
            self.at(node.paused_until, lambda: self._deliver(source, target, frames))
        else:
            node.receive(source, frames)


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
        config = SchedulerConfig(PYTHON, client_timeout_s=30.0, supervisor_timeout_s=10.0)
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


@dataclass(frozen=True)
class Task:
    """What a task does; its number alone decides, so everybody knows."""

    session: int
    number: int

    @property
    def _dice(self) -> int:
        return (self.number * 2654435761 + self.session * 40503) >> 4 & 0xFFFF

    @property
    def payload(self) -> bytes:
        """Its arguments; the session is not known when they are made."""
        return b"p%d" % self.number

    @property
    def result(self) -> bytes:
        return b"r%d" % self.number

    @property
    def takes_s(self) -> float:
        return (0.00001, 0.0001, 0.001, 0.01, 0.05, 0.4)[self._dice % 6]

    @property
    def raises(self) -> bool:
        return self._dice % 17 == 3

    @property
    def crashes(self) -> bool:
        return self._dice % 29 == 5

    @property
    def is_stubborn(self) -> bool:
        return self._dice % 11 == 7


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
        what = Task(self.core.session, task)
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
                starts = self.simulation.started.get((self.core.session, task), 0)
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
            known = isinstance(outcome, m.Failed) or outcome is None
            self.resolve(waiter.task, outcome if known else bytes(outcome))  # type: ignore[attr-defined, arg-type]
        if core.lost:
            # The scheduler gave it up while it was paused: what the shell does is break.
            self.stop()
            return
        self.tell_hub(core.take_actions())
        self.set_timer(min(self._heartbeat_at, self.exchange.deadline))

    def _submit_some(self) -> None:
        if not self.is_alive() or not self._to_submit:
            return
        dice, core = self.simulation.random, self.core
        count = min(self._to_submit, dice.randint(1, 30))
        self._to_submit -= count
        function = bytes([dice.randint(1, 3)]) * 16
        core.teach(function, b"function")
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

    def _map(self, function: bytes, count: int, options: m.TaskOptions) -> None:
        from scaler_cluster.wire.batch import Batch

        call = Slots(self, count)
        call.first = self.core.open_call(call)
        numbers = range(call.first, call.first + count)
        batch = Batch.of([Task(0, number).payload for number in numbers])
        self.core.submit_run(call.first, function, m.CALL_ARGS, options, batch)
        self.asked.update(dict.fromkeys(numbers, options))

    def _submit(self, function: bytes, count: int, options: m.TaskOptions) -> None:
        waiters = []
        for _ in range(count):
            waiter = Waiter()
            number = self.core._next_single
            payload = Task(0, number).payload
            waiter.task = self.core.submit(function, m.CALL_ARGS, options, payload, waiter)
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


def simulate(seed: int, plan: Plan | None = None) -> str:
    """Run one simulation; return its digest. A failure names the line that repeats it."""
    try:
        return Simulation(seed, plan).run()
    except (AssertionError, RemoteProtocolError) as error:
        raise AssertionError(
            f"{error}\nrepeat it: simulate({seed}, {plan}) of scaler_cluster.testing.cluster"
        ) from error
