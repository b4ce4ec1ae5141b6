"""What a peer may be, as the role of its key says."""

from __future__ import annotations

from types import MappingProxyType

from scaler_cluster import users
from scaler_cluster.wire import messages as m

MAY_BE = MappingProxyType(
    {
        users.CLIENT: (m.CLIENT,),
        users.WORKER: (m.MANAGER, m.SUPERVISOR, m.WORKER, m.STORAGE, m.CLIENT),
        users.SCHEDULER: (m.STORAGE,),
        users.OWNER: (m.CLIENT, m.MANAGER, m.SUPERVISOR, m.WORKER, m.STORAGE),
        users.OPERATOR: (m.OPERATOR,),
    }
)


def may_be(user: str, hello: m.Hello) -> bool:
    """Return True if a user may say this; without keys everybody may, but nobody is an operator.

    A client with the key of a worker is the session of that worker's tasks, and nobody else is. The
    storage with the key of the scheduler is the scheduler's own, and no other storage is.
    """
    if not user:
        return hello.role != m.OPERATOR
    role = users.role_of(user)
    if hello.role not in MAY_BE.get(role, ()):
        return False
    if hello.role == m.CLIENT:
        return role == users.OWNER or bool(hello.worker) == (role == users.WORKER)
    if hello.role == m.STORAGE:
        return role == users.OWNER or bool(hello.supervisor) == (role == users.WORKER)
    return True
