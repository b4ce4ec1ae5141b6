"""The base of serializers, at the path that the Scaler system documents."""

from scaler_cluster.client.serializer import Serializer

__all__ = ["Serializer"]
