"""How often pages are brought up to date: less often where that takes from those who work."""

from __future__ import annotations

import socket
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_monitoring.model import Model

BUSY_SHARE = 0.8
BUSY_S = 2.0
"""Pages change no more often while so large a share of this machine's CPUs is busy: to draw an
Overview each second costs a browser without a graphics card 0.1 CPUs."""


@cache
def _here() -> str:
    return socket.gethostname()


def is_busy(model: Model) -> bool:
    """Return True if this machine is one of the cluster's, and has much to do."""
    snapshot = model.snapshot
    return snapshot is not None and any(
        row.host == _here() and row.cpu is not None and row.cpu >= BUSY_SHARE * row.cpus
        for row in snapshot.machines
    )
