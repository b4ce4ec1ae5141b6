"""Which workers there are, for clients that call on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import alias_of
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.scheduler.table import Table


def list_workers(table: Table, peer: bytes, message: m.ListWorkers, now: float) -> None:
    """Answer a client; the place of an actor takes no other tasks, so it is left out."""
    session = table.sessions.get(peer)
    if session is None:
        raise RemoteProtocolError("only a client says this")
    session.last_seen = now
    workers = [one for one in table.workers.values() if not (one.spare or one.retiring)]
    taking = [one for one in workers if not one.actor]
    answer = m.WorkerList(
        message.number,
        tuple(alias_of(one.peer).hex() for one in taking),
        tuple(one.name for one in taking),
        tuple(one.host for one in taking),
        tuple(one.pid for one in taking),
        tuple(one.host for one in table.supervisors.values() if _is_late(one)),
    )
    table.send(peer, answer)


def _is_late(supervisor: SupervisorRecord) -> bool:
    """Return True if a machine is to have more workers than are here to stay."""
    staying = [one for one in supervisor.workers.values() if not (one.spare or one.retiring)]
    return not supervisor.broken and len(staying) < supervisor.workers_wanted
