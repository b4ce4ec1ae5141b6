"""A number that rises at once, and falls after a while."""

from __future__ import annotations

import math


class Cooldown:
    """Lets a number rise at once, and fall once it has been lower for a time."""

    def __init__(self) -> None:
        self.count = 0
        self._since = math.inf
        """Since when it has been lower; inf: it is not."""
        self._peak = 0
        """The most since then."""

    def settle(self, count: int, cooldown_s: float, now: float) -> int:
        """Take in the number that is wanted now; return the one that counts."""
        if count >= self.count:
            self.count, self._since = count, math.inf
            return self.count
        if self._since == math.inf:
            self._since, self._peak = now, count
        self._peak = max(self._peak, count)
        if now - self._since >= cooldown_s:
            self.count, self._since = self._peak, math.inf
        return self.count
