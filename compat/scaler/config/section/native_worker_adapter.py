"""The settings of an adapter, at the path that the Scaler system has them at."""

from scaler_compat.config_sections import NativeWorkerAdapterConfig

__all__ = ["NativeWorkerAdapterConfig"]
