"""Which backend belongs to each type of manager.

A module is imported when its type is asked for: nobody has to install what another system needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaler_cluster.config.manager_settings import ManagerSettings
    from scaler_cluster.provision.backend import ManagerBackend
    from scaler_cluster.provision.unit_command import UnitCommand

BACKENDS = {
    # Of each class of settings: the module under scaler_cluster.provision, and its backend.
    "DaskSettings": ("dask_cluster", "DaskBackend"),
    "EC2Settings": ("ec2", "EC2Backend"),
    "ECSSettings": ("ecs", "ECSBackend"),
    "KubernetesSettings": ("kubernetes", "KubernetesBackend"),
    "LSFSettings": ("job_queues", "JobQueueBackend"),
    "PBSSettings": ("job_queues", "JobQueueBackend"),
    "RaySettings": ("ray_cluster", "RayBackend"),
    "SGESettings": ("job_queues", "JobQueueBackend"),
    "SSHSettings": ("ssh", "SSHBackend"),
    "SlurmSettings": ("job_queues", "JobQueueBackend"),
    "WebhookSettings": ("webhook", "WebhookBackend"),
}


def make_backend(settings: ManagerSettings, command: UnitCommand) -> ManagerBackend:
    """Return the backend for a manager's settings.

    Raises ConfigError if what it needs is not installed, or a setting cannot work.
    """
    module, name = BACKENDS[type(settings).__name__]
    made: Any = getattr(import_module(f"scaler_cluster.provision.{module}"), name)
    backend: ManagerBackend = made(settings, command)
    return backend
