"""Where logs go, at the path that the Scaler system documents."""

from scaler_cluster.logs import setup_logger
from scaler_compat.config_values import LoggingLevel
from scaler_compat.scaler_helpers import get_logger_info

__all__ = ["LoggingLevel", "get_logger_info", "setup_logger"]
