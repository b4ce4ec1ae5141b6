"""The import name of the Scaler system; everything is re-exported from the engine.

Lazily: who asks for one name does not pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster import __version__

if TYPE_CHECKING:
    from scaler_cluster.client.client import Client
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.serializer import Serializer
    from scaler_cluster.combo import SchedulerClusterCombo
    from scaler_compat.processes import Cluster, Scheduler
else:
    from importlib import import_module

    _HOMES = {
        "Client": "scaler_cluster.client.client",
        "Cluster": "scaler_compat.processes",
        "ScalerFuture": "scaler_cluster.client.future",
        "Scheduler": "scaler_compat.processes",
        "SchedulerClusterCombo": "scaler_cluster.combo",
        "Serializer": "scaler_cluster.client.serializer",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


__all__ = [
    "Client",
    "Cluster",
    "ScalerFuture",
    "Scheduler",
    "SchedulerClusterCombo",
    "Serializer",
    "__version__",
]
