"""Simulated tasks: the payload of a task alone decides what it does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Task:
    """What a task does; its name decides most of it."""

    name: bytes
    """Unique. A task whose name begins with "t" often raises, or kills its worker."""
    levels: int = 0
    """How many levels of tasks it may submit."""
    is_large: bool = False
    """It may return what lies in segments."""
    needs: tuple[int, ...] = ()
    """Of a node: those whose results it takes."""
    objects: tuple[int, ...] = ()
    """Numbers of the objects that come with its payload."""

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(payload: bytes) -> Task:
        """Return the task of a payload."""
        name, levels, is_large, needs, objects = payload.split(b" ")
        return Task(name, int(levels), is_large == b"1", _numbers(needs), _numbers(objects))

    @cached_property
    def payload(self) -> bytes:
        needs, objects = (b",".join(b"%d" % n for n in ns) for ns in (self.needs, self.objects))
        return b"%s %d %d %s %s" % (self.name, self.levels, self.is_large, needs, objects)

    @cached_property
    def _dice(self) -> int:
        return crc32(self.name)

    @property
    def _rarely(self) -> int:
        # Else hardly anything that needs others would ever return.
        return 1 if self.name.startswith(b"t") and b"/" not in self.name else 5

    @property
    def takes_s(self) -> float:
        return (0.00001, 0.0001, 0.001, 0.01, 0.05, 0.4)[self._dice % 6]

    @property
    def raises(self) -> bool:
        return self._dice // 7 % (17 * self._rarely) == 3

    @property
    def crashes(self) -> bool:
        return self._dice // 11 % (29 * self._rarely) == 5

    @property
    def is_stubborn(self) -> bool:
        """It does not end when it is interrupted."""
        return self._dice // 13 % 11 == 7

    @property
    def segments(self) -> int:
        """In how many segments its result lies; 0: it is small."""
        return (0, 0, 1, 2)[self._dice // 17 % 4] if self.is_large else 0

    @property
    def error(self) -> bytes:
        """What it raises."""
        return b"x" + self.name

    @property
    def disturbed(self) -> bytes:
        """What it raises if something went wrong with a task that it waits for."""
        return b"d" + self.name

    def result(self, values: Sequence[bytes]) -> bytes:
        """Return what it returns, with these at hand."""
        return b"r%s=%08x" % (self.name, crc32(b",".join((self.payload, *values))))

    def child(self, number: int) -> Task:
        """Return a task that it submits."""
        name = b"%s/%d" % (self.name, number)
        objects = (number % 3,) if self.is_large and crc32(name) % 3 == 0 else ()
        return Task(name, self.levels - 1, self.is_large, (), objects)


def _numbers(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, text.split(b","))) if text else ()


def object_of(number: int) -> bytes:
    """Return what is in an object."""
    return b"object-%d" % number
