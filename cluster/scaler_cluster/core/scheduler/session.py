"""What the scheduler remembers of a client."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.core.records.announced import Announced
from scaler_cluster.core.records.by_first import ByFirst
from scaler_cluster.core.records.totals import Totals

if TYPE_CHECKING:
    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.records.accounts import Account
    from scaler_cluster.core.records.workers import Run


@dataclass(slots=True, eq=False)
class SessionRecord:
    """A client."""

    number: int
    peer: bytes
    host: str
    pid: int
    last_seen: float
    account: Account
    """How much of the workers' time it has had."""
    runs: ByFirst[Run] = field(default_factory=ByFirst)
    """The live runs of the client, by their first task."""
    functions: dict[bytes, bool] = field(default_factory=dict)
    """Digests of the functions that the client may name; False: a function has lost objects."""
    objects: dict[bytes, None] = field(default_factory=dict)
    """Ids of the objects that the client may name: it stored them, or they are results."""
    announced: Announced = field(default_factory=Announced)
    """Numbers of the segments that it has told of."""
    graphs: ByFirst[GraphRecord] = field(default_factory=ByFirst)
    """The live graphs of the client, by their first task."""
    watched: dict[int, list[tuple[GraphRecord, int]]] = field(default_factory=dict)
    """By task: the graphs, and nodes of theirs, that have its result as an input."""
    asked: int = 0
    """How many tasks the client ever asked to submit, if it has to ask."""
    allowed: int = 0
    """How many tasks the client was allowed to submit."""
    used: int = 0
    """How many tasks the client has submitted."""
    is_back: bool = False
    """This scheduler had given it up before."""
    is_resumed: bool = False
    """It has the number that it had with another scheduler."""
    is_near: bool = False
    """The scheduler can watch its process."""
    is_watched: bool = False
    over_at: float = math.inf
    """Its process has ended; what it said has arrived by then."""
    worker: bytes = b""
    """Peer id of the worker, if this is the session of a worker's tasks. The worker gets none of
    the tasks that they submit: it would only run these after the tasks that wait for them."""
    totals: Totals = field(default_factory=Totals)
    recalled: dict[str, tuple[Totals, int]] = field(default_factory=dict)
    """Tasks that were given back to the tasks that submitted them, by the name of their function,
    and where that is counted; until it is told what became of them."""
