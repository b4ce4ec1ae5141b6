"""Contiguous tasks, and what became of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scaler_cluster.wire import feed

DONE, FAILED, CANCELLED, RETRIED = "done", "failed", "cancelled", "retried"


@dataclass(slots=True)
class Work:
    """Contiguous tasks, and what became of them."""

    worker: bytes
    """Empty: no worker had them."""
    start: float
    """As ``end``: they never ran, or nobody knows for how long."""
    end: float
    session: int
    first: int
    count: int
    function: str
    attempt: int = 1
    state: str = DONE
    """DONE, FAILED, CANCELLED or RETRIED."""
    reason: str = ""
    """Why they failed, or are run again; so are ``error`` and ``message``."""
    error: str = ""
    message: str = ""
    """As ``traceback`` empty again for all but the last that had any."""
    traceback: str = ""
    arguments: str = ""
    """What they look like, if workers tell."""

    @property
    def is_bad(self) -> bool:
        """Return True if the tasks failed, or had to run again."""
        return self.state in (FAILED, RETRIED)

    @property
    def is_timed(self) -> bool:
        """Return True if it is known how long they took: they returned, or raised."""
        return self.state == DONE or (self.state == FAILED and self.end > self.start)

    def holds(self, session: int, task: int) -> bool:
        """Return True if this task is one of them."""
        return self.session == session and self.first <= task < self.first + self.count


def work_of(event: feed.Event) -> Work | None:
    """Return what an event says of tasks that came to an end, or to another beginning."""
    if isinstance(event, feed.Done):
        count, state = event.count, DONE
    elif isinstance(event, feed.Failed):
        count, state = event.count, FAILED
    elif isinstance(event, feed.Cancelled):
        count, state = event.count, CANCELLED
    elif isinstance(event, feed.Retried):
        count, state = 1, RETRIED
    else:
        return None
    first = event.task if isinstance(event, feed.Retried) else event.first
    work = Work(
        event.worker, event.at - event.busy_s, event.at, event.session, first, count,
        event.function, event.attempt, state,
    )  # fmt: skip
    if isinstance(event, feed.Failed | feed.Retried):
        work.reason, work.error, work.message = event.reason, event.error, event.message
    if isinstance(event, feed.Failed):
        work.traceback, work.arguments = event.traceback, event.arguments
    return work
