"""Which settings belong to each type of manager, and to the tables and commands of other versions.

They are imported when they are asked for: most programs have no manager.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scaler_cluster.config.values import suggest
from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from scaler_cluster.config.option import Section

TABLE = "worker_manager"
"""The table of a manager in a file; its ``type`` says which settings it has."""
MANAGERS = {
    # Of each type: the module under scaler_cluster.config, and the class.
    "aws_ec2": ("aws_settings", "EC2Settings"),
    "aws_hpc": ("proxy_settings", "BatchSettings"),
    "aws_raw_ecs": ("aws_settings", "ECSSettings"),
    "baremetal_native": ("native_settings", "NativeSettings"),
    "dask": ("guest_settings", "DaskSettings"),
    "k8s_raw": ("kubernetes_settings", "KubernetesSettings"),
    "kubernetes": ("kubernetes_settings", "KubernetesSettings"),
    "lsf": ("job_queue_settings", "LSFSettings"),
    "orb_aws_ec2": ("aws_settings", "EC2Settings"),
    "pbs": ("job_queue_settings", "PBSSettings"),
    "ray": ("guest_settings", "RaySettings"),
    "sge": ("job_queue_settings", "SGESettings"),
    "slurm": ("job_queue_settings", "SlurmSettings"),
    "ssh": ("ssh_settings", "SSHSettings"),
    "symphony": ("proxy_settings", "SymphonySettings"),
    "webhook": ("webhook_settings", "WebhookSettings"),
}
REFUSED = {
    "oci_hpc": "OCI is not supported",
    "oci_raw": "OCI is not supported",
}
"""Types of the Scaler system that this one does not have, and why."""
TABLES: dict[str, tuple[str, str]] = {
    # Of each table that other versions have for one type.
    "ecs_worker_adapter": ("aws_settings", "ECSAdapterSettings"),
    "native_worker_adapter": ("webhook_settings", "NativeAdapterSettings"),
    "fixed_native_worker_adapter": ("webhook_settings", "FixedNativeSettings"),
    "symphony_cluster": ("proxy_settings", "SymphonyClusterSettings"),
    "symphony_worker_adapter": ("proxy_settings", "SymphonyAdapterSettings"),
}


def settings_of_type(name: str) -> type[Section]:
    """Return the class of the settings of a type of manager; raises ConfigError."""
    if name in REFUSED:
        raise ConfigError(f"managers of type {name} are not there: {REFUSED[name]}")
    if name not in MANAGERS:
        known = ", ".join(MANAGERS)
        raise ConfigError(
            f"there is no manager of type {name!r}{suggest(name, MANAGERS) or f', only {known}'}"
        )
    return _load(*MANAGERS[name])


def settings_of_table(name: str, values: Mapping[str, Any]) -> type[Section] | None:
    """Return the class of the settings in a table; None: it is no manager's. Raises ConfigError."""
    if name in TABLES:
        return _load(*TABLES[name])
    if name != TABLE:
        return None
    if "type" not in values:
        raise ConfigError("type is missing: which system starts the workers?")
    return settings_of_type(str(values["type"]))


def all_settings() -> list[type[Section]]:
    """Return every class of settings here, once."""
    return list(dict.fromkeys(_load(*one) for one in (*MANAGERS.values(), *TABLES.values())))


def _load(module: str, name: str) -> type[Section]:
    kind: type[Section] = getattr(import_module(f"scaler_cluster.config.{module}"), name)
    return kind
