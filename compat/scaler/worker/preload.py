"""What a worker calls before its first task, at the path that the Scaler system documents."""

from scaler_cluster.errors import ConfigError as PreloadSpecError

__all__ = ["PreloadSpecError"]
