"""What the scheduler remembers of the supervisor of a machine."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_cluster.core.records.amounts import Amounts

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.wire.messages import Vitals


@dataclass(slots=True, eq=False)
class SupervisorRecord:
    """A machine's supervisor."""

    peer: bytes
    host: str
    pid: int
    workers_wanted: int
    last_seen: float
    workers: dict[bytes, WorkerRecord] = field(default_factory=dict)
    spares: dict[bytes, WorkerRecord] = field(default_factory=dict)
    """Its spare workers, which take the place of workers whose task only waits."""
    blocked: dict[bytes, WorkerRecord] = field(default_factory=dict)
    """Its workers whose task only waits for others."""
    wide: dict[bytes, WorkerRecord] = field(default_factory=dict)
    """Its workers whose task needs the places of others, too."""
    spares_wanted: int = 0
    """How many spare workers it was told to keep."""
    over_at: float = math.inf
    """When its process is known to have ended, and all that it sent must have arrived. inf: the
    process lives, or the scheduler cannot know."""
    manager: str = ""
    """Id of the manager that had it started; empty: nobody's."""
    unit: str = ""
    """What the manager calls it."""
    name: str = ""
    """Its own id among managers; empty: it has none."""
    has_come: bool = False
    """Whether a worker of it was ever here."""
    is_draining: bool = False
    """True: it gets no tasks any more, and leaves when nobody needs what it has."""
    is_paused: bool = False
    """True: an operator wants its workers to get nothing for a while."""
    broken: str = ""
    """Why none of its workers can start."""
    lost: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Workers that it reported dead. A Hello of such a worker that comes later is ignored."""
    forgotten: bytes = b""
    """The last of the dead workers that the scheduler does not remember any more. A supervisor's
    workers have ascending peer ids."""
    roll: dict[bytes, None] | None = None
    """Workers that it had when it came from another scheduler, and that live; None: it is new."""
    is_whole: bool = True
    """Whether all workers live that it ever had, and know which tasks they have started."""
    amounts: Amounts = field(default_factory=Amounts)
    """What its workers share."""
    most: int = 0
    """How many workers it may be told to have, if that can be chosen."""
    parked: dict[bytes, WorkerRecord] = field(default_factory=dict)
    """Workers that run nothing, for running tasks that have several cores."""
    vitals: Vitals | None = None
    """How its machine was when it was last asked; None: nobody has watched."""
    lag_s: float = 0.0
    """How long a message to it took, when it was last asked for its vitals."""

    @property
    def size(self) -> int:
        """How many workers it may have."""
        return max(self.workers_wanted, self.most)

    def bury(self, worker: bytes, remembered_max: int) -> None:
        """It reported a worker dead; so many of them are remembered."""
        self.lost[worker] = None
        if len(self.lost) > remembered_max:
            self.forgotten = max(self.forgotten, self.lost.popitem(last=False)[0])

    def may_have_died(self, worker: bytes) -> bool:
        """Return True if a worker whose Hello comes only now may be dead by now.

        Of those that are no younger than a dead one that is forgotten, only they live for certain
        that the supervisor named when it came back.
        """
        is_old = worker <= self.forgotten and worker not in (self.roll or ())
        return is_old or worker in self.lost
