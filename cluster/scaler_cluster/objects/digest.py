"""What names the content of an object."""

from __future__ import annotations

from blake3 import blake3

from scaler_cluster.ids import OBJECT_ID_BYTES


def digest_of(data: memoryview) -> bytes:
    """Return the digest that names this content."""
    return blake3(data, max_threads=blake3.AUTO).digest(OBJECT_ID_BYTES)
