"""Where a page is served, at the path that the Scaler system has it at."""

from scaler_compat.config_values import HTTPConfig

__all__ = ["HTTPConfig"]
