"""Many small payloads as one buffer, cut without reading or copying them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Buffer = bytes | memoryview

BATCH_BYTES_MAX = 1 << 31
"""Ends are 32-bit offsets; half of their range leaves room for sums."""
COPIED_BYTES = 512
"""Up to so many bytes each, payloads are cut from one copy of all: a view of each takes 184 bytes
and twice the time, is one more object for the garbage collector, and keeps the whole batch."""


def numbers(buffer: Buffer, kind: str = "I") -> list[int]:
    """Return the numbers in a buffer that came in a message: 32-bit ones, or 64-bit ("Q").

    Raises RemoteProtocolError if they are none.
    """
    try:
        return array(kind, bytes(buffer)).tolist()
    except ValueError:
        raise RemoteProtocolError("numbers that end in the middle of one") from None


class Batch:
    """The payloads of contiguous tasks: one buffer, and where each payload ends in it.

    ``ends`` counts from where the buffer that this one was cut from began, ``base`` is where this
    one begins: a cut is three slices, whatever its length. The offsets are 32-bit, little-endian.
    """

    __slots__ = ("base", "data", "ends")

    def __init__(self, data: Buffer, ends: memoryview, base: int = 0) -> None:
        self.data = data
        self.ends = ends
        self.base = base

    @classmethod
    def of(cls, payloads: Sequence[bytes]) -> Batch:
        """Join payloads into a batch; the sum of their lengths is below BATCH_BYTES_MAX."""
        return cls(b"".join(payloads), memoryview(array("I", accumulate(map(len, payloads)))))

    @classmethod
    def single(cls, payload: bytes) -> Batch:
        """Return the batch of one payload, which is not copied."""
        return cls(payload, memoryview(array("I", (len(payload),))))

    def __len__(self) -> int:
        """Return the number of payloads."""
        return len(self.ends)

    @property
    def nbytes(self) -> int:
        """Total size of the payloads in bytes."""
        return len(self.data)

    def cut(self, start: int, stop: int) -> Batch:
        """Return the payloads ``start <= i < stop``, sharing this batch's memory."""
        base = self.base
        low = self.ends[start - 1] if start else base
        high = self.ends[stop - 1] if stop else base
        data = self.data
        if low != base or high - base != len(data):
            data = memoryview(data)[max(low - base, 0) : max(high - base, 0)]
        # Not simply ``low``: where a peer sent ends that decrease, the cut must still be one that
        # a decoder accepts, or whoever it is forwarded to would drop us for it.
        return Batch(data, self.ends[start:stop], high - len(data))

    def split(self, nbytes: int) -> Iterator[Batch]:
        """Yield this batch in cuts of at most ``nbytes``; a larger payload is a cut of its own."""
        start, count, low = 0, len(self), self.base
        while start < count:
            stop = max(bisect_right(self.ends, low + nbytes, start), start + 1)
            yield self.cut(start, stop)
            low = self.ends[stop - 1]
            start = stop

    def payloads(self) -> list[Buffer]:
        """Return each payload: as a view, or as bytes of its own where they are small."""
        small = len(self.data) <= COPIED_BYTES * len(self.ends)
        data = bytes(self.data) if small else memoryview(self.data)
        if len(self.ends) == 1:
            return [data]
        base = self.base
        ends = self.ends.tolist()
        if base:
            ends = [end - base for end in ends]
        # Three C loops: half of what one in Python takes.
        return list(map(data.__getitem__, map(slice, [0, *ends], ends)))

    def __iter__(self) -> Iterator[Buffer]:
        """Yield each payload."""
        return iter(self.payloads())
