"""The adapter of workers on its machine, at the path that the Scaler system has it at."""

from scaler_compat.adapters import NativeWorkerAdapter

__all__ = ["NativeWorkerAdapter"]
