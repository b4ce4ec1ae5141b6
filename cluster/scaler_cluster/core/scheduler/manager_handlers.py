"""What managers tell the scheduler, and what it does when they come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.records.managers import ManagerRecord
from scaler_cluster.core.scheduler.capacity import Capacity
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.draining import Draining
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.table import Table

TAKEN = "another manager with its id has come"
REASON_CHARS = 1000


def tell_broken(table: Table, manager: str, unit: str, reason: str) -> None:
    """Tell a manager, if it is here, why the workers of one of its units cannot start."""
    for one in table.managers.values():
        if one.name == manager and not one.is_own:
            table.send(one.peer, m.UnitBroken(unit, reason[:REASON_CHARS]))


class ManagerHandlers:
    """Handles the messages of whoever has workers started as they are wanted."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        pools: WorkerPools,
        draining: Draining,
    ) -> None:
        self._table = table
        self._config = config
        self._draining = draining
        self._capacity = Capacity(table, pools, config.scaling, draining)
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Offer: self._on_offer,
            m.Units: self._on_units,
            m.Drain: self._on_drain,
        }

    def welcome(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """A manager came.

        One with its id that is there is sent away: two of them would start twice as many workers.
        """
        table = self._table
        managers = [one for one in table.managers.values() if not one.is_own]
        for other in [one for one in managers if one.name == hello.name]:
            table.send(other.peer, m.Refused(TAKEN))
            self.lose(other, TAKEN, now)
            table.outbox.part_with(other.peer)
        manager = ManagerRecord(peer, hello.name, hello.host, hello.pid, now)
        table.managers[peer] = manager
        table.journal.manager_came(manager, now)
        table.send(peer, self._config.welcome())

    def lose(self, manager: ManagerRecord, reason: str, now: float) -> None:
        """A manager is gone, and its units stay; without a reason it has left."""
        del self._table.managers[manager.peer]
        if not manager.is_own:
            self._table.journal.manager_ended(manager, reason, now)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        return min(self._capacity.deadline, self._draining.deadline)

    def tick(self, now: float) -> None:
        """Tell managers how many workers are wanted, and those to leave that have drained."""
        self._capacity.tick(now)
        self._draining.tick(now)

    def _manager(self, peer: bytes) -> ManagerRecord:
        manager = self._table.managers.get(peer)
        if manager is None or manager.is_own:
            raise RemoteProtocolError("only a manager says this")
        return manager

    def _on_offer(self, peer: bytes, message: m.Offer, now: float) -> None:
        table = self._table
        if message.least > message.most or not message.per_unit:
            raise RemoteProtocolError("an offer of no workers")
        manager = table.managers.get(peer)
        if manager is None:
            supervisor = table.supervisors.get(peer)
            if supervisor is None:
                raise RemoteProtocolError("only a manager or a supervisor makes an offer")
            name = supervisor.name or f"{supervisor.host}:{supervisor.pid}"
            manager = ManagerRecord(peer, name, supervisor.host, supervisor.pid, now, is_own=True)
            table.managers[peer] = manager
        self._capacity.welcome(manager, message, now)

    def _on_units(self, peer: bytes, message: m.Units, now: float) -> None:
        manager = self._manager(peer)
        manager.last_seen = now
        if message.reason and message.reason != manager.units.reason:
            self._table.journal.manager_failed(manager, message.reason, now)
        manager.units = message
        self._capacity.tell(manager)

    def _on_drain(self, peer: bytes, message: m.Drain, now: float) -> None:
        manager = self._manager(peer)
        units = set(message.units)
        for supervisor in self._table.supervisors.values():
            if supervisor.manager == manager.name and supervisor.unit in units:
                self._draining.start_unit(supervisor)
