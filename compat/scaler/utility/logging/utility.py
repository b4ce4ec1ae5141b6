"""Where logs go, at the path that the Scaler system documents."""

from scaler_cluster.logs import setup_logger

__all__ = ["setup_logger"]
