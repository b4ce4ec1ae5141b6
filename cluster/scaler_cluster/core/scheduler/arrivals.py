"""The first message of every peer: who is taken in, and who is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scaler_cluster.core.scheduler.manager_handlers import tell_broken
from scaler_cluster.core.scheduler.roles import may_be
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.versions import difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.table import Table


class _Lose(Protocol):
    def __call__(self, peer: bytes, now: float, *, reason: str) -> None:
        """Give a peer up."""


class _Role(Protocol):
    def welcome(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """Take a peer in."""


ROLES = m.CLIENT, m.WORKER, m.SUPERVISOR, m.MANAGER, m.STORAGE, m.OPERATOR


class Arrivals:
    """Hands each Hello to the handlers of its role, which are given in the order of ROLES."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        handlers: Sequence[_Role],
        lose: _Lose,
    ) -> None:
        self._table = table
        self._config = config
        self._handlers = dict(zip(ROLES, handlers, strict=True))
        self._lose = lose

    def on_hello(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """A peer says who it is; raises RemoteProtocolError if it must not be that."""
        user = self._table.user_of(peer)
        if not may_be(user, hello) and user:
            raise RemoteProtocolError(f"a {hello.role:.40} with the key of {user}")
        if hello.role != m.SUPERVISOR or peer not in self._table.supervisors:
            self._lose(peer, now, reason="it began anew")
        reason = self._reason_to_refuse(hello, user)
        if reason:
            self._table.send(peer, m.Refused(reason))
            self._table.outbox.part_with(peer)
            self._table.journal.refused(hello, reason, now)
            if hello.role == m.SUPERVISOR:
                tell_broken(self._table, hello.manager, hello.unit, f"were refused: {reason}")
                self._table.refused = f"A cluster on {hello.host:.80} was refused: {reason}"
        elif hello.role in self._handlers:
            self._handlers[hello.role].welcome(peer, hello, now)
        else:
            raise RemoteProtocolError(f"nobody has the role {hello.role!r:.40}")

    def _reason_to_refuse(self, hello: m.Hello, user: str) -> str:
        who = "cluster" if hello.role == m.SUPERVISOR else hello.role
        if hello.protocol != m.PROTOCOL_VERSION:
            return difference(who, hello, "this scheduler")
        if not may_be(user, hello):
            return "This scheduler has no keys: only one that knows an operator's key obeys it."
        runs_tasks = hello.role not in (m.STORAGE, m.MANAGER, m.OPERATOR)
        # Who has no Python speaks of named calls alone.
        if runs_tasks and hello.python not in ("", self._config.python):
            return (
                f"The {who} runs Python {hello.python}, this scheduler "
                f"{self._config.python}: tasks are pickled code, use the same Python on both sides."
            )
        return ""
