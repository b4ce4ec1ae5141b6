"""Event loops, at the path that the Scaler system has them at."""

from scaler_compat.config_values import EventLoopType

__all__ = ["EventLoopType"]
