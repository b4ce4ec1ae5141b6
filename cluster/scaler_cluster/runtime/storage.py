"""The object storage's process: looks after all segments of a machine.

The scheduler or the supervisor of the machine runs it as ``python -m
scaler_cluster.runtime.storage``, with a StorageProcessConfig on standard input. Peers on the same
machine read and write the segments themselves. This process removes segments that are no longer
needed, serves peers on other machines, and fetches copies from there.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.storage.storage import UPSTREAM, StorageCore
from scaler_cluster.errors import ClusterUnreachableError, ConfigError, RemoteProtocolError
from scaler_cluster.ids import alias_of, segment_names
from scaler_cluster.links import zmq_link
from scaler_cluster.links.curve import AllowList
from scaler_cluster.links.link import new_incarnation, split_key
from scaler_cluster.objects.segments import Segments
from scaler_cluster.objects.source import Source
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.process import (
    LIFELINE_FD,
    PYTHON_VERSION,
    allow_many_files,
    host_name,
    make_peer_id,
    read_config,
)
from scaler_cluster.process.process_config import StorageProcessConfig
from scaler_cluster.security.credentials import STORAGE_DOOR
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.wire.batch import Buffer

log = logging.getLogger("scaler.storage")

DRAIN_LIMIT = 64
TURN_S = 0.05
"""While messages keep coming, the storage looks this often whether it is to end."""
SLEEP_MAX_S = 3600.0


class StorageShell:
    """Moves bytes between the core, the scheduler and other machines, until the scheduler is gone.

    If it is not told of a scheduler, it waits for one to connect, then for another, until
    ``lifeline`` comes to its end.
    """

    def __init__(self, config: StorageProcessConfig, lifeline: int = LIFELINE_FD) -> None:
        allow_many_files()
        peer = config.peer or make_peer_id("O")
        self._place = config.dirs.storage
        segments = Segments(self._place, segment_names(peer))
        segments.recount()
        # Of the storage before this one.
        segments.drop_recycled()
        scheduler, serve = config.scheduler, config.serve
        hello = m.Hello(
            m.STORAGE,
            m.PROTOCOL_VERSION,
            PYTHON_VERSION,
            os.getpid(),
            host_name(),
            config.supervisor,
            place=self._place.served_at(config.known_as or serve),
        )
        self._core = StorageCore(segments, hello, self._user_of, waits=not scheduler)
        self._exchange = Exchange(new_incarnation())
        self._credentials = keys = config.credentials
        self._link = None
        if scheduler:
            self._link = zmq_link.connect(scheduler, peer, passport=keys.passport(scheduler))
        self._hub = None
        self._allowed = AllowList({})
        """Who is let in; the scheduler says who that is, once it is there."""
        if serve:
            guard = keys.guard(serve, STORAGE_DOOR, self._allowed)
            self._hub = zmq_link.bind(serve, config.listener, guard=guard)
            self._hub.knows = self._exchange.knows
        self._reached_by = scheduler or serve
        """An address of this machine, for storages that only say that they listen everywhere."""
        self._detours = config.detours
        self._sources: dict[str, Source] = {}
        self._leave = False
        self.is_orphan = False
        """True if the parent is gone, which would have removed the directories."""
        self._lifeline = lifeline
        self._selector = selectors.DefaultSelector()
        self._selector.register(lifeline, selectors.EVENT_READ, self._on_lifeline)
        if self._hub is not None:
            self._selector.register(self._hub.fd, selectors.EVENT_READ)
        if self._link is not None:
            self._selector.register(self._link.fd, selectors.EVENT_READ)

    def run(self) -> None:
        """Work until the parent, the scheduler or the directories are gone."""
        try:
            self._work()
        finally:
            for link in filter(None, (self._link, self._hub)):
                link.close(linger_ms=0)
            for source in self._sources.values():
                source.close()

    def _work(self) -> None:
        while not self._leave and self._place.exists:
            try:
                is_busy = self._take_turns()
            except FileNotFoundError:
                # The cluster has ended, and its directories with it.
                if self._place.exists:
                    raise
                break
            if self._core.leave:
                break
            until = 0.0 if is_busy else min(max(self._deadline() - clock(), 0.0), SLEEP_MAX_S)
            for key, _ in self._selector.select(until):
                if key.data is not None:
                    key.data()

    def _take_turns(self) -> bool:
        """Work until nothing more arrives, for a while at most; return True if there is more."""
        end = clock() + TURN_S
        while self._turn() or self._has_news():
            if self._core.leave or clock() >= end:
                return True
        return False

    def _deadline(self) -> float:
        due = [self._core.deadline, self._exchange.deadline]
        due += [source.deadline for source in self._sources.values()]
        return min(due)

    def _on_lifeline(self) -> None:
        if not os.read(self._lifeline, 4096):
            self._leave = self.is_orphan = True

    def _turn(self) -> bool:
        """Take in what has arrived and answer; return True if there was anything."""
        core, now = self._core, clock()
        arrived = False
        for link in filter(None, (self._link, self._hub)):
            for peer, frames in link.receive(DRAIN_LIMIT):
                arrived = True
                self._take_in(peer, frames, now)
        for source in list(self._sources.values()):
            arrived |= self._take_from(source, now)
        core.tick(now)
        while requests := core.take_requests():
            for address, messages in requests.items():
                self._request(address, messages, now)
        for peer, messages in core.take_actions().items():
            for frames in self._exchange.send(peer, messages, now):
                self._send(peer, frames)
        for peer in core.take_gone():
            self._exchange.drop(peer)
            if self._hub is not None:
                self._hub.forget(peer)
        if core.users is not None:
            self._allowed.replace(core.users)
            core.users = None
        for peer, frames in self._exchange.tick(now):
            self._send(peer, frames)
        if self._link is not None:
            self._link.tend()
        for address in self._sources.keys() - core.sources:
            self._selector.unregister(self._sources[address].fd)
            self._sources.pop(address).close()
        return arrived

    def _has_news(self) -> bool:
        """Return True if more has arrived: sending may have consumed the signal of that."""
        ends = (self._link, self._hub, *self._sources.values())
        return any(end.readable() for end in ends if end is not None)

    def _send(self, peer: bytes, frames: list[Buffer]) -> None:
        link = self._link if peer == UPSTREAM else self._hub
        if link is not None:
            link.send(peer, frames)

    def _take_in(self, peer: bytes, frames: list[Buffer], now: float) -> None:
        try:
            messages = self._exchange.receive(peer, frames, now)
            if peer != UPSTREAM and messages and type(messages[0]) is m.Unknown:
                self._send(peer, self._exchange.unknown())
            else:
                self._core.receive(peer, messages, now)
        except RemoteProtocolError:
            self._core.peer_lost(peer)
        except Exception as error:
            self._survive(error, f"a message of peer {alias_of(peer).hex()}")
            self._core.peer_lost(peer)

    def _user_of(self, peer: bytes) -> str:
        return self._hub.user_of(peer) if self._hub is not None else ""

    def _survive(self, error: Exception, what: str) -> None:
        """Log what one peer has caused: the others go on.

        Raises it if the directories are gone, and the cluster with them.
        """
        if not self._place.exists:
            raise error
        log.error("%s failed in the object storage", what, exc_info=error)

    # -- other storages ----------------------------------------------------------------------

    def _request(self, address: str, messages: list[m.Message], now: float) -> None:
        source = self._sources.get(address)
        if source is None:
            try:
                passport = self._credentials.passport(address)
                detour = self._detours.get(split_key(address)[0], "")
                me = make_peer_id("F")
                source = Source(address, self._reached_by, me, passport, detour=detour)
            except (ClusterUnreachableError, ConfigError) as error:
                reason = f"the machine that holds it cannot be reached: {error}"
                self._core.source_lost(address, reason, now)
                return
            self._sources[address] = source
            self._selector.register(source.fd, selectors.EVENT_READ)
        source.send(messages)

    def _take_from(self, source: Source, now: float) -> bool:
        """Take in what a storage sent; leave a storage that breaks the protocol."""
        try:
            arrived = source.turn()
            self._core.receive_from(source.address, arrived, now)
        except RemoteProtocolError as error:
            reason = f"the storage that holds it broke the protocol: {error}"
        except Exception as error:
            self._survive(error, f"an answer of the storage at {source.address}")
            reason = f"this storage failed: {error!r}"
        else:
            return bool(arrived)
        self._core.source_lost(source.address, reason, now)
        self._selector.unregister(source.fd)
        self._sources.pop(source.address).close()
        return True


def main() -> None:
    """Run the storage of a machine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = read_config(StorageProcessConfig)
    set_up_logging(None)
    config.dirs.hold()
    try:
        shell = StorageShell(config)
    except FileNotFoundError:
        # As in :meth:`StorageShell.run`: the cluster has ended before this was up.
        if config.dirs.storage.exists:
            raise
        return
    shell.run()
    if shell.is_orphan:
        config.dirs.let_go()


if __name__ == "__main__":
    main()
