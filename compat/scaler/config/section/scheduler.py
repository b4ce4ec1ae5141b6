"""The settings of a scheduler, at the path that the Scaler system has them at."""

from scaler_cluster.config.sections import SchedulerSettings as SchedulerConfig
from scaler_compat.processes import PolicyConfig

__all__ = ["PolicyConfig", "SchedulerConfig"]
