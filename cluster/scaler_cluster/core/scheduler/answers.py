"""What clients are told of their tasks, and what graphs learn from it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.wire.batch import Buffer

Answer: TypeAlias = m.Results | m.Returned | m.Failed | m.Cancelled
"""What a client is told of its tasks."""
Outcome: TypeAlias = "tuple[Buffer, tuple[bytes, ...]] | m.Failed | None"
"""Payload and segments of what a task returned, or why it failed; None: it was cancelled."""


class Answers:
    """Answers clients, and notes what becomes of tasks that are inputs of graphs."""

    def __init__(
        self, sessions: Mapping[int, SessionRecord], send: Callable[[bytes, m.Message], None]
    ) -> None:
        self._sessions = sessions
        """Sessions by number."""
        self._send = send
        self.noticed: deque[tuple[GraphRecord, int, Outcome]] = deque()
        """Nodes whose outcome is known. Graphs hear of it at the end of a step, as that may stop
        other nodes."""

    def send(self, number: int, message: m.Message) -> None:
        """Send a client a message, if it is still there."""
        session = self._sessions.get(number)
        if session is not None:
            self._send(session.peer, message)

    def answer(self, number: int, message: Answer) -> None:
        """Tell a client what became of its tasks, and the graphs that they are inputs of."""
        session = self._sessions.get(number)
        if session is not None:
            self._send(session.peer, message)
            if session.watched:
                self.notice(session, message)

    def notice(self, session: SessionRecord, message: Answer) -> None:
        """Note what became of tasks for the graphs that they are inputs of."""
        watched = session.watched
        if isinstance(message, m.Failed | m.Returned):
            first, count = message.task, 1
        elif isinstance(message, m.Results):
            first, count = message.first, len(message.batch)
        else:
            first, count = message.first, message.count
        if count <= len(watched):
            tasks = [task for task in range(first, first + count) if task in watched]
        else:
            tasks = sorted(task for task in watched if first <= task < first + count)
        for task in tasks:
            outcome: Outcome = None
            if isinstance(message, m.Results):
                index = task - first
                (payload,) = message.batch.cut(index, index + 1)
                outcome = payload, ()
            elif isinstance(message, m.Returned):
                outcome = message.payload, message.objects
            elif isinstance(message, m.Failed):
                outcome = message
            self.noticed.extend((graph, node, outcome) for graph, node in watched.pop(task))
