"""What operators tell the scheduler: they act on the tasks and workers of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.core.scheduler.cancelling import Cancelling, UnknownNameError
from scaler_cluster.core.scheduler.worker_control import NotPossibleError, WorkerControl
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.table import Table

OPERATORS_MAX = 256
"""People who act on one cluster at the same time; more are a program that goes wrong."""
TEXT_CHARS_MAX = 500
DONE = {
    m.CANCEL: "cancelled",
    m.PAUSE: "paused",
    m.RESUME: "resumed",
    m.DRAIN: "drained",
    m.RESTART: "restarted",
}
"""What the log says of each action."""


class OperatorHandlers:
    """Handles the messages of operators."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        cancelling: Cancelling,
        control: WorkerControl,
    ) -> None:
        self._table = table
        self._config = config
        self._cancelling = cancelling
        self._control = control
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Operate: self._on_operate,
        }

    def welcome(self, peer: bytes, hello: m.Hello, now: float) -> None:
        """An operator came."""
        table = self._table
        if len(table.operators) >= OPERATORS_MAX:
            table.send(peer, m.Refused("too many operators are here already"))
            table.outbox.part_with(peer)
            return
        table.operators[peer] = now
        table.send(peer, self._config.welcome())

    def lose(self, peer: bytes) -> None:
        """An operator is gone, or has left."""
        del self._table.operators[peer]

    def _on_operate(self, peer: bytes, message: m.Operate, now: float) -> None:
        table = self._table
        if peer not in table.operators:
            raise RemoteProtocolError("only an operator says this")
        kinds = m.WORK if message.action == m.CANCEL else m.PLACES
        if message.action not in m.ACTIONS or message.kind not in kinds:
            raise RemoteProtocolError(f"no action: {message.action:.20} {message.kind:.20}")
        if message.is_forced and message.action != m.RESTART:
            raise RemoteProtocolError("only a restart can be forced")
        table.operators[peer] = now
        try:
            count, met = self._act(table.user_of(peer), message, now)
        except (UnknownNameError, NotPossibleError) as error:
            table.send(peer, m.Operated(message.number, 0, "", str(error)[:TEXT_CHARS_MAX]))
            return
        table.send(peer, m.Operated(message.number, count, met))

    def _act(self, user: str, message: m.Operate, now: float) -> tuple[int, str]:
        """Do what a message says; return how many tasks or workers that met, also in words."""
        table, action, is_trial = self._table, message.action, message.is_trial
        target = f"{message.kind} {message.name:.200}"
        if action == m.CANCEL:
            tasks = self._cancelling.cancel(message.kind, message.name, is_trial=is_trial, now=now)
            count = sum(tasks.values())
            met = f"{_counted(count, 'task')} of {_counted(len(tasks), 'client')}"
        else:
            workers = self._control.act(
                action,
                message.kind,
                message.name,
                is_forced=message.is_forced,
                is_trial=is_trial,
                by=user,
            )
            count, running = len(workers), sum(one.count > 0 for one in workers)
            met = f"{_counted(count, 'worker')}, of which {running} run tasks"
        if not is_trial:
            how = " by force" if message.is_forced else ""
            done, what = DONE[action], f"{target}{how}: {met}"
            table.journal.operated(user, done, what)
            table.observer.operated(user, action, target, count)
            if action == m.CANCEL:
                self._cancelling.tell(tasks, f"{user} has {done} {what}")
        return count, met


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
