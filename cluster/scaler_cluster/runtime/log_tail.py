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
from contextlib import suppress
from time import perf_counter as clock
from typing import TYPE_CHECKING, TextIO

from scaler_cluster.process.log_records import text_of
from scaler_cluster.runtime.log_lines import LineMaker, Piece
from scaler_cluster.runtime.output import listeners

if TYPE_CHECKING:
    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.wire import messages as m

CHARS_MAX = 1 << 19
"""Of what waits for the next question; what came first is dropped."""
PIECE_CHARS_MAX = 1 << 16
"""Of what is written at once."""


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
        self._inner = threading.local()
        """``is_set``: this thread is writing what was taken note of already."""
        self._streams: list[weakref.ref[TextIO]] = []
        """Those that are listened to."""
        self._call_handlers = logging.Logger.callHandlers
        self._lines = LineMaker()
        os.register_at_fork(after_in_child=self._on_forked)

    # -- under the worker's lock -------------------------------------------------------------

    def ask(self, question: m.TailLogs) -> None:
        """Listen for a while, and say what came since the question before; 0: no more."""
        if not question.for_s:
            self.stop()
            return
        self._until = clock() + question.for_s
        if not self._is_on:
            self._start()
        self.answer()

    def answer(self) -> None:
        """Say what came, if anything did."""
        now = clock()
        with self._turn:
            pieces, self._pieces = self._pieces, deque()
            dropped, self._chars, self._dropped = self._dropped, 0, 0
        answer = self._lines.make(pieces, dropped, now)
        if answer is not None:
            self._core.reports.say(answer)

    # -- listening ---------------------------------------------------------------------------

    def _start(self) -> None:
        self._is_on = True
        for name in ("stdout", "stderr"):
            for stream in (getattr(sys, name), getattr(sys, f"__{name}__")):
                self._tap(name, stream)
        listeners.append(self._tap)
        original, inner = self._call_handlers, self._inner

        def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
            self._log(record)
            was_set = getattr(inner, "is_set", False)
            inner.is_set = True
            try:
                # What handlers write of it need not be told again.
                original(logger, record)
            finally:
                inner.is_set = was_set

        logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign,assignment]

    def stop(self) -> None:
        """Listen no more, and forget what was not told."""
        with self._turn:
            if not self._is_on:
                return
            self._is_on = False
            listeners.clear()
            logging.Logger.callHandlers = self._call_handlers  # type: ignore[method-assign]
            for reference in self._streams:
                if (stream := reference()) is not None:
                    vars(stream).pop("write", None)
            self._streams.clear()
            self._pieces.clear()
            self._chars = self._dropped = 0
            self._lines = LineMaker()

    def _on_forked(self) -> None:
        # Another thread may have had the lock.
        self._turn = threading.RLock()
        self.stop()

    def _tap(self, name: str, stream: TextIO | None) -> None:
        """Listen to what is written to a stream, which stays what it is."""
        if stream is None or any(one() is stream for one in self._streams):
            return
        write, inner = stream.write, self._inner

        def tapped(text: str) -> int:
            if getattr(inner, "is_set", False):
                return write(text)
            inner.is_set = True
            try:
                written = write(text)
            finally:
                inner.is_set = False
            self._add(name, 0, text)
            return written

        try:
            reference = weakref.ref(stream)
            vars(stream)["write"] = tapped
        except TypeError:
            kind = type(stream).__qualname__
            self._add("", 0, f"sys.{name} is {kind} here: what is written there cannot be shown\n")
        else:
            self._streams = [one for one in self._streams if one() is not None]
            self._streams.append(reference)

    def _log(self, record: logging.LogRecord) -> None:
        try:
            text = text_of(record)
        except Exception:
            # The handlers say what is wrong with it.
            return
        self._add(record.name, max(record.levelno, 1), text)

    def _add(self, source: str, level: int, text: str) -> None:
        """Take note of what a thread of the worker wrote."""
        now = clock()
        if now > self._until:
            self.stop()
            return
        session = task = 0
        function = b""
        queue = self._core.queue
        # Another thread may take it out just now.
        with suppress(IndexError):
            work = queue[0]
            session, task = work.session, work.first + max(work.cursor, 0)
            function = work.message.function
        with self._turn:
            self._dropped += text.count("\n", PIECE_CHARS_MAX)
            text = text[:PIECE_CHARS_MAX]
            self._chars += len(text)
            thread = threading.get_ident()
            self._pieces.append(Piece(now, session, task, function, source, level, thread, text))
            while self._chars > CHARS_MAX:
                old = self._pieces.popleft()
                self._chars -= len(old.text)
                self._dropped += 1 if old.level else old.text.count("\n")
