"""The world of a simulated process: what every part of the simulation sees of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from scaler_cluster.core.delivery.exchange import Exchange
    from scaler_cluster.core.scheduler.scheduler import SchedulerCore
    from scaler_cluster.testing.memory_files import MemoryFiles
    from scaler_cluster.testing.plan import Plan
    from scaler_cluster.wire import messages as m
    from scaler_cluster.wire.batch import Buffer


class Process(Protocol):
    """A simulated process, as the world sees it."""

    name: bytes
    """Its peer id."""
    host: bytes
    """The machine that it is on, by a name."""
    exchange: Exchange
    paused_until: float

    @property
    def is_idle(self) -> bool:
        """Return True if it has nothing to do."""

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """Take in an envelope."""

    def pause(self, until: float) -> None:
        """Do nothing until then, as a process that was stopped."""

    def check_over(self) -> None:
        """Check that nothing is left in it, once everything has come back."""


class Hub(Process, Protocol):
    """The simulated scheduler, as the world sees it."""

    core: SchedulerCore

    def crash(self) -> None:
        """Forget everything, and go on after a while."""


class World(Protocol):
    """Time, luck, the network, and what is noted of the whole; the simulation is one."""

    random: random.Random
    """Decides whatever is not determined."""
    machines_lost: int
    """How many machines have crashed."""

    @property
    def is_faulty(self) -> bool:
        """Return False once nothing goes wrong any more."""

    @property
    def now(self) -> float:
        """Simulated seconds since the beginning."""

    @property
    def plan(self) -> Plan:
        """What the simulation consists of."""

    @property
    def hub(self) -> Hub:
        """The scheduler."""

    @property
    def nodes(self) -> dict[bytes, Process]:
        """Every process but the scheduler, by its peer id."""

    @property
    def storages(self) -> dict[str, Process]:
        """The storages, by their address."""

    @property
    def home(self) -> MemoryFiles:
        """The segments on the scheduler's machine."""

    @property
    def started(self) -> dict[tuple[int, int], int]:
        """How often each task of each session was started."""

    @property
    def start_limits(self) -> dict[tuple[int, int], tuple[int, bytes]]:
        """How often tasks may have been started that a worker held, and its name."""

    @property
    def died(self) -> set[bytes]:
        """Names of tasks that a worker ran, or had run last, when it died."""

    @property
    def disturbed(self) -> set[bytes]:
        """What tasks raised because something went wrong with tasks that they waited for."""

    def name(self, letter: str) -> bytes:
        """Return a new peer id."""

    def crash_scheduler(self) -> None:
        """End the scheduler, and with it its storage; the next one has the same files."""

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call ``act`` then."""

    def carry(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        """Deliver an envelope after a while, in order, unless it is lost or repeated."""

    @property
    def actors(self) -> dict[str, list[tuple[bytes, tuple[int, int]]]]:
        """By actor: which worker has begun which call of it, as session and task, in turn."""

    def note_call(self, actor: str, worker: bytes, task: tuple[int, int]) -> None:
        """A worker begins a call of an actor, or makes it."""

    def note_start(self, task: tuple[int, int]) -> None:
        """Note that a task of a session is started."""

    def read(self, segments: tuple[bytes, ...], address: str) -> bytes | None:
        """Return what is in segments of a machine, None if that is gone."""

    def add_machine(self, number: int) -> None:
        """Start a machine in the place of this number."""


class SessionHost(Protocol):
    """A simulated worker, as the session of its tasks sees it."""

    simulation: World
    name: bytes
    host: bytes
    paused_until: float

    def may_run(self, options: m.TaskOptions) -> bool:
        """Return True if this worker has what tasks with these options demand."""

    def pause(self, until: float) -> None:
        """Do nothing until then, as a process that was stopped."""

    def turn(self) -> None:
        """Act on what is due, and send what is to be sent."""
