"""Lines made of the pieces in which a process writes. Pure.

A call of ``print`` writes its text and the end of the line by themselves, a progress bar writes the
same line again and again, and threads write between each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scaler_cluster.texts import LINE_CHARS_MAX, LINES_MAX, sendable
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

OPEN_S = 1.0
"""A line that has no end is told as it is after this time: a progress bar, a question."""
OPEN_MAX = 64
"""Lines without an end that are kept, one for each thread and stream."""
CUT_CHARS = LINE_CHARS_MAX - 40
"""What is left of a line that is too long, before what says how much is missing."""
NAME_CHARS_MAX = 200
"""Of a logger."""


class Piece(NamedTuple):
    """What one thread wrote at once."""

    at: float
    session: int
    """Of the task that ran; 0: none did."""
    task: int
    function: bytes
    source: str
    """The stream, or the logger."""
    level: int
    """Of a record; 0: it is no record, and may be a part of a line, or several."""
    thread: int
    text: str

    @property
    def lines(self) -> int:
        """How many lines end with it."""
        return 1 if self.level else self.text.count("\n")


def cut(text: str, more: int = 0) -> str:
    """Return a line that is not too long; ``more`` characters of it are missing already."""
    if not more and len(text) <= LINE_CHARS_MAX:
        return text
    return f"{text[:CUT_CHARS]} … {more + len(text[CUT_CHARS:]):,} characters more"


def last_lines(text: str) -> tuple[str, int]:
    """Return the last lines of a long text, none too long, and how many others there are."""
    lines = text.split("\n")
    kept = lines[-LINES_MAX - 1 :]
    return "\n".join(map(cut, kept)), len(lines) - len(kept)


def _first_of(pieces: Sequence[Piece], lines: int) -> int:
    """Return which is the first of the pieces that make so many lines, and one more."""
    left = lines
    for first in range(len(pieces) - 1, -1, -1):
        left -= pieces[first].lines
        if left < 0:
            return first
    return 0


class LineMaker:
    """Keeps the lines that have no end yet."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Piece] = {}
        self._cut: dict[tuple[str, int], int] = {}
        """How many characters of an open line are too many."""
        self._made: list[Piece] = []

    def make(
        self, pieces: Sequence[Piece], dropped: int, lines_max: int, now: float
    ) -> m.LogLines | None:
        """Return the last lines of these, before which lines were dropped; None: nothing."""
        first = _first_of(pieces, lines_max)
        dropped += sum(piece.lines for piece in pieces[:first])
        if dropped:
            # Their ends are among what was dropped.
            self._open.clear()
            self._cut.clear()
        made = self._made = []
        for piece in pieces[first:]:
            if piece.level:
                self._say(piece, 0)
            else:
                self._write(piece)
        for key, line in list(self._open.items()):
            if now - line.at >= OPEN_S or len(self._open) > OPEN_MAX:
                self._close(key)
        more = max(len(made) - lines_max, 0)
        del made[:more]
        dropped += more
        if not made and not dropped:
            return None
        return m.LogLines(
            tuple(max(int((now - one.at) * 1000), 0) for one in made),
            tuple(one.session for one in made),
            tuple(one.task for one in made),
            tuple(one.function for one in made),
            tuple(one.source for one in made),
            tuple(one.level for one in made),
            tuple(one.text for one in made),
            dropped,
        )

    def _write(self, piece: Piece) -> None:
        key = piece.source, piece.thread
        line = self._open.get(key)
        if line is not None and (line.session, line.task) != (piece.session, piece.task):
            # Its task has ended, and nothing more comes of it.
            self._close(key)
        *whole, rest = piece.text.split("\n")
        for text in whole:
            self._extend(key, piece, text)
            self._close(key)
        if rest:
            self._extend(key, piece, rest)

    def _extend(self, key: tuple[str, int], piece: Piece, text: str) -> None:
        line = self._open.get(key)
        before = line.text if line is not None else ""
        if "\r" in text.rstrip("\r"):
            # What was overwritten is not to be seen on a screen either.
            before, text = "", text.rstrip("\r").rpartition("\r")[2]
            self._cut.pop(key, None)
        whole = before + text
        more = len(whole) - LINE_CHARS_MAX
        if more > 0:
            self._cut[key] = self._cut.get(key, 0) + more
        self._open[key] = (line or piece)._replace(text=whole[:LINE_CHARS_MAX])

    def _close(self, key: tuple[str, int]) -> None:
        line = self._open.pop(key)
        self._say(line._replace(text=line.text.rstrip("\r")), self._cut.pop(key, 0))

    def _say(self, line: Piece, more: int) -> None:
        text = cut(sendable(line.text), more)
        self._made.append(line._replace(text=text, source=sendable(line.source)[:NAME_CHARS_MAX]))
