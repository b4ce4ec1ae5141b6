"""A machine with a scheduler of its own, as its supervisor and workers see the world."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler import invariants
from scaler_cluster.testing.nodes import HUB_NAME, SchedulerNode
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from scaler_cluster.core.scheduler.scheduler import SchedulerCore
    from scaler_cluster.testing.memory_files import MemoryFiles
    from scaler_cluster.testing.plan import Plan
    from scaler_cluster.testing.world import Process, World
    from scaler_cluster.wire.batch import Buffer

TOLD = (m.Done, m.Erred, m.Stored, m.Started)
"""What the foreman hears of, besides the outcomes themselves."""


class LocalWorld:
    """The world within a machine: its own scheduler is the hub, all else is as outside.

    ``original`` returns session and task at the centre, of a task here.
    """

    def __init__(
        self,
        outside: World,
        original: Callable[[int, int], tuple[int, int] | None],
        make: Callable[[LocalWorld], LocalScheduler] | None = None,
    ) -> None:
        self.outside = outside
        self.random: random.Random = outside.random
        self.started: dict[tuple[int, int], int] = {}
        self.start_limits: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.hub_name = outside.name("M")
        self._original = original
        self.hub = (make or LocalScheduler)(self)

    @property
    def machines_lost(self) -> int:
        """See :class:`World`."""
        return self.outside.machines_lost

    @machines_lost.setter
    def machines_lost(self, count: int) -> None:
        self.outside.machines_lost = count

    @property
    def is_faulty(self) -> bool:
        """See :class:`World`."""
        return self.outside.is_faulty

    @property
    def now(self) -> float:
        """See :class:`World`."""
        return self.outside.now

    @property
    def plan(self) -> Plan:
        """See :class:`World`."""
        return self.outside.plan

    @property
    def nodes(self) -> dict[bytes, Process]:
        """See :class:`World`."""
        return self.outside.nodes

    @property
    def storages(self) -> dict[str, Process]:
        """See :class:`World`."""
        return self.outside.storages

    @property
    def home(self) -> MemoryFiles:
        """See :class:`World`."""
        return self.outside.home

    @property
    def died(self) -> set[bytes]:
        """See :class:`World`."""
        return self.outside.died

    @property
    def disturbed(self) -> set[bytes]:
        """See :class:`World`."""
        return self.outside.disturbed

    def name(self, letter: str) -> bytes:
        """See :class:`World`."""
        return self.outside.name(letter)

    def crash_scheduler(self) -> None:
        """See :class:`World`."""
        self.hub.crash()

    def at(self, when: float, act: Callable[[], None]) -> None:
        """See :class:`World`."""
        self.outside.at(when, act)

    def carry(self, source: bytes, target: bytes, frames: list[Buffer]) -> None:
        """See :class:`World`; who speaks to the hub speaks to that of this machine."""
        source, target = (self.hub_name if name == HUB_NAME else name for name in (source, target))
        self.outside.carry(source, target, frames)

    @property
    def actors(self) -> dict[str, list[tuple[bytes, tuple[int, int]]]]:
        """See :class:`World`."""
        return self.outside.actors

    def note_call(self, actor: str, worker: bytes, task: tuple[int, int]) -> None:
        """See :class:`World`."""
        self.outside.note_call(actor, worker, task)

    def note_start(self, task: tuple[int, int]) -> None:
        """See :class:`World`: nothing is started again that is held."""
        if self.hub.core.table.has_lost_machines:
            self.start_limits.clear()
            self.hub.on_loss()
        count = self.started[task] = self.started.get(task, 0) + 1
        limit = self.start_limits.get(task, (count,))[0]
        assert count <= limit, f"{task} starts again, which was held on its machine"
        original = self._original(*task)
        if original is not None:
            self.outside.note_start(original)

    def read(self, segments: tuple[bytes, ...], address: str) -> bytes | None:
        """See :class:`World`."""
        return self.outside.read(segments, address)

    def add_machine(self, number: int) -> None:
        """See :class:`World`."""
        self.outside.add_machine(number)


class LocalScheduler(SchedulerNode):
    """The scheduler of a machine: the same as any other, with the foreman for a client."""

    simulation: LocalWorld

    def __init__(self, world: LocalWorld) -> None:
        super().__init__(world)
        self.on_report: Callable[[m.Message], None] = lambda _: None
        """Called with what workers report that the foreman is to hear."""
        self.on_loss: Callable[[], None] = lambda: None
        """Called when what workers here held may start again."""
        world.nodes[world.hub_name] = self
        self._listen()

    def crash(self) -> None:
        """See :class:`SchedulerNode`."""
        super().crash()
        self._listen()
        self.on_loss()

    def _listen(self) -> None:
        self.core.receive = functools.partial(  # type: ignore[method-assign]
            self._receive, self.core
        )

    def _receive(
        self, core: SchedulerCore, peer: bytes, messages: Iterable[m.Message], now: float
    ) -> None:
        """Take in what a peer sent, and let the foreman hear how long tasks took."""
        type(core).receive(core, peer, messages, now)
        for message in messages:
            if isinstance(message, TOLD):
                self.on_report(message)

    @property
    def is_idle(self) -> bool:
        """See :class:`Node`."""
        return not self._has_tasks() and not any(
            map(self.exchange.backlog, self.core.table.sessions)
        )

    def _has_tasks(self) -> bool:
        table = self.core.table
        has_runs = any(session.runs for session in table.sessions.values())
        return bool(table.in_flight or table.backlog.count or has_runs)

    def check_over(self) -> None:
        """See :class:`Node`."""
        invariants.check(self.core)
        assert not self._has_tasks(), "the scheduler of a machine has tasks that nobody waits for"

    def stop(self) -> None:
        """See :class:`Node`."""
        self.simulation.nodes.pop(self.simulation.hub_name, None)
        self.paused_until = float("inf")

    def is_alive(self) -> bool:
        """See :class:`Node`."""
        return self.simulation.nodes.get(self.simulation.hub_name) is self
