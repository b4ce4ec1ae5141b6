"""What tasks print and log: when workers are asked for it, and what watchers get of the answers.

The workers are asked again and again, and stop by themselves soon after nobody asks any more: so
it does not matter who of all the peers dies. As they are asked, none can flood the scheduler. What
they answer is kept until the next message only.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.naming import find_name
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import alias_of
from scaler_cluster.texts import LINE_CHARS_MAX, LINES_MAX, dropped_lines
from scaler_cluster.wire import feed
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.table import Table

INTERVAL_S = 0.5
"""So often workers are asked, if there are not too many for that."""
WORKERS_PER_S = 500
"""A question, and an answer of a few lines, take this process some 50 us: 2.5 % of its time."""
LINES_AT_ONCE = 4000
"""Of all workers together: more than anybody reads, and each takes this process some 3 us."""
LEASE = 6
"""A worker goes on for so many intervals after it was asked: a question may come late."""
BATCH_S = 0.05
"""Lines wait so long for those of other workers."""
CHARS_MAX = 4 << 20
"""Texts in one message, whatever workers say."""
LINE_CHARS = 200
"""What a line counts for besides its text."""
HIDDEN = "the scheduler tells nobody what tasks print and log: it was started with --hide-logs"


class Tailing:
    """Asks workers what their tasks print, as long as somebody wants to know."""

    def __init__(self, table: Table, *, is_hidden: bool = False) -> None:
        self.ask_at = math.inf
        """When to :meth:`ask`."""
        self.due = math.inf
        """When :meth:`take` returns something."""
        self._table = table
        self._is_hidden = is_hidden
        self._told: dict[bytes, None] = {}
        """The workers that were asked since the first who listens came."""
        self._lines: list[feed.LogLine] = []
        self._chars = 0
        self._full: dict[bytes, feed.LogLine] = {}
        """Of workers whose lines have no room in the next message: the line that says so."""
        self._messages = 0

    def switch(self, now: float, *, is_on: bool) -> None:
        """Somebody has come who wants to know, or nobody is left."""
        if is_on:
            self.ask_at = min(self.ask_at, now)
            return
        for peer in self._told:
            if peer in self._table.workers:
                self._table.send(peer, m.TailLogs(0.0))
        self._told = {}
        self.ask_at = self.due = math.inf
        self._drop()

    def _drop(self) -> None:
        self._lines, self._full, self._chars = [], {}, 0

    @property
    def interval_s(self) -> float:
        """How often the workers are asked."""
        return max(INTERVAL_S, len(self._table.workers) / WORKERS_PER_S)

    def ask(self, now: float) -> None:
        """Ask all workers; a message is due even if none of them has anything to say."""
        table, interval_s = self._table, self.interval_s
        self.ask_at = now + interval_s
        self.due = min(self.due, now + BATCH_S)
        if self._is_hidden:
            return
        before, self._told = self._told, dict.fromkeys(table.workers)
        lines = min(max(LINES_AT_ONCE // max(len(self._told), 1), 1), LINES_MAX)
        for peer in self._told:
            table.send(peer, m.TailLogs(LEASE * interval_s, lines, peer not in before))

    def answered(self, worker: WorkerRecord, answer: m.LogLines, now: float) -> None:
        """Take in what a worker says; raises RemoteProtocolError if it does not fit together."""
        lines = _lines_of(answer)
        if worker.peer not in self._told:
            # It was asked before the last who listened had left.
            return
        self.due = min(self.due, now + BATCH_S)
        count = len(answer.texts)
        self._chars += sum(map(len, chain(answer.texts, answer.sources, (answer.reason,))))
        self._chars += LINE_CHARS * (count + 1)
        if self._chars > CHARS_MAX:
            self._miss(worker, answer.dropped + count, now)
            return
        if answer.dropped:
            age_ms = max(answer.ages_ms, default=0)
            self._lines.append(self._missing(worker, answer.dropped, now - age_ms / 1000))
        if answer.reason:
            self._lines.append(self._line(worker, now, answer.reason))
        for age_ms, session, task, function, source, level, text in lines:
            line = self._line(worker, now - age_ms / 1000, text)
            line.session, line.task = session, task
            line.function = find_name(self._table, session, task, function)
            line.source, line.level = source, level
            self._lines.append(line)

    def _miss(self, worker: WorkerRecord, count: int, now: float) -> None:
        """Count lines for which there is no room, in one line of the worker."""
        full = self._full.get(worker.peer)
        if full is None:
            full = self._full[worker.peer] = self._missing(worker, 0, now)
            self._lines.append(full)
        full.dropped += count
        full.text = dropped_lines(full.dropped)

    def _missing(self, worker: WorkerRecord, count: int, at: float) -> feed.LogLine:
        line = self._line(worker, at, dropped_lines(count))
        line.dropped = count
        return line

    def _line(self, worker: WorkerRecord, at: float, text: str) -> feed.LogLine:
        of = alias_of(worker.peer), worker.host, worker.pid, worker.name
        return feed.LogLine(at, *of, text=text)

    def take(self, now: float) -> feed.Logs:
        """Return what came since the last time."""
        self.due = math.inf
        self._messages += 1
        reason = HIDDEN if self._is_hidden else ""
        taken = feed.Logs(
            "", self._messages, now, interval_s=self.interval_s, reason=reason, lines=self._lines
        )
        self._drop()
        return taken


def _lines_of(answer: m.LogLines) -> Iterable[tuple[int, int, int, bytes, str, int, str]]:
    """Return the lines of an answer; raises RemoteProtocolError if it is none, or too large."""
    columns = (
        answer.ages_ms, answer.sessions, answer.tasks, answer.functions, answer.sources,
        answer.levels, answer.texts,
    )  # fmt: skip
    count = len(answer.texts)
    if count > LINES_MAX or any(len(column) != count for column in columns):
        raise RemoteProtocolError("more lines than there may be, or not all that belongs to them")
    texts = chain(answer.texts, answer.sources, (answer.reason,))
    if any(len(text) > LINE_CHARS_MAX for text in texts):
        raise RemoteProtocolError("a line that is too long")
    return zip(*columns, strict=True)
