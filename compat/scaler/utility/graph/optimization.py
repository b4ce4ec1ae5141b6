"""Helpers for graphs, at the path that the Scaler system documents."""

from scaler_compat.scaler_helpers import cull_graph

__all__ = ["cull_graph"]
