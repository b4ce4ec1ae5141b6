"""The feed: what a scheduler publishes for monitors.

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
    """The address to which clients and workers connect."""
    up_s: float = 0.0
    """How long the scheduler has been running."""
    cpu: float | None = None
    """How many CPUs it kept busy since the snapshot before; nil: not measured yet."""
    rss_bytes: int | None = None
    free_bytes: int | None = None
    """The free memory of its machine."""
    lag_s: float = 0.0
    """The longest delay, since the snapshot before, of work that was due at a given time."""


@dataclass(slots=True)
class Tasks:
    """How many tasks are in which state, nodes included; from ``submitted`` on, since the start."""

    waiting: int = 0
    """They depend on tasks that have not returned."""
    ready: int = 0
    """They wait for a worker."""
    assigned: int = 0
    """They are on a worker, behind its running task."""
    running: int = 0
    """One on each worker that has tasks, and nodes that a task runs while it waits for them."""
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    recalled: int = 0
    """Now: tasks that wait for them took them back, to run them themselves."""
    retried: int = 0
    """How often a task ran again, because it raised or its worker died."""
    moved: int = 0
    """How often a task was moved from a worker that had not begun it."""
    inlined: int = 0
    """Tasks, done or failed, that were run by the task that waited for them."""


@dataclass(slots=True)
class Machine:
    """A machine of the cluster, that is, a supervisor and its workers."""

    machine: bytes = b""
    """Its id."""
    host: str = ""
    wanted: int = 0
    """How many workers it should have, besides spare ones."""
    workers: int = 0
    """How many workers it has, including spare ones."""
    spares: int = 0
    """How many of these take the place of blocked workers."""
    silent_s: float = 0.0
    """How long ago it was last heard."""
    lag_s: float | None = None
    """How long a message takes to reach it and to be read there."""
    cpus: int = 0
    cpu: float | None = None
    """How many of its CPUs are busy, no matter which process uses them."""
    memory_bytes: int | None = None
    """The memory that it has or may use."""
    free_bytes: int | None = None
    agent_cpu: float | None = None
    """How many CPUs its supervisor keeps busy."""
    agent_rss_bytes: int | None = None
    restarts: int = 0
    """How many workers were started in place of one that died, since the machine joined."""


@dataclass(slots=True)
class Worker:
    """A worker process."""

    worker: bytes = b""
    """Its id."""
    machine: bytes = b""
    host: str = ""
    name: str = ""
    """The name that the user gave it."""
    pid: int = 0
    capabilities: dict[str, float] = field(default_factory=dict)
    """What it offers, and how much of it; -1: it is never used up."""
    tasks: int = 0
    """How many tasks it has, including the running one."""
    free: int = 0
    """How many more tasks the scheduler may assign to it, if they are short."""
    given: int = 0
    """How many tasks it ever got, except those that it gave back."""
    backlog_s: float = 0.0
    """How long its tasks are expected to take."""
    session: int = 0
    """The session of the client whose task it runs."""
    task: int = 0
    """The running task; it has no meaning if ``tasks`` is 0."""
    function: str = ""
    age_s: float = 0.0
    """For how long at most it has been running this task."""
    is_spare: bool = False
    is_blocked: bool = False
    """Its task only waits for other tasks."""
    is_stalled: bool = False
    """Its task turned out to be long, so it gets no more tasks until this one has ended."""
    is_leaving: bool = False
    """It ends after its tasks, or is about to be killed."""
    is_paused: bool = False
    """An operator wants it to get no tasks for a while."""
    cpu: float | None = None
    """How many CPUs it keeps busy."""
    rss_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """It is killed if it exceeds this; nil: there is no limit, or none is known yet."""
    up_s: float = 0.0
    """How long ago it joined."""
    busy_s: float = 0.0
    """How long its tasks took that ended while anybody watched, in all, however few were told."""


@dataclass(slots=True)
class Client:
    """A client, also one inside tasks."""

    session: int = 0
    """Its number. Together with it, the number of a task is unique in the cluster."""
    host: str = ""
    pid: int = 0
    worker: bytes = b""
    """For a client inside tasks: the worker that runs these tasks."""
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
        return self.submitted - self.done - self.failed - self.cancelled


@dataclass(slots=True)
class Function:
    """All functions of one name; its counts begin at the scheduler's start."""

    name: str = ""
    submitted: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    recalled: int = 0
    retried: int = 0
    moved: int = 0
    busy_s: float = 0.0
    """The total time of its tasks that returned or raised."""
    mean_s: float | None = None
    """The time of one task, judged by the latest ones; nil: not known at the moment."""
    inlined: int = 0
    """Those, done or failed, that were run by the task that waited for them."""
    inlined_s: float = 0.0
    """Which part of ``busy_s`` they took; it is also in the time of the task that ran them."""

    @property
    def each_s(self) -> float | None:
        """Return what one of its tasks took, of all that returned or raised; None: none has."""
        ended = self.done + self.failed
        return self.busy_s / ended if ended and self.busy_s else None

    @property
    def pending(self) -> int:
        """Return how many of its tasks have not ended."""
        return self.submitted - self.done - self.failed - self.cancelled


@dataclass(slots=True)
class Graph:
    """A graph whose nodes have not all ended."""

    session: int = 0
    first: int = 0
    """The task number of its first node."""
    name: str = ""
    """The names of some of its layers."""
    nodes: int = 0
    """How many nodes have arrived so far."""
    is_whole: bool = False
    """All nodes have arrived."""
    waiting: int = 0
    ready: int = 0
    assigned: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    chain: int | None = None
    """How many nodes the longest path has, of those that have arrived; nil: not known yet."""
    chain_left: int | None = None
    """The same for nodes that have not ended; nil: not known yet, as while nodes arrive."""


@dataclass(slots=True)
class Layer:
    """The nodes of a graph that share a name, if not all nodes have ended."""

    session: int = 0
    graph: int = 0
    """The ``first`` of the graph."""
    name: str = ""
    """For a graph of Dask the prefix of the keys, else the name of the function."""
    waiting: int = 0
    ready: int = 0
    assigned: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    busy_s: float = 0.0
    """How long its nodes took together that returned or raised. What a worker reports together is
    shared out by number."""


@dataclass(slots=True)
class LayerLink:
    """Nodes of one layer depend on nodes of another layer of their graph."""

    session: int = 0
    graph: int = 0
    source: str = ""
    """The name of the layer that the other one depends on."""
    target: str = ""


@dataclass(slots=True)
class Store:
    """The objects in one storage."""

    machine: bytes = b""
    """The machine that has them for itself; if empty or an address, clients store there."""
    address: str = ""
    objects: int = 0
    nbytes: int = 0
    memory_limit: int = 0
    copies: int = 0
    """How many of them are copies."""
    is_up: bool = False
    """A storage process is running."""


@dataclass(slots=True)
class Transfer:
    """What was copied from one storage to another, as long as both are there."""

    source: bytes = b""
    """As ``machine`` of the stores."""
    target: bytes = b""
    copies: int = 0
    nbytes: int = 0
    failed: int = 0
    """Copies that did not come."""


@dataclass(slots=True)
class LargeObject:
    """One of the largest objects."""

    object: bytes = b""
    nbytes: int = 0
    users: int = 0
    """How many sessions, functions and runs of tasks need it."""
    workers: int = 0
    """How many workers may have mapped it."""
    stores: int = 0
    """How many storages have it."""
    session: int = 0
    """Of the client that stored it, or whose task returned it; of several, the first."""
    function: str = ""
    """As in ``owners``."""


@dataclass(slots=True)
class Owner:
    """The objects that one client stored, or that tasks of one name returned to it."""

    session: int = 0
    """Of the client; it may have left, if others still need what it made."""
    function: str = ""
    """The name under which the tasks are counted; empty: the client stored the objects itself, or
    they were there before this scheduler."""
    objects: int = 0
    nbytes: int = 0


@dataclass(slots=True)
class Demand:
    """Tasks that wait for a worker with certain capabilities, or for any worker at all."""

    what: str = ""
    """What the tasks demand; empty: any worker could run them."""
    tasks: int = 0
    unmet_s: float | None = None
    """For how long there has been no such worker; nil: there is one."""


@dataclass(slots=True)
class Manager:
    """Whoever has workers started as they are wanted, and how that goes."""

    name: str = ""
    """Its id."""
    host: str = ""
    system: str = ""
    """What starts the workers: the manager's type; "embedded": a program's own cluster."""
    wanted: int = 0
    """How many workers it is to have."""
    workers: int = 0
    """How many are here to stay."""
    least: int = 0
    most: int = 0
    """The most workers that it offers; 2^32: without limit."""
    running: int = 0
    """Units whose workers are here to stay. A unit is what the system starts as one."""
    coming: int = 0
    """Units whose workers are not here yet."""
    ending: int = 0
    """Units on their way out."""
    failed: int = 0
    """Units that never came, or died, since the manager was started."""
    reason: str = ""
    """Why the last one did; empty: another one has come since."""
    unit_s: float = 0.0
    """How long its units have lived together since it was started, in seconds."""
    idle_s: float = 0.0
    """How long its workers had nothing to do, together, since it joined this scheduler."""


@dataclass(slots=True)
class Snapshot:
    """The whole state at one moment."""

    run: str = ""
    """The name of this scheduler process, and of no other."""
    seq: int = 0
    """Counts the snapshots of a run from 1."""
    events: int = 0
    """``seq`` of the last Events before it."""
    clock: float = 0.0
    """The time of the snapshot on the scheduler's clock, in seconds; ``at`` in events is too."""
    time: float = 0.0
    """The same moment, in seconds since 1970."""
    interval_s: float = 0.0
    """The next snapshot follows after this time, unless that would be too much work."""
    scheduler: Process = field(default_factory=Process)
    tasks: Tasks = field(default_factory=Tasks)
    sent: dict[str, int] = field(default_factory=dict)
    """How many messages of each kind the scheduler has sent since its start."""
    received: dict[str, int] = field(default_factory=dict)
    worker_deaths: int = 0
    """How many workers died, were killed or were lost with their machine, since the start."""
    skipped: dict[str, int] = field(default_factory=dict)
    """How many events of each kind were left out, since the start."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many rows of each table were left out for lack of room."""
    machines: list[Machine] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    """Of a large graph they may be counted less often than its row in ``graphs``."""
    links: list[LayerLink] = field(default_factory=list)
    objects: int = 0
    """How many objects there are."""
    objects_bytes: int = 0
    stores: list[Store] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    """Those with most bytes."""
    largest: list[LargeObject] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    """Those with most bytes."""
    demands: list[Demand] = field(default_factory=list)
    managers: list[Manager] = field(default_factory=list)
    refused: str = ""
    """Which cluster was refused last, and why; empty: none since a worker joined."""
    errors: int = 0
    """How many bugs of its own the scheduler has met since its start; its log has each of them."""


# -- events ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Event:
    """Base of all events; ``kind`` names the class."""

    kind: ClassVar[str] = ""
    at: float = 0.0


@dataclass(slots=True)
class Assigned(Event):
    """A worker got contiguous tasks, to run in order after those that it had."""

    kind: ClassVar[str] = "assigned"
    worker: bytes = b""
    session: int = 0
    first: int = 0
    count: int = 1
    function: str = ""


@dataclass(slots=True)
class Done(Event):
    """Contiguous tasks returned, after ``busy_s`` seconds of work that ended just now."""

    kind: ClassVar[str] = "done"
    worker: bytes = b""
    session: int = 0
    first: int = 0
    count: int = 1
    function: str = ""
    busy_s: float = 0.0
    attempt: int = 1
    """How often these tasks have been started."""


@dataclass(slots=True)
class Failed(Event):
    """Contiguous tasks failed. Tasks that depend on them fail as well, without an event."""

    kind: ClassVar[str] = "failed"
    worker: bytes = b""
    """The worker that had them; empty: none."""
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
    """Of the exception, or how the worker died, with its peak of memory and its limit."""
    traceback: str = ""
    """The end of the traceback."""
    arguments: str = ""
    """What the arguments look like, if the setting ``failed_arguments`` lets workers tell."""


@dataclass(slots=True)
class Retried(Event):
    """A task raised, or its worker died, and the task runs again."""

    kind: ClassVar[str] = "retried"
    worker: bytes = b""
    session: int = 0
    task: int = 0
    function: str = ""
    attempt: int = 1
    """The number of the failed attempt."""
    reason: str = ""
    error: str = ""
    message: str = ""
    busy_s: float = 0.0
    """For how long at most it ran."""


@dataclass(slots=True)
class Moved(Event):
    """A worker gave contiguous tasks back; they run elsewhere."""

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
    """For how long at most the first of them has been running; 0: none is running."""


@dataclass(slots=True)
class WorkerJoined(Event):
    """A worker process joined."""

    kind: ClassVar[str] = "worker_joined"
    worker: bytes = b""
    machine: bytes = b""
    host: str = ""
    pid: int = 0
    name: str = ""
    is_spare: bool = False


@dataclass(slots=True)
class WorkerLeft(Event):
    """A worker process ended as planned."""

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
    """The session of the client whose task it ran last; 0: it ran none."""
    task: int = 0
    function: str = ""
    exit_code: int | None = None
    signal: int | None = None
    peak_rss_bytes: int | None = None
    out_of_memory: bool = False
    reason: str = ""
    """Why the cluster killed it, if it did."""
    stderr_tail: str = ""


@dataclass(slots=True)
class MachineJoined(Event):
    """A machine joined."""

    kind: ClassVar[str] = "machine_joined"
    machine: bytes = b""
    host: str = ""
    workers: int = 0


@dataclass(slots=True)
class MachineLeft(Event):
    """A machine left, or was silent for too long."""

    kind: ClassVar[str] = "machine_left"
    machine: bytes = b""
    host: str = ""


@dataclass(slots=True)
class ClientJoined(Event):
    """A client joined."""

    kind: ClassVar[str] = "client_joined"
    session: int = 0
    host: str = ""
    pid: int = 0
    worker: bytes = b""


@dataclass(slots=True)
class ClientLeft(Event):
    """A client left, or was silent for too long; its tasks are cancelled."""

    kind: ClassVar[str] = "client_left"
    session: int = 0
    host: str = ""
    pid: int = 0


@dataclass(slots=True)
class GraphBegun(Event):
    """The first nodes of a graph arrived."""

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
class Operated(Event):
    """An operator acted on tasks or workers of others."""

    kind: ClassVar[str] = "operated"
    user: str = ""
    """Whose key it has, as ``operator:NAME``."""
    action: str = ""
    """``cancel``, ``pause``, ``resume``, ``drain`` or ``restart``."""
    target: str = ""
    """What it named, such as ``function train``."""
    count: int = 0
    """How many tasks or workers that met."""


@dataclass(slots=True)
class Events:
    """What happened since the Events before."""

    run: str = ""
    seq: int = 0
    """Counts the Events of a run from 1."""
    clock: float = 0.0
    skipped: dict[str, int] = field(default_factory=dict)
    """How many events of each kind were left out, since the Events before."""
    events: list[Event] = field(default_factory=list)


# -- samples ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Running:
    """A task that a worker runs now, and what it is at."""

    worker: bytes = b""
    host: str = ""
    pid: int = 0
    name: str = ""
    """The name of the worker."""
    session: int = 0
    task: int = 0
    function: str = ""
    age_s: float = 0.0
    """For how long it has been running."""
    stack: str = ""
    """As in a traceback, the innermost call last."""
    reason: str = ""
    """Why there is no stack."""


@dataclass(slots=True)
class Sampled:
    """How often the tasks of a function were looked at on one worker, and what was seen."""

    worker: bytes = b""
    function: str = ""
    """Empty: of several others."""
    samples: int = 0
    tree: bytes = b""
    """A call tree: msgpack of a list of frames, each a name, a file and the line of its definition;
    and of a list of numbers: the time that was the engine's own, then for each node its parent (0:
    the root; the first node is 1), its frame (from 0), and its own time in microseconds."""


@dataclass(slots=True)
class Samples:
    """What the workers saw of their tasks since the Samples before, and what runs now."""

    run: str = ""
    seq: int = 0
    """Counts the Samples of a run from 1."""
    clock: float = 0.0
    interval_s: float = 0.0
    """The next Samples follow after this time."""
    running: list[Running] = field(default_factory=list)
    sampled: list[Sampled] = field(default_factory=list)
    skipped: int = 0
    """How many samples were left out for lack of room."""


# -- logs ------------------------------------------------------------------------------------


@dataclass(slots=True)
class LogLine:
    """A line that a task printed, or a record that it logged."""

    at: float = 0.0
    worker: bytes = b""
    host: str = ""
    pid: int = 0
    name: str = ""
    """The name of the worker."""
    session: int = 0
    """Of the task that ran; 0: none did."""
    task: int = 0
    function: str = ""
    source: str = ""
    """"stdout" or "stderr"; of a record, its logger; empty: the text is about what is missing."""
    level: int = 0
    """Of a record, as in logging: 30 is WARNING; 0: it was printed."""
    text: str = ""
    """A record may have several lines, with its traceback."""
    dropped: int = 0
    """How many lines of this worker are missing here, as the text says."""


@dataclass(slots=True)
class Logs:
    """What tasks printed and logged since the Logs before; sent even if that is nothing."""

    run: str = ""
    seq: int = 0
    """Counts the Logs of a run from 1."""
    clock: float = 0.0
    time: float = 0.0
    """The same moment, in seconds since 1970."""
    interval_s: float = 0.0
    """The next Logs follow after this time at the latest."""
    reason: str = ""
    """Why there are no lines, if there never are."""
    lines: list[LogLine] = field(default_factory=list)


RECORDS: tuple[type[Any], ...] = (
    Process, Tasks, Machine, Worker, Client, Function, Graph, Layer, LayerLink, Store, LargeObject,
    Transfer, Owner, Demand, Manager, Running, Sampled, LogLine,
)  # fmt: skip
"""What snapshots, samples and logs consist of."""
EVENT_KINDS: dict[str, type[Event]] = {
    one.kind: one
    for one in (
        Assigned, Done, Failed, Retried, Moved, Cancelled, WorkerJoined, WorkerLeft, WorkerDied,
        MachineJoined, MachineLeft, ClientJoined, ClientLeft, GraphBegun, GraphOver, Operated,
    )
}  # fmt: skip
