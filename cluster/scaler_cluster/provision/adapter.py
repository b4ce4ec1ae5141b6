"""The webhook of version 1.12: worker groups that are started and shut down by HTTP.

There is one route, ``POST /``, with a JSON object whose ``action`` says what is to be done. Any
backend can be behind it: a group is a unit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ConfigError
from scaler_cluster.process.process import usable_cpus
from scaler_cluster.provision.backend import BackendError
from scaler_cluster.provision.unit_command import UnitCommand

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from scaler_cluster.config.webhook_settings import AdapterSettings
    from scaler_cluster.provision.backend import Backend

log = logging.getLogger("scaler.adapter")

ID_BYTES = 16
NO_LIMIT = -1


class CapacityExceededError(Exception):
    """There are as many worker groups as there may be."""


class WorkerGroupNotFoundError(Exception):
    """No worker group has this id."""


@dataclass(frozen=True)
class WorkerGroup:
    """A group that was started."""

    backend: Backend
    unit: str
    workers: tuple[str, ...]
    """What the workers are called."""


class Adapter:
    """Starts and shuts down worker groups, up to ``groups_max``.

    -1 is no limit, and None is one for each CPU of this machine but one. ``make_backend`` returns
    the backend for the units of a manager; the groups that nobody names a manager for have one
    together. Raises ConfigError if that cannot be made.
    """

    def __init__(
        self,
        settings: AdapterSettings,
        groups_max: int | None,
        make_backend: Callable[[UnitCommand], Backend],
    ) -> None:
        self.settings = settings
        self.groups_max = groups_max or max(usable_cpus() - 1, 1)
        self._make_backend = make_backend
        self._backends: dict[str, Backend] = {}
        self._groups: dict[str, WorkerGroup] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """The names of each unit's workers."""
        self._lock = threading.Lock()
        # What is not installed, or not set, is to be told before anybody asks for a group.
        self._backend("")

    def info(self) -> dict[str, Any]:
        """Return what an adapter says of itself, and which groups live."""
        with self._lock:
            self._forget_ended()
            living = list(self._groups)
        return {
            "worker_groups": living,
            "max_worker_groups": self.groups_max,
            "workers_per_group": self.settings.workers_in_unit,
            "base_capabilities": dict(self.settings.offered),
        }

    def start(self, manager_id: str = "", unit: str = "") -> tuple[str, tuple[str, ...]]:
        """Start a group; return its id and the names of its workers.

        Raises CapacityExceededError or BackendError.
        """
        kind, name = self.settings.group
        with self._lock:
            self._forget_ended()
            if len(self._groups) >= self.groups_max != NO_LIMIT:
                raise CapacityExceededError(f"there are {self.groups_max} worker groups already")
            group = f"{kind}-{secrets.token_hex(ID_BYTES)}"
            unit = unit or group
            count = self.settings.workers_in_unit
            workers = tuple(f"{name}|{secrets.token_hex(ID_BYTES)}" for _ in range(count))
            if unit in self._names:
                raise BackendError(f"there is a unit {unit!r} already")
            self._names[unit] = workers
            try:
                backend = self._backend(manager_id)
                backend.start([unit])
            except BaseException:
                del self._names[unit]
                raise
            self._groups[group] = WorkerGroup(backend, unit, workers)
        return group, workers

    def shut_down(self, group: str) -> None:
        """Shut a group down; raises WorkerGroupNotFoundError or BackendError."""
        with self._lock:
            if group not in self._groups:
                raise WorkerGroupNotFoundError(f"there is no worker group {group!r}")
            one = self._groups[group]
            one.backend.stop([one.unit])
            del self._groups[group]
            self._names.pop(one.unit, None)

    def close(self) -> None:
        """Shut all groups down."""
        for backend in self._backends.values():
            units = [one.unit for one in self._groups.values() if one.backend is backend]
            try:
                backend.stop(units)
            except BackendError as error:
                log.warning("WorkerAdapter: groups are left: %s", error)
            backend.close()

    def _backend(self, manager_id: str) -> Backend:
        if manager_id not in self._backends:
            command = UnitCommand(self.settings, manager_id, names=self._names)
            self._backends[manager_id] = self._make_backend(command)
        return self._backends[manager_id]

    def _forget_ended(self) -> None:
        """A group whose workers have left by themselves is none any more."""
        found = {id(one): one.look() for one in self._backends.values()}
        for group, one in list(self._groups.items()):
            status = found[id(one.backend)].get(one.unit)
            if status is None or status.is_over:
                del self._groups[group]
                self._names.pop(one.unit, None)

    # -- by HTTP -------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        status, answer = await self._answer(await _body_of(request))
        response: web.Response = _web().json_response(answer, status=status)
        return response

    async def _answer(self, body: object) -> tuple[int, dict[str, Any]]:
        action = body.get("action") if isinstance(body, dict) else None
        if not isinstance(body, dict) or not action:
            return 400, {"error": "No action specified"}
        try:
            if action == "get_worker_adapter_info":
                return 200, await asyncio.to_thread(self.info)
            if action == "start_worker_group":
                who = str(body.get("worker_manager_id") or ""), str(body.get("unit") or "")
                group, workers = await asyncio.to_thread(self.start, *who)
                return 200, {
                    "status": "Worker group started",
                    "worker_group_id": group,
                    "worker_ids": list(workers),
                }
            if action != "shutdown_worker_group":
                return 400, {"error": "Unknown action"}
            if not body.get("worker_group_id"):
                return 400, {"error": "No worker_group_id specified"}
            await asyncio.to_thread(self.shut_down, str(body["worker_group_id"]))
        except CapacityExceededError as error:
            return 429, {"error": str(error)}
        except WorkerGroupNotFoundError as error:
            return 404, {"error": str(error)}
        except (BackendError, ConfigError, OSError) as error:
            return 500, {"error": str(error)}
        return 200, {"status": "Worker group shutdown"}

    def create_app(self) -> web.Application:
        """Return the application with its one route; raises ConfigError without aiohttp."""
        app: web.Application = _web().Application()
        app.router.add_post("/", self.handle)
        return app


async def _body_of(request: web.Request) -> object:
    try:
        return await request.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None


def _web() -> Any:
    try:
        from aiohttp import web
    except ImportError:
        raise ConfigError("an adapter needs aiohttp: pip install 'scaler-exec[adapter]'") from None
    return web
