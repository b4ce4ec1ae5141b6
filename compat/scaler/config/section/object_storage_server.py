"""The settings of an object storage, at the path that the Scaler system has them at."""

from scaler_compat.config_sections import ObjectStorageServerConfig

__all__ = ["ObjectStorageServerConfig"]
