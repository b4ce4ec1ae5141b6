"""The settings of a scheduler, at the path that the Scaler system has them at."""

from scaler_compat.config_groups import PolicyConfig
from scaler_compat.config_sections import SchedulerConfig

__all__ = ["PolicyConfig", "SchedulerConfig"]
