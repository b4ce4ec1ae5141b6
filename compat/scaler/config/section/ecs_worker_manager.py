"""The settings of a manager, at the path that the Scaler system has them at."""

from scaler_compat.config_sections import ECSWorkerManagerConfig

__all__ = ["ECSWorkerManagerConfig"]
