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
    def of(self) -> tuple[int, int]:
        """The task."""
        return self.session, self.task

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


class _Line:
    """One that has no end yet."""

    __slots__ = ("more", "piece", "text")

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        """The one with which it begins."""
        self.text = ""
        self.more = 0
        """How many characters of it are too many."""

    def extend(self, text: str) -> None:
        if "\r" in text:
            shown = text.rstrip("\r")
            if "\r" in shown:
                # What was overwritten is not to be seen on a screen either.
                self.text, self.more = "", 0
                text = text[shown.rindex("\r") + 1 :]
        self.text += text
        if len(self.text) > LINE_CHARS_MAX:
            self.more += len(self.text) - LINE_CHARS_MAX
            self.text = self.text[:LINE_CHARS_MAX]


class LineMaker:
    """Keeps the lines that have no end yet."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _Line] = {}
        self._made: list[tuple[Piece, str]] = []

    def make(
        self, pieces: Sequence[Piece], dropped: int, lines_max: int, now: float
    ) -> m.LogLines | None:
        """Return the last lines of these, before which lines were dropped; None: nothing."""
        first = _first_of(pieces, lines_max)
        dropped += sum(piece.lines for piece in pieces[:first])
        if dropped:
            # Their ends are among what was dropped.
            self._open.clear()
        made = self._made = []
        for piece in pieces[first:]:
            if piece.level:
                made.append((piece, cut(sendable(piece.text))))
            else:
                self._write(piece)
        for key, line in list(self._open.items()):
            if now - line.piece.at >= OPEN_S or len(self._open) > OPEN_MAX:
                self._close(key, line)
        more = max(len(made) - lines_max, 0)
        del made[:more]
        dropped += more
        if not made and not dropped:
            return None
        return m.LogLines(
            tuple(max(int((now - one.at) * 1000), 0) for one, _ in made),
            tuple(one.session for one, _ in made),
            tuple(one.task for one, _ in made),
            tuple(one.function for one, _ in made),
            tuple(sendable(one.source)[:NAME_CHARS_MAX] for one, _ in made),
            tuple(one.level for one, _ in made),
            tuple(text for _, text in made),
            dropped,
        )

    def _write(self, piece: Piece) -> None:
        key = piece.source, piece.thread
        line = self._open.get(key)
        if line is not None and line.piece.of != piece.of:
            # Its task has ended, and nothing more comes of it.
            self._close(key, line)
            line = None
        *whole, rest = piece.text.split("\n")
        for text in whole:
            line = line or _Line(piece)
            line.extend(text)
            self._close(key, line)
            line = None
        if rest:
            line = self._open[key] = line or _Line(piece)
            line.extend(rest)

    def _close(self, key: tuple[str, int], line: _Line) -> None:
        self._open.pop(key, None)
        self._made.append((line.piece, cut(sendable(line.text.rstrip("\r")), line.more)))
