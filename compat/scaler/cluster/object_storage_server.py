"""The object storage, at the path that the Scaler system documents."""

from scaler_compat.processes import ObjectStorageServerProcess

__all__ = ["ObjectStorageServerProcess"]
