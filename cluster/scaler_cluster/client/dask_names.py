"""How a client knows that Dask is calling it, without importing Dask."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r".+-[0-9a-f]{32}")
"""What Dask calls its nodes: old versions pass such keys with a plain dictionary."""


def is_of_dask(graph: Any, keys: Any) -> bool:
    """Return True for what only Dask passes: a graph of its own, keys in lists, its names."""
    if hasattr(graph, "__dask_graph__") or hasattr(graph, "layers"):
        return True
    if type(keys) is not list or not keys:
        return False
    first = keys[0][0] if type(keys[0]) is tuple and keys[0] else keys[0]
    return any(type(key) is list for key in keys) or (
        type(first) is str and _NAME.fullmatch(first) is not None
    )
