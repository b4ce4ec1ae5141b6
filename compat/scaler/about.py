"""The version, at the path that the Scaler system has it at."""

from scaler_cluster import __version__

__all__ = ["__version__"]
