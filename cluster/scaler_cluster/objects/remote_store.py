"""Segments of another machine, for a client: fetched when they are asked for, sent when stored."""

from __future__ import annotations

import math
import os
import threading
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.storage.transfer import SILENCE_S, Download, Flow
from scaler_cluster.errors import MissingObjectsError, StorageFullError, StorageUnreachableError
from scaler_cluster.links.link import split_key
from scaler_cluster.objects.source import Source
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.links.curve import Passport

LOOK_S = 0.5
"""A signal is answered at least so often while nothing arrives."""
GIVEN_UP_S = 5.0
"""Transfers fail at once for this long after a storage was given up, unless it speaks."""
PROBE_S = 2.0
"""The first transfer after that waits this long: for as long as it takes to connect anew."""


class Incoming(Download):
    """A segment that is fetched, in one turn or in several; what comes between them is kept."""

    def __init__(self, segment: bytes) -> None:
        super().__init__(segment)
        self.data = bytearray()
        self.error = ""
        """Why it cannot be had; empty: nobody said so yet."""

    def take(self, answer: m.Part | m.Transferred) -> None:
        """Note what the storage has answered."""
        if isinstance(answer, m.Transferred):
            self.error = answer.error
            return
        if not self.data:
            self.data = bytearray(answer.total)
        self.data[answer.offset : answer.offset + len(answer.data)] = answer.data


class RemoteStore:
    """One storage; its transfers take turns."""

    def __init__(
        self, address: str, scheduler: str, peer: bytes, passport: Passport | None = None
    ) -> None:
        self._connect = partial(Source, address, scheduler, peer, passport)
        self._source = self._connect()
        self._is_torn = False
        """True if a signal may have taken what had arrived."""
        self._given_up_at = -math.inf
        """When it was found silent; nothing was heard of it since. -inf: it answers."""
        self._lock = threading.Lock()
        self._is_closing = False
        self._flow: Flow[Incoming] = Flow(clock())
        self._pid = os.getpid()

    def fetch(self, incoming: Incoming, timeout: float | None = None) -> memoryview | None:
        """Return the bytes of a segment, which are the caller's own; None: not in time.

        Raises MissingObjectsError if it is gone, StorageUnreachableError if nobody answers.
        """

        def go_on(_: list[m.Message]) -> bool:
            if incoming.error:
                error, incoming.error = incoming.error, ""
                incoming.asked = incoming.received
                raise MissingObjectsError(error)
            self._source.send(self._flow.ask([incoming], clock()))
            return incoming.is_whole

        is_whole = self._converse(go_on, timeout)
        return memoryview(incoming.data) if is_whole else None

    def push(self, segment: bytes, data: memoryview) -> None:
        """Store bytes; the storage fetches them from here, part by part.

        Raises StorageFullError if it has no room for them, StorageUnreachableError if it does not
        answer.
        """
        data = data.cast("B")
        has_begun = False

        def go_on(arrived: list[m.Message]) -> bool:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                self._source.send([m.Put(segment)])
            for message in arrived:
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

        self._converse(go_on)

    def tend(self) -> None:
        """Take note of what has become of the connection, unless somebody uses it."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_closing:
                    self._source.tend()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Leave; whoever waits for a transfer is told so."""
        self._is_closing = True
        with self._lock:
            self._source.close()

    def _check_open(self) -> None:
        if self._is_closing:
            raise StorageUnreachableError("this client was closed before the transfer ended")

    def _turn(self) -> list[m.Message]:
        """Return what has arrived; what was fetched is noted, whoever fetched it."""
        arrived = self._source.turn()
        for message in arrived:
            if type(message) is m.Unknown:
                self._flow.restart()
            elif isinstance(message, (m.Part, m.Transferred)):
                incoming = self._flow.answer(message, clock())
                if incoming is not None:
                    incoming.take(message)
        return arrived

    def _converse(
        self, go_on: Callable[[list[m.Message]], bool], timeout: float | None = None
    ) -> bool:
        """Take answers in until ``go_on`` returns True; return False if it does not in time.

        It is called with what has arrived, at first with nothing, and sends what is to be sent.
        """
        if os.getpid() != self._pid:
            raise StorageUnreachableError("the parent of this forked process can fetch this, not I")
        end = math.inf if timeout is None else clock() + timeout
        patience = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=patience):
            return False
        try:
            return self._talk(go_on, end)
        except (MissingObjectsError, StorageFullError, StorageUnreachableError):
            raise
        except BaseException:
            self._is_torn = True
            raise
        finally:
            self._lock.release()

    def _talk(self, go_on: Callable[[list[m.Message]], bool], end: float) -> bool:
        heard_at = clock()
        self._check_open()
        if self._is_torn:
            self._source.close()
            self._source = self._connect()
            self._flow.restart()
            self._is_torn = False
        source = self._source
        patience_s = SILENCE_S
        if self._given_up_at > -math.inf:
            if self._turn():
                self._given_up_at = -math.inf
            elif heard_at < self._given_up_at + GIVEN_UP_S:
                raise self._silence()
            else:
                patience_s = PROBE_S
        if go_on([]):
            return True
        while True:
            self._check_open()
            arrived = self._turn()
            if any(type(message) is not m.Unknown for message in arrived):
                heard_at, patience_s = clock(), SILENCE_S
                self._given_up_at = -math.inf
            if arrived and go_on(arrived):
                return True
            now = clock()
            if now - heard_at > patience_s:
                self._given_up_at = now
                raise self._silence()
            if now >= end:
                return False
            source.wait(min(LOOK_S, end - now))

    def _silence(self) -> StorageUnreachableError:
        address = split_key(self._source.address)[0]
        return StorageUnreachableError(
            f"the object storage at {address} has not answered for {SILENCE_S:.0f} s"
        )
