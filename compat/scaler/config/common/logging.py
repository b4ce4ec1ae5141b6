"""Settings of logs, at the path that the Scaler system has them at."""

from scaler_compat.config_groups import LoggingConfig

__all__ = ["LoggingConfig"]
