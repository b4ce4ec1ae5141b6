"""Samples of what tasks do: when workers are asked for them, and what watchers get of the answers.

The workers are asked again and again, and stop by themselves soon after nobody asks any more: so
it does not matter who of all the peers dies. What they answer is kept until the next message only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.call_tree import FUNCTIONS_MAX
from scaler_cluster.core.scheduler.naming import find_name
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import alias_of
from scaler_cluster.wire import feed
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.table import Table

PERIOD_S = 0.02
"""A worker looks fifty times a second: each look takes it some 50 us, and a switch of threads."""
INTERVAL_S = 1.0
"""So often workers are asked, if there are not too many for that."""
WORKERS_PER_S = 500
"""An answer takes this process some 50 us: 2.5 % of its time."""
LEASE = 3.5
"""A worker goes on for so many intervals after it was asked: an answer may be late."""
SOON_S = 0.1
"""Workers are asked this long after they were asked last, at the earliest."""
PATIENCE_S = 0.5
"""So long the answers may take: a task may keep its worker from giving any."""
ANSWER_BYTES_MAX = 4 << 20
"""Trees of a worker have far less: it holds them to a few thousand nodes."""
BYTES_MAX = 32 << 20
"""Trees and stacks in one message: those of a thousand workers."""
ROW_BYTES = 100
"""What a message has for each tree besides its bytes, or for a task that runs."""
SAMPLES_MAX = 1 << 32
"""Of a function, in an answer; far fewer fit into the time between two."""
NO_ANSWER = (
    "it does not answer: code outside of Python holds the interpreter (the GIL), or the process is "
    "stopped"
)


class Sampling:
    """Asks workers what they do, as long as somebody wants to know."""

    def __init__(self, table: Table) -> None:
        self.ask_at = math.inf
        """When to :meth:`ask`."""
        self.due = math.inf
        """When :meth:`take` returns something."""
        self._table = table
        self._number = 0
        """Of the last question; answers to earlier ones say nothing of what runs now."""
        self._asked_at = -math.inf
        self._unheard: dict[bytes, None] = {}
        self._running: dict[bytes, feed.Running] = {}
        self._sampled: list[feed.Sampled] = []
        self._nbytes = 0
        self._skipped = 0
        self._messages = 0

    def switch(self, now: float, *, is_on: bool) -> None:
        """Somebody has come who wants to know, or nobody is left."""
        if is_on:
            self.ask_at = max(now, self._asked_at + SOON_S)
        else:
            self.ask_at = self.due = math.inf
            self._drop()

    def _drop(self) -> None:
        self._unheard = {}
        self._running = {}
        self._sampled = []
        self._nbytes = self._skipped = 0

    @property
    def interval_s(self) -> float:
        """How often the workers are asked."""
        return max(INTERVAL_S, len(self._table.workers) / WORKERS_PER_S)

    def ask(self, now: float) -> None:
        """Ask all workers; what they answer is due as soon as the last one has."""
        table, interval_s = self._table, self.interval_s
        self._number += 1
        self._asked_at = now
        self.ask_at = now + interval_s
        self._running = {}
        self._unheard = dict.fromkeys(table.workers)
        question = m.Sample(self._number, PERIOD_S, LEASE * interval_s)
        for peer in self._unheard:
            table.send(peer, question)
        self.due = now + PATIENCE_S if self._unheard else now

    def answered(self, worker: WorkerRecord, answer: m.Sampled, now: float) -> None:
        """Take in what a worker says; raises RemoteProtocolError if it does not fit together."""
        names, sizes = answer.functions, answer.sizes
        nbytes = len(answer.trees) + len(answer.stack) + len(answer.reason)
        if (
            not len(names) == len(answer.samples) == len(sizes) <= FUNCTIONS_MAX
            or sum(sizes) != len(answer.trees)
            or nbytes > ANSWER_BYTES_MAX
            or not all(0 <= count <= SAMPLES_MAX for count in answer.samples)
        ):
            raise RemoteProtocolError("samples whose trees are too large, or not those it names")
        if self.ask_at == math.inf:
            return
        self._nbytes += nbytes + ROW_BYTES * (len(names) + 1)
        if self._nbytes > BYTES_MAX:
            self._skipped += sum(answer.samples)
        else:
            self._keep(alias_of(worker.peer), answer)
        if answer.number == self._number and self._unheard.pop(worker.peer, False) is None:
            if answer.session and self._nbytes <= BYTES_MAX:
                row = self._row(worker, answer.session, answer.task, answer.runs, answer.age_s)
                row.stack, row.reason = answer.stack, answer.reason
                self._running[worker.peer] = row
            if not self._unheard:
                self.due = min(self.due, now)

    def _keep(self, worker: bytes, answer: m.Sampled) -> None:
        start, trees = 0, bytes(answer.trees)
        for function, samples, size in zip(
            answer.functions, answer.samples, answer.sizes, strict=True
        ):
            tree, start = trees[start : start + size], start + size
            self._sampled.append(feed.Sampled(worker, self._name(function), samples, tree))

    def _row(
        self, worker: WorkerRecord, session: int, task: int, function: bytes, age_s: float
    ) -> feed.Running:
        of = alias_of(worker.peer), worker.host, worker.pid, worker.name
        name = find_name(self._table, session, task, function)
        return feed.Running(*of, session, task, name, age_s)

    def _name(self, function: bytes) -> str:
        # The worker may have run it for a client that has left.
        record = self._table.functions.get(function)
        return record.name if record is not None else ""

    def take(self, now: float) -> feed.Samples:
        """Return what came since the last time, and what runs now."""
        self.due = math.inf
        self._messages += 1
        workers = self._table.workers
        for peer in self._unheard:
            worker = workers.get(peer)
            if worker is not None and worker.runs:
                run = worker.runs[0]
                age_s = now - worker.progress_at
                row = self._row(worker, run.session, run.first, run.function, age_s)
                row.reason = NO_ANSWER
                self._running[peer] = row
        running = list(self._running.values())
        taken = feed.Samples(
            "", self._messages, now, self.interval_s, running, self._sampled, self._skipped
        )
        self._drop()
        return taken
