"""Units on the machines of a Dask cluster that is there: each is a child of a Dask worker.

They run outside of Dask's tasks, and take none of its threads. A Dask worker has as many of our
workers as it has threads; units for which there is no room wait. Run as a program, this is the
child of a manager that is a client of Dask.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.bridge import BridgeConfig, BridgedBackend, serve
from scaler_cluster.provision.dask_worker import METRIC, end_units, start_units
from scaler_cluster.provision.guest_unit import END_S, Order

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from scaler_cluster.config.guest_settings import DaskSettings
    from scaler_cluster.provision.unit_command import UnitCommand

TIMEOUT_S = 10.0
"""For the scheduler of Dask to answer, or a worker to start units."""
RUNNING = "running"
"""The status of a Dask worker that is neither full nor on its way out."""


class DaskBackend(BridgedBackend):
    """Runs units on the machines of a Dask cluster."""

    system, library, extra = "Dask", "distributed", "distributed"

    def __init__(self, settings: DaskSettings, command: UnitCommand) -> None:
        super().__init__(settings, command, settings.dask_scheduler)


class DaskCluster:
    """The Dask cluster, in the child."""

    def __init__(self, config: BridgeConfig) -> None:
        self._config = config
        self._client: Any = None
        self._waiting: dict[str, Order] = {}
        """Units for which no Dask worker had room."""
        self._where: dict[str, str] = {}
        """The address of the Dask worker that has a unit."""
        self._unseen: set[str] = set()
        """Units that their Dask workers have not told of yet."""
        self._refused: dict[str, str] = {}
        """Dask workers that could not start the last unit that they were told to, and why."""

    def start(self, units: Mapping[str, Sequence[str]], keys: str) -> None:
        """Start units where there is room; the others wait for it."""
        config = self._config
        for unit, arguments in units.items():
            self._waiting[unit] = Order(config.manager_id, config.workers, tuple(arguments), keys)
        told = self._place(self._workers())
        refused = [told[unit].reason for unit in units if told[unit].is_over]
        if refused:
            raise BackendError(refused[0])

    def look(self) -> Mapping[str, UnitStatus]:
        """Return the units that Dask workers have, those that wait, and those that have ended."""
        workers = self._workers()
        found: dict[str, UnitStatus] = {}
        for address, worker in workers.items():
            for unit, (manager_id, _, status) in _units_of(worker).items():
                if manager_id == self._config.manager_id:
                    found[unit] = _status_of(address, status)
                    self._where[unit] = address
                    self._unseen.discard(unit)
        for unit, address in list(self._where.items()):
            if address not in workers:
                found[unit] = UnitStatus(True, f"the Dask worker {address} is gone")
            elif unit in self._unseen:
                found[unit] = UnitStatus()
            if unit not in found or found[unit].is_over:
                del self._where[unit]
                self._unseen.discard(unit)
        return found | self._place(workers)

    def stop(self, units: Sequence[str]) -> None:
        """End units, and forget those that wait."""
        for unit in units:
            self._waiting.pop(unit, None)
        self.look()
        calls: dict[str, list[str]] = {}
        for unit in units:
            if unit in self._where:
                calls.setdefault(self._where[unit], []).append(unit)
        failed = self._run(end_units, calls, TIMEOUT_S + END_S)
        if failed:
            address, why = next(iter(failed.items()))
            raise BackendError(f"the Dask worker {address} ends no unit: {why}")

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close(timeout=1)

    def _place(self, workers: Mapping[str, Any]) -> dict[str, UnitStatus]:
        """Start units that wait where there is room; return what is to be said of those left."""
        free = Counter({address: self._room(address, one) for address, one in workers.items()})
        calls: dict[str, dict[str, Order]] = {}
        for unit, order in self._waiting.items():
            # Spread; a Dask worker that could not start one is taken last.
            fit = [one for one in free if free[one] >= order.workers]
            address = max(fit, key=lambda one: (one not in self._refused, free[one]), default=None)
            if address is None:
                break
            free[address] -= order.workers
            calls.setdefault(address, {})[unit] = order
        failed = self._run(start_units, calls, TIMEOUT_S)
        found: dict[str, UnitStatus] = {}
        for address, orders in calls.items():
            self._refused.pop(address, None)
            for unit in orders:
                del self._waiting[unit]
                if address in failed:
                    self._refused[address] = failed[address]
                    found[unit] = UnitStatus(True, f"the Dask worker {address}: {failed[address]}")
                else:
                    self._where[unit] = address
                    self._unseen.add(unit)
                    found[unit] = UnitStatus()
        needed = self._config.workers
        threads = "1 thread" if needed == 1 else f"{needed} threads"
        why = f"of {len(workers)} Dask workers, none has {threads} without workers of ours"
        return found | dict.fromkeys(self._waiting, UnitStatus(reason=why))

    def _room(self, address: str, worker: Mapping[str, Any]) -> int:
        """Return for how many more workers a Dask worker has threads."""
        if worker.get("status", RUNNING) != RUNNING:
            return 0
        listed = _units_of(worker)
        taken = sum(workers for _, workers, status in listed.values() if status is None)
        unseen = [one for one in self._unseen if self._where[one] == address and one not in listed]
        return int(worker["nthreads"]) - taken - len(unseen) * self._config.workers

    # -- Dask's client -------------------------------------------------------------------------

    def _workers(self) -> dict[str, Any]:
        """Return what the scheduler of Dask knows of its workers, by their addresses."""
        from distributed import Client

        address = self._config.address
        try:
            if self._client is None:
                self._client = Client(
                    address,
                    timeout=TIMEOUT_S,
                    set_as_default=False,
                    name=f"scaler-{self._config.manager_id}",
                )
            # Not scheduler_info(): it leaves some out in some versions.
            told = self._client.sync(self._client.scheduler.identity, callback_timeout=TIMEOUT_S)
        except (OSError, asyncio.TimeoutError, RuntimeError) as error:
            self.close()
            why = str(error) or type(error).__name__
            raise BackendError(f"the Dask scheduler at {address} does not answer: {why}") from None
        return dict(told["workers"])

    def _run(
        self,
        function: Callable[..., Coroutine[Any, Any, None]],
        calls: Mapping[str, Any],
        timeout_s: float,
    ) -> dict[str, str]:
        """Call a function in Dask workers, each with its argument; return why some could not."""
        client = self._client

        async def one(address: str, argument: object) -> str:
            try:
                answers = await asyncio.wait_for(
                    client.run(function, argument, workers=[address], on_error="return"), timeout_s
                )
            except (OSError, asyncio.TimeoutError) as error:
                return str(error) or "it does not answer"
            answer = answers.get(address)
            return "" if answer is None else f"{type(answer).__name__}: {answer}"

        async def all_of_them() -> list[str]:
            return await asyncio.gather(*(one(*call) for call in calls.items()))

        failed = client.sync(all_of_them) if calls else []
        return {address: why for address, why in zip(calls, failed, strict=True) if why}


def _units_of(worker: Mapping[str, Any]) -> Mapping[str, tuple[str, int, int | None]]:
    """Return the units of a Dask worker: the manager, the workers and the status of each."""
    found: Mapping[str, tuple[str, int, int | None]] = worker["metrics"].get(METRIC, {})
    return found


def _status_of(address: str, status: int | None) -> UnitStatus:
    if status is None:
        return UnitStatus()
    why = f"its workers ended with status {status}; the log of the Dask worker {address} says why"
    return UnitStatus(True, why if status else "")


if __name__ == "__main__":
    raise SystemExit(serve(DaskCluster))
