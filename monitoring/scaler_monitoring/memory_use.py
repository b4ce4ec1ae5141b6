"""Who has the memory: by whom objects were made, how full workers and machines are. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from scaler_monitoring.texts import client_name, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scaler_cluster.wire import feed

K = TypeVar("K")
STORED = "(stored by clients)"
"""What those objects have in place of a function that no task returned."""
GONE = "gone"
"""What a client is called that has left."""
RESIDENT, OBJECTS, OTHERS, FREE = "resident", "objects", "others", "free"


@dataclass(slots=True)
class Made:
    """The objects that one client, or tasks of one function, made."""

    objects: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class Use:
    """What takes how much of a limit."""

    who: bytes
    """The id of a worker, or of the first machine of a computer."""
    limit: int
    parts: Mapping[str, int]
    """Bytes by what takes them; together the limit, unless it is exceeded."""
    is_own: bool = True
    """It is killed if it exceeds that; else it is all that its machine has."""
    on_disk: int = 0
    """Bytes of objects for which memory had no room."""

    @property
    def used(self) -> int:
        """How many bytes are not free."""
        return sum(self.parts.values()) - self.parts[FREE]

    @property
    def share(self) -> float:
        """How much of the limit that is."""
        return self.used / self.limit


def by_function(owners: Iterable[feed.Owner]) -> dict[str, Made]:
    """Return what tasks of each name made, most first; empty: what clients stored themselves."""
    return _summed(owners, attrgetter("function"))


def by_client(owners: Iterable[feed.Owner]) -> dict[int, Made]:
    """Return what each client made, by itself or by its tasks, most first."""
    return _summed(owners, attrgetter("session"))


def _summed(owners: Iterable[feed.Owner], key: Callable[[feed.Owner], K]) -> dict[K, Made]:
    found: dict[K, Made] = {}
    for one in owners:
        made = found.setdefault(key(one), Made())
        made.objects += one.objects
        made.nbytes += one.nbytes
    return dict(sorted(found.items(), key=lambda item: -item[1].nbytes))


def client_names(snapshot: feed.Snapshot) -> dict[int, str]:
    """Return what the clients are called that are there."""
    return {one.session: client_name(one) for one in snapshot.clients}


def maker(owner: feed.Owner | feed.LargeObject, clients: Mapping[int, str]) -> str:
    """Return who made an object, in a few words; empty: an earlier release does not say so."""
    if not owner.session:
        return ""
    client = clients.get(owner.session, GONE)
    return f"{short(owner.function)} for {client}" if owner.function else f"stored by {client}"


def workers_use(snapshot: feed.Snapshot, most: int) -> list[Use]:
    """Return how full those workers are that are fullest, as far as their memory is known."""
    memory = {one.machine: one.memory_bytes for one in snapshot.machines}
    known = (
        (one.rss_bytes, limit, one)
        for one in snapshot.workers
        if one.rss_bytes and (limit := one.memory_limit_bytes or memory.get(one.machine))
    )
    return [
        Use(
            one.worker,
            limit,
            {RESIDENT: rss_bytes, FREE: max(limit - rss_bytes, 0)},
            is_own=one.memory_limit_bytes is not None,
        )
        for rss_bytes, limit, one in nlargest(most, known, key=lambda row: row[0] / row[1])
    ]


def machines_use(snapshot: feed.Snapshot) -> list[Use]:
    """Return how full computers are: with objects, with all else; the fullest first.

    Objects in storages that run by themselves are not known to be on any of them.
    """
    hosts = {one.machine: one.host for one in snapshot.machines}
    # What clients of the scheduler's own machine store lies there.
    hosts[b""] = snapshot.scheduler.host
    objects, on_disk = Counter[str](), Counter[str]()
    for store in snapshot.stores:
        if store.machine in hosts:
            kept = min(store.nbytes, store.memory_limit)
            objects[hosts[store.machine]] += kept
            on_disk[hosts[store.machine]] += store.nbytes - kept
    uses = []
    for host, one in {row.host: row for row in reversed(snapshot.machines)}.items():
        limit, free = one.memory_bytes, one.free_bytes
        if limit and free is not None:
            stored = min(objects[host], max(limit - free, 0))
            parts = {OBJECTS: stored, OTHERS: max(limit - free - stored, 0), FREE: free}
            uses.append(Use(one.machine, limit, parts, is_own=False, on_disk=on_disk[host]))
    return sorted(uses, key=lambda one: (-one.share, one.who))
