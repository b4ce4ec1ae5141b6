"""Workers as processes, at the path that the Scaler system has them at."""

from scaler_compat.processes import Cluster

__all__ = ["Cluster"]
