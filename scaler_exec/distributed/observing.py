"""What a client tells of its cluster: the scheduler publishes it for monitors."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from scaler_cluster import __version__, arguments
from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.ids import SNAPSHOT
from scaler_cluster.wire.feed import Snapshot
from scaler_exec.distributed.timing import TooLateError, seconds_of
from scaler_monitoring.feed import Feed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from scaler_cluster.client.client import Client as EngineClient
    from scaler_cluster.wire.feed import Worker
    from scaler_exec.distributed.cluster import LocalCluster

START_S = 60.0
"""How long the workers of a new LocalCluster are waited for, at most."""
SILENCE_S = 15.0
"""A scheduler that publishes nothing for so long is not reached from here."""


class Observing:
    """The part of a client that asks what there is.

    Workers may be named by a list, or one by a text.
    """

    _engine: EngineClient
    cluster: LocalCluster | None

    def _await_snapshot(
        self, is_wanted: Callable[[Snapshot], bool], timeout_s: float | None = None
    ) -> Snapshot:
        """Return the first snapshot of the scheduler that is wanted.

        Raises ClusterUnreachableError if it publishes none, TimeoutError.
        """
        address = self._engine.monitor_address
        if not address:
            raise ClusterUnreachableError("the scheduler has no address for monitors to ask")
        end = None if timeout_s is None else time.monotonic() + timeout_s
        heard_at = time.monotonic()
        with contextlib.closing(
            Feed(address, (SNAPSHOT,), self._engine._session.connection.credentials)
        ) as listener:
            while True:
                message = listener.next(0.2)
                now = time.monotonic()
                if isinstance(message, Snapshot):
                    heard_at = now
                    if is_wanted(message):
                        return message
                if end is not None and now >= end:
                    raise TooLateError(f"it was not so within {timeout_s:g} s")
                if now - heard_at > SILENCE_S:
                    raise ClusterUnreachableError(
                        f"the scheduler's address for monitors, {address}, cannot be reached from "
                        f"here {listener.refusal}"
                    )

    def _await_start(self) -> None:
        """Wait for the workers of a LocalCluster until all have been there once.

        One whose workers cannot start is waited for START_S.
        """
        cluster = self.cluster
        if cluster is not None and not cluster.has_started:
            with contextlib.suppress(TooLateError):
                self._await_snapshot(lambda now: len(_serving(now)) >= cluster.processes, START_S)
            cluster.has_started = True

    def _snapshot(self) -> Snapshot:
        self._await_start()
        return self._await_snapshot(lambda _: True)

    def wait_for_workers(self, n_workers: int, timeout: float | str | None = None) -> None:
        """Wait until there are so many workers; raises TimeoutError."""
        count = arguments.whole("n_workers", n_workers, 0)
        timeout_s = seconds_of("timeout", timeout)
        self._await_snapshot(lambda now: len(_serving(now)) >= count, timeout_s)

    def scheduler_info(self, n_workers: int = -1) -> dict[str, Any]:
        """Return what the scheduler says of itself and its workers, those by their names."""
        now = self._snapshot()
        workers = _serving(now)
        shown = workers if n_workers < 0 else workers[:n_workers]
        return {
            "type": "Scheduler",
            "id": now.run,
            "address": self._engine._session.address,
            "services": {"dashboard": str(self._engine.dashboard_link or "")},
            "started": now.time - now.scheduler.up_s,
            "n_workers": len(workers),
            "total_threads": len(workers),
            "workers": {_name_of(one): _described(one) for one in shown},
        }

    def nthreads(self, workers: str | Iterable[str] | None = None) -> dict[str, int]:
        """Return how many tasks each worker runs at a time: one."""
        wanted = _wanted(workers)
        names = [_name_of(one) for one in _serving(self._snapshot())]
        return {name: 1 for name in names if wanted is None or name in wanted}

    ncores = nthreads

    def processing(self, workers: str | Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Return the function that each worker runs."""
        wanted = _wanted(workers)
        return {
            name: (one.function,) if one.function else ()
            for one in _serving(self._snapshot())
            if (name := _name_of(one)) and (wanted is None or name in wanted)
        }

    def get_versions(self, check: bool = False, packages: Iterable[str] = ()) -> dict[str, Any]:
        """Return the versions of the scheduler and of this process, and of packages here.

        A worker or client of another Python than the cluster's is refused when it comes, so a
        ``check`` has nothing to find.
        """
        now = self._snapshot().scheduler
        here: dict[str, str] = {"python": platform.python_version(), "scaler_exec": __version__}
        here["dask"] = dask.__version__
        for name in packages:
            here[name] = getattr(sys.modules.get(name), "__version__", "not imported")
        there = {"python": now.python, "scaler_exec": now.release}
        host = {"python": sys.version, "OS": platform.system(), "machine": platform.machine()}
        return {
            "scheduler": {"host": {"host": now.host}, "packages": there},
            "client": {"host": host, "packages": here},
            "workers": {},
        }

    def write_scheduler_file(self, scheduler_file: str | os.PathLike[str]) -> None:
        """Write a file by which ``Client(scheduler_file=...)`` finds the scheduler."""
        Path(scheduler_file).write_text(
            json.dumps({"type": "Scheduler", "address": self._engine._session.address}),
            encoding="utf-8",
        )


def read_scheduler_file(scheduler_file: str | os.PathLike[str]) -> str:
    """Return the address in such a file; raises OSError or ConfigError."""
    read = json.loads(Path(scheduler_file).read_text(encoding="utf-8"))
    address = read.get("address") if isinstance(read, Mapping) else None
    if not address:
        raise ConfigError(f"{scheduler_file} names no address of a scheduler")
    return str(address)


def _wanted(workers: str | Iterable[str] | None) -> set[str] | None:
    if workers is None:
        return None
    return {workers} if isinstance(workers, str) else set(workers)


def _serving(now: Snapshot) -> list[Worker]:
    """Return the workers that take tasks, or would if theirs did not wait."""
    return [one for one in now.workers if not one.is_spare and not one.is_leaving]


def _name_of(worker: Worker) -> str:
    """Return its name; of one that its user gave none, host and process."""
    return worker.name or f"{worker.host}:{worker.pid}"


def _described(worker: Worker) -> dict[str, Any]:
    return {
        "type": "Worker",
        "id": worker.worker.hex(),
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "nthreads": 1,
        "memory_limit": worker.memory_limit_bytes or 0,
        "resources": dict(worker.capabilities),
        "status": "running",
        "metrics": {
            "cpu": worker.cpu,
            "memory": worker.rss_bytes,
            "executing": int(bool(worker.function)),
            "ready": worker.tasks,
        },
    }
