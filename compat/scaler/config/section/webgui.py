"""The settings of a monitor, at the path that the Scaler system has them at."""

from scaler_compat.config_sections import WebGUIConfig

__all__ = ["WebGUIConfig"]
