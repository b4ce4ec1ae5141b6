"""The last lines that tasks printed and logged. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter

from scaler_cluster.wire import feed

LINES_MAX = 20_000
CHARS_MAX = 8_000_000
"""Of all lines together: some 20 MB of memory."""


@dataclass
class LastLines:
    """Keeps the last lines; earlier ones make room, and are counted."""

    lines: deque[feed.LogLine] = field(default_factory=deque)
    """As they came, those of one message in the order of time. ``at`` is in seconds since 1970."""
    added: int = 0
    """How many there ever were; see :meth:`since`."""
    dropped: int = 0
    """How many never came, as far as is known."""
    reason: str = ""
    """Why the scheduler tells nothing; empty: it does."""
    is_heard: bool = False
    """The scheduler has answered since somebody listened."""
    _chars: int = 0
    _run: str = ""
    _seq: int | None = None

    def left(self) -> None:
        """Nobody listens any more: what comes next does not follow on what came last."""
        self._seq = None
        self.is_heard = False

    def apply(self, message: feed.Logs) -> None:
        """Take a message in; one that was there already is ignored."""
        if message.run != self._run:
            self._run, self._seq = message.run, None
        if self._seq is not None and message.seq <= self._seq:
            return
        missed = message.seq - self._seq - 1 if self._seq is not None else 0
        self._seq, self.reason, self.is_heard = message.seq, message.reason, True
        if missed:
            text = "lines are missing here: they came faster than this monitor took them in"
            self._add(feed.LogLine(message.time, text=text))
        for line in sorted(message.lines, key=attrgetter("at")):
            self._add(replace(line, at=line.at + message.time - message.clock))

    def _add(self, line: feed.LogLine) -> None:
        self.lines.append(line)
        self.added += 1
        self.dropped += line.dropped
        self._chars += len(line.text)
        while len(self.lines) > LINES_MAX or self._chars > CHARS_MAX:
            self._chars -= len(self.lines.popleft().text)

    @property
    def forgotten(self) -> int:
        """How many came and are not here any more."""
        return self.added - len(self.lines)

    def since(self, added: int) -> list[feed.LogLine]:
        """Return what was added since there were so many, as far as it is here."""
        count = min(self.added - added, len(self.lines))
        return list(islice(reversed(self.lines), count))[::-1]
