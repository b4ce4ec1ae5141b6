"""The states of a task and the moves between them; the diagram in the docs is drawn from here."""

from __future__ import annotations

from enum import IntEnum, auto


class State(IntEnum):
    """Where a task stands in the scheduler."""

    WAITING = auto()
    """Depends on tasks that have not returned."""
    READY = auto()
    """Queued in the scheduler; may go to any worker."""
    ASSIGNED = auto()
    """Sent to a worker; queued or running there."""
    REVOKING = auto()
    """Sent to a worker and asked back, to run elsewhere sooner."""
    CANCELLING = auto()
    """Being stopped; its future has already been told."""
    DONE = auto()
    """Returned; an end."""
    FAILED = auto()
    """Failed, and is not run again; an end."""
    CANCELLED = auto()
    """Stopped, or never begun; an end."""


class Event(IntEnum):
    """What may happen to a task."""

    RELEASE = auto()
    """The last task that it depends on returned."""
    ASSIGN = auto()
    """It was given to a worker; a task that waits, behind what it waits for."""
    HOLD = auto()
    """It came back from a worker before the tasks that it depends on."""
    REVOKE = auto()
    """The scheduler asks its worker for it, as another one would run it sooner."""
    GIVEN_BACK = auto()
    """The worker had not started it."""
    KEPT = auto()
    """The worker had started it before it could be revoked."""
    RETURNED = auto()
    """It returned a result."""
    RAISED = auto()
    """It raised an exception, and is not to be run again."""
    RETRY = auto()
    """It raised, or its worker died, and it may be run again."""
    LOST = auto()
    """Its worker is gone, but it had not started, or may be run again."""
    WORKER_DIED = auto()
    """Its worker died while it ran, and it is not to be run again."""
    CANCEL = auto()
    """Its client does not want it any more."""
    EXPIRE = auto()
    """It ran longer than its timeout."""
    STOPPED = auto()
    """The worker dropped it or was killed."""
    SKIPPED = auto()
    """The worker could not run it, as a task before it did not return."""
    DEPENDENCY_FAILED = auto()
    """A task that it depends on failed."""
    UNPLACED = auto()
    """No worker came that has what it demands."""


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.WAITING: {
        Event.RELEASE: State.READY,
        Event.ASSIGN: State.ASSIGNED,
        Event.DEPENDENCY_FAILED: State.FAILED,
        Event.CANCEL: State.CANCELLED,
    },
    State.READY: {
        Event.ASSIGN: State.ASSIGNED,
        Event.HOLD: State.WAITING,
        Event.CANCEL: State.CANCELLED,
        Event.UNPLACED: State.FAILED,
    },
    State.ASSIGNED: {
        Event.RETURNED: State.DONE,
        Event.RAISED: State.FAILED,
        Event.RETRY: State.READY,
        Event.SKIPPED: State.READY,
        Event.LOST: State.READY,
        Event.WORKER_DIED: State.FAILED,
        Event.REVOKE: State.REVOKING,
        Event.CANCEL: State.CANCELLING,
        Event.EXPIRE: State.CANCELLING,
    },
    State.REVOKING: {
        Event.GIVEN_BACK: State.READY,
        Event.KEPT: State.ASSIGNED,
        Event.RETURNED: State.DONE,
        Event.RAISED: State.FAILED,
        Event.RETRY: State.READY,
        Event.SKIPPED: State.READY,
        Event.LOST: State.READY,
        Event.WORKER_DIED: State.FAILED,
        Event.CANCEL: State.CANCELLING,
        Event.EXPIRE: State.CANCELLING,
    },
    State.CANCELLING: {
        Event.CANCEL: State.CANCELLING,
        Event.KEPT: State.CANCELLING,
        Event.GIVEN_BACK: State.CANCELLED,
        Event.STOPPED: State.CANCELLED,
        Event.SKIPPED: State.CANCELLED,
        Event.RETURNED: State.CANCELLED,
        Event.RAISED: State.CANCELLED,
        Event.LOST: State.CANCELLED,
        Event.WORKER_DIED: State.CANCELLED,
    },
}
"""A move that is not in here is illegal. No move leads out of an end."""

ENDS = (State.DONE, State.FAILED, State.CANCELLED)
