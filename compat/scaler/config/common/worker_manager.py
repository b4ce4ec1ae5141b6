"""Settings of managers, at the path that the Scaler system has them at."""

from scaler_compat.config_groups import WorkerManagerConfig

__all__ = ["WorkerManagerConfig"]
