"""The segments that a storage copies from other storages."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.storage.intake import Intake
from scaler_cluster.core.storage.transfer import SILENCE_S
from scaler_cluster.errors import StorageFullError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scaler_cluster.core.storage.intake import Files
    from scaler_cluster.core.storage.transfer import Download

COPIES_AT_ONCE = 4
"""Segments fetched from one storage at the same time: more would not be faster."""


class Copies:
    """Fetches segments, a few at a time from each storage, and reports each one's end."""

    def __init__(self, files: Files, report: Callable[[m.Transferred], None]) -> None:
        self._files = files
        self._report = report
        """Tells the scheduler."""
        self._intakes: dict[bytes, tuple[Intake, str]] = {}
        """What is fetched, and the address of the storage it comes from, by segment."""
        self._waiting: dict[bytes, str] = {}
        """What is to be fetched after that, and from where."""
        self._requests: dict[str, list[m.Message]] = {}
        self._handlers: dict[type[m.Message], Callable[[str, Any, float], None]] = {
            m.Unknown: self._on_unknown,
            m.Part: self._on_part,
            m.Transferred: self._on_transferred,
        }

    # -- what the scheduler wants --------------------------------------------------------------

    def want(self, segment: bytes, address: str, now: float) -> None:
        """Fetch a segment from the storage at an address."""
        self._waiting[segment] = address
        self._start(now)

    def forget(self, segments: Iterable[bytes], now: float) -> None:
        """Nobody wants these segments any more."""
        for segment in segments:
            self._waiting.pop(segment, None)
            if segment in self._intakes:
                self._intakes.pop(segment)[0].discard()
        self._start(now)

    def clear(self) -> None:
        """Nobody wants anything any more."""
        self._waiting.clear()
        for intake, _ in self._intakes.values():
            intake.discard()
        self._intakes.clear()

    # -- other storages ------------------------------------------------------------------------

    def receive(self, address: str, messages: Sequence[m.Message], now: float) -> None:
        """Take in what the storage at an address sent; Unknown: it has begun anew.

        Raises RemoteProtocolError if no honest storage sends this.
        """
        for message in messages:
            handler = self._handlers.get(type(message))
            if handler is not None:
                handler(address, message, now)
        self._start(now)

    def lose(self, address: str, reason: str, now: float) -> None:
        """Fail what was being fetched from a storage that cannot be reached, or is broken."""
        for segment in [one for one, (_, at) in self._intakes.items() if at == address]:
            self._fail(segment, reason)
        self._start(now)

    def tick(self, now: float) -> None:
        """Give up what a storage has been silent about for too long."""
        for segment, (intake, address) in list(self._intakes.items()):
            if now >= intake.download.deadline:
                self._fail(segment, f"the storage at {address} was silent for {SILENCE_S:.0f} s")
        self._start(now)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        due = (intake.download.deadline for intake, _ in self._intakes.values())
        return min(due, default=math.inf)

    def take_requests(self) -> dict[str, list[m.Message]]:
        """Return what is to be sent to other storages, by their address."""
        requests, self._requests = self._requests, {}
        return requests

    @property
    def sources(self) -> set[str]:
        """Addresses of the storages that a connection is needed to."""
        return {address for _, address in self._intakes.values()} | set(self._waiting.values())

    def _on_unknown(self, address: str, message: m.Unknown, now: float) -> None:
        for download in self._downloads(address):
            download.restart()
            self._request(address, download)

    def _on_part(self, address: str, part: m.Part, now: float) -> None:
        segment = part.segment
        # Perhaps nobody wants it any more.
        if segment in self._intakes:
            intake = self._intakes[segment][0]
            try:
                if intake.receive(part, now):
                    del self._intakes[segment]
                    self._report(m.Transferred(segment))
                else:
                    self._request(address, intake.download)
            except (StorageFullError, OSError) as error:
                self._fail(segment, str(error))
        self._touch(address, now)

    def _on_transferred(self, address: str, message: m.Transferred, now: float) -> None:
        if message.segment in self._intakes:
            self._fail(message.segment, message.error)
        self._touch(address, now)

    def _touch(self, address: str, now: float) -> None:
        for download in self._downloads(address):
            download.touch(now)

    def _downloads(self, address: str) -> list[Download]:
        """Return what is being fetched from a storage."""
        return [intake.download for intake, at in self._intakes.values() if at == address]

    def _start(self, now: float) -> None:
        """Begin to fetch what waits, a few at a time from each storage."""
        if not self._waiting:
            return
        under_way = Counter(address for _, address in self._intakes.values())
        for segment, address in list(self._waiting.items()):
            if under_way[address] < COPIES_AT_ONCE:
                del self._waiting[segment]
                intake = Intake(self._files, segment, now)
                self._intakes[segment] = intake, address
                self._request(address, intake.download)
                under_way[address] += 1

    def _request(self, address: str, download: Download) -> None:
        self._requests.setdefault(address, []).extend(download.requests())

    def _fail(self, segment: bytes, error: str) -> None:
        intake, _ = self._intakes.pop(segment)
        intake.discard()
        self._report(m.Transferred(segment, error))
