"""The adapter of tasks of ECS, at the path that the Scaler system has it at."""

from scaler_compat.adapters import ECSWorkerAdapter

__all__ = ["ECSWorkerAdapter"]
