"""The settings of a cluster, at the path that the Scaler system has them at."""

from scaler_cluster.config.sections import ClusterSettings as ClusterConfig

__all__ = ["ClusterConfig"]
