"""The import name of the Scaler system; everything is re-exported from the engine."""

from scaler_cluster import __version__
from scaler_cluster.client.client import Client
from scaler_cluster.client.future import ScalerFuture
from scaler_cluster.client.serializer import Serializer
from scaler_cluster.combo import SchedulerClusterCombo

__all__ = ["Client", "ScalerFuture", "SchedulerClusterCombo", "Serializer", "__version__"]
