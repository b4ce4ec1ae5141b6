"""The manager of workers of its machine, at the path that the Scaler system has it at."""

from scaler_compat.managers import NativeWorkerManager

__all__ = ["NativeWorkerManager"]
