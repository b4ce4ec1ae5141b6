"""Addresses, at the path that the Scaler system has them at."""

from scaler_compat.config_values import AddressConfig, SocketType

__all__ = ["AddressConfig", "SocketType"]
