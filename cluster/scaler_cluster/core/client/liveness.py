"""When a client says that it lives, and when it gives its scheduler up."""

from __future__ import annotations

CONNECT_TIMEOUT_S = 10.0
HEARTBEAT_S = 1.0
RECONNECT_TIMEOUT_S = 300.0
"""A scheduler that answered no heartbeat for so long is gone: it may be stopped for a while, or be
started anew. Clusters wait as long by default."""
MISSED_S = 5.0
"""A scheduler that answered no heartbeat for so long is worth a word to the user."""


class Liveness:
    """Heartbeats every ``heartbeat_s`` seconds; after ``silence_s`` without a word it gives up."""

    def __init__(self, heartbeat_s: float, silence_s: float, now: float) -> None:
        self.silence_s = silence_s
        self.heartbeat_at = now + heartbeat_s
        """When the next heartbeat is due."""
        self._heartbeat_s = heartbeat_s
        self._excused_at = now
        """The scheduler is not blamed for silence before this."""

    def beat(self, now: float) -> bool:
        """Return True if a heartbeat is to be sent now."""
        if now < self.heartbeat_at:
            return False
        if now - self.heartbeat_at > self._heartbeat_s:
            # This process was stopped or starved: the answers may only be waiting.
            self._excused_at = now
        self.heartbeat_at = now + self._heartbeat_s
        return True

    def is_missed(self, heard_at: float, now: float) -> bool:
        """Return True if the scheduler should have answered long ago."""
        return self.silence_s_of(heard_at, now) > max(MISSED_S, 2 * self._heartbeat_s)

    def is_silent(self, heard_at: float, now: float) -> bool:
        """Return True if the scheduler, last heard at ``heard_at``, is to be given up."""
        return self.silence_s_of(heard_at, now) > self.silence_s

    def silence_s_of(self, heard_at: float, now: float) -> float:
        """Return how long the scheduler has been silent, as far as it is to blame."""
        return now - max(heard_at, self._excused_at)
