"""The default serializer, at the path that the Scaler system documents."""

from scaler_cluster.client.serializer import DefaultSerializer

__all__ = ["DefaultSerializer"]
