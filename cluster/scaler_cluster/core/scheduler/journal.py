"""Lines for the scheduler's log: which peers came, left, were lost or were refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.ids import session_label
from scaler_cluster.wire.messages import STOPPED, SUPERVISOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_cluster.core.records.managers import ManagerRecord
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import Run
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.wire.messages import Hello, Stuck

LINES_PER_S = 20
"""Lines of news, and as many warnings: thousands of clients that come and go must not fill a
disk."""


def _client(session: SessionRecord) -> str:
    return f"client {session_label(session.number)} (pid {session.pid} on {session.host:.80})"


def _cluster(supervisor: SupervisorRecord) -> str:
    count = supervisor.workers_wanted
    what = "cluster of 1 worker" if count == 1 else f"cluster of {count} workers"
    # Such a cluster is to have 0 workers: the number would say less.
    if supervisor.is_draining:
        what = "draining cluster"
    elif supervisor.broken:
        what = "cluster whose workers cannot start"
    return f"{what} (pid {supervisor.pid} on {supervisor.host:.80})"


def _manager(manager: ManagerRecord) -> str:
    return f"manager {manager.name} (pid {manager.pid} on {manager.host:.80})"


class Journal:
    """Collects lines. A second later it says how many lines there was no room for.

    It has no lines for workers and for the sessions of tasks, only for their clusters.
    """

    def __init__(self) -> None:
        self._lines: list[tuple[bool, str]] = []
        self._written = [0, 0]
        """News and warnings of the second that ends at ``_second_end``."""
        self._left_out = [0, 0]
        self._second_end = 0.0

    def client_came(self, session: SessionRecord, now: float) -> None:
        """A client was welcomed."""
        if not session.worker:
            self._note(f"{_client(session)} came", now)

    def client_ended(self, session: SessionRecord, reason: str, now: float) -> None:
        """A client was lost for this reason; empty: it left."""
        if not session.worker:
            self._ended(_client(session), reason, now)

    def client_reads(self, session: SessionRecord, now: float, *, does_read: bool) -> None:
        """A client has stopped to read its results, or reads them again."""
        if does_read:
            self._note(f"{_client(session)} reads its results again, its tasks go on", now)
        else:
            text = f"{_client(session)} does not read its results, its tasks wait until it does"
            self._note(text, now, is_warning=True)

    def poison(
        self, session: SessionRecord, run: Run, function: str, death: Mapping[str, Any], now: float
    ) -> None:
        """A task has killed as many workers as an innocent one hardly does."""
        signal = death.get("signal")
        how = f"signal {signal}" if signal else f"exit code {death.get('exit_code')}"
        task = f"task {run.first} ({function:.80}) of {_client(session)}"
        text = f"{task} kills its workers: another one by {how}; before that, {run.attempts}"
        self._note(text, now, is_warning=True)

    def cluster_came(self, supervisor: SupervisorRecord, now: float) -> None:
        """A supervisor was welcomed."""
        self._note(f"{_cluster(supervisor)} came", now)

    def cluster_ended(self, supervisor: SupervisorRecord, reason: str, now: float) -> None:
        """A supervisor was lost for this reason; empty: it left."""
        if supervisor.pid:
            self._ended(_cluster(supervisor), reason, now)

    def manager_came(self, manager: ManagerRecord, now: float) -> None:
        """A manager was welcomed."""
        self._note(f"{_manager(manager)} came", now)

    def manager_ended(self, manager: ManagerRecord, reason: str, now: float) -> None:
        """A manager was lost for this reason; empty: it left."""
        self._ended(_manager(manager), reason, now)

    def manager_has_no_rule(self, manager: ManagerRecord, now: float) -> None:
        """A manager has come that the policy does not name."""
        self._note(
            f"{_manager(manager)} has no rule in policy_content: its workers stay as they are",
            now,
            is_warning=True,
        )

    def manager_failed(self, manager: ManagerRecord, reason: str, now: float) -> None:
        """A manager has asked for workers in vain."""
        self._note(f"{_manager(manager)} gets no workers: {reason:.500}", now, is_warning=True)

    def stuck(self, supervisor: SupervisorRecord, tasks: int, stuck: Stuck, now: float) -> None:
        """A worker is stuck, which has so many tasks."""
        what = "is stopped (SIGSTOP)" if stuck.how == STOPPED else "has a task that does nothing"
        end = "nothing ends it"
        if stuck.is_doomed:
            end = f"it is killed in {stuck.left_s:.0f} s" if stuck.left_s else "it is killed"
        self._note(
            f"worker (pid {stuck.pid} on {supervisor.host:.80}), with {tasks} tasks, {what} for "
            f"{stuck.for_s:.1f} s: {end}",
            now,
            is_warning=True,
        )

    def operated(self, user: str, done: str, what: str) -> None:
        """An operator did something: each time is a line, however many there are."""
        self._lines.append((True, f"{user} has {done} {what}"))

    def refused(self, hello: Hello, reason: str, now: float) -> None:
        """A peer was refused."""
        role = "cluster" if hello.role == SUPERVISOR else hello.role[:20]
        who = f"{role} (pid {hello.pid} on {hello.host:.80})"
        self._note(f"refused a {who}: {reason}", now, is_warning=True)

    def take(self, now: float) -> list[tuple[bool, str]]:
        """Return the lines since the last time, each with whether it is a warning."""
        if now >= self._second_end:
            for is_warning, count in enumerate(self._left_out):
                if count:
                    self._lines.append((bool(is_warning), f"{count} such lines more are left out"))
            self._written, self._left_out = [0, 0], [0, 0]
        lines, self._lines = self._lines, []
        return lines

    @property
    def has_lines(self) -> bool:
        """Return True if :meth:`take` may return some."""
        return bool(self._lines or self._left_out != [0, 0])

    def _ended(self, who: str, reason: str, now: float) -> None:
        if reason:
            self._note(f"lost {who}: {reason}", now, is_warning=True)
        else:
            self._note(f"{who} left", now)

    def _note(self, text: str, now: float, *, is_warning: bool = False) -> None:
        if now >= self._second_end:
            self._lines = self.take(now)
            self._second_end = now + 1.0
        if self._written[is_warning] < LINES_PER_S:
            self._written[is_warning] += 1
            self._lines.append((is_warning, text))
        else:
            self._left_out[is_warning] += 1
