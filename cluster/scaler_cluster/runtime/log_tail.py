"""What a worker's tasks print and log, kept for a moment, while a monitor wants to know it.

It listens, and changes nothing: what is printed goes where it went, and records reach the handlers
that they would have reached, which all see the same levels as ever. While nobody asks there is
nothing of this in the process.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections import deque
from functools import partial
from threading import get_ident
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, TextIO

from scaler_cluster.process.log_records import text_of
from scaler_cluster.runtime.log_lines import LineMaker, Piece, cut, last_lines
from scaler_cluster.runtime.output import listeners
from scaler_cluster.runtime.task_interrupts import kept_whole
from scaler_cluster.texts import LINE_CHARS_MAX, LINES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.wire import messages as m

CHARS_MAX = 1 << 19
"""Of what waits for the next question; what came first is dropped."""
PIECE_CHARS = 64
"""What a piece counts for besides its text."""
TURN_S = 0.05
"""So long a thread waits for its turn. Whoever has it may wait for the worker's lock, in a
finalizer that prints; whoever has that one must not wait for ever."""


class LogTail:
    """Keeps what is written and logged until it is asked; a worker has one at most."""

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._until = 0.0
        """It listens until then; a little longer if nothing is written."""
        self._is_on = False
        self._pieces: deque[Piece] = deque()
        self._chars = 0
        self._dropped = 0
        """Lines that were dropped of what waits."""
        self._turn = threading.RLock()
        """Reentrant: a finalizer may print while a thread has it."""
        self._inner: set[int] = set()
        """Threads that are writing what is taken note of already."""
        self._taps: list[_Tap] = []
        self._lines = LineMaker()
        os.register_at_fork(after_in_child=self._on_forked)

    # -- under the worker's lock -------------------------------------------------------------

    def ask(self, question: m.TailLogs) -> None:
        """Listen for a while, and say what came since the question before; 0: no more."""
        self._until = clock() + question.for_s
        if not question.for_s:
            self.stop()
        elif self._is_on:
            self.answer(question.lines)
        else:
            self._start()

    def answer(self, lines: int = LINES_MAX) -> None:
        """Say what came, if anything did: the last lines."""
        if not self._turn.acquire(timeout=TURN_S):
            return
        try:
            pieces, self._pieces = self._pieces, deque()
            dropped, self._chars, self._dropped = self._dropped, 0, 0
        finally:
            self._turn.release()
        answer = self._lines.make(list(pieces), dropped, lines, clock())
        if answer is not None:
            self._core.reports.say(answer)

    # -- listening ---------------------------------------------------------------------------

    def _start(self) -> None:
        self._is_on = True
        for name in ("stdout", "stderr"):
            for stream in (getattr(sys, name), getattr(sys, f"__{name}__")):
                self._listen(name, stream)
        listeners.append(self._listen)
        self._taps.append(_Tap(logging.Logger, "callHandlers", self._heed_records))

    def stop(self) -> None:
        """Listen no more, and forget what was not told."""
        if not self._turn.acquire(timeout=TURN_S):
            # The next one who writes does it.
            return
        try:
            self._is_on = False
            listeners.clear()
            for tap in self._taps:
                tap.close()
            self._taps.clear()
            self._pieces.clear()
            self._chars = self._dropped = 0
            self._lines = LineMaker()
        finally:
            self._turn.release()

    def _on_forked(self) -> None:
        # Another thread may have had the lock.
        self._turn = threading.RLock()
        self.stop()

    def _listen(self, name: str, stream: TextIO | None) -> None:
        """Listen to what is written to a stream, which stays what it is."""
        if stream is None or any(tap.owner() is stream for tap in self._taps):
            return
        try:
            tap = _Tap(stream, "write", partial(self._heed_writes, name))
        except TypeError:
            kind = type(stream).__qualname__
            self._add("", 0, f"sys.{name} is {kind} here: what is written there cannot be shown\n")
        else:
            self._taps = [one for one in self._taps if one.owner() is not None]
            self._taps.append(tap)

    def _heed_writes(self, name: str, write: Callable[[str], int], tap: _Tap) -> Any:
        inner = self._inner

        def tapped(text: str) -> int:
            thread = get_ident()
            if not tap.is_open or thread in inner:
                return write(text)
            try:
                inner.add(thread)
                written = write(text)
            finally:
                inner.discard(thread)
            self._add(name, 0, text)
            return written

        return tapped

    def _heed_records(self, call_handlers: Callable[[Any, Any], None], tap: _Tap) -> Any:
        inner = self._inner

        def tapped(logger: logging.Logger, record: logging.LogRecord) -> None:
            if not tap.is_open:
                call_handlers(logger, record)
                return
            self._log(record)
            thread = get_ident()
            if thread in inner:
                call_handlers(logger, record)
                return
            try:
                # What handlers write of it need not be told again.
                inner.add(thread)
                call_handlers(logger, record)
            finally:
                inner.discard(thread)

        return tapped

    def _log(self, record: logging.LogRecord) -> None:
        try:
            text = text_of(record)
        except Exception:
            # The handlers say what is wrong with it.
            return
        self._add(record.name, max(record.levelno, 1), cut(text))

    def _add(self, source: str, level: int, text: str) -> None:
        """Take note of what a thread of the worker wrote."""
        now = clock()
        if now > self._until:
            self.stop()
            return
        session = task = dropped = 0
        function = b""
        queue = self._core.queue
        try:
            work = queue[0]
            session, task = work.session, work.first + max(work.cursor, 0)
            function = work.message.function
        except IndexError:
            # No task runs.
            pass
        if len(text) > LINE_CHARS_MAX:
            text, dropped = last_lines(text)
        thread = get_ident()
        piece = Piece(now, session, task, function, source, level, thread, text)
        if not (self._turn.acquire(blocking=False) or self._turn.acquire(timeout=TURN_S)):
            self._dropped += dropped + piece.lines
            return
        try:
            self._dropped += dropped
            self._chars += len(piece.text) + PIECE_CHARS
            self._pieces.append(piece)
            while self._chars > CHARS_MAX:
                old = self._pieces.popleft()
                self._chars -= len(old.text) + PIECE_CHARS
                self._dropped += old.lines
        finally:
            self._turn.release()

    # A task that is interrupted there would keep the turn.
    kept_whole.add(_add.__code__)


class _Tap:
    """A method in the place of another, until it is closed.

    If a library has put its own around it by then, it stays inside of that one, and does nothing.
    Raises TypeError for an object whose methods cannot be replaced.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Any, _Tap], Any]) -> None:
        self.owner = weakref.ref(owner)
        self.is_open = True
        self._name = name
        self._before = vars(owner).get(name)
        self._own = make(getattr(owner, name), self)
        setattr(owner, name, self._own)

    def close(self) -> None:
        self.is_open = False
        owner, name = self.owner(), self._name
        if owner is None or vars(owner).get(name) is not self._own:
            return
        if self._before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, self._before)
