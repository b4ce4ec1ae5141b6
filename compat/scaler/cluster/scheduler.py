"""Schedulers, at the path that the Scaler system documents."""

from scaler_compat.processes import Scheduler, SchedulerProcess, run_scheduler

__all__ = ["Scheduler", "SchedulerProcess", "run_scheduler"]
