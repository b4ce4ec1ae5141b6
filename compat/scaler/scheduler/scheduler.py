"""The scheduler, at the path that the Scaler system has it at."""

from scaler_compat.processes import Scheduler

__all__ = ["Scheduler"]
