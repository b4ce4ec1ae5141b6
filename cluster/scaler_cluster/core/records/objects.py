"""What the scheduler remembers of large data: the objects, and the machines that store them."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from scaler_cluster.wire.messages import NOWHERE, StorageEndpoint


@dataclass(slots=True, eq=False)
class OwnerRecord:
    """The objects that one client stored, or that tasks of one name returned to it."""

    session: int
    function: str
    """Empty: the client stored them itself, or they were there before this scheduler."""
    objects: int = 0
    nbytes: int = 0


@dataclass(slots=True, eq=False)
class ObjectRecord:
    """Stored bytes, and how many users may still name them."""

    segment: bytes
    nbytes: int
    owner: OwnerRecord
    """Who made it; of several who stored the same, the first."""
    users: int = 0
    """Sessions that may name it, plus functions and live runs whose pickle or payload needs it."""
    is_clients: bool = False
    """A client stored it."""
    is_adopted: bool = False
    """A client stored it before this scheduler was there; others may have named it as well."""
    workers: dict[bytes, None] = field(default_factory=dict)
    """Peer ids of the workers that were told of it, and may have mapped it."""
    stores: dict[bytes, None] = field(default_factory=dict)
    """Keys of the machines whose storage has its segment; others fetch it from the first."""


@dataclass(slots=True, eq=False)
class CopyRecord:
    """An object on its way to a machine."""

    object: bytes
    source: bytes | None = None
    """Key of the storage that it is fetched from; None: of none as yet."""


@dataclass(slots=True, eq=False)
class TransferRecord:
    """What was copied from one storage to another."""

    copies: int = 0
    nbytes: int = 0
    failed: int = 0
    """Copies that did not come."""


class Transfers:
    """Counts what was copied, by the keys of both machines, as long as both are there."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, bytes], TransferRecord] = {}

    def count(self, source: bytes, target: bytes, nbytes: int, error: str) -> None:
        """Count a copy of so many bytes, or one that did not come."""
        row = self.rows.setdefault((source, target), TransferRecord())
        row.nbytes += nbytes
        if error:
            row.failed += 1
        else:
            row.copies += 1

    def forget(self, key: bytes) -> None:
        """A machine is gone."""
        for pair in [pair for pair in self.rows if key in pair]:
            del self.rows[pair]


class Owners:
    """Counts objects by who made them; who has none any more is forgotten."""

    def __init__(self) -> None:
        self.nbytes = 0
        """Bytes of all objects together, each counted once."""
        self.rows: dict[tuple[int, str], OwnerRecord] = {}

    def made(self, segment: bytes, nbytes: int, session: int, function: str = "") -> ObjectRecord:
        """Return an object without users, that a client stored or its task returned."""
        key = session, function
        owner = self.rows.get(key)
        if owner is None:
            owner = self.rows[key] = OwnerRecord(session, function)
        owner.objects += 1
        owner.nbytes += nbytes
        self.nbytes += nbytes
        return ObjectRecord(segment, nbytes, owner)

    def removed(self, record: ObjectRecord) -> None:
        """Count an object out."""
        owner = record.owner
        owner.objects -= 1
        owner.nbytes -= record.nbytes
        self.nbytes -= record.nbytes
        if not owner.objects:
            del self.rows[owner.session, owner.function]


@dataclass(slots=True, eq=False)
class StoreRecord:
    """The segments of one machine, and the process that looks after them."""

    place: StorageEndpoint = NOWHERE
    """Where the segments lie, and from where other machines fetch them."""
    objects: int = 0
    """Number of segments that are there."""
    nbytes: int = 0
    """Bytes that are there or on their way."""
    copies: OrderedDict[bytes, bool] = field(default_factory=OrderedDict)
    """Ids of the objects that were fetched from elsewhere, least recently used first. True: used
    since the scheduler last looked for unused copies."""
    peer: bytes | None = None
    """Peer id of its storage; None: there is no storage at the moment."""
    last_seen: float = math.inf
    """When a storage that runs by itself was last heard; others are watched by their parents."""
    down_since: float = math.inf
    """When a copy was first seen to wait for a storage."""
    garbage: list[bytes] = field(default_factory=list)
    """Segments that its storage is to be told to remove."""
