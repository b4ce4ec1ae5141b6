"""The object storage's process: looks after the segments of a machine, whoever wrote them.

Run as ``python -m scaler_cluster.runtime.storage``, settings on standard input, by the scheduler
or the supervisor of the machine; or by hand as ``scaler_object_storage_server``, for a scheduler
that connects to it. Local peers read and write the segments themselves; this process
removes what nobody needs any more, serves those who are elsewhere, and fetches copies from there.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import tempfile
from collections import Counter
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.exchange import Exchange
from scaler_cluster.core.transfer import SILENCE_S, Download
from scaler_cluster.errors import (
    ClusterUnreachable,
    ConfigError,
    MissingObjects,
    RemoteProtocolError,
    StorageFull,
)
from scaler_cluster.ids import DRAFT, is_segment, segment_names
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import HUB
from scaler_cluster.objects.place import Place
from scaler_cluster.objects.segments import Draft, Segments
from scaler_cluster.objects.source import Source
from scaler_cluster.runtime.directories import (
    PREFIX,
    hold_directories,
    make_directories,
    remove_directories,
    remove_stale_directories,
)
from scaler_cluster.runtime.process import (
    LIFELINE_FD,
    PYTHON_VERSION,
    host_name,
    make_peer_id,
    read_settings,
)
from scaler_cluster.runtime.storage_process import address_of, listen_at
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable

DRAIN_LIMIT = 64
SLEEP_MAX_S = 3600.0
SENT_MAX = 64
"""Segments that one client may send at the same time."""
HEARTBEAT_S = 2.0
"""How often a storage that runs by itself tells its scheduler that it lives."""
COPIES_AT_ONCE = 4
"""Segments fetched from one storage at the same time: more would not be faster."""


class Intake:
    """A segment that comes from elsewhere."""

    def __init__(self, segments: Segments, segment: bytes) -> None:
        self.download = Download(segment, clock())
        self._segments = segments
        self._draft: Draft | None = None

    def receive(self, part: m.Part) -> bool:
        """Write a part; return True if that was the last one.

        Raises StorageFull, RemoteProtocolError, OSError.
        """
        download = self.download
        if not download.receive(part, clock()):
            return False
        if self._draft is None:
            # One that was cut may have left some of it.
            self._segments.remove(DRAFT + part.segment)
            self._draft = Draft(self._segments, part.segment.decode(), part.total)
        self._draft.write(memoryview(part.data), part.offset)
        if download.is_whole:
            self._draft.finish()
            self._draft = None
        return download.is_whole

    def discard(self) -> None:
        """Remove what has come so far."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None


class StorageShell:
    """Does what the scheduler says, until that is gone.

    Without a scheduler's address in the settings it waits for one to connect, then for another.
    Raises ConfigError if it cannot listen where it is to.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        peer = make_peer_id("O")
        self._place = Place(**settings["place"])
        self._segments = Segments(self._place, segment_names(peer))
        self._segments.recount()
        self._exchange = Exchange(os.getpid())
        scheduler = settings["address"]
        self._link = zmq_link.connect(scheduler, peer) if scheduler else None
        self._scheduler = b""
        """The scheduler among the peers, if it connects to this storage and has."""
        self._beat_at = math.inf
        self._peers = Exchange(os.getpid())
        """Those who fetch from here, or send."""
        self._heard_at: dict[bytes, float] = {}
        address, listener = settings["serve"], settings["listener"]
        self._hub = zmq_link.bind(address, listener) if address else None
        self.address: str = self._hub.address if self._hub is not None else ""
        self._sent: dict[tuple[bytes, bytes], Intake] = {}
        """What clients send, by the client and the segment."""
        self._copies: dict[bytes, tuple[Intake, str]] = {}
        """What is fetched from other storages, and their addresses, by segment."""
        self._waiting: dict[bytes, str] = {}
        """What is to be fetched after that, and from where."""
        self._sources: dict[str, Source] = {}
        self._leave = False
        self.is_orphan = False
        """True if the parent is gone: nobody else needs the directories any more."""
        self._selector = selectors.DefaultSelector()
        if self._hub is not None:
            self._selector.register(self._hub.fd, selectors.EVENT_READ)
        if self._link is not None:
            self._selector.register(LIFELINE_FD, selectors.EVENT_READ, self._on_lifeline)
            self._selector.register(self._link.fd, selectors.EVENT_READ)
            self._greet()

    def run(self) -> None:
        """Work until the parent or the scheduler is gone, or the directories are."""
        try:
            self._work()
        finally:
            for link in filter(None, (self._link, self._hub)):
                link.close(linger_ms=0)
            for source in self._sources.values():
                source.close()

    def _work(self) -> None:
        while not self._leave and self._place.is_here:
            try:
                self._turn()
            except FileNotFoundError:
                # The cluster has ended, and its directories with it.
                if self._place.is_here:
                    raise
                break
            until = min(max(self._deadline() - clock(), 0.0), SLEEP_MAX_S)
            for key, _ in self._selector.select(until):
                if key.data is not None:
                    key.data()

    def _turn(self) -> None:
        # What one of them sends may swallow the signal that something has arrived for another.
        while (
            self._serve_scheduler()
            | self._serve_peers()
            | self._take_from_sources()
            | self._give_up(clock())
        ):
            if self._leave:
                return
        in_use = {address for _, address in self._copies.values()} | set(self._waiting.values())
        for address in self._sources.keys() - in_use:
            self._close_source(address)

    def _close_source(self, address: str) -> None:
        self._selector.unregister(self._sources[address].fd)
        self._sources.pop(address).close()

    def _deadline(self) -> float:
        due = [self._exchange.deadline, self._peers.deadline, self._beat_at]
        due += [source.deadline for source in self._sources.values()]
        due += [intake.download.deadline for intake, _ in self._copies.values()]
        due += [heard_at + SILENCE_S for heard_at in self._heard_at.values()]
        return min(due, default=math.inf)

    def _on_lifeline(self) -> None:
        if not os.read(LIFELINE_FD, 4096):
            self._leave = self.is_orphan = True

    # -- the scheduler -----------------------------------------------------------------------

    def _greet(self) -> None:
        hello = m.Hello(
            m.STORAGE,
            m.PROTOCOL_VERSION,
            PYTHON_VERSION,
            os.getpid(),
            host_name(),
            bytes.fromhex(self._settings.get("supervisor", "")),
            place=self._place.served_at(self._settings["serve"]),
        )
        self._tell_scheduler(hello)

    def _tell_scheduler(self, message: m.Message) -> None:
        if self._link is not None:
            self._link.send(HUB, self._exchange.send(HUB, [message], clock()))
        elif self._scheduler:
            self._tell(self._scheduler, [message])

    def _adopt(self, peer: bytes) -> None:
        """A scheduler comes to a storage that runs by itself: it may be the next one."""
        if self._link is not None:
            raise RemoteProtocolError("this storage has its scheduler")
        if self._scheduler not in (b"", peer):
            self._tell(peer, [m.Refused("it serves another scheduler")])
            return
        self._forget_all()
        self._scheduler = peer
        self._beat_at = clock() + HEARTBEAT_S
        self._greet()

    def _forget_all(self) -> None:
        """Nobody names what was stored for a scheduler that is gone."""
        self._scheduler = b""
        self._beat_at = math.inf
        self._waiting.clear()
        for intake in [*self._sent.values(), *(intake for intake, _ in self._copies.values())]:
            intake.discard()
        self._sent.clear()
        self._copies.clear()
        self._segments.purge(b"", ())

    def _serve_scheduler(self) -> bool:
        """Return True if something had arrived; so the other two."""
        if self._link is None:
            if clock() >= self._beat_at:
                self._beat_at = clock() + HEARTBEAT_S
                self._tell_scheduler(m.Heartbeat())
            return False
        for _, frames in self._exchange.tick(clock()):
            self._link.send(HUB, frames)
        received = self._link.receive(DRAIN_LIMIT)
        try:
            for _, frames in received:
                for message in self._exchange.receive(HUB, frames, clock()):
                    self._obey(message)
        except RemoteProtocolError:
            # Begin anew, as another process.
            self._leave = True
        return bool(received)

    def _obey(self, message: m.Message) -> None:
        if isinstance(message, m.Release):
            for segment in message.objects:
                self._waiting.pop(segment, None)
                if segment in self._copies:
                    self._copies.pop(segment)[0].discard()
                self._segments.remove(segment)
            self._start_copies()
        elif isinstance(message, m.Purge):
            for key in [key for key in self._sent if key[1].startswith(message.prefix)]:
                self._sent.pop(key).discard()
            self._segments.purge(message.prefix, message.keep)
        elif isinstance(message, m.Copy):
            self._waiting[message.segment] = message.address
            self._start_copies()
        elif isinstance(message, m.Welcome):
            for piece in in_pieces(self._segments.inventory()):
                self._tell_scheduler(m.Inventory(piece))
        elif isinstance(message, m.Refused | m.Unknown | m.Goodbye):
            self._leave = True

    # -- who is elsewhere --------------------------------------------------------------------

    def _tell(self, peer: bytes, messages: list[m.Message]) -> None:
        if messages and self._hub is not None:
            self._hub.send(peer, self._peers.send(peer, messages, clock()))

    def _serve_peers(self) -> bool:
        hub = self._hub
        if hub is None:
            return False
        now = clock()
        for peer, frames in self._peers.tick(now):
            hub.send(peer, frames)
        received = hub.receive(DRAIN_LIMIT)
        for peer, frames in received:
            self._heard_at[peer] = now
            try:
                messages = self._peers.receive(peer, frames, now)
                if messages and type(messages[0]) is m.Unknown:
                    hub.send(peer, self._peers.unknown())
                    continue
                for message in messages:
                    self._serve(peer, message)
            except RemoteProtocolError:
                self._drop(peer)
        return bool(received)

    def _serve(self, peer: bytes, message: m.Message) -> None:
        if isinstance(message, m.Fetch):
            self._tell(peer, [self._part(message)])
        elif isinstance(message, m.Put):
            self._take_over(peer, message.segment)
        elif isinstance(message, m.Part):
            key = peer, message.segment
            if key in self._sent:
                self._take_in_sent(key, message)
        elif isinstance(message, m.Goodbye):
            self._drop(peer)
        elif isinstance(message, m.Hello):
            if message.role == m.SCHEDULER:
                self._adopt(peer)
        elif peer == self._scheduler:
            self._obey(message)
        else:
            raise RemoteProtocolError(f"{type(message).__name__} is not for a storage")

    def _take_over(self, peer: bytes, segment: bytes) -> None:
        """Begin to fetch what a client wants to store."""
        mine = sum(key[0] == peer for key in self._sent)
        others = any(key[1] == segment and key[0] != peer for key in self._sent)
        if not is_segment(segment) or mine >= SENT_MAX or others:
            error = "a segment of that name cannot be stored now"
            self._tell(peer, [m.Transferred(segment, error)])
            return
        if self._segments.has(segment):
            # The storage before this one died when it had all of it and had not said so.
            self._tell(peer, [m.Transferred(segment)])
            return
        if before := self._sent.pop((peer, segment), None):
            before.discard()
        intake = self._sent[peer, segment] = Intake(self._segments, segment)
        self._tell(peer, intake.download.requests())

    def _take_in_sent(self, key: tuple[bytes, bytes], part: m.Part) -> None:
        peer, segment = key
        intake = self._sent[key]
        try:
            is_whole = intake.receive(part)
        except (StorageFull, OSError) as error:
            self._sent.pop(key).discard()
            self._tell(peer, [m.Transferred(segment, str(error))])
            return
        if is_whole:
            del self._sent[key]
        self._tell(peer, [m.Transferred(segment)] if is_whole else intake.download.requests())

    def _part(self, message: m.Fetch) -> m.Message:
        try:
            data = self._segments.open(message.segment)
        except MissingObjects as error:
            return m.Transferred(message.segment, str(error))
        part = data[message.offset : message.offset + message.nbytes]
        return m.Part(message.segment, message.offset, len(data), part)

    def _drop(self, peer: bytes) -> None:
        for key in [key for key in self._sent if key[0] == peer]:
            self._sent.pop(key).discard()
        if peer == self._scheduler:
            self._forget_all()
        self._peers.drop(peer)
        self._heard_at.pop(peer, None)

    # -- copies ------------------------------------------------------------------------------

    def _start_copies(self) -> None:
        """Begin to fetch what waits, a few at a time from each storage."""
        under_way = Counter(address for _, address in self._copies.values())
        for segment, address in list(self._waiting.items()):
            if under_way[address] >= COPIES_AT_ONCE:
                continue
            del self._waiting[segment]
            intake = Intake(self._segments, segment)
            self._copies[segment] = intake, address
            try:
                source = self._source(address)
            except ClusterUnreachable as error:
                self._fail(segment, f"the machine that holds it cannot be reached: {error}")
                continue
            source.send(intake.download.requests())
            under_way[address] += 1

    def _source(self, address: str) -> Source:
        source = self._sources.get(address)
        if source is None:
            scheduler = self._settings["address"] or self.address
            source = Source(address, scheduler, make_peer_id("F"))
            self._sources[address] = source
            self._selector.register(source.fd, selectors.EVENT_READ)
        return source

    def _take_from_sources(self) -> bool:
        return sum(map(self._take_from, list(self._sources.values()))) > 0

    def _take_from(self, source: Source) -> bool:
        """Take in what a storage sent; one that breaks the protocol is left."""
        try:
            arrived = source.turn()
            for message in arrived:
                if isinstance(message, m.Unknown):
                    for download in self._downloads(source).values():
                        download.restart()
                        source.send(download.requests())
                elif isinstance(message, m.Part | m.Transferred):
                    self._take_in(source, message)
                    now = clock()
                    for download in self._downloads(source).values():
                        download.touch(now)
        except RemoteProtocolError as error:
            for segment in self._downloads(source):
                self._fail(segment, f"the storage that holds it broke the protocol: {error}")
            self._close_source(source.address)
            return True
        if arrived:
            self._start_copies()
        return bool(arrived)

    def _downloads(self, source: Source) -> dict[bytes, Download]:
        """Return what is being fetched from a storage, by segment."""
        copies = self._copies.items()
        return {one: intake.download for one, (intake, at) in copies if at == source.address}

    def _take_in(self, source: Source, message: m.Part | m.Transferred) -> None:
        segment = message.segment
        if segment not in self._copies:
            # Nobody wants it any more.
            return
        if isinstance(message, m.Transferred):
            self._fail(segment, message.error)
            return
        intake = self._copies[segment][0]
        try:
            if intake.receive(message):
                del self._copies[segment]
                self._tell_scheduler(m.Transferred(segment))
            else:
                source.send(intake.download.requests())
        except (StorageFull, OSError) as error:
            self._fail(segment, str(error))

    def _fail(self, segment: bytes, error: str) -> None:
        intake, _ = self._copies.pop(segment)
        intake.discard()
        self._tell_scheduler(m.Transferred(segment, error))

    def _give_up(self, now: float) -> bool:
        """Let go of whoever has fallen silent; return True if that was somebody."""
        has_given_up = False
        for segment, (intake, address) in list(self._copies.items()):
            if now >= intake.download.deadline:
                self._fail(segment, f"the storage at {address} was silent for {SILENCE_S:.0f} s")
                has_given_up = True
        for peer, heard_at in list(self._heard_at.items()):
            # Whoever comes back starts over; what waits for it here keeps memory.
            if now >= heard_at + SILENCE_S:
                self._drop(peer)
        if has_given_up:
            self._start_copies()
        return has_given_up


def serve_alone(address: str, memory_limit: int | None, say: Callable[[str], object]) -> None:
    """Keep objects for whatever scheduler connects, until a KeyboardInterrupt.

    Raises ConfigError if nothing can listen at the address.
    """
    listener = listen_at(address)
    if listener is None:
        raise ConfigError(f"cannot listen at {address}: it is in use, or not of this machine")
    serve = address_of(listener)
    # One that was killed at this address left its directories, which clients know by these names.
    name = blake2b(serve.encode(), digest_size=8).hexdigest()
    directory = str(Path(tempfile.gettempdir()) / f"{PREFIX}{name}")
    place = Place.in_directory(directory, memory_limit)
    settings = {
        "address": "",
        "serve": serve,
        "listener": listener.detach(),
        "directory": directory,
        "place": asdict(place),
    }
    remove_stale_directories(settings)
    make_directories(settings)
    try:
        shell = StorageShell(settings)
        limit = place.memory_limit / 1e6
        say(f"object storage at {serve}: up to {limit:.0f} MB in {place.memory}, then {place.disk}")
        shell.run()
    finally:
        remove_directories(settings)


def main() -> None:
    """Run the storage process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = read_settings()
    hold_directories(settings)
    shell = StorageShell(settings)
    shell.run()
    if shell.is_orphan:
        remove_directories(settings)


if __name__ == "__main__":
    main()
