"""What the scheduler remembers of a function, and of the nodes of a graph that share a name."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaler_cluster.core.records.limits import UNMEASURED_S
from scaler_cluster.core.records.totals import Totals


@dataclass(slots=True, eq=False)
class FunctionRecord:
    """A pickled function, and how many sessions and runs may still name it."""

    payload: bytes | memoryview
    objects: tuple[bytes, ...] = ()
    """Ids of the buffers of its pickle."""
    users: int = 0
    """Sessions that know it plus live runs that need it."""
    mean_s: float = UNMEASURED_S
    """How long one of its tasks is expected to take, in seconds. Before any was measured, one task
    fills a worker's window."""
    busy_s: float = 0.0
    count: float = 0.0
    name: str = ""
    totals: Totals = field(default_factory=Totals, repr=False)
    """The totals of all functions of this name."""


@dataclass(slots=True, eq=False)
class LayerRecord:
    """The nodes of a graph that share a name."""

    name: str
    totals: Totals = field(repr=False)
    """The totals of all functions of this name."""
    nodes: int = 0
    """How many there are that are no inputs."""
    total_s: float = 0.0
    """How long they took together, those that returned or raised."""
    mean_s: float = UNMEASURED_S
    busy_s: float = 0.0
    count: float = 0.0
