"""The settings of a cluster, at the path that the Scaler system has them at."""

from scaler_compat.config_sections import ClusterConfig

__all__ = ["ClusterConfig"]
