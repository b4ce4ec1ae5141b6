"""The feed: what a scheduler publishes for whoever watches it.

Every field has a default: readers go by names, ignore what they do not know, and do without what is
not there. So fields can be added without a new FEED_VERSION. ``docs/feed.md`` lists them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

FEED_VERSION = 1

# -- rows of a snapshot ----------------------------------------------------------------------


@dataclass(slots=True)
class Process:
    """The scheduler itself."""

    host: str = ""
    pid: int = 0
    release: str = ""
    """The version of scaler-exec."""
    python: str = ""
    address: str = ""
    """Where clients and workers connect."""
    up_s: float = 0.0
    """How long it has been running."""
    cpu: float | None = None
    """How many CPUs it keeps busy, since the snapshot before; nil: nobody has measured it yet."""
    rss_bytes: int | None = None
    free_bytes: int | None = None
    """Memory that its machine has left."""
    lag_s: float = 0.0
    """How late it was at most, since the snapshot before, with what was due at a time."""


@dataclass(slots=True)
class Tasks:
    """Where all tasks stand, nodes of graphs among them; from ``submitted`` on, since the start."""

    waiting: int = 0
    """Depend on others that have not returned."""
    ready: int = 0
    """Wait for a worker."""
    assigned: int = 0
    """Are on a worker, behind what that runs."""
    running: int = 0
    """One on each worker that has any, and nodes that a task runs which waits for their graph."""
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    recalled: int = 0
    """Those that a task took back which waits for them, to run them itself."""
    retried: int = 0
    """How often one was begun again, as it raised or what ran it died."""
    moved: int = 0
    """How often one was taken off a worker that had not begun it."""


@dataclass(slots=True)
class Machine:
    """A machine of the cluster, that is: its supervisor."""

    machine: bytes = b""
    """Its id."""
    host: str = ""
    wanted: int = 0
    """How many workers it is to have, besides spare ones."""
    workers: int = 0
    """How many it has, with spare ones."""
    spares: int = 0
    """How many of them take the place of blocked ones."""
    silent_s: float = 0.0
    """When it was last heard, so long ago."""
    lag_s: float | None = None
    """How long a message takes to it, and to be read there."""
    cpus: int = 0
    cpu: float | None = None
    """How many of its CPUs are busy, whoever uses them."""
    memory_bytes: int | None = None
    """All that it has, or may use."""
    free_bytes: int | None = None
    agent_cpu: float | None = None
    """How many CPUs its supervisor keeps busy."""
    agent_rss_bytes: int | None = None
    restarts: int = 0
    """How many workers took the place of one that died, since it came."""


@dataclass(slots=True)
class Worker:
    """A worker process."""

    worker: bytes = b""
    """Its id."""
    machine: bytes = b""
    host: str = ""
    name: str = ""
    """What its user calls it."""
    pid: int = 0
    capabilities: dict[str, float] = field(default_factory=dict)
    """What it offers, and how much of it (-1: it is never used up)."""
    tasks: int = 0
    """How many it has, the one that it runs among them."""
    free: int = 0
    """How many more it may be given ahead, if they are short."""
    given: int = 0
    """How many it was ever given, but for those it gave back."""
    backlog_s: float = 0.0
    """How long those that it has are expected to take."""
    session: int = 0
    """Of the client whose task it runs."""
    task: int = 0
    """The one that it runs; nothing unless ``tasks``."""
    function: str = ""
    age_s: float = 0.0
    """How long it has been running that, at most."""
    is_spare: bool = False
    is_blocked: bool = False
    """Its task only waits for others."""
    is_stalled: bool = False
    """Its task turned out long, so it gets no more until that is over."""
    is_leaving: bool = False
    """It ends after what it has, or is about to be killed."""
    cpu: float | None = None
    """How many CPUs it keeps busy."""
    rss_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """It is killed if it takes more; nil: there is no limit, or none is known yet."""
    up_s: float = 0.0
    """How long it has been there."""


@dataclass(slots=True)
class Client:
    """A client; also one inside of tasks."""

    session: int = 0
    """Its number: with it, the number of a task names it in the whole cluster."""
    host: str = ""
    pid: int = 0
    worker: bytes = b""
    """Of one inside of tasks: the worker that runs these."""
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    recalled: int = 0
    graphs: int = 0
    functions: int = 0
    objects: int = 0
    silent_s: float = 0.0

    @property
    def pending(self) -> int:
        """Return how many of its tasks have not ended."""
        return self.submitted - self.done - self.failed - self.cancelled - self.recalled


@dataclass(slots=True)
class Function:
    """All functions of one name, since the scheduler's start."""

    name: str = ""
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    recalled: int = 0
    retried: int = 0
    moved: int = 0
    busy_s: float = 0.0
    """What its tasks took that returned or raised, in all."""
    mean_s: float | None = None
    """What one takes, by those that ended last; nil: none is known at the moment."""

    @property
    def pending(self) -> int:
        """Return how many of its tasks have not ended."""
        return self.submitted - self.done - self.failed - self.cancelled - self.recalled


@dataclass(slots=True)
class Graph:
    """A graph that is not over."""

    session: int = 0
    first: int = 0
    """The task that its first node is."""
    name: str = ""
    nodes: int = 0
    """How many have come so far."""
    is_whole: bool = False
    """All of them have come."""
    waiting: int = 0
    ready: int = 0
    assigned: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    chain: int | None = None
    """How many nodes are on its longest path, of those that have come; nil: not known yet."""
    chain_left: int | None = None
    """The same among nodes that have not ended; nil: not known yet, as while nodes come."""


@dataclass(slots=True)
class Store:
    """The objects that lie in one place."""

    machine: bytes = b""
    """The machine that has them for itself; empty, or an address: clients store there."""
    address: str = ""
    objects: int = 0
    nbytes: int = 0
    memory_limit: int = 0
    copies: int = 0
    """How many of them are copies."""
    is_up: bool = False
    """There is a process that looks after them."""


@dataclass(slots=True)
class LargeObject:
    """One of the largest objects."""

    object: bytes = b""
    nbytes: int = 0
    users: int = 0
    """Sessions, functions and runs of tasks that need it."""
    workers: int = 0
    """How many may have mapped it."""
    stores: int = 0
    """In how many places it lies."""


@dataclass(slots=True)
class Demand:
    """Tasks that wait for a worker with something, or for any while there is none."""

    what: str = ""
    """Empty: any worker could run them."""
    tasks: int = 0
    unmet_s: float | None = None
    """How long there has been no such worker; nil: there is one."""


@dataclass(slots=True)
class Snapshot:
    """All that there is, at one moment."""

    run: str = ""
    """Of this scheduler process, and of no other."""
    seq: int = 0
    """Counts the snapshots of a run from 1."""
    events: int = 0
    """``seq`` of the last Events before it."""
    clock: float = 0.0
    """When it was made, in seconds of the scheduler's clock; ``at`` in events is by the same."""
    time: float = 0.0
    """The same moment, in seconds since 1970."""
    interval_s: float = 0.0
    """The next one comes after so long, unless that were too much work."""
    scheduler: Process = field(default_factory=Process)
    tasks: Tasks = field(default_factory=Tasks)
    sent: dict[str, int] = field(default_factory=dict)
    """How many messages of each kind it sent since its start."""
    received: dict[str, int] = field(default_factory=dict)
    worker_deaths: int = 0
    """How many workers died, were killed, or lost with their machine, since its start."""
    skipped: dict[str, int] = field(default_factory=dict)
    """How many events of each kind were too many to be told, since its start."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many rows of each table there was no room for."""
    machines: list[Machine] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    objects: int = 0
    """How many there are."""
    objects_bytes: int = 0
    stores: list[Store] = field(default_factory=list)
    largest: list[LargeObject] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    refused: str = ""
    """Which cluster was refused last, and why; empty: none since a worker came."""
    errors: int = 0
    """How often the scheduler failed by a bug of its own, since its start; its log has each."""


# -- events ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Event:
    """Base of all events; ``kind`` names the class."""

    kind: ClassVar[str] = ""
    at: float = 0.0


@dataclass(slots=True)
class Assigned(Event):
    """A worker was given contiguous tasks, to run in order after what it had."""

    kind: ClassVar[str] = "assigned"
    worker: bytes = b""
    session: int = 0
    first: int = 0
    count: int = 1
    function: str = ""


@dataclass(slots=True)
class Done(Event):
    """Contiguous tasks returned, after ``busy_s`` of work that ended just now."""

    kind: ClassVar[str] = "done"
    worker: bytes = b""
    session: int = 0
    first: int = 0
    count: int = 1
    function: str = ""
    busy_s: float = 0.0
    attempt: int = 1
    """Counts how often these tasks were begun."""


@dataclass(slots=True)
class Failed(Event):
    """Contiguous tasks failed; what depends on them fails as well, without an event."""

    kind: ClassVar[str] = "failed"
    worker: bytes = b""
    """Empty: no worker had them."""
    session: int = 0
    first: int = 0
    count: int = 1
    function: str = ""
    busy_s: float = 0.0
    attempt: int = 1
    reason: str = ""
    """"exception", "worker_died", "timeout", "lost", "deserialize", "result", "missing" or
    "unplaced"."""
    error: str = ""
    """The type of the exception."""
    message: str = ""
    traceback: str = ""
    """The end of it."""


@dataclass(slots=True)
class Retried(Event):
    """A task raised, or what ran it died, and it is run again."""

    kind: ClassVar[str] = "retried"
    worker: bytes = b""
    session: int = 0
    task: int = 0
    function: str = ""
    attempt: int = 1
    """The one that failed."""
    reason: str = ""
    error: str = ""
    message: str = ""
    busy_s: float = 0.0
    """How long it ran, at most."""


@dataclass(slots=True)
class Moved(Event):
    """A worker gave contiguous tasks back, which run elsewhere."""

    kind: ClassVar[str] = "moved"
    worker: bytes = b""
    session: int = 0
    first: int = 0
    count: int = 1
    function: str = ""


@dataclass(slots=True)
class Cancelled(Event):
    """Contiguous tasks were cancelled; the worker that runs one of them stops it."""

    kind: ClassVar[str] = "cancelled"
    worker: bytes = b""
    session: int = 0
    first: int = 0
    count: int = 1
    function: str = ""
    attempt: int = 1
    busy_s: float = 0.0
    """How long the first of them has been running, at most; 0: none has."""


@dataclass(slots=True)
class WorkerJoined(Event):
    """A worker process came up."""

    kind: ClassVar[str] = "worker_joined"
    worker: bytes = b""
    machine: bytes = b""
    host: str = ""
    pid: int = 0
    name: str = ""
    is_spare: bool = False


@dataclass(slots=True)
class WorkerLeft(Event):
    """A worker process ended as it was to."""

    kind: ClassVar[str] = "worker_left"
    worker: bytes = b""
    machine: bytes = b""
    host: str = ""
    pid: int = 0
    name: str = ""


@dataclass(slots=True)
class WorkerDied(Event):
    """A worker process died or was killed, or its machine was lost."""

    kind: ClassVar[str] = "worker_died"
    worker: bytes = b""
    machine: bytes = b""
    host: str = ""
    pid: int = 0
    name: str = ""
    session: int = 0
    """Of the client whose task it ran last; 0: it ran none."""
    task: int = 0
    function: str = ""
    exit_code: int | None = None
    signal: int | None = None
    peak_rss_bytes: int | None = None
    out_of_memory: bool = False
    reason: str = ""
    """Why it was killed, if the cluster did it."""
    stderr_tail: str = ""


@dataclass(slots=True)
class MachineJoined(Event):
    """A machine came."""

    kind: ClassVar[str] = "machine_joined"
    machine: bytes = b""
    host: str = ""
    workers: int = 0


@dataclass(slots=True)
class MachineLeft(Event):
    """A machine left, or was not heard for too long."""

    kind: ClassVar[str] = "machine_left"
    machine: bytes = b""
    host: str = ""


@dataclass(slots=True)
class ClientJoined(Event):
    """A client came."""

    kind: ClassVar[str] = "client_joined"
    session: int = 0
    host: str = ""
    pid: int = 0
    worker: bytes = b""


@dataclass(slots=True)
class ClientLeft(Event):
    """A client left, or was not heard for too long; what it had asked for is cancelled."""

    kind: ClassVar[str] = "client_left"
    session: int = 0
    host: str = ""
    pid: int = 0


@dataclass(slots=True)
class GraphBegun(Event):
    """The first nodes of a graph came."""

    kind: ClassVar[str] = "graph_begun"
    session: int = 0
    first: int = 0
    name: str = ""


@dataclass(slots=True)
class GraphOver(Event):
    """All nodes of a graph have ended, or its client left."""

    kind: ClassVar[str] = "graph_over"
    session: int = 0
    first: int = 0
    name: str = ""
    nodes: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0


@dataclass(slots=True)
class Events:
    """What happened since the Events before."""

    run: str = ""
    seq: int = 0
    """Counts the Events of a run from 1."""
    clock: float = 0.0
    skipped: dict[str, int] = field(default_factory=dict)
    """How many events of each kind were too many to be told, since the Events before."""
    events: list[Event] = field(default_factory=list)


RECORDS: tuple[type[Any], ...] = (
    Process, Tasks, Machine, Worker, Client, Function, Graph, Store, LargeObject, Demand,
)  # fmt: skip
"""What a snapshot consists of."""
EVENT_KINDS: dict[str, type[Event]] = {
    one.kind: one
    for one in (
        Assigned, Done, Failed, Retried, Moved, Cancelled, WorkerJoined, WorkerLeft, WorkerDied,
        MachineJoined, MachineLeft, ClientJoined, ClientLeft, GraphBegun, GraphOver,
    )
}  # fmt: skip
