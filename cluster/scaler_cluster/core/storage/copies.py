"""The segments that a storage copies from other storages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.storage.intake import Intake
from scaler_cluster.core.storage.transfer import SILENCE_S, Flow
from scaler_cluster.errors import StorageFullError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scaler_cluster.core.storage.intake import Files

COPIES_AT_ONCE = 4
"""Segments fetched from one storage at the same time: more would not be faster."""
LINKS_KNOWN_MAX = 1000
"""Storages of which it is remembered how fast they were, once nothing is fetched from them."""


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
        self._flows: dict[str, Flow[Intake]] = {}
        """What is under way from a storage, by its address, and how fast its link is."""
        self._requests: dict[str, list[m.Message]] = {}
        self._handlers: dict[type[m.Message], Callable[[str, Any, float], None]] = {
            m.Unknown: self._on_unknown,
            m.Part: self._on_part,
            m.Transferred: self._on_transferred,
        }

    # -- what the scheduler wants --------------------------------------------------------------

    def want(self, segment: bytes, address: str, now: float) -> None:
        """Fetch a segment from the storage at an address."""
        if segment in self._intakes:
            self._intakes.pop(segment)[0].discard()
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
        self._flows.clear()

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
        self._flows.pop(address, None)
        self._start(now)

    def tick(self, now: float) -> None:
        """Give up what a storage has been silent about for too long."""
        for address, flow in list(self._flows.items()):
            if now >= flow.deadline:
                reason = f"the storage at {address} was silent for {SILENCE_S:.0f} s"
                self.lose(address, reason, now)

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        return min((flow.deadline for flow in self._flows.values()), default=math.inf)

    def take_requests(self) -> dict[str, list[m.Message]]:
        """Return what is to be sent to other storages, by their address."""
        requests, self._requests = self._requests, {}
        return requests

    @property
    def sources(self) -> set[str]:
        """Addresses of the storages that a connection is needed to."""
        busy = {address for address, flow in self._flows.items() if not flow.is_idle}
        return busy | set(self._waiting.values())

    def _on_unknown(self, address: str, message: m.Unknown, now: float) -> None:
        if address in self._flows:
            self._flows[address].restart()

    def _on_part(self, address: str, part: m.Part, now: float) -> None:
        intake = self._answered(address, part, now)
        if intake is None:
            return
        try:
            if intake.write(part):
                del self._intakes[part.segment]
                self._report(m.Transferred(part.segment))
        except (StorageFullError, OSError) as error:
            self._fail(part.segment, str(error))

    def _on_transferred(self, address: str, message: m.Transferred, now: float) -> None:
        if self._answered(address, message, now) is not None:
            self._fail(message.segment, message.error)

    def _answered(self, address: str, message: m.Part | m.Transferred, now: float) -> Intake | None:
        """Return what a storage has answered about; None if nobody wants that any more."""
        flow = self._flows.get(address)
        return flow.answer(message, now) if flow is not None else None

    def _start(self, now: float) -> None:
        """Ask for as much as may be under way: of a few segments at a time from each storage."""
        wanted: dict[str, list[Intake]] = {}
        for intake, address in self._intakes.values():
            wanted.setdefault(address, []).append(intake)
        for segment, address in list(self._waiting.items()):
            mine = wanted.setdefault(address, [])
            if len(mine) < COPIES_AT_ONCE:
                del self._waiting[segment]
                intake = Intake(self._files, segment)
                self._intakes[segment] = intake, address
                mine.append(intake)
                if address not in self._flows:
                    self._flows[address] = Flow(now)
        for address, flow in list(self._flows.items()):
            messages = flow.ask(wanted.get(address, ()), now)
            if messages:
                self._requests.setdefault(address, []).extend(messages)
            elif flow.is_idle and len(self._flows) > LINKS_KNOWN_MAX:
                del self._flows[address]

    def _fail(self, segment: bytes, error: str) -> None:
        intake, _ = self._intakes.pop(segment)
        intake.discard()
        self._report(m.Transferred(segment, error))
