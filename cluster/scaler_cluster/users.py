"""Who a peer is: a *user*, written ``role:name``, as its key says. Without keys it is nobody."""

from __future__ import annotations

SCHEDULER = "scheduler"
STORAGE = "storage"
"""Of an object storage that runs by itself."""
WORKER = "worker"
"""Of a machine: its supervisor, its workers and its storage."""
CLIENT = "client"
MONITOR = "monitor"
OPERATOR = "operator"
"""May act on the tasks and workers of others. A cluster has none unless one is added."""
OWNER = "owner"
"""Of the user of a machine at its loopback addresses: all but the scheduler."""
ROLES = (SCHEDULER, STORAGE, WORKER, CLIENT, MONITOR)
"""The roles of the keys that a new cluster has."""
MANY = (WORKER, CLIENT, MONITOR, OPERATOR)
"""Those that several keys of one cluster may have."""
KNOWN = (*ROLES, OPERATOR, OWNER)
INSECURE = "insecure"
"""Said in place of a path of keys: everybody is nobody."""


def user(role: str, name: str) -> str:
    """Return the user of a name in a role."""
    return f"{role}:{name}"


def role_of(one: str) -> str:
    """Return the role of a user; empty for nobody."""
    return one.partition(":")[0]
