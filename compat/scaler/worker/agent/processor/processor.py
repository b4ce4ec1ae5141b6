"""The process that runs tasks, at the path that the Scaler system documents."""

from scaler_compat.scaler_helpers import Processor

__all__ = ["Processor"]
