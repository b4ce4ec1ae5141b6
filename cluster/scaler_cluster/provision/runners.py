"""What the process of a proxy is told, and which system runs its tasks."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from scaler_cluster.config.proxy_settings import ProxyManagerSettings, ProxySettings
from scaler_cluster.process.process import usable_cpus
from scaler_cluster.process.process_config import SupervisorProcessConfig
from scaler_cluster.wire.messages import Offer

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.provision.remote import RemoteRunner

log = logging.getLogger("scaler.proxy")

RUNNERS = {
    # Of each name of a system: the module under scaler_cluster.provision, and its runner.
    "AWS Batch": ("aws_batch", "BatchRunner"),
    "IBM Symphony": ("symphony", "SymphonyRunner"),
}


@dataclass(frozen=True, kw_only=True)
class ProxyProcessConfig:
    """What the process of a proxy is told."""

    settings: ProxySettings
    machine: SupervisorProcessConfig
    """What it has of a supervisor."""

    @classmethod
    def of(
        cls,
        settings: ProxySettings,
        manager: str = "",
        unit: str = "",
        worker_names: tuple[str, ...] = (),
    ) -> ProxyProcessConfig:
        """Return what the proxy with these settings is told, perhaps as a unit of a manager."""
        for name in settings.without_effect:
            log.warning("ProxyWorker: %s has no effect: its workers are no processes", name)
        workers = concurrency_of(settings)
        if not worker_names:
            worker_names = tuple(
                f"{settings.prefix}|{secrets.token_hex(16)}" for _ in range(workers)
            )
        machine = SupervisorProcessConfig.of_unit(settings, manager, unit, worker_names)
        machine = replace(machine, address=settings.scheduler_address, workers=workers)
        # If it needs keys that are not there, nothing is to be started.
        machine.options.credentials.passport(machine.address)
        if isinstance(settings, ProxyManagerSettings):
            offered = machine.options.capabilities
            offer = Offer(settings.types[0], workers, workers, 1, 0.0, offered, workers)
            machine = replace(machine, offer=offer, name=settings.worker_manager_id or "")
        return cls(settings=settings, machine=machine)


def concurrency_of(settings: ProxySettings) -> int:
    """Return how many tasks a proxy has at once."""
    return settings.concurrency or max(usable_cpus() - 1, 1)


def make_runner(settings: ProxySettings, lost: Callable[[str], object]) -> RemoteRunner:
    """Return what has calls run by a system.

    If the system loses them all, any thread calls ``lost`` with the reason. Raises ConfigError if
    something is not installed or set that it needs, ClusterUnreachableError if it refuses.
    """
    module, name = RUNNERS[settings.system]
    made: Any = getattr(import_module(f"scaler_cluster.provision.{module}"), name)
    runner: RemoteRunner = made(settings, lost)
    return runner
