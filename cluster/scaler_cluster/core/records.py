"""What the scheduler remembers of each kind of peer."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

from scaler_cluster.core.credit import TASKS_MAX, WINDOW_S
from scaler_cluster.core.placement import WorkerPool
from scaler_cluster.core.totals import Totals
from scaler_cluster.wire.messages import NOWHERE, StorageEndpoint

if TYPE_CHECKING:
    from scaler_cluster.core.graph import GraphRecord
    from scaler_cluster.core.tasks import Run
    from scaler_cluster.wire.messages import Vitals


@dataclass(slots=True, eq=False)
class SessionRecord:
    """A client."""

    number: int
    peer: bytes
    host: str
    pid: int
    last_seen: float
    runs: SortedDict[int, Run] = field(default_factory=SortedDict)
    """Its live runs by their first task."""
    functions: dict[bytes, bool] = field(default_factory=dict)
    """Digests of the functions it may name; False: the objects of this one are gone."""
    objects: dict[bytes, None] = field(default_factory=dict)
    """Ids of the objects it may name: what it stored, and results it has not released."""
    graphs: SortedDict[int, GraphRecord] = field(default_factory=SortedDict)
    """Its live graphs by their first task."""
    watched: dict[int, list[tuple[GraphRecord, int]]] = field(default_factory=dict)
    """Graphs, and their nodes, whose input is what one of its tasks returns."""
    asked: int = 0
    """How many tasks it ever wanted to submit, if it has to ask."""
    allowed: int = 0
    """How many it was let."""
    used: int = 0
    """How many it has submitted."""
    worker: bytes = b""
    """Of the session of a worker's tasks: that worker. It gets none of these tasks itself: it
    would only run them after those that wait for them."""
    totals: Totals = field(default_factory=Totals)


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """A worker process."""

    peer: bytes
    supervisor: bytes
    pid: int
    host: str
    task_limit: int
    runs: deque[Run] = field(default_factory=deque)
    """What it has, in the order in which it runs it."""
    count: int = 0
    """Number of tasks in ``runs``."""
    backlog_s: float = 0.0
    """What they are expected to take together, in seconds."""
    given: int = 0
    """Number of tasks it was ever sent, less what it gave back."""
    node_runs: int = 0
    """Number of runs of nodes it was ever sent."""
    tasks_max: int = TASKS_MAX
    """How many it may have."""
    progress_at: float = 0.0
    """When it last finished something, or was given something while it had nothing."""
    revoking: int = 0
    """Number of Revoke messages it has not answered."""
    killed: str = ""
    """Why its supervisor was asked to kill it."""
    retiring: bool = False
    stalled: bool = False
    """It runs a task that turned out long, and gets no more until it reports."""
    functions: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Digests of the functions it holds, least recently used first."""
    store: bytes = b""
    """Key of the machine whose segments it maps."""
    objects: dict[bytes, None] = field(default_factory=dict)
    """Ids of the objects that it was told of, and may have mapped."""
    session: bytes = b""
    """Peer id of the session of its tasks; empty: they have submitted nothing."""
    blocked: bool = False
    """Its task only waits for others: it gets nothing, and another takes its place."""
    spare: bool = False
    """It is there to take the place of others."""
    asleep_at: float = math.inf
    """When there was no place left for this spare worker to take; inf: it has one."""
    name: str = ""
    joined_at: float = 0.0
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(()), repr=False)
    """Those that offer the same."""
    vitals: tuple[float, int] | None = None
    """How many CPUs it keeps busy, and its resident set in bytes; None: nobody has watched."""


@dataclass(slots=True, eq=False)
class SupervisorRecord:
    """A machine's supervisor."""

    peer: bytes
    host: str
    workers_wanted: int
    last_seen: float
    workers: dict[bytes, WorkerRecord] = field(default_factory=dict)
    spares: dict[bytes, WorkerRecord] = field(default_factory=dict)
    """Those of its workers that are there to take the place of others."""
    spares_wanted: int = 0
    """How many of them it was told to keep."""
    pid: int = 0
    """0: a worker of it was faster than its Hello."""
    over_at: float = math.inf
    """When its process is known to have ended, and its last words must have come; inf: it lives, or
    nobody knows."""
    broken: str = ""
    """Why none of its workers can start."""
    lost: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Workers that it reported dead; a Hello of theirs that comes after that is too late."""
    vitals: Vitals | None = None
    """What it said last; None: nobody has watched."""
    lag_s: float = 0.0
    """How long a message took to it, when it was asked for these."""


@dataclass(slots=True, eq=False)
class FunctionRecord:
    """A pickled function and who may still name it."""

    payload: bytes | memoryview
    objects: tuple[bytes, ...] = ()
    """Ids of the buffers of its pickle."""
    users: int = 0
    """Sessions that know it plus live runs that need it."""
    mean_s: float = WINDOW_S
    """What one of its tasks is taken to last, in seconds; before any was measured, one fills a
    worker's window."""
    busy_s: float = 0.0
    count: float = 0.0
    name: str = ""
    totals: Totals = field(default_factory=Totals, repr=False)
    """Of all functions of this name."""


@dataclass(slots=True, eq=False)
class ObjectRecord:
    """Stored bytes, and who may still name them."""

    segment: bytes
    nbytes: int
    users: int = 0
    """Sessions that may name it, functions whose pickle and live runs whose payload needs it."""
    workers: dict[bytes, None] = field(default_factory=dict)
    """Peers of the workers that were told of it, and may have mapped it."""
    stores: dict[bytes, None] = field(default_factory=dict)
    """Keys of the machines whose storage has its segment; others fetch it from the first."""


@dataclass(slots=True, eq=False)
class StoreRecord:
    """The segments of one machine, and the process that looks after them."""

    place: StorageEndpoint = NOWHERE
    """Where they lie, and whence others fetch them."""
    objects: int = 0
    """How many are there."""
    nbytes: int = 0
    """What is there or on its way, in bytes."""
    copies: OrderedDict[bytes, bool] = field(default_factory=OrderedDict)
    """Ids of the objects that were fetched from elsewhere, least recently used first, and whether
    they were used since somebody looked."""
    peer: bytes | None = None
    """Its storage; None: there is none at the moment."""
    last_seen: float = math.inf
    """When a storage that runs by itself was last heard; of others their parents know."""
    down_since: float = math.inf
    """When a copy was first seen to wait for one."""
    garbage: list[bytes] = field(default_factory=list)
    """Segments to be removed as soon as there is a storage."""
