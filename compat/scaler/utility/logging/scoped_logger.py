"""Loggers of time, at the path that the Scaler system documents."""

from scaler_compat.scaler_helpers import ScopedLogger, TimedLogger

__all__ = ["ScopedLogger", "TimedLogger"]
