"""What a simulated task does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """What a task does; its number alone decides, so everybody knows."""

    session: int
    number: int

    @property
    def _dice(self) -> int:
        return (self.number * 2654435761 + self.session * 40503) >> 4 & 0xFFFF

    @property
    def payload(self) -> bytes:
        """Its arguments; the session is not known when they are made."""
        return b"p%d" % self.number

    @property
    def result(self) -> bytes:
        return b"r%d" % self.number

    @property
    def takes_s(self) -> float:
        return (0.00001, 0.0001, 0.001, 0.01, 0.05, 0.4)[self._dice % 6]

    @property
    def raises(self) -> bool:
        return self._dice % 17 == 3

    @property
    def crashes(self) -> bool:
        return self._dice % 29 == 5

    @property
    def is_stubborn(self) -> bool:
        return self._dice % 11 == 7
