"""Helpers for addresses, at the path that the Scaler system documents."""

from scaler_compat.scaler_helpers import get_available_tcp_port

__all__ = ["get_available_tcp_port"]
