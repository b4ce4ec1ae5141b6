"""What a task took, at the path that the Scaler system has it at."""

from scaler_cluster.client.future import ProfileResult

__all__ = ["ProfileResult"]
