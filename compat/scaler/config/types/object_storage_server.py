"""Addresses of storages, at the path that the Scaler system has them at."""

from scaler_compat.config_values import ObjectStorageConfig

__all__ = ["ObjectStorageConfig"]
