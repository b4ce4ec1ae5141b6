"""The files of TLS, at the path that the Scaler system has them at."""

from scaler_compat.config_groups import SecurityConfig

__all__ = ["SecurityConfig"]
