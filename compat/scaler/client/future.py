"""The future, at the path that the Scaler system documents."""

from scaler_cluster.client.future import ScalerFuture

__all__ = ["ScalerFuture"]
