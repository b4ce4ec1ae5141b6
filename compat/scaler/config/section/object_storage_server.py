"""The settings of an object storage, at the path that the Scaler system has them at."""

from scaler_cluster.config.sections import StorageSettings as ObjectStorageServerConfig

__all__ = ["ObjectStorageServerConfig"]
