"""What all adapters share, at the path that the Scaler system has it at."""

from scaler_cluster.provision.adapter import CapacityExceededError, WorkerGroupNotFoundError
from scaler_compat.config_values import format_capabilities

__all__ = ["CapacityExceededError", "WorkerGroupNotFoundError", "format_capabilities"]
