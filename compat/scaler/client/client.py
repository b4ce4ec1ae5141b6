"""The client, at the path that the Scaler system documents."""

from scaler_cluster.client.client import Client

__all__ = ["Client"]
