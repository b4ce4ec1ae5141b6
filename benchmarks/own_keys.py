"""Keys for the clusters of a benchmark that listen where other machines can reach them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scaler_cluster.security.credentials import KEYS_VARIABLE
from scaler_cluster.security.key_files import make_cluster

if TYPE_CHECKING:
    from pathlib import Path


def use_own_keys(directory: Path) -> None:
    """Make keys in a directory, and name them to all processes that this one starts."""
    make_cluster(directory)
    os.environ[KEYS_VARIABLE] = str(directory)
