"""The settings of a scheduler."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.config.scaling_policy import ScalingPolicy
from scaler_cluster.core.records.limits import TASKS_MAX
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.roster import Roster


@dataclass(frozen=True)
class QuotaConfig:
    """How much one client may have in the scheduler at once; 0: there is no limit."""

    tasks_max: int = 0
    """Tasks that have not ended, nodes of graphs among them."""
    graphs_max: int = 0
    bytes_max: int = 0
    """Of payloads, functions and objects."""


@dataclass(frozen=True)
class SchedulerConfig:
    """Settings of a scheduler, in seconds."""

    python: str
    """Version of Python that its peers must have, as "3.11"."""
    pid_space: str = ""
    """The pid namespace whose processes the scheduler can watch; empty: it can watch none."""
    client_timeout_s: float = 600.0
    """A silent client is given up after this: long enough for a debugger or a long C call."""
    supervisor_timeout_s: float = 15.0
    """A silent supervisor is given up, with its workers, after this."""
    cancel_grace_s: float = 0.5
    """A task that does not stop when interrupted is killed after this."""
    workers_expected: int = 0
    """Workers that come with the scheduler, and are on their way before they say so."""
    predecessor: Roster | None = None
    """What the scheduler before this one has left; None: there was none, or nobody knows."""
    secret: bytes = field(default=b"", repr=False)
    """What this scheduler, and those before and after it, know alone; empty: they have no keys."""
    epoch: int = 0
    """Tells the numbers of this scheduler's sessions from those of others at this address."""
    homes: tuple[m.StorageEndpoint, ...] = (m.NOWHERE,)
    """Where clients store objects: beside this scheduler, or in storages that run by themselves."""
    homes_are_elsewhere: bool = False
    adopts: bool = False
    """What clients stored before this scheduler was started may be in the homes still."""
    tasks_max: int = TASKS_MAX
    """How many tasks a worker is given at most."""
    tasks_waiting_max: int = -1
    """How many tasks may wait in the scheduler; others wait at their clients. -1: no limit."""
    quotas: QuotaConfig = QuotaConfig()
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    """How many workers managers are to have."""
    protected: bool = True
    """No client may end the cluster."""
    unplaced_timeout_s: float = math.inf
    """Tasks that demand what no worker has fail after this."""
    idle_s: float = 0.0
    """How long a worker has nothing to do before it gets what other workers have queued; inf: it
    never does."""
    object_retention_s: float = math.inf
    """A copy of an object is removed after no task on its machine has used it for this long."""
    storage_timeout_s: float = 15.0
    """A silent storage that runs by itself is given up, with what it holds, after this."""
    feed_interval_s: float = 1.0
    """How often a watcher gets a snapshot."""
    feed_objects: int = 50
    """How many of the largest objects a snapshot lists."""
    hides_logs: bool = False
    """No watcher gets what tasks print and log."""
    monitor: str = ""
    """Address of the feed; empty: there is none."""
    dashboard: str = ""
    """Link of the dashboard; empty: there is none."""

    def welcome(
        self,
        session: int = 0,
        workers: int = 0,
        *,
        asks_first: bool = False,
        adopts: bool = False,
        is_program: bool = False,
        proof: bytes = b"",
    ) -> m.Welcome:
        """Return what a peer is told that is welcome; a program gets the dashboard's link."""
        where = self.homes, asks_first, self.monitor, self.dashboard if is_program else ""
        return m.Welcome(session, workers, *where, adopts=adopts, proof=proof)
