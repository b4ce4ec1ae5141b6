"""Segments of another machine, for a client: fetched when they are asked for, sent when stored."""

from __future__ import annotations

import os
import threading
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.transfer import SILENCE_S, Download
from scaler_cluster.errors import MissingObjects, StorageFull, StorageUnreachable
from scaler_cluster.objects.source import Source
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 0.5
"""A signal is answered at least so often while nothing arrives."""


class RemoteStore:
    """One storage; its transfers take turns."""

    def __init__(self, address: str, scheduler: str, peer: bytes) -> None:
        self._source = Source(address, scheduler, peer)
        self._lock = threading.Lock()
        self._is_closing = False
        self._pid = os.getpid()

    def fetch(self, segment: bytes) -> memoryview:
        """Return the bytes of a segment, which are the caller's own.

        Raises MissingObjects if it is gone, StorageUnreachable if nobody answers.
        """
        data = bytearray()
        download = Download(segment, clock())

        def take(message: m.Message) -> bool:
            nonlocal data
            if type(message) is m.Unknown:
                download.restart()
            elif isinstance(message, m.Transferred) and message.segment == segment:
                raise MissingObjects(message.error)
            elif isinstance(message, m.Part) and message.segment == segment:
                is_new = download.receive(message, clock())
                if is_new and not data:
                    data = bytearray(message.total)
                if is_new:
                    data[message.offset : message.offset + len(message.data)] = message.data
            self._source.send(download.requests())
            return download.is_whole

        self._converse(download.requests(), take)
        return memoryview(data)

    def push(self, segment: bytes, data: memoryview) -> None:
        """Store bytes; the storage fetches them from here, part by part.

        Raises StorageFull if it has no room for them, StorageUnreachable if it does not answer.
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
                    raise StorageFull(message.error)
                return True
            return False

        self._converse([m.Put(segment)], take)

    def close(self) -> None:
        """Leave; whoever waits for a transfer is told so."""
        self._is_closing = True
        with self._lock:
            self._source.close()

    def _check_open(self) -> None:
        if self._is_closing:
            raise StorageUnreachable("this client was closed before the transfer ended")

    def _converse(self, first: list[m.Message], take: Callable[[m.Message], bool]) -> None:
        """Send a request and take answers in until one of them is the last."""
        source = self._source
        if os.getpid() != self._pid:
            raise StorageUnreachable("the parent of this forked process can fetch this, not I")
        with self._lock:
            heard_at = clock()
            self._check_open()
            source.send(first)
            while True:
                self._check_open()
                for message in source.turn():
                    if type(message) is not m.Unknown:
                        heard_at = clock()
                    if take(message):
                        return
                if clock() - heard_at > SILENCE_S:
                    raise StorageUnreachable(
                        f"the object storage at {source.address} has not answered for "
                        f"{SILENCE_S:.0f} s"
                    )
                source.wait(LOOK_S)
