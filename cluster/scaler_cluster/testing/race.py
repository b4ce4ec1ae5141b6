"""One level of schedulers against two: the same load, the same workers, figures of both.

``python -m scaler_cluster.testing two_levels`` prints them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_cluster.testing.local_world import LocalWorld
from scaler_cluster.testing.paced import LoadClient, Paced, PacedLocal, QuickMachine
from scaler_cluster.testing.plan import Plan
from scaler_cluster.testing.simulation import Simulation
from scaler_cluster.testing.two_levels import Foreman
from scaler_cluster.testing.wide import wide_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Buffer

NEAR_S, FAR_S = 30e-6, 100e-6
"""How long an envelope takes within a machine, and between two."""
START_S = 0.05
"""When the clients come: by then all workers are there."""
CALM = Plan(
    machines=0, clients=0, faults_s=0.0, drop=0.0, duplicate=0.0, worker_crashes=0,
    machine_crashes=0, pauses=0, check_every=1 << 60,
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """What clients ask for: each of them has ``window`` tasks under way."""

    name: str
    clients: int
    window: int
    tasks: int
    """Of all clients together."""
    takes_us: tuple[int, int]
    """How long a task takes, at least and at most."""
    machines: int = 16
    workers: int = 64

    def durations(self, client: int) -> list[int]:
        """Return how long each task of a client takes."""
        dice = random.Random(f"{self.name} {client}")  # noqa: S311 - it is to be repeated
        return [dice.randint(*self.takes_us) for _ in range(self.tasks // self.clients)]


LOADS = (
    Load("lone tasks of 1,000 clients, 20 ms", 1000, 1, 30_000, (20_000, 20_000)),
    Load("one client with 3,000 under way, 20 ms", 1, 3_000, 60_000, (20_000, 20_000)),
    Load("one client with 3,000 under way, 5 to 35 ms", 1, 3_000, 60_000, (5_000, 35_000)),
    Load("one client with 10,000 under way, 5 ms", 1, 10_000, 100_000, (5_000, 5_000)),
    Load("one client, all at once, 5 to 500 ms", 1, 30_000, 30_000, (5_000, 500_000)),
)


@dataclass
class Figures:
    """What was measured."""

    tasks: int
    took_s: float
    """From the first task to the last result, in simulated time."""
    ideal_s: float
    """The work, divided by the workers; at least the longest task."""
    envelopes: float
    """Of the centre, for each task, received and sent; also the next ones."""
    messages: float
    cpu_us: float
    """What cores, codec and channels took, measured on this machine."""
    busy: float
    """How much of the time the centre was busy, by the model."""
    local_busy: float
    """The same, of the busiest scheduler of a machine."""

    def line(self) -> str:
        """Return the figures as people read them."""
        return (
            f"{self.tasks / self.took_s:9,.0f} tasks/s {self.took_s / self.ideal_s:6.2f} x ideal"
            f" | centre, each task: {self.envelopes:6.3f} envelopes {self.messages:6.3f} messages"
            f" {self.cpu_us:6.1f} us | busy {self.busy:4.0%}, machines {self.local_busy:4.0%}"
        )


class Race(Simulation):
    """A cluster without faults, of one level or of two."""

    def __init__(self, machines: int, workers: int, *, has_levels: bool) -> None:
        super().__init__(1, CALM)
        self.centre = Paced(self)
        self.hub = self.centre
        self.machines: list[QuickMachine] = []
        self.foremen: list[Foreman] = []
        self.locals: list[PacedLocal] = []
        self._has_levels = has_levels
        for _ in range(machines):
            self.join(workers)

    def join(self, workers: int, capabilities: m.Capabilities = ()) -> None:
        """Let a machine come."""
        if not self._has_levels:
            self.machines.append(QuickMachine(self, workers, capabilities))
            return
        foremen: list[Foreman] = []

        def original(session: int, task: int) -> tuple[int, int] | None:
            return foremen[0].original(session, task)

        world = LocalWorld(self, original, PacedLocal)
        assert isinstance(world.hub, PacedLocal)
        world.hub.host = world.hub_name
        self.locals.append(world.hub)
        self.machines.append(QuickMachine(world, workers))
        foremen.append(Foreman(self, world, workers, capabilities))
        self.foremen += foremen

    def lose(self, number: int) -> None:
        """Lose a machine, with all that is on it."""
        self.machines[number].stop()
        if self._has_levels:
            self.foremen[number].stop()
            self.locals[number].stop()

    def carry(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        """See :class:`Simulation`; nothing is lost, and all links are alike."""
        takes_s = FAR_S if b"hub" in (source, target) else NEAR_S
        self.at(self.now + takes_s, lambda: self.network._deliver(source, target, frames))

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        self._run_until(is_over)

    def run_for(self, duration_s: float) -> None:
        """Let time pass."""
        self._run_for(duration_s)


def run(load: Load, *, has_levels: bool) -> Figures:
    """Play a load, and return its figures."""
    with wide_workers():
        race = Race(load.machines, load.workers, has_levels=has_levels)
        race.run_for(START_S)
        centre = race.centre
        before = centre.envelopes, centre.messages, centre.cpu_s, centre.busy_s
        local_before = [one.busy_s for one in race.locals]
        work = [load.durations(number) for number in range(load.clients)]
        began = race.now
        clients = [LoadClient(race, one, load.window) for one in work]
        race.run_until(lambda: all(one.is_done for one in clients))
        took_s = max(one.last_at for one in clients) - began
        race.run_for(0.5)
        check_over(race)
    tasks = sum(map(len, work))
    local = (one.busy_s - busy for one, busy in zip(race.locals, local_before, strict=True))
    return Figures(
        tasks,
        took_s,
        _ideal_s(work, load),
        (centre.envelopes - before[0]) / tasks,
        (centre.messages - before[1]) / tasks,
        (centre.cpu_s - before[2]) / tasks * 1e6,
        (centre.busy_s - before[3]) / took_s,
        max(local, default=0.0) / took_s,
    )


def _ideal_s(work: Sequence[Sequence[int]], load: Load) -> float:
    longest = max(map(max, work))
    slots = min(load.machines * load.workers, load.clients * load.window)
    return max(sum(map(sum, work)) / slots, longest) * 1e-6


def check_over(race: Race) -> None:
    """Check that every task ran once, and that nothing is left anywhere."""
    assert not race.centre.core.table.in_flight, "the centre takes some for running"
    assert all(foreman.core.is_idle for foreman in race.foremen), "a foreman has some"
    for local in race.locals:
        local.check_over()


def compare(tell: Callable[[str], object]) -> None:
    """Tell the figures of all loads."""
    for load in LOADS:
        tell(f"{load.name}; {load.machines} machines of {load.workers} workers")
        for has_levels in (False, True):
            name = "two levels" if has_levels else "one level"
            tell(f"  {name:10} {run(load, has_levels=has_levels).line()}")
