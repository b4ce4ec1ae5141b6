"""Identifiers and how they are made.

A *task id* is an unsigned 64-bit number, unique within its session: the upper bits number the
call that made it (0: every ``submit``; 1, 2, ...: one ``map`` each), the lower bits count within
that call. So the tasks of one map are contiguous however they interleave with other work.

A *peer id* is the ZeroMQ routing id of a process: one letter for its role, then random bytes. It is
a secret of the peer and the scheduler, and of a worker's supervisor: whoever knows it could speak
in the name of that peer. Others know the *alias* of a peer, which is made of it.

An *object id* is the digest of the object's bytes, or for a result the name of its *segment*: the
file that holds them. Its name has the alias of the peer that wrote it, a number, and random bytes:
nobody who was not told of a segment can ask for it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

SESSION_BITS = 24
"""A scheduler has fewer sessions; what is above tells its sessions from those of others."""
CALL_BITS = 40
"""A call holds up to 2**40 tasks; a session up to 2**23 calls."""
CALL_MAX = 1 << 23
INDEX_MASK = (1 << CALL_BITS) - 1
TASK_ID_MAX = (CALL_MAX << CALL_BITS) - 1

HUB = b""
"""How the spokes of a link call their only peer, the hub."""
FUNCTION_ID_BYTES = 16
"""Length of the BLAKE2b digest that names a pickled function."""
ALIAS_BYTES = 8
"""Length of the BLAKE2b digest in an alias; before it stands the letter of the role."""
ALIASES_KEPT = 16_384
FUNCTION_NAME_CHARS_MAX = 200
"""What people call it; longer names are cut."""
LAYERS_MAX = 255
"""Names of the nodes of one graph: a node has one byte for its name."""

OBJECT_ID_BYTES = 16
"""Length of the BLAKE3 digest that names an object."""
SEGMENT_NAME_BYTES_MAX = 64
TAIL = "z"
"""In the name of a segment: what follows is random."""
TAIL_BYTES = 12
DRAFT = b"draft-"
"""The name of a segment that is being written begins so."""

NAME_CHARS_MAX = 255
"""The name of a machine, a worker or a capability; names in DNS have the same limit."""

PROOF_BYTES = 16
"""What shows that a session is its client's."""
PEER_RANDOM_BYTES = 12
"""What tells a peer id from all others; before it stands the letter of the role."""
INCARNATION_BYTES = 7
"""What tells one life of a peer from the next."""

SNAPSHOT, EVENTS = b"snapshot", b"events"
LOGS = b"logs"
"""Who listens to this has the workers tell what their tasks print and log."""
PROFILE = b"profile"
"""Who listens to this has the tasks sampled."""
TOPICS = SNAPSHOT, EVENTS, LOGS, PROFILE
"""Of the feed, for those who watch. To subscribe to one does not make the other be built."""


def function_id(payload: Buffer, objects: Iterable[bytes] = ()) -> bytes:
    """Return the digest that names a pickled function whose buffers have these ids."""
    ids = tuple(objects)
    # Their lengths say where each ends, so that no part of a payload can be taken for an id.
    digest = blake2b(bytes(map(len, ids)) + bytes(1), digest_size=FUNCTION_ID_BYTES)
    for one in ids:
        digest.update(one)
    digest.update(payload)
    return digest.digest()


def session_proof(secret: bytes, session: int, user: str) -> bytes:
    """Return what a client shows to have its session again: only its scheduler can make it.

    So does the next one, which has the same ``secret``; without one there is no proof.
    """
    text = f"{session} {user}".encode(errors="surrogatepass")
    return secret and blake2b(text, key=secret, digest_size=PROOF_BYTES).digest()


@lru_cache(ALIASES_KEPT)
def alias_of(secret: bytes) -> bytes:
    """Return what others know a peer or an object by, and cannot use; empty stays empty."""
    return secret and secret[:1] + blake2b(secret, digest_size=ALIAS_BYTES).digest()


def session_label(session: int) -> int:
    """Return what people call a session: how many the scheduler that numbered it had by then."""
    return session & ((1 << SESSION_BITS) - 1)


def first_task_id(call: int) -> int:
    """Return the id of the first task of a call."""
    return call << CALL_BITS


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges: where each begins, and the number after its last."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1] = ranges[-1][0], number + 1
        else:
            ranges.append((number, number + 1))
    return ranges


def home_of(one: bytes, homes: int) -> int:
    """Return which of so many storages keeps the object of this id."""
    return one[0] % homes


def segment_prefix(owner: bytes) -> bytes:
    """Return how the name of every segment begins that a peer writes."""
    return alias_of(owner).hex().encode() + b"-"


def segment_names(owner: bytes) -> Iterator[str]:
    """Return names for the segments that a peer writes; threads may share them."""
    prefix = segment_prefix(owner).decode()

    def name(number: int) -> str:
        return f"{prefix}{number:x}{TAIL}{os.urandom(TAIL_BYTES).hex()}"

    return map(name, itertools.count())


def segment_number(name: bytes) -> int:
    """Return which of its owner's segments this is; -1 if its name does not say that."""
    with contextlib.suppress(ValueError):
        return int(name.partition(b"-")[2].partition(TAIL.encode())[0], 16)
    return -1


def claim_of(owner: bytes) -> bytes:
    """Return the name of the draft that stands for what a worker keeps in its own memory."""
    return segment_prefix(owner) + b"claim"


def is_segment(name: bytes) -> bool:
    """Return True for what may be the name of a segment; no path can hide in one."""
    owner, _, number = name.partition(b"-")
    return owner.isalnum() and number.isalnum() and name.isascii()


def is_segment_of(owner: bytes, name: bytes) -> bool:
    """Return True for the name of a segment that this peer may have written."""
    return is_segment(name) and name.startswith(segment_prefix(owner))
