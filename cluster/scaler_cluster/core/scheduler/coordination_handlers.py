"""What clients say of locks, queues and the like, and when a scheduler answers that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.scheduler.coordination import Coordination
from scaler_cluster.core.scheduler.places import USER_BYTES_MAX
from scaler_cluster.core.scheduler.resumption import GRACE_S
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table


class CoordinationHandlers:
    """Handles Coordinate and Withdraw."""

    def __init__(self, table: Table, config: SchedulerConfig, now: float) -> None:
        self._table = table
        is_first = config.predecessor is None
        self.deadline = math.inf if is_first else now + GRACE_S
        """When all clients of the scheduler before this one have said what they hold."""
        bytes_max = min(config.quotas.bytes_max or USER_BYTES_MAX, USER_BYTES_MAX)
        self.coordination = Coordination(self._say, bytes_max, is_open=is_first)
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Coordinate: self._on_coordinate,
            m.Withdraw: self._on_withdraw,
        }

    def act(self, now: float) -> None:
        """Open if it is time; what clients had to say was heard before."""
        if now >= self.deadline:
            self.deadline = math.inf
            self.coordination.open()

    def _say(self, session: int, message: m.Message) -> None:
        self._table.send(self._table.session_by_number[session].peer, message)

    def _client(self, peer: bytes, now: float) -> SessionRecord:
        session = self._table.sessions.get(peer)
        if session is None:
            raise RemoteProtocolError("only a client says this")
        session.last_seen = now
        return session

    def _on_coordinate(self, peer: bytes, message: m.Coordinate, now: float) -> None:
        session = self._client(peer, now)
        if session.is_near and not session.is_watched:
            session.is_watched = True
            # Others wait for what it holds.
            self._table.to_watch.append((peer, session.pid))
        user = self._table.user_of(peer)
        self.coordination.ask(session.number, user, message, is_back=session.is_back)

    def _on_withdraw(self, peer: bytes, message: m.Withdraw, now: float) -> None:
        number = self._client(peer, now).number
        self.coordination.withdraw(number, message.number, has_values=message.has_values)
