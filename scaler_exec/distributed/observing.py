"""What a client tells of its cluster: the scheduler publishes it for monitors."""

from __future__ import annotations

import contextlib
import json
import math
import platform
import sys
import time
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes

from scaler_cluster import arguments
from scaler_cluster.client import worker_context
from scaler_cluster.errors import ClusterUnreachableError, ConfigError, ScalerError
from scaler_cluster.ids import SNAPSHOT
from scaler_cluster.wire.feed import Snapshot
from scaler_exec import code
from scaler_exec.distributed.awaiting import awaited, is_in_loop
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
FRESH_S = 2.0
"""How old what a representation says of workers may be, and how long it is waited for."""
PACKAGES = ("scaler_exec", "dask", "cloudpickle", "numpy", "pandas")
"""Those of which other versions in workers matter."""
SILENCE_S = 15.0
"""A scheduler that publishes nothing for so long is not reached from here."""


class Observing:
    """The part of a client that asks what there is.

    Workers may be named by a list, or one by a text.
    """

    _engine: EngineClient
    cluster: LocalCluster | None
    asynchronous: bool
    scheduler_file: str | None = None
    """Where :meth:`write_scheduler_file` has written."""
    _seen: tuple[float, Snapshot | None] = (-math.inf, None)
    """The last snapshot that :meth:`_sizes` has seen, and when."""

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

    def _sizes(self) -> str:
        """Return what the representation of the client says of workers, not older than FRESH_S.

        Nothing, if the scheduler does not answer soon; in an event loop, what was known before.
        """
        at, now = self._seen
        if time.monotonic() - at > FRESH_S and not is_in_loop():
            with contextlib.suppress(ScalerError, TimeoutError):
                now = self._await_snapshot(lambda _: True, FRESH_S)
            self._seen = time.monotonic(), now
        if now is None:
            return ""
        workers = _serving(now)
        limit = sum(one.memory_limit_bytes or 0 for one in workers)
        memory = f", memory={format_bytes(limit)}" if limit else ""
        return f" processes={len(workers)} threads={len(workers)}{memory}"

    def _snapshot(self) -> Snapshot:
        self._await_start()
        return self._await_snapshot(lambda _: True)

    @awaited
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

    @awaited
    def nthreads(self, workers: str | Iterable[str] | None = None) -> dict[str, int]:
        """Return how many tasks each worker runs at a time: one."""
        wanted = _wanted(workers)
        names = [_name_of(one) for one in _serving(self._snapshot())]
        return {name: 1 for name in names if wanted is None or name in wanted}

    ncores = nthreads

    @awaited
    def processing(self, workers: str | Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Return the function that each worker runs."""
        wanted = _wanted(workers)
        return {
            name: (one.function,) if one.function else ()
            for one in _serving(self._snapshot())
            if (name := _name_of(one)) and (wanted is None or name in wanted)
        }

    @awaited
    def get_versions(self, check: bool = False, packages: Iterable[str] = ()) -> dict[str, Any]:
        """Return the versions of the scheduler, of this process and of each worker.

        A worker tells them once it has done what it runs; inside of a task, none does. With a
        ``check`` there is a warning if workers have other packages than this process. One of
        another Python is refused when it comes.

        Args:
            check: Whether to compare.
            packages: Names of packages that are asked for, besides those that matter anyway.

        """
        now = self._snapshot().scheduler
        names = (*PACKAGES, *packages)
        workers: dict[str, Any] = {}
        if not worker_context.is_worker():
            workers = code.run(self._engine, _versions, names)
        found = {
            "scheduler": {
                "host": {"host": now.host},
                "packages": {"python": now.python, "scaler_exec": now.release},
            },
            "client": _versions(names),
            "workers": workers,
        }
        if check:
            _compare(found["client"]["packages"], workers)
        return found

    @property
    def dashboard_link(self) -> str:
        """The link that opens the cluster's dashboard; empty: there is none."""
        if self.cluster is not None:
            return self.cluster.dashboard_link
        return str(self._engine.dashboard_link or "")

    def write_scheduler_file(self, scheduler_file: str | os.PathLike[str]) -> None:
        """Write a file by which ``Client(scheduler_file=...)`` finds the scheduler.

        Raises ValueError if this client has written one.
        """
        if self.scheduler_file is not None:
            raise ValueError(f"this client has written {self.scheduler_file}")
        self.scheduler_file = str(scheduler_file)
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


def _versions(packages: tuple[str, ...]) -> dict[str, Any]:
    """Return what this process runs on, and the versions of packages; None: it lacks one."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in packages:
        try:
            # That of what is imported, whatever its distribution is called.
            found[name] = getattr(import_module(name), "__version__", "")
        except ImportError:
            found[name] = None
    host = {"python": sys.version, "OS": platform.system(), "machine": platform.machine()}
    return {"host": host, "packages": found}


def _compare(here: Mapping[str, str | None], workers: Mapping[str, Any]) -> None:
    """Warn of packages that workers have in another version."""
    others = {
        f"{name} {version or 'is not there'} in {worker}, {here[name] or 'is not there'} here"
        for worker, there in workers.items()
        for name, version in there["packages"].items()
        if version != here[name]
    }
    if others:
        warnings.warn(
            f"workers have other versions of packages: {'; '.join(sorted(others))}", stacklevel=4
        )


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
