"""The reference, at the path that the Scaler system documents."""

from scaler_cluster.pickling.payload import ObjectReference

__all__ = ["ObjectReference"]
