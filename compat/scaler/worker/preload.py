"""What is wrong with a preload, at the path that the Scaler system documents."""

from scaler_cluster.errors import ConfigError

PreloadSpecError = ConfigError

__all__ = ["PreloadSpecError"]
