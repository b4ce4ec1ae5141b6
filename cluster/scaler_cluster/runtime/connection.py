"""A client's connection: link, exchange and core, which move together under one lock."""

from __future__ import annotations

import os
import threading
from collections import deque
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client import ClientCore
from scaler_cluster.core.exchange import Exchange
from scaler_cluster.errors import (
    ClusterUnreachable,
    ConfigError,
    RemoteProtocolError,
    ScalerError,
)
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import HUB
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.runtime.process import PYTHON_VERSION, host_name, make_peer_id
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.map import MapCall
    from scaler_cluster.objects.client_store import ClientStore
    from scaler_cluster.objects.remote_store import RemoteStore
    from scaler_cluster.objects.sent import SentObjects

SPIN_S = 0.0005
"""How long a waiting thread looks for its result before it sleeps; see ``ZmqLink.spin``."""
TICK_S = 0.005
"""Repetitions and acknowledgements are looked after this often at most."""
DRAIN_LIMIT = 64
LOOK_S = 0.1
"""How often a client that waits for its welcome looks whether anybody is left to give it."""


class Connection:
    """The client's end of the wire. Everything but :meth:`drop_call` needs :attr:`lock`."""

    def __init__(self, address: str, core: ClientCore | None = None, worker: bytes = b"") -> None:
        self.address = address
        self.core = core or ClientCore()
        self.lock = threading.Lock()
        self.error: ScalerError | None = None
        """Why nothing comes back any more."""
        self.closed = False
        self._has_left = False
        self.sent: SentObjects | None = None
        """What was stored; None as long as nothing was."""
        self.stores = False
        """True if large values are stored; else they travel inside of messages."""
        self.core.lazy_result = lambda message: self._stored().lazy_result(message)
        self._exchange = Exchange(os.getpid())
        self._dropped_calls: deque[tuple[MapCall, bool]] = deque()
        self._tick_at = 0.0
        self.peer = make_peer_id("C")
        self._detours: dict[str, str] = {}
        """Where storages are reached from here that say that they are elsewhere."""
        self._worker = worker
        self._link = zmq_link.connect(address, self.peer)

    @property
    def fd(self) -> int:
        """Becomes readable when something may have arrived."""
        return self._link.fd

    @property
    def deadline(self) -> float:
        """When :meth:`pump` has something to send again."""
        return self._exchange.deadline

    def shake_hands(
        self, timeout: float, dead_child: Callable[[], str], storages: Sequence[str] = ()
    ) -> None:
        """Say Hello and wait for the answer.

        ``storages`` are the addresses at which those that the scheduler names are reached from
        here, in its order; empty: at those that it says.

        Raises ClusterUnreachable if none comes within ``timeout`` seconds, if the scheduler
        refuses, or as soon as ``dead_child()`` says why none can come; ConfigError if there are
        more storages than named, or fewer.
        """
        core = self.core
        who = m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), host_name()
        core.say(m.Hello(m.CLIENT, *who, worker=self._worker))
        end = clock() + timeout
        while not core.welcome.session:
            self.pump()
            if core.refused:
                raise ClusterUnreachable(f"the scheduler at {self.address} says: {core.refused}")
            left = end - clock()
            if left <= 0:
                raise ClusterUnreachable(
                    f"no scheduler answered at {self.address} within {timeout} s: is it running, "
                    "and is this its address?"
                )
            if not core.welcome.session:
                self._link.wait(min(left, max(self.deadline - clock(), 0.0), LOOK_S))
                if reason := dead_child():
                    raise ClusterUnreachable(reason)
        homes = core.welcome.homes
        if storages:
            if len(storages) != len(homes):
                core.say(m.Goodbye())
                self.pump()
                raise ConfigError(
                    f"this cluster keeps objects in {len(homes)} storages: name as many addresses, "
                    f"in its order, not {len(storages)}"
                )
            addresses = (home.address for home in homes)
            self._detours = dict(zip(addresses, storages, strict=True))
        self.stores = all(home.address or StorageDirs.of(home).is_here for home in homes)

    def stored(self) -> SentObjects:
        """Return what stores objects here; only where :attr:`stores` is true."""
        with self.lock:
            return self._stored()

    def _stored(self) -> SentObjects:
        if self.sent is None:
            # Not at the start: most sessions never store anything.
            from scaler_cluster.objects.sent import SentObjects

            self.sent = SentObjects(self.core, self.lock, self._make_store())
        return self.sent

    def _make_store(self) -> ClientStore:
        from scaler_cluster.objects.client_store import ClientStore

        return ClientStore(self.core.welcome.homes, self.peer, self._connect)

    def _connect(self, storage: str) -> RemoteStore:
        from scaler_cluster.objects.remote_store import RemoteStore

        reached_at = self._detours.get(storage, storage)
        return RemoteStore(reached_at, self.address, make_peer_id("F"))

    def drop_call(self, call: MapCall, *, cancel: bool) -> None:
        """Forget a map with the next :meth:`pump`, or once it is over; takes no lock."""
        self._dropped_calls.append((call, cancel))

    def spin(self) -> bool:
        """Return True if something has arrived, or does within a moment in which it is likely."""
        return self.closed or self._link.spin(SPIN_S if self.core.single_in_flight else 0.0)

    def pump(self) -> list[tuple[Any, object]]:
        """Send what is to be sent and take in what has arrived.

        Returns the futures that came back, each with what came; they are to be settled without
        the lock. None comes back from a connection that was closed.
        """
        if self.closed:
            return []
        link, exchange, core = self._link, self._exchange, self.core
        has_dead = self.sent is not None and self.sent.has_dead
        if (has_dead or self._dropped_calls) and not self._has_left:
            self._sweep()
        while True:
            now = clock()
            actions = core.take_actions()
            if actions:
                link.send(HUB, exchange.send(HUB, actions, now))
            if now >= self._tick_at:
                self._tick_at = now + TICK_S
                for _, frames in exchange.tick(now):
                    link.send(HUB, frames)
            # After the last send: that may swallow the signal that something has arrived.
            received = link.receive(DRAIN_LIMIT)
            for _, frames in received:
                try:
                    core.receive(exchange.receive(HUB, frames, now), now)
                except RemoteProtocolError as error:
                    self.error = error
            if len(received) < DRAIN_LIMIT and not core.has_actions:
                break
        if core.profiles:
            profiles: list[tuple[Any, m.Profile]] = core.profiles
            core.profiles = []
            for future, one in profiles:
                future._profiled(one.duration_s, one.cpu_time_s, one.memory_peak)
        settled: list[tuple[Any, object]] = core.settled
        core.settled = []
        return settled

    def _sweep(self) -> None:
        """Let go of what nobody in this process asks for any more."""
        core = self.core
        if self.sent is not None:
            self.sent.sweep()
        while self._dropped_calls:
            call, cancel = self._dropped_calls.popleft()
            if not (call.leave() or cancel):
                # It comes again when everything has come back.
                continue
            core.close_call(call.first, call.asked)
            if call.linked and cancel:
                core.cancel([future.task_id for future in call.linked])

    def leave(self) -> None:
        """Say Goodbye, and nothing after that, whatever is let go of meanwhile."""
        self._sweep()
        self._has_left = True
        self.core.say(m.Goodbye())
        self.pump()

    def close(self) -> None:
        """Let go of the socket."""
        self.closed = True
        if self.sent is not None:
            self.sent.store.close()
        # A Goodbye is worth a moment's wait; a scheduler that is gone is not.
        is_worth_it = self.error is None and self.core.welcome.session
        self._link.close(zmq_link.LINGER_MS if is_worth_it else 0)
