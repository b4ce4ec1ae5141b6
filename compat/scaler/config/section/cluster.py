"""The settings of a cluster, at the path that the Scaler system has them at."""

from scaler_cluster.config.worker_settings import ClusterSettings as ClusterConfig

__all__ = ["ClusterConfig"]
