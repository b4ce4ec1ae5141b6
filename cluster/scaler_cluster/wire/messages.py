"""Every message of the protocol, one slots dataclass each.

The order of a class's fields is its order on the wire; ``docs/protocol.md`` lists them all.
Ids, numbers and opaque bytes only: nobody who forwards a message ever unpickles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from scaler_cluster.wire.batch import Batch, Buffer

PROTOCOL_VERSION = 1

# How a payload becomes a call.
CALL_ARGS = 0
"""The payload is a tuple of positional arguments."""
CALL_KWARGS = 1
"""The payload is ``(args, kwargs)``."""
CALL_CHUNK = 2
"""The payload is a list of tuples of positional arguments; the result is the list of results."""
CALL_NODE = 3
"""The payload is that of a node of a graph; see ``nodes.py``."""

CLIENT = "client"
WORKER = "worker"
SUPERVISOR = "supervisor"
STORAGE = "storage"
SCHEDULER = "scheduler"
"""Of who connects to a storage that runs by itself."""

Capabilities: TypeAlias = "tuple[tuple[str, float], ...]"
"""Names and amounts, ordered by name. Offered: how much there is, -1 if it is never used up.
Demanded: how much a task uses, 0 or less if it must only be there."""


class Message:
    """Base of all messages; ``tag`` names the class on the wire."""

    __slots__ = ()
    tag: ClassVar[int]


@dataclass(slots=True, frozen=True)
class TaskOptions:
    """What a user asks of each task of a submission."""

    priority: int = 0
    """Higher runs first."""
    timeout_s: float | None = None
    """Seconds from its start after which a task is stopped; None: never."""
    retries: int = 0
    """How often a task is run again after it raised or its worker died."""
    at_most_once: bool = False
    """Never start a task a second time, even if its machine was lost."""
    stream_output: bool = False
    """Send what the task prints to the client."""
    profiling: bool = False
    """Measure what the task takes, and tell the client."""
    depth: int = 0
    """How many tasks are above it: 1 if a task submitted it that no task submitted. Among equal
    priorities, deeper ones run first."""
    capabilities: Capabilities = ()
    """What the worker that runs it must have."""
    workers: tuple[str, ...] = ()
    """Names of workers and of machines, one of which it must be; empty: any."""
    log_level: int = 0
    """Send the task's log records from this level on to the client; 0: none."""


@dataclass(slots=True, frozen=True)
class StorageEndpoint:
    """A storage that takes what clients store: its address, and its directories."""

    address: str = ""
    """Where peers that cannot see the directories send and fetch objects; empty: nowhere."""
    memory: str = ""
    """Directory in shared memory; empty: there is none."""
    disk: str = ""
    """Directory for objects that find no room in memory; empty: no objects are kept."""
    memory_limit: int = 0
    """Bytes that objects may take in memory."""


NOWHERE = StorageEndpoint()
"""Keeps nothing."""

DEFAULT_OPTIONS = TaskOptions()
"""The one that travels as nothing; who makes options that equal it uses it itself."""


def intern_options(options: TaskOptions) -> TaskOptions:
    """Return DEFAULT_OPTIONS for options that equal it, others as they are."""
    return DEFAULT_OPTIONS if options == DEFAULT_OPTIONS else options


# -- any peer <-> scheduler ------------------------------------------------------------------


@dataclass(slots=True)
class Hello(Message):
    """The first message of every peer: who it is and what it speaks."""

    tag = 1
    role: str
    protocol: int
    python: str
    pid: int
    host: str
    supervisor: bytes = b""
    """Of a worker, or the storage of a machine of its own: the peer id of its supervisor."""
    task_limit: int = 0
    """Of a worker: how many tasks it will run before it retires; 0: no limit."""
    workers: int = 0
    """Of a supervisor: how many workers it keeps."""
    place: StorageEndpoint = NOWHERE
    """Of a worker or a storage: where the objects of its machine lie, and whence others fetch them.
    """
    spare: bool = False
    """Of a worker: it is there to take the place of others that are blocked."""
    worker: bytes = b""
    """Of a client inside of tasks: the peer id of the worker that runs them."""
    name: str = ""
    """Of a worker: what its user calls it."""
    capabilities: Capabilities = ()
    """Of a worker: what it offers."""
    queue: int = 0
    """Of a worker: how many tasks it takes ahead at most; 0: it does not mind."""
    pid_space: str = ""
    """Of a supervisor: names the system and the namespace that ``pid`` counts in; empty: unknown. A
    scheduler in the same one watches the process."""


@dataclass(slots=True)
class Welcome(Message):
    """The scheduler took the peer in."""

    tag = 2
    session: int
    workers: int
    """Number of workers the cluster has, or is about to have."""
    homes: tuple[StorageEndpoint, ...] = (NOWHERE,)
    """Where clients store objects: each in the one that its id chooses."""
    asks_first: bool = False
    """A client must say RequestCredit, and wait for GrantCredit, before it says Submit."""
    monitor: str = ""
    """Where the scheduler listens for those who watch; empty: nowhere."""
    dashboard: str = ""
    """Link of its dashboard, with the token; empty: it knows of none."""


@dataclass(slots=True)
class Refused(Message):
    """The scheduler does not take the peer in; one sentence says why."""

    tag = 3
    reason: str


@dataclass(slots=True)
class Heartbeat(Message):
    """The peer lives; the scheduler answers a client's with the same."""

    tag = 4


@dataclass(slots=True)
class Goodbye(Message):
    """The sender leaves, or tells the other to: a supervisor then says so in return."""

    tag = 5
    reason: str = ""


@dataclass(slots=True)
class Unknown(Message):
    """The scheduler does not know the sender (it was expired, or the scheduler restarted)."""

    tag = 6


@dataclass(slots=True)
class Shutdown(Message):
    """Client to scheduler: end the cluster; answered with Goodbye, or Refused."""

    tag = 7


# -- functions and tasks ---------------------------------------------------------------------


@dataclass(slots=True)
class Function(Message):
    """A pickled function, sent once, then named by its digest."""

    tag = 10
    function: bytes
    payload: Buffer
    objects: tuple[bytes, ...] = ()
    """The buffers of its pickle: their ids, or on the way to a worker their segments."""
    name: str = ""
    """What people call it; workers need none."""


@dataclass(slots=True)
class Forget(Message):
    """The function will not be named again; it may be dropped."""

    tag = 11
    function: bytes


@dataclass(slots=True)
class Submit(Message):
    """Client to scheduler: run contiguous tasks that share a function and their options."""

    tag = 12
    first: int
    function: bytes
    call: int
    options: TaskOptions
    batch: Batch
    objects: tuple[bytes, ...] = ()
    """Ids of the buffers of each payload, in order."""


@dataclass(slots=True)
class Cancel(Message):
    """Client to scheduler: stop these tasks; or, of them, take back those that only wait.

    Nobody waits for a stopped task any more; a task taken back is answered with Cancelled. To a
    client inside of tasks that takes a node of a graph back, nodes are lent that come before it:
    with AssignNodes, as to a worker. What became of them it Supplies.
    """

    tag = 13
    first: int
    count: int
    queued_only: bool = False


@dataclass(slots=True)
class Results(Message):
    """Scheduler to client: contiguous tasks returned these values."""

    tag = 14
    first: int
    batch: Batch


@dataclass(slots=True)
class Failed(Message):
    """Scheduler to client: one task failed.

    ``kind`` is one of the FAILED_* names; ``payload`` holds the pickled exception, if any;
    ``detail`` holds plain text and numbers that need no unpickling.
    """

    tag = 15
    task: int
    kind: str
    payload: Buffer = b""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Output(Message):
    """Scheduler to client: what a task printed or logged."""

    tag = 16
    task: int
    stream: str
    """``stdout``, ``stderr``, or ``log``: then the text is one log record, in JSON."""
    text: str


@dataclass(slots=True)
class Broken(Message):
    """Scheduler to client: no task can run any more."""

    tag = 17
    reason: str


@dataclass(slots=True)
class Cancelled(Message):
    """Scheduler to client: these tasks had not gone to a worker, and will not."""

    tag = 18
    first: int
    count: int


@dataclass(slots=True)
class Unplaced(Message):
    """Scheduler to client: why no worker can run some of its tasks, which wait for one.

    Empty: it is so no longer.
    """

    tag = 64
    reason: str


@dataclass(slots=True)
class RequestCredit(Message):
    """Client to scheduler: there are so many tasks more to submit, or fewer."""

    tag = 65
    more: int
    fewer: int = 0


@dataclass(slots=True)
class GrantCredit(Message):
    """Scheduler to client: so many tasks more may be submitted."""

    tag = 66
    count: int


@dataclass(slots=True)
class Returned(Message):
    """Scheduler to client: one task returned a value with large buffers, in these segments.

    The client says Release with their names once it has no use for them any more.
    """

    tag = 19
    task: int
    payload: Buffer
    objects: tuple[bytes, ...]
    address: str = ""
    """Where to fetch them, if they are not on the scheduler's machine."""


FAILED_EXCEPTION = "exception"
FAILED_DESERIALIZE = "deserialize"
FAILED_RESULT = "result"
FAILED_TIMEOUT = "timeout"
FAILED_WORKER_DIED = "worker_died"
FAILED_LOST = "lost"
FAILED_MISSING = "missing"
FAILED_UNPLACED = "unplaced"


# -- scheduler <-> worker --------------------------------------------------------------------


@dataclass(slots=True)
class Assign(Message):
    """Scheduler to worker: run these tasks, in order, after what it already has."""

    tag = 20
    session: int
    first: int
    function: bytes
    call: int
    report_start: bool
    """Send Started before each of these tasks."""
    stream_output: bool
    batch: Batch
    objects: tuple[bytes, ...] = ()
    """Segments that hold the buffers of each payload, in order."""
    depth: int = 0
    """As in the tasks' options."""
    profiling: bool = False
    """Send a Profile of each of these tasks."""
    log_level: int = 0
    """As in the tasks' options."""


@dataclass(slots=True)
class Revoke(Message):
    """Scheduler to worker: give these queued tasks back, as many as have not started."""

    tag = 21
    session: int
    first: int
    count: int


@dataclass(slots=True)
class Revoked(Message):
    """Worker to scheduler: of a Revoke, the first ``kept`` tasks stay, the rest is given back."""

    tag = 22
    session: int
    first: int
    count: int
    kept: int


@dataclass(slots=True)
class Abort(Message):
    """Scheduler to worker: drop these tasks; interrupt the one that runs, if it is among them."""

    tag = 23
    session: int
    first: int
    count: int


@dataclass(slots=True)
class Aborted(Message):
    """Worker to scheduler: these tasks were dropped or interrupted."""

    tag = 24
    session: int
    first: int
    count: int


@dataclass(slots=True)
class Started(Message):
    """Worker to scheduler: this task starts now."""

    tag = 25
    session: int
    task: int


@dataclass(slots=True)
class Done(Message):
    """Worker to scheduler: contiguous tasks returned these values, after ``busy_s`` of work."""

    tag = 26
    session: int
    first: int
    busy_s: float
    batch: Batch


@dataclass(slots=True)
class Erred(Message):
    """Worker to scheduler: one task raised, or could not be called or answered."""

    tag = 27
    session: int
    task: int
    busy_s: float
    kind: str
    payload: Buffer
    detail: dict[str, Any]


@dataclass(slots=True)
class Printed(Message):
    """Worker to scheduler: what a task printed or logged; fields as in Output."""

    tag = 28
    session: int
    task: int
    stream: str
    text: str


@dataclass(slots=True)
class Profile(Message):
    """Worker to scheduler, and that to the client: what a task took, before what became of it."""

    tag = 35
    session: int
    task: int
    duration_s: float
    cpu_time_s: float
    memory_peak: int
    """By how many bytes the worker's memory grew at most."""


@dataclass(slots=True)
class Retire(Message):
    """Scheduler to worker: leave; its supervisor starts another."""

    tag = 29


@dataclass(slots=True)
class Stored(Message):
    """Worker to scheduler: one task returned a value with large buffers, in these segments."""

    tag = 30
    session: int
    task: int
    busy_s: float
    payload: Buffer
    objects: tuple[bytes, ...]
    sizes: tuple[int, ...]
    """Bytes in each of the segments."""


@dataclass(slots=True)
class AssignNodes(Message):
    """Scheduler to worker: as Assign, for nodes of a graph, with what they depend on.

    They may depend on nodes of the same message and of earlier ones as well, from ``oldest`` on:
    what those returned, the worker has kept. A client inside of tasks is lent a single one, with
    all that it depends on: see Cancel.
    """

    tag = 31
    session: int
    graph: int
    """The task that node 0 of the graph is."""
    first: int
    function: bytes
    report_start: bool
    stream_output: bool
    batch: Batch
    objects: tuple[bytes, ...]
    """Segments that hold the buffers of each payload, in order."""
    inputs: Buffer
    """Nodes whose results come along, as 32-bit numbers."""
    results: Batch
    """Their results, in order; one empty payload if there are none."""
    oldest: int
    """Number of an AssignNodes, counted from 1; results of earlier ones may be dropped."""
    segments: tuple[bytes, ...] = ()
    """Segments that hold the large buffers of these results."""
    segment_ends: Buffer = b""
    """Where the segments of each result end among them, as 32-bit numbers; empty: none has any."""
    depth: int = 0
    """That of the tasks' options."""
    profiling: bool = False
    """Send a Profile of each of these nodes."""
    log_level: int = 0
    """That of the tasks' options."""


@dataclass(slots=True)
class Skipped(Message):
    """Worker to scheduler: this node was not run, as one before it did not return."""

    tag = 32
    session: int
    task: int


@dataclass(slots=True)
class GraphOver(Message):
    """Scheduler to worker: no more nodes of this graph will come; drop their results."""

    tag = 33
    session: int
    graph: int


# -- graphs ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Graph(Message):
    """Client to scheduler: nodes of a graph, each after those that it depends on.

    Nodes are numbered from 0 through all messages of a graph; so are their tasks, from ``first``.
    """

    tag = 60
    first: int
    """The task that node 0 is."""
    start: int
    """The first node of this message."""
    function: bytes
    options: tuple[TaskOptions, ...]
    """Options that nodes of this message are the first to have."""
    batch: Batch
    """A payload for each node; that of an input is empty."""
    ends: Buffer
    """Where the dependencies of each node end, as 32-bit numbers."""
    dependencies: Buffer
    """Nodes, as 32-bit numbers."""
    uses: Buffer
    """How many nodes depend on each, and one more if it is wanted, as 32-bit numbers."""
    wanted: Buffer
    """A byte for each node: 1 if the client is to be told what becomes of it."""
    inputs: Buffer
    """64-bit numbers. The first nodes are not run: they are what these tasks of the same client
    return, or what comes with ProvideInputs (the largest number)."""
    objects: tuple[bytes, ...]
    """Ids of the buffers of the payloads, in order."""
    owners: Buffer
    """The node that each of them belongs to, as 32-bit numbers."""
    is_last: bool
    kinds: Buffer = b""
    """Which of the options of all messages so far each node has, as 32-bit numbers; empty: all
    have the first."""


@dataclass(slots=True)
class RequestInputs(Message):
    """Scheduler to client: send a ProvideInputs for each of these, whose tasks have come back.

    Sent once for each graph with inputs of other tasks, empty if all of them are under way.
    """

    tag = 61
    graph: int
    inputs: Buffer
    """Nodes, as 32-bit numbers."""


@dataclass(slots=True)
class ProvideInputs(Message):
    """Client to scheduler: this became of an input of a graph, or of a node that it was lent."""

    tag = 62
    task: int
    kind: str
    """Empty: it was returned; else one of the FAILED_* names, INPUT_CANCELLED or NOT_RUN."""
    payload: Buffer
    objects: tuple[bytes, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)


INPUT_CANCELLED = "cancelled"
NOT_RUN = "not_run"
"""A node that was lent is given back."""


@dataclass(slots=True)
class Blocked(Message):
    """Client inside of tasks to scheduler: its worker only waits for others now, or no more."""

    tag = 34
    is_blocked: bool


# -- objects ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Object(Message):
    """Client to scheduler: content of this id is in that segment, and I may name it.

    The id is the digest of the content; if the scheduler has it already, it removes the segment.
    """

    tag = 50
    object: bytes
    segment: bytes
    nbytes: int


@dataclass(slots=True)
class Release(Message):
    """The sender will not name these objects again.

    To a worker: unmap them; to the storage: remove them.
    """

    tag = 51
    objects: tuple[bytes, ...]


@dataclass(slots=True)
class Inventory(Message):
    """Storage to scheduler, after its Hello: these segments lie here."""

    tag = 52
    objects: tuple[bytes, ...]


@dataclass(slots=True)
class Purge(Message):
    """Scheduler to storage: remove what has a name that begins so, but for some.

    The peer that wrote it is gone; what is kept is what it had announced.
    """

    tag = 53
    prefix: bytes
    keep: tuple[bytes, ...]


@dataclass(slots=True)
class Copy(Message):
    """Scheduler to storage: fetch a segment from the storage at this address."""

    tag = 54
    segment: bytes
    address: str


@dataclass(slots=True)
class Missing(Message):
    """Scheduler to worker: these segments will not come, do not wait for them."""

    tag = 55
    objects: tuple[bytes, ...]
    reason: str


@dataclass(slots=True)
class Put(Message):
    """Client to storage: fetch this segment from me."""

    tag = 56
    segment: bytes


@dataclass(slots=True)
class Fetch(Message):
    """To whoever has a segment: send this part of it."""

    tag = 57
    segment: bytes
    offset: int
    nbytes: int


@dataclass(slots=True)
class Part(Message):
    """The answer: the part, and the size of the whole."""

    tag = 58
    segment: bytes
    offset: int
    total: int
    data: Buffer


@dataclass(slots=True)
class Transferred(Message):
    """A Copy, Put or Fetch of this segment came to its end; the error is empty if it is whole."""

    tag = 59
    segment: bytes
    error: str = ""


# -- scheduler <-> supervisor ----------------------------------------------------------------


@dataclass(slots=True)
class WorkerLost(Message):
    """Supervisor to scheduler: a worker process died.

    ``session`` and ``task`` name what it ran last (session 0: nothing yet).
    """

    tag = 40
    worker: bytes
    session: int
    task: int
    death: dict[str, Any]

    @property
    def is_orderly(self) -> bool:
        """Return True if the process ended as it was to."""
        return self.death.get("exit_code") == 0 and not self.death.get("reason")


@dataclass(slots=True)
class Overdue(Message):
    """Supervisor to scheduler: a task has run for so long; stop it if it has no timeout."""

    tag = 44
    worker: bytes
    session: int
    task: int
    timeout_s: float


@dataclass(slots=True)
class Kill(Message):
    """Scheduler to supervisor: kill that worker, with the children of its task."""

    tag = 41
    worker: bytes
    reason: str


@dataclass(slots=True)
class Spares(Message):
    """Scheduler to supervisor: keep so many workers more than your own."""

    tag = 43
    count: int


@dataclass(slots=True)
class Examine(Message):
    """Scheduler to supervisor: somebody watches; say how your machine and your workers are."""

    tag = 45
    sent_at: float


@dataclass(slots=True)
class Vitals(Message):
    """Supervisor to scheduler: the answer to Examine. CPUs are counted in thousandths of one."""

    tag = 46
    sent_at: float
    """That of the Examine."""
    held_s: float
    """How long it took to answer."""
    cpus: int
    """How many the machine has."""
    cpu_milli: int
    """How many are busy, whoever uses them."""
    memory_bytes: int
    """All that the machine has, or may use; 0: unknown, as in what follows."""
    free_bytes: int
    agent_cpu_milli: int
    """Of the supervisor itself."""
    agent_rss_bytes: int
    workers: tuple[bytes, ...]
    worker_cpu_milli: tuple[int, ...]
    worker_rss_bytes: tuple[int, ...]
    memory_limit_bytes: int = 0
    """A worker that takes more is killed; 0: there is no limit."""
    restarts: int = 0
    """How many workers took the place of one that died."""


@dataclass(slots=True)
class InitializerFailed(Message):
    """Supervisor to scheduler: its workers cannot start; the text holds the traceback."""

    tag = 42
    text: str
