"""Two levels of schedulers: each machine has one, and a foreman between it and the centre.

:class:`Study` is the simulation of a whole cluster, with such machines in place of others: the same
clients, tasks, faults and checks. In addition, schedulers of machines are killed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.ids import HUB
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.foreman import ForemanCore
from scaler_cluster.testing.limits import limited
from scaler_cluster.testing.local_world import LocalScheduler, LocalWorld
from scaler_cluster.testing.machines import SupervisorNode
from scaler_cluster.testing.nodes import Node
from scaler_cluster.testing.plan import Plan
from scaler_cluster.testing.sessions import HEARTBEAT_S
from scaler_cluster.testing.simulation import Simulation
from scaler_cluster.testing.wide import WIDTHS, wide_workers
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

PLAN = Plan(
    tasks=40, levels=1, machines=3, clients=3, leavers=1, worker_crashes=6, machine_crashes=2,
    scheduler_crashes=2, silences=1, stops=1, partitions=2, overtakings=2, task_limit=20,
    has_changing_machines=True,
)  # fmt: skip
"""What goes wrong in two levels, at most; schedulers of machines are killed besides."""
LOCAL_CRASHES = 3


class Mouth(Node):
    """One of the peers that a foreman is: it hands on what is said to it."""

    def __init__(self, world: World, foreman: Foreman, letter: str, host: bytes) -> None:
        super().__init__(world, world.name(letter), host)
        self._foreman = foreman
        self.heard: Callable[[list[m.Message]], None] = lambda _: None

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """See :class:`Node`."""
        self.heard(self.exchange.receive(HUB, frames, self.simulation.now))
        self._foreman.turn()

    def turn(self) -> None:
        """See :class:`Node`."""
        self._foreman.turn()

    def start_over(self) -> list[m.Message]:
        """Speak as somebody else from now on; return what may not have arrived."""
        undelivered = self.exchange.undelivered(HUB)
        self.exchange = Exchange(self.simulation.random.getrandbits(31) + 1)
        return undelivered

    def pause(self, until: float) -> None:
        """See :class:`Node`: it is one process."""
        for mouth in self._foreman.mouths:
            mouth.paused_until = max(mouth.paused_until, until)

    @property
    def is_idle(self) -> bool:
        """See :class:`Node`."""
        return self._foreman.core.is_idle

    def check_over(self) -> None:
        """See :class:`Node`."""
        core = self._foreman.core
        assert core.is_idle, "a foreman has what nobody waits for"
        kept = core.client.requests.unfinished
        assert kept is not None
        assert kept.is_empty, "a foreman would ask again for what came back"


class Foreman:
    """A process with three peers: a supervisor and a worker at the centre, a client here."""

    def __init__(
        self, outside: World, world: LocalWorld, width: int, capabilities: m.Capabilities
    ) -> None:
        host = world.hub_name
        self.core = ForemanCore(width)
        self.world = world
        self.originals: dict[int, tuple[int, int]] = {}
        """Session and task at the centre, by the number that the task has here."""
        self.sessions: set[int] = set()
        """Those that it had here."""
        self._heartbeat_at = outside.now + HEARTBEAT_S
        who = m.PROTOCOL_VERSION, PYTHON, 1, "simulated"
        self._hello = m.Hello(m.SUPERVISOR, *who, workers=1)
        self.overseer = Mouth(outside, self, "S", host)
        self.overseer.heard = self._overseer_heard
        self._worker_hello = m.Hello(
            m.WORKER, *who, self.overseer.name, place=world.home.place, capabilities=capabilities
        )
        self._client_hello = m.Hello(m.CLIENT, *who)
        self.client = Mouth(world, self, "F", host)
        self.client.heard = self._client_heard
        self.core.client.requests.say(self._client_hello)
        world.hub.on_report = self._on_report
        self.worker = self._new_worker()
        self._is_welcome = False
        self.overseer.tell_hub([self._hello])
        self.turn()

    @property
    def mouths(self) -> tuple[Mouth, ...]:
        """All of its peers."""
        return self.overseer, self.worker, self.client

    def _new_worker(self) -> Mouth:
        worker = Mouth(self.overseer.simulation, self, "W", self.overseer.host)
        worker.heard = self.core.receive
        WIDTHS[worker.name] = self.core.width
        return worker

    def stop(self) -> None:
        """Vanish."""
        for mouth in self.mouths:
            mouth.stop()

    # -- what is heard -----------------------------------------------------------------------

    def _overseer_heard(self, messages: Sequence[m.Message]) -> None:
        heard = {type(message) for message in messages}
        if m.Welcome in heard and not self._is_welcome:
            self._is_welcome = True
            self.worker.tell_hub([self._worker_hello])
        if m.Unknown in heard:
            self.overseer.start_over()
            hello = replace(self._hello, resume=1)
            self.overseer.tell_hub([hello, m.Roll((self.worker.name,), is_whole=True)])

    def _client_heard(self, messages: list[m.Message]) -> None:
        client = self.core.client
        client.receive(messages, self.world.now)
        self.sessions.add(client.welcome.session)
        if any(isinstance(one, m.Unknown) for one in self.core.settle()):
            self.client.start_over()
            client.start_over(self._client_hello)

    def _on_report(self, message: m.Message) -> None:
        """A worker of this machine reported: what the scheduler here would tell its client."""
        if getattr(message, "session", 0) != self.core.client.welcome.session:
            return
        if isinstance(message, m.Done):
            self.core.took(message.first, len(message.batch), message.busy_s)
        elif isinstance(message, m.Erred | m.Stored):
            self.core.took(message.task, 1, message.busy_s)
        elif isinstance(message, m.Started) and self.client.paused_until <= self.world.now:
            self.core.started(message.task)
            self.turn()

    # -- turns -------------------------------------------------------------------------------

    def turn(self) -> None:
        """Hand on what there is, and set the timers."""
        core, now = self.core, self.world.now
        if not self.worker.is_alive():
            return
        if core.is_given_up:
            core.begin_anew()
            self.worker.stop()
            self.worker = self._new_worker()
            self.worker.tell_hub([self._worker_hello])
        elif core.is_unknown:
            undelivered = self.worker.start_over()
            hello = replace(self._worker_hello, resume=1)
            self.worker.tell_hub([hello, *core.come_back(undelivered)])
        for one in core.feed():
            self.originals[one.local] = one.session, one.task
        beats = now >= self._heartbeat_at
        if beats:
            self._heartbeat_at = now + HEARTBEAT_S
            core.client.requests.beat()
        self.client.tell_hub(core.client.take_actions())
        self.worker.tell_hub(core.take_actions(now))
        self.overseer.tell_hub([m.Heartbeat()] if beats else [])
        self.worker.set_timer(core.deadline)
        self.overseer.set_timer(self._heartbeat_at)

    def original(self, session: int, task: int) -> tuple[int, int] | None:
        """Return what a task here is at the centre; None: no task of the centre."""
        return self.originals.get(task) if session in self.sessions else None


class Machine(SupervisorNode):
    """The supervisor of a machine that has a scheduler and a foreman."""

    def __init__(self, outside: World, number: int, workers: int) -> None:
        self._world = LocalWorld(outside, self._original)
        super().__init__(self._world, number, workers, outside.home)
        self._world.hub.host = self._world.hub_name
        self._world.hub.on_loss = self._may_start_again
        self.host = self._world.hub_name
        self.foreman = Foreman(outside, self._world, workers, self.capabilities)
        self._outside = outside

    def _original(self, session: int, task: int) -> tuple[int, int] | None:
        return self.foreman.original(session, task)

    def reap(self, worker: object, number: int | None) -> None:
        """See :class:`SupervisorNode`."""
        self._may_start_again()
        super().reap(worker, number)  # type: ignore[arg-type]

    def silence(self, until: float) -> None:
        """See :class:`SupervisorNode`."""
        self._may_start_again()
        super().silence(until)

    def _may_start_again(self) -> None:
        """What was held here may start again: what a worker had, or the scheduler had to report."""
        limits, mine = self._outside.start_limits, self.foreman.worker.name
        for task in [task for task, (_, holder) in limits.items() if holder == mine]:
            del limits[task]

    def leave(self) -> None:
        """See :class:`SupervisorNode`."""
        super().leave()
        self.foreman.stop()
        self._world.hub.stop()


class Study(Simulation):
    """A simulation whose machines have schedulers of their own."""

    def __init__(
        self,
        seed: int,
        plan: Plan | None = None,
        log: Callable[[str], object] | None = None,
        local_crashes: int = 0,
    ) -> None:
        super().__init__(seed, plan, log)
        for _ in range(local_crashes):
            self.at(self.random.uniform(0, self.plan.faults_s), self._crash_local_scheduler)

    def add_machine(self, number: int) -> None:
        """See :class:`Simulation`."""
        Machine(self, number, self.plan.workers)

    def _crash_local_scheduler(self) -> None:
        found = [node for node in self.nodes.values() if isinstance(node, LocalScheduler)]
        if found:
            self.random.choice(found).crash()


def study(
    seed: int,
    plan: Plan,
    log: Callable[[str], object] | None = None,
    local_crashes: int = LOCAL_CRASHES,
) -> str:
    """Play one seed with two levels; return the digest of all that was sent."""
    with limited(plan.limits), wide_workers():
        return Study(seed, plan, log, local_crashes).run()
