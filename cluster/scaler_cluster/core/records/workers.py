"""Workers, the runs of tasks that they have, and the pools of workers that offer the same.

The three refer to each other, so they share a file. Contiguous tasks that share their story are
one *run*.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.core.records.accounts import Account
from scaler_cluster.core.records.announced import Announced
from scaler_cluster.core.records.lifecycle import TRANSITIONS, Event, State
from scaler_cluster.core.records.limits import TASKS_MAX
from scaler_cluster.errors import LocalProtocolError
from scaler_cluster.ids import alias_of
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from scaler_cluster.wire.messages import Capabilities, Portion, TaskOptions

EMPTY = Batch(b"", memoryview(b"").cast("I"))
"""The payloads of a run that ended."""


def times(count: int) -> str:
    """Return a number of times for people."""
    return "once" if count == 1 else f"{count} times"


@dataclass(slots=True, eq=False)
class Run:
    """Contiguous tasks of one session that share function, options, state and place.

    A run is split where its tasks go different ways; a single ``submit`` is a run of one.
    """

    session: int
    first: int
    function: bytes
    call: int
    options: TaskOptions
    batch: Batch
    objects: tuple[bytes, ...] = ()
    """Ids of the objects that each of its payloads refers to, in order."""
    state: State = State.READY
    worker: WorkerRecord | None = field(default=None, repr=False)
    unit_s: float = 0.0
    """How long one task was expected to take when the run was assigned, in seconds."""
    tries: int = 0
    """How often it was run again after it raised or its worker died."""
    losses: int = 0
    """How often it was lost with its machine."""
    deaths: int = 0
    """How many of its tries ended with the death of its worker, while it ran there."""
    account: Account = field(default_factory=Account, repr=False)
    """Whose time it takes."""
    portion: Portion | None = None
    """What its one task has of its machine, while its worker has the task."""
    count: int = field(init=False)
    """Number of tasks."""

    def __post_init__(self) -> None:
        self.count = len(self.batch.ends)

    @property
    def stop(self) -> int:
        """Id after the last task."""
        return self.first + self.count

    def holds(self, session: int, task: int) -> bool:
        """Return True if this is one of its tasks."""
        return self.session == session and self.first <= task < self.stop

    @property
    def may_retry(self) -> bool:
        """Return True if it may be started again after it raised or its worker died."""
        return self.tries < self.options.retries and not self.options.at_most_once

    @property
    def cores(self) -> int:
        """How many workers' time it takes."""
        return 1 if self.portion is None else self.portion.cores

    @property
    def attempts(self) -> str:
        """Say how often it was begun without success, by cause; empty: never."""
        causes = (
            (self.tries - self.deaths, "it raised"),
            (self.deaths, "its worker died"),
            (self.losses, "its machine was lost"),
        )
        parts = [f"{what} {times(count)}" for count, what in causes if count]
        return ", ".join(parts)

    @property
    def needed(self) -> tuple[bytes, ...]:
        """Ids of the objects that its worker needs to run it."""
        return self.objects

    def move(self, event: Event) -> State:
        """Move to the next state and return it.

        Raises LocalProtocolError, with the run's story, if the move is illegal.
        """
        try:
            self.state = state = TRANSITIONS[self.state][event]
        except KeyError:
            raise LocalProtocolError(f"{event.name} is impossible for {self}") from None
        return state

    def cut_head(self, count: int) -> Run:
        """Take the first ``count`` tasks out, as a run of their own."""
        head = Run(
            self.session,
            self.first,
            self.function,
            self.call,
            self.options,
            self.batch.cut(0, count),
            self.objects,
            self.state,
            self.worker,
            self.unit_s,
            self.tries,
            self.losses,
            self.deaths,
            self.account,
        )
        self.drop_head(count)
        return head

    def drop_head(self, count: int) -> None:
        """Forget the first ``count`` tasks; at least one stays."""
        self._keep(self.batch.cut(count, self.count))
        self.first += count

    def drop_tail(self, count: int) -> None:
        """Forget the last ``count`` tasks; at least one stays."""
        self._keep(self.batch.cut(0, self.count - count))

    def drop_all(self) -> None:
        """Forget all tasks, and their payloads."""
        self.batch, self.count = EMPTY, 0

    def _keep(self, batch: Batch) -> None:
        self.batch = batch
        self.count = len(batch.ends)

    def __str__(self) -> str:
        """Tell the run's story in one line, for errors and logs."""
        place = f" on worker {alias_of(self.worker.peer).hex()}" if self.worker is not None else ""
        return (
            f"tasks {self.first}..{self.stop - 1} of session {self.session}: "
            f"{self.state.name}{place}, tries {self.tries}, losses {self.losses}"
        )


class WorkerPool:
    """Workers that offer the same, and share the same with the others of their machine."""

    def __init__(
        self, capabilities: Capabilities, shared: Capabilities = (), *, has_python: bool = True
    ) -> None:
        self.capabilities = capabilities
        self.shared = shared
        """What the machine of each of them offers to all its workers together."""
        self.has_python = has_python
        """False: its workers get only what demands a capability, as they cannot unpickle."""
        self.offered = dict(capabilities) | dict(shared)
        self.idle: dict[bytes, WorkerRecord] = {}
        """Workers that have no tasks; the worker that was busy last comes last."""
        self.hungry: dict[bytes, WorkerRecord] = {}
        """Workers that have little ahead."""
        self.count = 0
        """Number of its workers."""
        self.is_reserved = False
        """True in a turn in which its busy workers get no more: what is next wants them idle."""


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """A worker process."""

    peer: bytes
    supervisor: bytes
    pid: int
    host: str
    task_limit: int
    runs: deque[Run] = field(default_factory=deque)
    """The runs that it has, in the order in which it runs them."""
    count: int = 0
    """Number of tasks in ``runs``."""
    backlog_s: float = 0.0
    """How long these tasks are expected to take together, in seconds."""
    given: int = 0
    """Number of tasks it was ever sent, less those that it gave back."""
    tasks_max: int = TASKS_MAX
    """How many tasks it may have."""
    progress_at: float = 0.0
    """When it last finished a task, or was given one while it had none."""
    revoking: int = 0
    """Number of Revoke messages that it has not answered."""
    killed: str = ""
    """Why its supervisor was asked to kill it."""
    hung: tuple[int, int] | None = None
    """Session and id of the task that hangs, and for which it is killed; None: none does."""
    retiring: bool = False
    stalled: bool = False
    """True: it runs a task that turned out long, and gets no more until it reports."""
    functions: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Digests of the functions that it holds, least recently used first."""
    store: bytes = b""
    """Key of the store whose segments it maps."""
    announced: Announced = field(default_factory=Announced)
    """Numbers of the segments that it has told of."""
    objects: dict[bytes, None] = field(default_factory=dict)
    """Ids of the objects that it was told of, and may have mapped."""
    session: bytes = b""
    """Peer id of the session of its tasks; empty: its tasks have submitted nothing."""
    blocked: bool = False
    """True: its task only waits for others. It gets nothing, and a spare worker takes its place."""
    waited_s: float = 0.0
    """How long its task was blocked, which counts as nobody's time."""
    spare: bool = False
    """True: it is there to take the place of blocked workers."""
    portion: Portion | None = None
    """What one of its tasks has of its machine."""
    devices: tuple[int, ...] = ()
    """The GPUs that its tasks were last told to use: libraries may stay with them."""
    parked: bool = False
    """True: it gets nothing, as its place is kept for a task that needs several of them."""
    paused: bool = False
    """True: an operator wants it to get nothing for a while."""
    asleep_at: float = math.inf
    """Since when there is no blocked worker whose place it could take; inf: there is one."""
    name: str = ""
    actor: str = ""
    """The actor that lives there: the worker is given calls of it, and nothing else."""
    names: tuple[str, ...] = ()
    """What tasks may call it that name workers: its name, its machine's, and its alias."""
    joined_at: float = 0.0
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(()), repr=False)
    """The workers that offer the same."""
    vitals: tuple[float, int] | None = None
    """How many CPUs it keeps busy, and its resident set in bytes; None: nobody has watched."""
    busy_s: float = 0.0
    """How long its tasks took that ended while anybody watched."""
