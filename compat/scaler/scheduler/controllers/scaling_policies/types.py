"""How workers are started, at the path that the Scaler system has it at."""

from scaler_compat.config_values import ScalingControllerStrategy

__all__ = ["ScalingControllerStrategy"]
