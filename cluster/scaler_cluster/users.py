"""Who a peer is: a *user*, written ``role:name``, as its key says. Without keys it is nobody."""

from __future__ import annotations

SCHEDULER = "scheduler"
STORAGE = "storage"
"""Of an object storage that runs by itself."""
WORKER = "worker"
"""Of a machine: its supervisor, its workers and its storage."""
CLIENT = "client"
MONITOR = "monitor"
OWNER = "owner"
"""Of the user of a machine at its loopback addresses: all but the scheduler."""
ROLES = (SCHEDULER, STORAGE, WORKER, CLIENT, MONITOR)
"""The roles of a cluster's keys."""
MANY = (WORKER, CLIENT, MONITOR)
"""Those that several keys of one cluster may have."""


def user(role: str, name: str) -> str:
    """Return the user of a name in a role."""
    return f"{role}:{name}"


def role_of(one: str) -> str:
    """Return the role of a user; empty for nobody."""
    return one.partition(":")[0]
