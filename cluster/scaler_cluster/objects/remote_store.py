"""Segments of another machine, for a client: fetched when they are asked for, sent when stored."""

from __future__ import annotations

import math
import os
import threading
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.storage.transfer import SILENCE_S, Download
from scaler_cluster.errors import MissingObjectsError, StorageFullError, StorageUnreachableError
from scaler_cluster.objects.source import Source
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 0.5
"""A signal is answered at least so often while nothing arrives."""


class Incoming:
    """A segment that is fetched, in one turn or in several."""

    __slots__ = ("data", "download", "segment", "turn")

    def __init__(self, segment: bytes) -> None:
        self.segment = segment
        self.download = Download(segment, clock())
        self.data = bytearray()
        self.turn = 0
        """Number of the conversation in which it was asked for last."""


class RemoteStore:
    """One storage; its transfers take turns."""

    def __init__(self, address: str, scheduler: str, peer: bytes) -> None:
        self._source = Source(address, scheduler, peer)
        self._lock = threading.Lock()
        self._is_closing = False
        self._turn = 0
        """Number of conversations so far."""
        self._pid = os.getpid()

    def fetch(self, incoming: Incoming, timeout: float | None = None) -> memoryview | None:
        """Return the bytes of a segment, which are the caller's own; None: not in time.

        Raises MissingObjectsError if it is gone, StorageUnreachableError if nobody answers.
        """
        segment, download = incoming.segment, incoming.download

        def begin() -> list[m.Message] | None:
            if download.is_whole:
                return None
            if incoming.turn != self._turn - 1:
                # What was on its way when somebody gave up was for nobody in another's turn.
                download.restart()
            incoming.turn = self._turn
            return download.requests()

        def take(message: m.Message) -> bool:
            if type(message) is m.Unknown:
                download.restart()
            elif isinstance(message, m.Transferred) and message.segment == segment:
                raise MissingObjectsError(message.error)
            elif isinstance(message, m.Part) and message.segment == segment:
                is_new = download.receive(message, clock())
                if is_new and not incoming.data:
                    incoming.data = bytearray(message.total)
                if is_new:
                    end = message.offset + len(message.data)
                    incoming.data[message.offset : end] = message.data
            self._source.send(download.requests())
            return download.is_whole

        is_whole = self._converse(begin, take, timeout)
        return memoryview(incoming.data) if is_whole else None

    def push(self, segment: bytes, data: memoryview) -> None:
        """Store bytes; the storage fetches them from here, part by part.

        Raises StorageFullError if it has no room for them, StorageUnreachableError if it does not
        answer.
        """
        data = data.cast("B")

        def take(message: m.Message) -> bool:
            if type(message) is m.Unknown:
                self._source.send([m.Put(segment)])
            elif isinstance(message, m.Fetch) and message.segment == segment:
                part = data[message.offset : message.offset + message.nbytes]
                self._source.send([m.Part(segment, message.offset, len(data), part)])
            elif isinstance(message, m.Transferred) and message.segment == segment:
                if message.error:
                    raise StorageFullError(message.error)
                return True
            return False

        self._converse(lambda: [m.Put(segment)], take)

    def close(self) -> None:
        """Leave; whoever waits for a transfer is told so."""
        self._is_closing = True
        with self._lock:
            self._source.close()

    def _check_open(self) -> None:
        if self._is_closing:
            raise StorageUnreachableError("this client was closed before the transfer ended")

    def _converse(
        self,
        begin: Callable[[], list[m.Message] | None],
        take: Callable[[m.Message], bool],
        timeout: float | None = None,
    ) -> bool:
        """Take answers in until one of them is the last; return False if that is not in time.

        ``begin`` returns the request, None if there is nothing to ask for any more.
        """
        source = self._source
        if os.getpid() != self._pid:
            raise StorageUnreachableError("the parent of this forked process can fetch this, not I")
        end = math.inf if timeout is None else clock() + timeout
        patience = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=patience):
            return False
        try:
            heard_at = clock()
            self._check_open()
            self._turn += 1
            request = begin()
            if request is None:
                return True
            source.send(request)
            while True:
                self._check_open()
                for message in source.turn():
                    if type(message) is not m.Unknown:
                        heard_at = clock()
                    if take(message):
                        return True
                now = clock()
                if now - heard_at > SILENCE_S:
                    raise StorageUnreachableError(
                        f"the object storage at {source.address} has not answered for "
                        f"{SILENCE_S:.0f} s"
                    )
                if now >= end:
                    return False
                source.wait(min(LOOK_S, end - now))
        finally:
            self._lock.release()
