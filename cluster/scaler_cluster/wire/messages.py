"""Every message of the protocol, one slots dataclass each.

The order of a class's fields is its order on the wire; ``docs/protocol.md`` lists them all.
Ids, numbers and opaque bytes only: nobody who forwards a message ever unpickles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from scaler_cluster import __version__
from scaler_cluster.wire import options
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from scaler_cluster.wire.batch import Buffer

PROTOCOL_VERSION = 12

# How a payload becomes a call.
CALL_ARGS = 0
"""The payload is a tuple of positional arguments."""
CALL_KWARGS = 1
"""The payload is ``(args, kwargs)``."""
CALL_CHUNK = 2
"""The payload is a list of tuples of positional arguments; the result is the list of results."""
CALL_NODE = 3
"""The payload belongs to a node of a graph; see ``nodes.py``."""
CALL_NAMED = 4
"""The payload is ``[args, kwargs]`` in MessagePack, and the function's is ``[name]``."""

CLIENT = "client"
WORKER = "worker"
SUPERVISOR = "supervisor"
MANAGER = "manager"
"""Has supervisors with workers started elsewhere, as the scheduler wants them."""
STORAGE = "storage"
SCHEDULER = "scheduler"
"""Of who connects to a storage that runs by itself."""
OPERATOR = "operator"
"""Acts on the tasks and workers of others; only with a key of its own."""

# The options of tasks, which have a module of their own.
ACTOR = options.ACTOR
DEFAULT_OPTIONS = options.DEFAULT_OPTIONS
WHOLE_MACHINE = options.WHOLE_MACHINE
Capabilities: TypeAlias = options.Capabilities
Demand: TypeAlias = options.Demand
TaskOptions = options.TaskOptions
intern_options = options.intern_options

ACTORS_MAX = 64
"""Actors of a machine: each is a process of some 30 MB."""

GPU = "gpu"
"""The capability that is counted by the piece, where the workers of a machine share it: each task
is told which pieces are its own."""
DEVICES_MAX = 1024
"""GPUs of a machine: far more than any has."""


class Message:
    """Base of all messages; ``tag`` names the class on the wire.

    It compares and prints them all: made for each class anew, that would be a tenth of what a
    process does until it is up.
    """

    __slots__: ClassVar[tuple[str, ...]] = ()
    tag: ClassVar[int]

    def __eq__(self, other: object) -> bool:
        """Return True if the other one is of the same class and has the same fields."""
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return its class and its fields."""
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({said})"


@dataclass(slots=True, frozen=True)
class Portion:
    """What a task has of its machine, of that which the workers there share, while it runs."""

    uses: Capabilities = ()
    """How much it uses of what the supervisor offers."""
    devices: tuple[int, ...] = ()
    """The numbers of its GPUs, among those of the machine."""
    cores: int = 1
    """How many workers run nothing else, its own among them."""
    is_whole: bool = False
    """They are all that the machine has."""


@dataclass(slots=True, frozen=True)
class StorageEndpoint:
    """A storage in which clients store objects: its address and its directories."""

    address: str = ""
    """Peers that cannot see the directories send and fetch objects here; empty: they cannot."""
    memory: str = ""
    """Directory in shared memory; empty: there is none."""
    disk: str = ""
    """Directory for objects that do not fit into memory; empty: no objects are kept."""
    memory_limit: int = 0
    """How many bytes of memory the objects may take."""


NOWHERE = StorageEndpoint()
"""Keeps nothing."""


# -- any peer <-> scheduler ------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Hello(Message):
    """The first message of every peer: its role and its versions.

    A peer with another version of the protocol is to be told so. Therefore no version changes the
    form of envelopes, the fields that Hello has now, or Refused; what is new in Hello comes last.
    """

    tag = 1
    role: str
    protocol: int
    python: str
    """The version, as ``3.13``: the same as the scheduler's. Empty: there is no Python, and the
    peer makes and answers named calls alone."""
    pid: int
    host: str
    supervisor: bytes = b""
    """From a worker, or the storage of another machine: the peer id of its supervisor."""
    task_limit: int = 0
    """From a worker: how many tasks it runs before it retires; 0: no limit."""
    workers: int = 0
    """From a supervisor: how many workers it keeps."""
    place: StorageEndpoint = NOWHERE
    """From a worker or a storage: where the objects of its machine are stored, and the address
    from which others fetch them."""
    spare: bool = False
    """From a worker: it takes the place of blocked workers."""
    worker: bytes = b""
    """From a client inside tasks: the peer id of the worker that runs the tasks."""
    name: str = ""
    """From a worker: the name that the user gave it. From a manager, or a supervisor that makes an
    Offer: its id. From a scheduler to a storage that runs by itself: what only this one and those
    that take its place are called."""
    capabilities: Capabilities = ()
    """From a worker: what it offers. From a supervisor: what its workers share."""
    queue: int = 0
    """From a worker: how many tasks it holds at most; 0: no limit."""
    pid_space: str = ""
    """From a supervisor or a client: the system and the namespace to which ``pid`` belongs; empty:
    unknown. A scheduler in the same namespace watches the process: that of a client once it has
    sent Coordinate."""
    is_stored: bool = False
    """From a storage that runs by itself: what was stored for the scheduler whose place this one
    takes is still there."""
    resume: int = 0
    """From a client that another scheduler knew: the number that its session had there. From a
    supervisor or a worker: 1 if another scheduler knew it; a worker then says what it holds."""
    proof: bytes = b""
    """With ``resume`` from a client: what the other scheduler's Welcome had."""
    manager: str = ""
    """From a supervisor: the id of the manager that had it started; empty: nobody's."""
    unit: str = ""
    """From a supervisor: what the manager calls it."""
    release: str = __version__
    """The release of scaler-exec that the peer is; empty: it is another program."""


@dataclass(slots=True, eq=False, repr=False)
class Welcome(Message):
    """The scheduler accepts the peer."""

    tag = 2
    session: int
    workers: int
    """How many workers the cluster has, or is about to have."""
    homes: tuple[StorageEndpoint, ...] = (NOWHERE,)
    """The storages for the objects of clients; the id of an object decides which one."""
    asks_first: bool = False
    """A client must send RequestCredit and wait for GrantCredit before it sends Submit."""
    monitor: str = ""
    """The address at which the scheduler listens for monitors; empty: none."""
    dashboard: str = ""
    """The link of the dashboard, with the token; empty: the scheduler knows of none."""
    adopts: bool = False
    """What a client stored through the scheduler before this one is still there, if the homes are
    the same: the client is to say with Keep what it still names."""
    proof: bytes = b""
    """What the client shows to the next scheduler to have this session there, too."""


@dataclass(slots=True, eq=False, repr=False)
class Refused(Message):
    """The scheduler does not accept the peer; one sentence says why."""

    tag = 3
    reason: str


@dataclass(slots=True, eq=False, repr=False)
class Heartbeat(Message):
    """The peer is alive; the scheduler answers the Heartbeat of a client with a Heartbeat."""

    tag = 4


@dataclass(slots=True, eq=False, repr=False)
class Goodbye(Message):
    """The sender leaves, or tells the receiver to leave; a supervisor then answers with Goodbye."""

    tag = 5
    reason: str = ""


@dataclass(slots=True, eq=False, repr=False)
class Unknown(Message):
    """The scheduler does not know the peer: it gave the peer up, or was itself restarted.

    Whoever hears it says Hello with a new incarnation. A supervisor then names its workers with
    Roll, a worker what it holds, with Holding and Held, and a client asks again for what has not
    come back, up to Resumed.
    """

    tag = 6


@dataclass(slots=True, eq=False, repr=False)
class Gap(Message):
    """In an acknowledgement: of the envelopes after the acknowledged one, these did not arrive.

    They are those before ``start``, which has arrived, as well as ``seen``. The sender repeats
    those that it sent last before ``seen``.
    """

    tag = 47
    start: int
    seen: int


@dataclass(slots=True, eq=False, repr=False)
class Shutdown(Message):
    """Client to scheduler: end the cluster. The answer is Goodbye or Refused."""

    tag = 7


# -- functions and tasks ---------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Function(Message):
    """A pickled or named function. It is sent once; other messages name it by its digest.

    That is BLAKE2b of 16 bytes: of the lengths of the ids of its buffers, a byte for each, of a
    zero byte, of these ids, and of the payload. The scheduler drops a client whose digest is
    another one.
    """

    tag = 10
    function: bytes
    payload: Buffer
    objects: tuple[bytes, ...] = ()
    """The buffers of the pickle: their ids, or, in a message to a worker, their segments."""
    name: str = ""
    """The name for people; workers need none."""


@dataclass(slots=True, eq=False, repr=False)
class Forget(Message):
    """No further message names this function; the receiver may drop it."""

    tag = 11
    function: bytes


@dataclass(slots=True, eq=False, repr=False)
class Submit(Message):
    """Client to scheduler: run contiguous tasks with the same function and options."""

    tag = 12
    first: int
    function: bytes
    call: int
    options: TaskOptions
    batch: Batch
    objects: tuple[bytes, ...] = ()
    """Ids of the buffers of each payload, in order."""


@dataclass(slots=True, eq=False, repr=False)
class Resumed(Message):
    """Client to scheduler that does not know it: that was all it has asked another scheduler."""

    tag = 39
    first_segment: int
    """Of the segments that it wrote before the one of this number, it offers none any more."""


@dataclass(slots=True, eq=False, repr=False)
class Cancel(Message):
    """Client to scheduler: stop these tasks; or take back those of them that only wait.

    A stopped task gets no answer. A task that is taken back is answered with Cancelled. If a client
    inside tasks takes a node of a graph back, the scheduler lends it the nodes that come before,
    with AssignNodes, as to a worker. The client reports their outcomes with ProvideInputs.
    """

    tag = 13
    first: int
    count: int
    queued_only: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Results(Message):
    """Scheduler to client: contiguous tasks returned these values."""

    tag = 14
    first: int
    batch: Batch


@dataclass(slots=True, eq=False, repr=False)
class Failed(Message):
    """Scheduler to client: one task failed.

    ``kind`` is one of the FAILED_* names; ``payload`` holds the pickled exception, if any;
    ``detail`` holds plain text and numbers that need no unpickling: of what was raised, ``type``,
    ``message`` and ``traceback``; and, if the worker tells them, what its ``arguments`` look like.
    """

    tag = 15
    task: int
    kind: str
    payload: Buffer = b""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class FailedRange(Message):
    """Scheduler to client: contiguous tasks failed, all for the same reason; see Failed."""

    tag = 63
    first: int
    count: int
    kind: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class Output(Message):
    """Scheduler to client: what a task printed or logged."""

    tag = 16
    task: int
    stream: str
    """``stdout``, ``stderr`` or ``log``. For ``log``, the text is one log record in JSON."""
    text: str


@dataclass(slots=True, eq=False, repr=False)
class Broken(Message):
    """Scheduler to client: no task can run any more."""

    tag = 17
    reason: str


@dataclass(slots=True, eq=False, repr=False)
class Cancelled(Message):
    """Scheduler to client: these tasks are on no worker, and will go to none."""

    tag = 18
    first: int
    count: int


@dataclass(slots=True, eq=False, repr=False)
class Unplaced(Message):
    """Scheduler to client: why some of its tasks wait because no worker can run them.

    Empty: this is no longer so.
    """

    tag = 64
    reason: str


@dataclass(slots=True, eq=False, repr=False)
class RequestCredit(Message):
    """Client to scheduler: it has this many more tasks to submit, or fewer."""

    tag = 65
    more: int
    fewer: int = 0


@dataclass(slots=True, eq=False, repr=False)
class GrantCredit(Message):
    """Scheduler to client: it may submit this many more tasks."""

    tag = 66
    count: int


@dataclass(slots=True, eq=False, repr=False)
class Returned(Message):
    """Scheduler to client: one task returned a value with large buffers, in these segments.

    The client sends Release with their names when it no longer needs them.
    """

    tag = 19
    task: int
    payload: Buffer
    objects: tuple[bytes, ...]
    address: str = ""
    """The address to fetch them from, if they are not on the scheduler's machine."""
    sizes: tuple[int, ...] = ()
    """Bytes in each of the segments."""


FAILED_EXCEPTION = "exception"
"""The task raised."""
FAILED_DESERIALIZE = "deserialize"
"""The worker could not unpickle the function or an argument."""
FAILED_RESULT = "result"
"""The worker could not pickle or store the result."""
FAILED_TIMEOUT = "timeout"
"""The task ran longer than its timeout."""
FAILED_WORKER_DIED = "worker_died"
"""The worker died while it ran the task."""
FAILED_LOST = "lost"
"""The task was lost with its machine or worker, and may not run again."""
FAILED_MISSING = "missing"
"""An object that the task needs is gone."""
FAILED_QUOTA = "quota"
"""The client has more in the scheduler than it may; the task was not taken in."""
FAILED_UNPLACED = "unplaced"
"""No worker with what the task demands joined in time."""
FAILED_ACTOR = "actor"
"""The actor whose method the task calls is gone, or the task was to make one and cannot."""


# -- scheduler <-> worker --------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Assign(Message):
    """Scheduler to worker: run these tasks, in order, after the tasks that it already has."""

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
    at_most_once: bool = False
    """As in the tasks' options: remember which of these tasks were started."""
    portion: Portion | None = None
    """What the one task has of the machine; None: nothing that others could lack."""


@dataclass(slots=True, eq=False, repr=False)
class Revoke(Message):
    """Scheduler to worker: give back those of these tasks that have not started."""

    tag = 21
    session: int
    first: int
    count: int


@dataclass(slots=True, eq=False, repr=False)
class Revoked(Message):
    """Worker to scheduler: it keeps the first ``kept`` tasks of a Revoke and returns the rest."""

    tag = 22
    session: int
    first: int
    count: int
    kept: int


@dataclass(slots=True, eq=False, repr=False)
class Abort(Message):
    """Scheduler to worker: drop these tasks; interrupt the running task if it is one of them."""

    tag = 23
    session: int
    first: int
    count: int


@dataclass(slots=True, eq=False, repr=False)
class Aborted(Message):
    """Worker to scheduler: these tasks were dropped or interrupted.

    Session 0: the task that ran when the scheduler did not want it has ended, in whatever way.
    """

    tag = 24
    session: int
    first: int
    count: int


@dataclass(slots=True, eq=False, repr=False)
class Holding(Message):
    """Worker to scheduler that does not know it: it has these tasks, and reports on them later.

    There is one for each run, in the order in which the worker runs them. The scheduler answers all
    with Abort for those that nobody asks for, and then with Welcome. Until then the worker runs on,
    but reports nothing.
    """

    tag = 36
    session: int
    first: int
    count: int
    started: int
    """How many of these tasks, from the first on, it has started."""
    running_s: float
    """How long the first of them has been running; 0: it has ended, or not started."""
    is_nested: bool = False
    """Tasks submitted them, whose session does not come back."""
    portion: Portion | None = None
    """As in the Assign."""


@dataclass(slots=True, eq=False, repr=False)
class Held(Message):
    """Worker to scheduler that does not know it: that was all it holds.

    It also names the tasks with ``at_most_once`` that it has ever started.
    """

    tag = 37
    started: Buffer
    """As 64-bit numbers: session, first task and number of tasks of each run, in turn."""
    is_whole: bool
    """False: it has started so many that it has forgotten some."""
    first_segment: int
    """Of the segments that it wrote before the one of this number, it reports none any more."""
    devices: tuple[int, ...] = ()
    """The GPUs that its tasks were last told to use."""


@dataclass(slots=True, eq=False, repr=False)
class Started(Message):
    """Worker to scheduler: this task starts now."""

    tag = 25
    session: int
    task: int


@dataclass(slots=True, eq=False, repr=False)
class Done(Message):
    """Worker to scheduler: contiguous tasks returned these values, after ``busy_s`` of work."""

    tag = 26
    session: int
    first: int
    busy_s: float
    batch: Batch


@dataclass(slots=True, eq=False, repr=False)
class DoneNodes(Message):
    """Worker to scheduler: as Done, for nodes of which the worker keeps some of the results."""

    tag = 68
    session: int
    first: int
    busy_s: float
    batch: Batch
    """Empty payloads for the results that it keeps."""
    sizes: Buffer
    """For each node, the bytes of the result that the worker keeps, as 64-bit numbers; 0: the
    result is in the batch."""


@dataclass(slots=True, eq=False, repr=False)
class Erred(Message):
    """Worker to scheduler: one task raised, or could not be called or answered."""

    tag = 27
    session: int
    task: int
    busy_s: float
    kind: str
    payload: Buffer
    detail: dict[str, Any]


@dataclass(slots=True, eq=False, repr=False)
class Printed(Message):
    """Worker to scheduler: what a task printed or logged. The fields are those of Output."""

    tag = 28
    session: int
    task: int
    stream: str
    text: str


@dataclass(slots=True, eq=False, repr=False)
class Profile(Message):
    """Worker to scheduler to client: the measurements of a task. Its outcome follows."""

    tag = 35
    session: int
    task: int
    duration_s: float
    cpu_time_s: float
    memory_peak: int
    """The largest growth of the worker's memory, in bytes."""


@dataclass(slots=True, eq=False, repr=False)
class Hosts(Message):
    """Scheduler to worker: what it has just been given makes this actor, which then lives there.

    Worker to scheduler that does not know it, before Held: this actor lives here.
    """

    tag = 90
    actor: str
    owner: int
    """The session with which the actor ends."""
    portion: Portion | None = None
    """What the actor has of the machine, as long as it lives."""


@dataclass(slots=True, eq=False, repr=False)
class EndActor(Message):
    """Client to scheduler: end this actor now, whatever it runs."""

    tag = 91
    actor: str


@dataclass(slots=True, eq=False, repr=False)
class Retire(Message):
    """Scheduler to worker: leave. The supervisor starts another worker."""

    tag = 29


@dataclass(slots=True, eq=False, repr=False)
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


@dataclass(slots=True, eq=False, repr=False)
class AssignNodes(Message):
    """Scheduler to worker: run these nodes of a graph; the results that they need come along.

    They may also depend on nodes of the same message, and on nodes that ran on this worker before:
    it keeps each result until it receives DropResults or GraphOver. A client inside tasks is handed
    a single node, with all results that it depends on: see Cancel.
    """

    tag = 31
    session: int
    graph: int
    """The task number of node 0 of the graph."""
    first: int
    function: bytes
    report_start: bool
    stream_output: bool
    batch: Batch
    objects: tuple[bytes, ...]
    """Segments that hold the buffers of each payload, in order."""
    inputs: Buffer
    """The nodes whose results come along, as 32-bit numbers."""
    results: Batch
    """Their results, in order; one empty payload if there are none."""
    segments: tuple[bytes, ...] = ()
    """Segments that hold the large buffers of these results."""
    segment_ends: Buffer = b""
    """Where the segments of each result end, as 32-bit numbers; empty: no result has any."""
    depth: int = 0
    """As in the tasks' options."""
    profiling: bool = False
    """Send a Profile of each of these nodes."""
    log_level: int = 0
    """As in the tasks' options."""
    is_shared: bool = False
    """As in the Graph."""
    sent: Buffer = b""
    """A byte for each node: 1 if the report must bring its result, however large. Empty: none."""
    uses: Buffer = b""
    """For each node, how many others need its result, as 32-bit numbers: once so many of them have
    returned on this worker, it need not keep the result."""
    portion: Portion | None = None
    """As in an Assign."""


@dataclass(slots=True, eq=False, repr=False)
class Skipped(Message):
    """Worker to scheduler: this node did not run, because a node before it did not return."""

    tag = 32
    session: int
    task: int


@dataclass(slots=True, eq=False, repr=False)
class GraphOver(Message):
    """Scheduler to worker: no more nodes of this graph will come; drop their results."""

    tag = 33
    session: int
    graph: int


@dataclass(slots=True, eq=False, repr=False)
class DropResults(Message):
    """Scheduler to worker: no node needs the results of these nodes any more."""

    tag = 69
    session: int
    graph: int
    nodes: Buffer
    """32-bit numbers."""


@dataclass(slots=True, eq=False, repr=False)
class Share(Message):
    """Scheduler to worker: send the results of these nodes, which the worker keeps.

    The worker answers with a Shared for each result that it was not told to drop meanwhile.
    """

    tag = 70
    session: int
    graph: int
    nodes: Buffer
    """32-bit numbers."""


@dataclass(slots=True, eq=False, repr=False)
class Shared(Message):
    """Worker to scheduler: the result of a node, which the worker had kept."""

    tag = 71
    session: int
    task: int
    kind: str
    """Empty, or why the result cannot be sent: a FAILED_* name."""
    payload: Buffer
    objects: tuple[bytes, ...]
    sizes: tuple[int, ...]
    """Bytes in each of the segments."""
    detail: dict[str, Any]


# -- graphs ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Graph(Message):
    """Client to scheduler: nodes of a graph, each after those that it depends on.

    Nodes are numbered from 0 through all messages of a graph; so are their tasks, from ``first``.
    """

    tag = 60
    first: int
    """The task number of node 0."""
    start: int
    """The first node of this message."""
    function: bytes
    options: tuple[TaskOptions, ...]
    """The options that no node of an earlier message had."""
    batch: Batch
    """A payload for each node; the payload of an input is empty."""
    ends: Buffer
    """Where the dependencies of each node end, as 32-bit numbers."""
    dependencies: Buffer
    """Nodes, as 32-bit numbers."""
    uses: Buffer
    """For each node, how many nodes depend on it, plus 1 if it is wanted; 32-bit numbers."""
    wanted: Buffer
    """A byte for each node: 1 if the client wants its outcome."""
    inputs: Buffer
    """64-bit numbers, one for each input. Inputs are the first nodes and do not run: each is the
    result of this task of the same client, or comes with ProvideInputs (the largest number)."""
    objects: tuple[bytes, ...]
    """Ids of the buffers of the payloads, in order."""
    owners: Buffer
    """For each of these buffers, the node that it belongs to, as 32-bit numbers."""
    is_last: bool
    kinds: Buffer = b""
    """For each node, the index of its options among those of all messages so far, as 32-bit
    numbers; empty: all nodes have the first options."""
    is_shared: bool = False
    """Nodes on one worker get the very objects that other nodes returned; else their own copies,
    unless a value cannot be changed."""
    names: tuple[str, ...] = ()
    """The names under which nodes are counted that no node of an earlier message had; 255 at most,
    each of at most 200 characters. None in the first message: all have the function's name."""
    layers: Buffer = b""
    """For each node, the index of its name among those of all messages so far, as a byte; empty:
    all nodes have the first name."""


@dataclass(slots=True, eq=False, repr=False)
class RequestInputs(Message):
    """Scheduler to client: send a ProvideInputs for each of these inputs; their tasks have ended.

    The scheduler sends it once for each graph with inputs that are tasks; it is empty if none of
    these tasks has ended.
    """

    tag = 61
    graph: int
    inputs: Buffer
    """Nodes, as 32-bit numbers."""


@dataclass(slots=True, eq=False, repr=False)
class ProvideInputs(Message):
    """Client to scheduler: the outcome of an input of a graph, or of a node that it was handed."""

    tag = 62
    task: int
    kind: str
    """Empty: it returned; otherwise a FAILED_* name, INPUT_CANCELLED or NOT_RUN."""
    payload: Buffer
    objects: tuple[bytes, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)


SUPPLIED = (1 << 64) - 1
"""In place of the task that an input is of: the client sends it."""
INPUT_CANCELLED = "cancelled"
"""The task whose result the input is was cancelled."""
NOT_RUN = "not_run"
"""The client gives a node back that it was handed."""


@dataclass(slots=True, eq=False, repr=False)
class ListWorkers(Message):
    """Client to scheduler: which workers take tasks now? The answer is a WorkerList."""

    tag = 96
    number: int
    """Comes back with the answer."""


@dataclass(slots=True, eq=False, repr=False)
class WorkerList(Message):
    """Scheduler to client: the workers that take tasks now, each in the same place of all fields.

    Spare workers and those that are about to leave are not among them.
    """

    tag = 97
    number: int
    """The one of the ListWorkers that this answers."""
    aliases: tuple[str, ...]
    """By these, tasks can name each of them alone; see TaskOptions.workers."""
    names: tuple[str, ...]
    """What users call them; empty: nothing."""
    hosts: tuple[str, ...]
    pids: tuple[int, ...]
    late: tuple[str, ...] = ()
    """The machines that are to start workers in place of some that left or are about to."""


@dataclass(slots=True, eq=False, repr=False)
class Blocked(Message):
    """Client inside tasks to scheduler: its worker now only waits for other tasks, or no longer."""

    tag = 34
    is_blocked: bool


@dataclass(slots=True, eq=False, repr=False)
class Inlined(Message):
    """Client inside tasks to scheduler: what became of tasks of one function that ran right here.

    Tasks that wait for these ran them themselves, or gave them up before they were sent away.
    """

    tag = 98
    name: str
    """That of the function."""
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    recalled: int = 0
    """So many of all these the scheduler had given back; it has never heard of the others."""
    again: int = 0
    """So many tasks that the scheduler had given back are submitted again, after this."""
    busy_s: float = 0.0
    """The time that they took together; it is part of the time of the task that ran them."""
    is_last: bool = False
    """Nothing that the scheduler had given back is left here: what is not told of was given up."""


# -- coordination ----------------------------------------------------------------------------

LOCK = "lock"
SEMAPHORE = "semaphore"
EVENT = "event"
QUEUE = "queue"
VARIABLE = "variable"

ACQUIRE = "acquire"
"""Hold ``count`` of the names, which are locks or a semaphore, until Withdraw."""
PUT = "put"
"""Add the value to the queue, once it has room."""
TAKE = "take"
"""Remove the next ``count`` values from the queue, once there are so many; 0: all that it has."""
SET = "set"
"""Let the event be set, or the variable have the value."""
GET = "get"
"""Read the variable, once it has a value; wait for the event."""
CLEAR = "clear"
"""Remove the variable or all of the queue, or let the event be unset."""
LOOK = "look"
"""Count what there is: who holds the lock or semaphore, values of the queue, or 1 if it is set."""

LOCKS_MAX = 100
"""Locks of one request."""
VALUE_BYTES_MAX = 1 << 20
"""A larger value would keep other clients waiting; it can be stored as an object."""
VALUES_MAX = 1000
"""Values that a client may wait for: if each is as large as may be, they fit into a message."""


# -- operators -------------------------------------------------------------------------------

CANCEL, PAUSE, RESUME, DRAIN, RESTART = ACTIONS = "cancel", "pause", "resume", "drain", "restart"
TASK, FUNCTION, GRAPH, SESSION = WORK = "task", "function", "graph", "client"
"""What can be cancelled."""
MACHINE = "machine"
PLACES = (WORKER, MACHINE)
"""On what the other actions act."""


@dataclass(slots=True, eq=False, repr=False)
class Operate(Message):
    """Operator to scheduler: act on tasks or workers, or say what that would meet."""

    tag = 110
    number: int
    """The answer has it, too."""
    action: str
    """One of ACTIONS."""
    kind: str
    """What it acts on: one of WORK to cancel, else one of PLACES."""
    name: str
    """Which: ``SESSION:TASK``, the name of a function, ``SESSION:TASK`` of any node of a graph, a
    session; the name or id of a worker or machine."""
    is_forced: bool = False
    """To restart: kill workers at once. The tasks that they run begin anew elsewhere."""
    is_trial: bool = False
    """Only say what it would meet."""


@dataclass(slots=True, eq=False, repr=False)
class Operated(Message):
    """Scheduler to operator: what an Operate met, or would meet."""

    tag = 111
    number: int
    count: int
    """How many tasks, or workers."""
    met: str
    """The same in words."""
    refused: str = ""
    """Why it was not done; empty: it was."""


@dataclass(slots=True, eq=False, repr=False)
class Notice(Message):
    """Scheduler to client: what an operator did to its tasks, for its log."""

    tag = 112
    text: str


@dataclass(slots=True, eq=False, repr=False)
class Coordinate(Message):
    """Client to scheduler: do this to what has these names for all clients.

    The scheduler answers with Coordinated, once it is done, unless Withdraw comes before.
    """

    tag = 80
    number: int
    """The client's number of this request, which no other one of the session has."""
    kind: str
    """What has the names: ``lock``, ``semaphore``, ``event``, ``queue`` or ``variable``."""
    act: str
    """What to do: ``acquire``, ``put``, ``take``, ``set``, ``get``, ``clear`` or ``look``."""
    names: tuple[str, ...]
    """One name, or the names of several locks."""
    count: int = 1
    """How many of the locks, or values of the queue."""
    most: int = 0
    """How many may hold the semaphore, or how many values the queue may have; 0: any number, or as
    somebody else says."""
    may_wait: bool = True
    """If it cannot be done at once: wait until it can; False: answer with ``order`` 0."""
    order: int = 0
    """To a scheduler that does not know the client: another one did this, with this ``order``."""
    value: Buffer = b""


@dataclass(slots=True, eq=False, repr=False)
class Coordinated(Message):
    """Scheduler to client: the answer to a Coordinate."""

    tag = 81
    number: int
    order: int
    """Above 0: it was done, the later the higher; 0: it could not be done at once."""
    is_kept: bool = False
    """The scheduler keeps something for it until Withdraw or Lapsed: a lease or a value, of which
    the client also tells the next scheduler, with this ``order``; or the values that were taken."""
    count: int = 0
    """What was counted."""
    names: tuple[str, ...] = ()
    """The locks that it holds."""
    orders: tuple[int, ...] = ()
    """When each of the values was put, if they were in a queue."""
    values: Batch = field(default_factory=partial(Batch.single, b""))
    """One empty value if there are none."""
    refused: str = ""
    """Why it will not be done; empty: it was, or may be."""
    is_conflict: bool = False
    """It was refused as others have said something else; else as there is too much."""


@dataclass(slots=True, eq=False, repr=False)
class Withdraw(Message):
    """Client to scheduler: it does not wait for this any more, or gives back what it holds.

    So do values that it was to take, unless it has them.
    """

    tag = 82
    number: int
    has_values: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Lapsed(Message):
    """Scheduler to client: nothing is kept any more for this request.

    The value was taken, removed or replaced; or another client has come to hold the lock, as this
    one was silent for too long.
    """

    tag = 83
    number: int


# -- objects ---------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Object(Message):
    """Client to scheduler: this segment holds the content with this id; the client will name it.

    The id is a digest of the content that nobody else can make: a keyed one, for example. If the
    content is already stored, the scheduler says with an Object which segment holds it. From then
    on the client names that one, and it releases its own, under the name of the segment.
    """

    tag = 50
    object: bytes
    segment: bytes
    nbytes: int
    instead_of: bytes = b""
    """Said by the scheduler: the client's own segment with this content, to be released."""


@dataclass(slots=True, eq=False, repr=False)
class Keep(Message):
    """Client to a scheduler that adopts: these objects are in these segments, and are still named.

    The id of a result is the name of its segment.
    """

    tag = 8
    address: str
    """Where they are fetched from, as Welcome or Returned said."""
    objects: tuple[bytes, ...]
    segments: tuple[bytes, ...]
    sizes: tuple[int, ...]
    """Bytes in each of the segments."""


@dataclass(slots=True, eq=False, repr=False)
class LetIn(Message):
    """Scheduler to storage: besides those whom it knows itself, it lets these users in alone.

    ``users`` holds them by their public keys, in Z85.
    """

    tag = 72
    users: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class Release(Message):
    """The sender will not name these objects again.

    A worker then unmaps them; a storage removes them.
    """

    tag = 51
    objects: tuple[bytes, ...]


@dataclass(slots=True, eq=False, repr=False)
class Inventory(Message):
    """Storage to scheduler, after its Hello: the segments that it has."""

    tag = 52
    objects: tuple[bytes, ...]


@dataclass(slots=True, eq=False, repr=False)
class Purge(Message):
    """Scheduler to storage: remove all segments with this prefix, except those in ``keep``.

    The peer that wrote them is gone; it had announced the segments that are kept.
    """

    tag = 53
    prefix: bytes
    keep: tuple[bytes, ...]


@dataclass(slots=True, eq=False, repr=False)
class Copy(Message):
    """Scheduler to storage: fetch a segment from the storage at this address."""

    tag = 54
    segment: bytes
    address: str


@dataclass(slots=True, eq=False, repr=False)
class Missing(Message):
    """Scheduler to worker: do not wait for these segments, they will not come."""

    tag = 55
    objects: tuple[bytes, ...]
    reason: str


@dataclass(slots=True, eq=False, repr=False)
class Arrived(Message):
    """Scheduler to worker: these segments have been copied to its machine."""

    tag = 67
    objects: tuple[bytes, ...]


@dataclass(slots=True, eq=False, repr=False)
class Put(Message):
    """Client to storage: fetch this segment from me."""

    tag = 56
    segment: bytes


@dataclass(slots=True, eq=False, repr=False)
class Fetch(Message):
    """To the process that has a segment: send this part of it."""

    tag = 57
    segment: bytes
    offset: int
    nbytes: int


@dataclass(slots=True, eq=False, repr=False)
class Part(Message):
    """The answer to Fetch: the part, and the size of the whole segment."""

    tag = 58
    segment: bytes
    offset: int
    total: int
    data: Buffer


@dataclass(slots=True, eq=False, repr=False)
class Transferred(Message):
    """A Copy, Put or Fetch has ended; the error is empty if the segment is complete."""

    tag = 59
    segment: bytes
    error: str = ""


# -- scheduler <-> supervisor ----------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class WorkerLost(Message):
    """Supervisor to scheduler: a worker process died.

    ``session`` and ``task`` name the task that it ran last (session 0: none yet).
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


@dataclass(slots=True, eq=False, repr=False)
class Roll(Message):
    """Supervisor to scheduler that does not know it: these workers live, and will say Hello."""

    tag = 38
    workers: tuple[bytes, ...]
    is_whole: bool
    """False: some worker has ended, and with it what it knew of the tasks that it had started."""


@dataclass(slots=True, eq=False, repr=False)
class Overdue(Message):
    """Supervisor to scheduler: a task has run this long; stop it unless it has its own timeout."""

    tag = 44
    worker: bytes
    session: int
    task: int
    timeout_s: float


STOPPED, QUIET = "stopped", "quiet"
"""How a worker is stuck: its process is stopped; its task uses no CPU time."""


@dataclass(slots=True, eq=False, repr=False)
class Stuck(Message):
    """Supervisor to scheduler: a worker is stuck; if a task of it is quiet, kill it."""

    tag = 49
    worker: bytes
    pid: int
    session: int
    """Session of the task that it runs, or ran last; 0: it has run none."""
    task: int
    for_s: float
    how: str
    """``stopped`` or ``quiet``."""
    is_doomed: bool
    """False: the supervisor does not kill it, however long it is stopped."""
    left_s: float
    """How long the supervisor waits before it kills it."""


@dataclass(slots=True, eq=False, repr=False)
class Kill(Message):
    """Scheduler to supervisor: kill this worker and the child processes of its task."""

    tag = 41
    worker: bytes
    reason: str


@dataclass(slots=True, eq=False, repr=False)
class Spares(Message):
    """Scheduler to supervisor: keep this many spare workers besides the ordinary ones."""

    tag = 43
    count: int


@dataclass(slots=True, eq=False, repr=False)
class Offer(Message):
    """Manager to scheduler, after its Hello and when it changes: how many workers it could have.

    A supervisor that starts and ends workers of its own as they are wanted says it, too.
    """

    tag = 73
    kind: str
    """The system that starts them, for people."""
    least: int
    most: int
    """MOST_MAX: without limit."""
    per_unit: int
    """How many workers start and end together."""
    cooldown_s: float
    """How long fewer workers must be enough before it is told so."""
    capabilities: Capabilities
    """What each of the workers offers."""
    wanted: int = 0
    """How many it was told to have before."""
    shared: Capabilities = ()
    """How much of this the workers of a unit have together."""


MOST_MAX = 1 << 32
"""In an Offer: as many workers as the scheduler likes."""


@dataclass(slots=True, eq=False, repr=False)
class Units(Message):
    """Manager to scheduler, with each heartbeat: how its units are."""

    tag = 74
    coming: int
    """Started, but not yet here."""
    ending: int
    """On their way out."""
    failed: int
    """How many never came, or died, since the manager was started."""
    reason: str
    """Why the last one did, or why none can be started now; empty once another one has come."""
    unit_s: float
    """How long all of its units have lived together, those that have ended among them."""


@dataclass(slots=True, eq=False, repr=False)
class Wanted(Message):
    """Scheduler to manager, as the answer to Units and at each change: have so many workers.

    A supervisor that has made an Offer hears it, too; it then has no units.
    """

    tag = 75
    workers: int
    units: tuple[str, ...] = ()
    """The units that are here, those that are draining among them."""
    tasks: tuple[int, ...] = ()
    """How many tasks each of them has."""


@dataclass(slots=True, eq=False, repr=False)
class UnitBroken(Message):
    """Scheduler to manager: the workers of one of its units cannot start, or were refused."""

    tag = 77
    unit: str
    reason: str


@dataclass(slots=True, eq=False, repr=False)
class Drain(Message):
    """Manager to scheduler: let these units finish what they run, give them nothing, send them off.

    Once a unit has nothing that anybody needs, its supervisor is told Goodbye.
    """

    tag = 76
    units: tuple[str, ...]


@dataclass(slots=True, eq=False, repr=False)
class Examine(Message):
    """Scheduler to supervisor: a monitor is connected; report on the machine and its workers."""

    tag = 45
    sent_at: float


@dataclass(slots=True, eq=False, repr=False)
class Vitals(Message):
    """Supervisor to scheduler: the answer to Examine. CPUs are counted in thousandths of a CPU."""

    tag = 46
    sent_at: float
    """The value from Examine."""
    held_s: float
    """How long the supervisor took to answer."""
    cpus: int
    """The number of CPUs of the machine."""
    cpu_milli: int
    """The busy CPUs, no matter which process uses them."""
    memory_bytes: int
    """The memory that the machine has or may use; 0: unknown, here and in the next fields."""
    free_bytes: int
    agent_cpu_milli: int
    """The CPU of the supervisor itself."""
    agent_rss_bytes: int
    workers: tuple[bytes, ...]
    worker_cpu_milli: tuple[int, ...]
    worker_rss_bytes: tuple[int, ...]
    memory_limit_bytes: int = 0
    """A worker that exceeds this is killed; 0: no limit."""
    restarts: int = 0
    """How many workers were started in place of one that died."""


@dataclass(slots=True, eq=False, repr=False)
class TailLogs(Message):
    """Scheduler to worker: a monitor wants to know what its tasks print and log.

    The worker takes note of it for a while. It answers with LogLines if there is anything to say
    since the TailLogs before.
    """

    tag = 100
    for_s: float
    """So long it goes on, unless another TailLogs comes; 0: it stops."""
    lines: int = 0
    """How many lines it answers with at most: the last ones."""
    is_first: bool = False
    """This scheduler has not sent it a TailLogs yet, or had let it stop."""


@dataclass(slots=True, eq=False, repr=False)
class LogLines(Message):
    """Worker to scheduler: what its tasks printed and logged. All tuples have one value a line."""

    tag = 101
    ages_ms: tuple[int, ...] = ()
    """How many milliseconds ago it was."""
    sessions: tuple[int, ...] = ()
    """Of the task that ran; 0: none did."""
    tasks: tuple[int, ...] = ()
    functions: tuple[bytes, ...] = ()
    """Of the tasks; empty bytes: none ran."""
    sources: tuple[str, ...] = ()
    """``stdout`` or ``stderr``; of a record, the name of its logger."""
    levels: tuple[int, ...] = ()
    """Of a record; 0: it was printed."""
    texts: tuple[str, ...] = ()
    dropped: int = 0
    """How many lines before these were too many to be kept."""
    reason: str = ""
    """Why this worker has nothing to say, if it never has."""


@dataclass(slots=True, eq=False, repr=False)
class Sample(Message):
    """Scheduler to worker: a monitor wants to know what its tasks do; the answer is Sampled.

    For a while the worker looks at the stack of its task now and then, and notes what it sees.
    """

    tag = 102
    number: int
    """Comes back with the answer."""
    period_s: float
    """So often it looks, on average."""
    for_s: float
    """So long it goes on, unless another Sample comes."""


@dataclass(slots=True, eq=False, repr=False)
class Sampled(Message):
    """Worker to scheduler: the answer to Sample, with what was seen since the one before."""

    tag = 103
    number: int
    """The value from Sample."""
    functions: tuple[bytes, ...] = ()
    """Whose tasks ran, each in the same place of the next two; empty bytes: of several others."""
    samples: tuple[int, ...] = ()
    """How often it was seen."""
    sizes: tuple[int, ...] = ()
    """How many bytes of ``trees`` are of it."""
    trees: Buffer = b""
    """What they were at, as call trees one after the other; the scheduler only passes them on."""
    session: int = 0
    """Session of the task that runs now; 0: none does."""
    task: int = 0
    runs: bytes = b""
    """The function of that task."""
    age_s: float = 0.0
    """For how long it has been running."""
    stack: str = ""
    """What it is at, as in a traceback."""
    reason: str = ""
    """Why there is no stack."""


@dataclass(slots=True, eq=False, repr=False)
class InitializerFailed(Message):
    """Supervisor to scheduler: its workers cannot start; the text contains the traceback."""

    tag = 42
    text: str
