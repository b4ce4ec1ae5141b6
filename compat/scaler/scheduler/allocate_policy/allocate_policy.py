"""How workers are chosen, at the path that the Scaler system has it at."""

from scaler_compat.config_values import AllocatePolicy

__all__ = ["AllocatePolicy"]
