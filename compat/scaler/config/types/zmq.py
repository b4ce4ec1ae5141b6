"""Addresses, at the path that the Scaler system has them at."""

from scaler_compat.config_values import AddressConfig as ZMQConfig
from scaler_compat.config_values import SocketType as ZMQType

__all__ = ["ZMQConfig", "ZMQType"]
