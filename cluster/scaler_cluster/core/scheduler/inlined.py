"""Tasks that run on the stack of the task that waits for them, counted as their worker says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import Run
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.wire import messages as m


class Inlined:
    """Counts each of them once, be it that the scheduler had it before or has never heard of it."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def recalled(self, run: Run, count: int) -> None:
        """So many tasks of a run are given back to the task that waits for them."""
        session = self._table.session_by_number[run.session]
        function = self._table.functions[run.function]
        totals, before = session.recalled.get(function.name, (function.totals, 0))
        session.recalled[function.name] = totals, before + count
        for one in (totals, session.totals):
            one.recalled += count

    def on_inlined(self, peer: bytes, message: m.Inlined, now: float) -> None:
        """Count what became of tasks.

        Raises RemoteProtocolError for counts that cannot be, or if it is no session of tasks.
        """
        session = self._table.sessions.get(peer)
        if session is None or not session.worker:
            raise RemoteProtocolError("only a client inside of a task says this")
        if message.is_last:
            self.end(session)
            return
        name = message.name[:FUNCTION_NAME_CHARS_MAX]
        ended = message.done + message.failed + message.cancelled
        counts = message.done, message.failed, message.cancelled, message.recalled, message.again
        if min(counts) < 0 or message.busy_s < 0 or message.recalled > ended:
            raise RemoteProtocolError("tells of tasks that it cannot have run")
        totals, had = session.recalled.get(name, (None, 0))
        # What the scheduler before this one gave back, this one has never counted.
        back = min(message.recalled, had)
        again = min(message.again, had - back)
        if totals is not None:
            # Those that are submitted again are counted again.
            _take(session, name, back + again)
            for one in (totals, session.totals):
                one.recalled -= back + again
                one.submitted -= again
        if totals is None or not back:
            totals = self._table.names.find(name)
        for one in (totals, session.totals):
            one.submitted += ended - back
            one.done += message.done
            one.failed += message.failed
            one.cancelled += message.cancelled
            one.inlined += message.done + message.failed
            one.busy_s += message.busy_s
            one.inlined_s += message.busy_s

    def end(self, session: SessionRecord) -> None:
        """What was given back was given up, as far as nothing was told of it."""
        for totals, count in session.recalled.values():
            for one in (totals, session.totals):
                one.recalled -= count
                one.cancelled += count
        session.recalled.clear()


def _take(session: SessionRecord, name: str, count: int) -> None:
    totals, had = session.recalled.pop(name)
    if had > count:
        session.recalled[name] = totals, had - count
