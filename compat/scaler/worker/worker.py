"""A worker, at the path that the Scaler system documents."""

from scaler_compat.processes import Worker

__all__ = ["Worker"]
