"""What names the content of an object."""

from __future__ import annotations

import os

from blake3 import blake3

from scaler_cluster.ids import OBJECT_ID_BYTES

_threads = blake3.AUTO


def digest_of(data: memoryview) -> bytes:
    """Return the digest that names this content."""
    return blake3(data, max_threads=_threads).digest(OBJECT_ID_BYTES)


def _after_fork() -> None:
    # The threads that would share the work are the parent's: a child would wait for them for ever.
    global _threads  # noqa: PLW0603
    _threads = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
