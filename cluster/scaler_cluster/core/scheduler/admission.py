"""How many tasks wait in the scheduler: clients ask before they send what would be too many."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table

SHARE = 4
"""Clients may send once a quarter of the room is free, and not each task by itself."""
STALE_S = 1.0
"""Tasks that a client may send, and has not sent after this, take no room from other clients any
more: the client may have been stopped."""


class AdmissionControl:
    """Lets clients send tasks while no more than ``limit`` wait; the order of each client stays.

    Tasks that workers had may come back to wait, and nodes of graphs come without being asked for.
    Then no client may send until there is room again.
    """

    def __init__(self, table: Table, limit: int) -> None:
        self._table = table
        self._limit = limit
        self._wanting: OrderedDict[int, SessionRecord] = OrderedDict()
        """Sessions that want to send more than they may, by number, in turn."""
        self._allowed_at: dict[int, float] = {}
        """When sessions were allowed what they have not sent yet, by number."""

    def wants(self, session: SessionRecord, count: int) -> None:
        """A client has ``count`` more tasks to send, or fewer if that is negative."""
        session.asked += count
        if session.asked < session.used:
            raise RemoteProtocolError("takes back tasks that it had sent")
        self._note(session)

    def submitted(self, session: SessionRecord, count: int) -> None:
        """A client sent tasks; raises RemoteProtocolError if it was not allowed to."""
        session.used += count
        if session.used > min(session.asked, session.allowed):
            raise RemoteProtocolError("more tasks than it was let send")
        self._note(session)

    def forget(self, session: SessionRecord) -> None:
        """A client is gone."""
        self._wanting.pop(session.number, None)
        self._allowed_at.pop(session.number, None)

    def _note(self, session: SessionRecord) -> None:
        number = session.number
        if session.asked <= session.allowed:
            self._wanting.pop(number, None)
        else:
            self._wanting.setdefault(number, session)
        if min(session.asked, session.allowed) == session.used:
            self._allowed_at.pop(number, None)

    def give(self, now: float) -> None:
        """Let clients send as many tasks as there is room for, in turn."""
        if not self._wanting:
            return
        room = self._limit - self._table.backlog.count - self._under_way(now)
        if room < max(self._limit // SHARE, 1):
            return
        while room > 0 and self._wanting:
            fair = -(-room // len(self._wanting))
            for number, session in list(self._wanting.items()):
                count = min(session.asked - session.allowed, fair, room)
                if not count:
                    break
                session.allowed += count
                room -= count
                self._allowed_at[number] = now
                self._table.send(session.peer, m.GrantCredit(count))
                del self._wanting[number]
                self._note(session)

    def _under_way(self, now: float) -> int:
        """Return how many tasks clients are allowed to send, and probably will."""
        sessions = self._table.session_by_number
        count = 0
        for number, at in self._allowed_at.items():
            if now - at < STALE_S:
                session = sessions[number]
                count += min(session.asked, session.allowed) - session.used
        return count
