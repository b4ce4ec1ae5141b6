"""What workers are called and offer, at the path that the Scaler system has it at."""

from scaler_compat.config_values import WorkerCapabilities, WorkerNames

__all__ = ["WorkerCapabilities", "WorkerNames"]
