"""Settings of workers, at the path that the Scaler system has them at."""

from scaler_compat.config_groups import WorkerConfig

__all__ = ["WorkerConfig"]
