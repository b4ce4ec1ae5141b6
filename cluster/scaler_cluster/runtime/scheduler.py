"""The scheduler process: an asyncio shell around the scheduler's core.

Run as ``python -m scaler_cluster.runtime.scheduler``, settings on standard input. There is no
coroutine per message: the loop calls one function when the socket is readable, which takes in
what is there, lets the core act once, and sends one envelope per peer.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import signal
from dataclasses import asdict
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.core import invariants
from scaler_cluster.core.exchange import Exchange
from scaler_cluster.core.objects import HOME
from scaler_cluster.core.scheduler import SHUT_DOWN, SchedulerConfig, SchedulerCore
from scaler_cluster.errors import ConfigError, RemoteProtocolError
from scaler_cluster.ids import TOPICS
from scaler_cluster.links import zmq_link
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.runtime.directories import (
    make_directories,
    remove_directories,
    remove_stale_directories,
)
from scaler_cluster.runtime.process import (
    LIFELINE_FD,
    PYTHON_VERSION,
    address_after,
    allow_many_files,
    log_as_told,
    pid_space,
    read_settings,
    say_ready,
)
from scaler_cluster.runtime.storage_process import (
    StorageProcess,
    address_of,
    listen_at,
    listen_beside,
)
from scaler_cluster.runtime.storages import Storages
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from scaler_cluster.runtime.feed_encoder import FeedEncoder

log = logging.getLogger("scaler.scheduler")

DRAIN_LIMIT = 256
"""Envelopes taken in before the core acts: bounds how long an answer waits for others."""
SPIN_S = 0.0003
"""How long the loop looks for the next message before it sleeps; see ``ZmqLink.spin``."""
TICK_S = 0.001
"""While messages keep coming, time is looked at this often."""
STORAGE_START_AFTER_S = 0.3
"""The storage's start takes CPU from whoever has just begun to work with large data."""
LAST_WORD_S = 5.0
"""So long a scheduler that ends the whole cluster waits for its machines, which may be busy."""
LOG_EVERY_S = 1.0
"""Broken peers are logged at most this often, and bugs: garbage must not fill a disk."""

REASON_CHARS_MAX = 1000
"""A dropped client need not hear all that its garbage holds."""


class SchedulerShell:
    """Moves bytes between the link and the core."""

    def __init__(
        self,
        link: zmq_link.ZmqLink,
        core: SchedulerCore,
        storage: StorageProcess | None,
        storages: Storages | None,
        publisher: zmq_link.Publisher | None,
        *,
        check: bool = False,
    ) -> None:
        self._link = link
        self._storage = storage
        """The one beside this scheduler; None if clients store in others."""
        self._storages = storages
        """Those that run by themselves, if clients store in them."""
        self._is_storage_wanted = False
        """True once somebody who cannot see the objects has come for them."""
        self._publisher = publisher
        """What tells those who watch; None: nobody can."""
        self._feed_encoder: FeedEncoder | None = None
        """Made for the first who watches."""
        self._core = core
        self._check = check
        self._exchange = Exchange(os.getpid())
        self._loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        """Set when it is time to end."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._tick_at = -math.inf
        self._watched: dict[int, int] = {}
        """Descriptors that become readable when a process ends, by its pid."""
        self._logged_at: dict[bool, float] = {}
        """When a trouble was logged last: bugs of ours, and faults of others."""
        self._troubles = 0
        self._loop.add_reader(link.fd, self._turn)
        for fd in storages.fds if storages is not None else ():
            self._loop.add_reader(fd, self._turn)
        if storage is not None and storage.listener is not None:
            self._loop.add_reader(storage.listener, self._on_knock)
        if publisher is not None:
            self._loop.add_reader(publisher.fd, self._on_listener)
        self._turn()

    def close(self) -> None:
        """Stop, tell the clients that are still there, and let go of the link."""
        self._loop.remove_reader(self._link.fd)
        if self._timer is not None:
            self._timer.cancel()
        for pid in list(self._watched):
            self._unwatch(pid)
        if self._core.table.sessions:
            # The last of them said Goodbye before it let us go: that is about to arrive.
            self._link.wait(0.01)
            self._turn()
        clients = list(self._core.table.sessions)
        for peer in clients:
            frames = self._exchange.send(peer, [m.Goodbye(SHUT_DOWN)], clock())
            self._link.send(peer, frames)
        if self._core.is_over:
            self._await_supervisors()
        if self._publisher is not None:
            self._loop.remove_reader(self._publisher.fd)
            self._publisher.close()
        self._link.close(zmq_link.LINGER_MS if clients else 0)
        if self._storages is not None:
            for fd in self._storages.fds:
                self._loop.remove_reader(fd)
            self._storages.close(SHUT_DOWN if self._core.is_over else "")
        if self._storage is not None:
            if self._storage.listener is not None:
                self._loop.remove_reader(self._storage.listener)
            self._storage.stop()

    def _await_supervisors(self) -> None:
        """Wait until all supervisors have left, as they were told.

        With a connection that is closed too early goes what its other end has not read; a
        supervisor that did not hear that all is over would wait for long.
        """
        end = clock() + LAST_WORD_S
        while self._core.table.supervisors and (left := end - clock()) > 0:
            self._link.wait(left)
            self._turn()

    def _turn(self) -> None:
        """Work until nothing more arrives for a moment."""
        link, core = self._link, self._core
        limit = DRAIN_LIMIT
        while True:
            received = link.receive(limit)
            now = clock()
            for peer, frames in received:
                self._take_in(peer, frames, now)
            has_news = self._storages is not None and self._take_from_storages(now)
            acts = received or has_news or now >= self._tick_at
            if acts:
                try:
                    self._act(now)
                except Exception:
                    # What it kept from being done is tried again with the next turn, and the
                    # others go on.
                    self._failed("a turn", now)
            if self._storages is not None and acts:
                # What was sent to them may have swallowed the signal that more has arrived.
                continue
            if len(received) < DRAIN_LIMIT:
                lone = core.single_in_flight
                # There more is unlikely, and looking for it would keep this one waiting.
                limit = 1 if lone else DRAIN_LIMIT
                if not link.spin(SPIN_S if lone else 0.0):
                    break
        self._set_timer()

    def _take_from_storages(self, now: float) -> bool:
        """Return True if something had arrived from storages that run by themselves."""
        assert self._storages is not None
        news = self._storages.turn()
        for key, message in news:
            if isinstance(message, m.Unknown):
                # It has begun anew, and what it held is gone.
                try:
                    self._core.peer_lost(key, now)
                except Exception:
                    self._failed("the loss of a storage", now)
            else:
                self._receive(key, [message], now)
        return bool(news)

    def _take_in(self, peer: bytes, frames: list[Any], now: float) -> None:
        exchange = self._exchange
        try:
            messages = exchange.receive(peer, frames, now)
        except RemoteProtocolError as error:
            self._drop(peer, error, now)
            return
        except Exception:
            self._failed(f"an envelope of peer {peer.hex()[:40]}", now)
            return
        if messages and type(messages[0]) is m.Unknown:
            self._link.send(peer, exchange.unknown())
        else:
            self._receive(peer, messages, now)

    def _receive(self, peer: bytes, messages: Sequence[m.Message], now: float) -> None:
        left = iter(messages)
        while True:
            try:
                self._core.receive(peer, left, now)
            except RemoteProtocolError as error:
                self._drop(peer, error, now)
            except Exception:
                # The peer is innocent: it goes on with what it says next.
                self._failed(f"a message of peer {peer.hex()[:40]}", now)
                continue
            return

    def _failed(self, what: str, now: float) -> None:
        """Take note of a bug of ours."""
        self._core.failed()
        self._log(now, f"{what} failed by a bug of the scheduler, please report it", is_bug=True)

    def _drop(self, peer: bytes, error: RemoteProtocolError, now: float) -> None:
        """Forget a peer that said what it must not."""
        if peer in self._core.table.sessions:
            goodbye = m.Goodbye(
                f"the scheduler at {self._link.address} dropped this client: {error}"
            )
            self._link.send(peer, self._exchange.send(peer, [goodbye], now))
        self._core.peer_lost(peer, now)
        self._exchange.drop(peer)
        self._log(now, f"dropped peer {peer.hex()[:40]}: {error}", is_bug=False)

    def _log(self, now: float, text: str, *, is_bug: bool) -> None:
        self._troubles += 1
        if now - self._logged_at.get(is_bug, -math.inf) >= LOG_EVERY_S:
            log.warning("%s (trouble %d so far)", text, self._troubles, exc_info=is_bug)
            self._logged_at[is_bug] = now

    def _act(self, now: float) -> None:
        core, exchange, link = self._core, self._exchange, self._link
        ticks = now >= self._tick_at
        if ticks:
            self._tick_at = now + TICK_S
            if now >= core.deadline:
                core.tick(now)
        storages = self._storages
        for peer, messages in core.take_actions(now).items():
            if storages is not None and peer in storages:
                storages.send(peer, messages)
            else:
                link.send(peer, exchange.send(peer, messages, now))
        for peer in core.take_gone():
            exchange.drop(peer)
        if core.is_over:
            self.over.set()
        if core.to_watch:
            self._watch(now)
        if core.table.journal.has_lines:
            for is_warning, line in core.table.journal.take(now):
                log.log(logging.WARNING if is_warning else logging.INFO, "%s", line)
        if self._storage is not None and now >= self._storage.look_at and self._needs_storage():
            self._look_after(self._storage, now)
        if ticks and now >= exchange.deadline:
            for peer, frames in exchange.tick(now):
                link.send(peer, frames)
        if core.table.monitor is not None and now >= core.feed_deadline:
            self._publish(now)
        if self._check:
            invariants.check(core)

    def _watch(self, now: float) -> None:
        """Begin to watch the processes of supervisors that are in this one's pid namespace."""
        for peer, pid in self._core.to_watch:
            self._unwatch(pid)
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self._core.process_over(peer, now)
            except OSError:
                # Not every kernel and sandbox can: then it is noticed by its silence.
                continue
            else:
                self._watched[pid] = fd
                self._loop.add_reader(fd, self._on_process_over, peer, pid)
        self._core.to_watch.clear()

    def _on_process_over(self, peer: bytes, pid: int) -> None:
        self._unwatch(pid)
        self._core.process_over(peer, clock())

    def _unwatch(self, pid: int) -> None:
        fd = self._watched.pop(pid, -1)
        if fd >= 0:
            self._loop.remove_reader(fd)
            os.close(fd)

    def _publish(self, now: float) -> None:
        """Tell those who watch what is due."""
        assert self._publisher is not None and self._feed_encoder is not None  # noqa: PT018
        start = clock()
        for message in self._core.take_feed(now):
            self._publisher.send(self._feed_encoder.frames(message))
        self._core.feed_took(clock() - start, start)
        self._look_for_listeners(start)

    def _look_for_listeners(self, now: float) -> None:
        assert self._publisher is not None
        if not self._publisher.look():
            return
        if self._feed_encoder is None:
            # Most schedulers are never watched: this is no part of their start.
            from scaler_cluster.runtime.feed_encoder import FeedEncoder

            self._feed_encoder = FeedEncoder(self._link.address)
        if self._core.table.monitor is None:
            self._feed_encoder.restart()
        self._core.watch(self._publisher.topics, now)

    def _on_listener(self) -> None:
        """Somebody begins to watch, or leaves."""
        self._look_for_listeners(clock())
        self._tick_at = -math.inf
        self._turn()

    def _needs_storage(self) -> bool:
        """Return True if there are objects, or if somebody elsewhere is about to send some."""
        objects = self._core.table.objects
        return bool(objects.records or objects.stores[HOME].garbage or self._is_storage_wanted)

    def _on_knock(self) -> None:
        """Somebody connects to the storage: have it started, and let it answer."""
        assert self._storage is not None and self._storage.listener is not None  # noqa: PT018
        self._loop.remove_reader(self._storage.listener)
        self._is_storage_wanted = True
        self._storage.look_after(clock())

    def _look_after(self, storage: StorageProcess, now: float) -> None:
        if not storage.look_at:
            storage.look_at = now + STORAGE_START_AFTER_S
        elif storage.look_after(now):
            # The one before has died.
            for peer, key in list(self._core.table.objects.storages.items()):
                if key == HOME:
                    self._core.peer_lost(peer, now)

    def _set_timer(self) -> None:
        due = min(self._core.deadline, self._exchange.deadline)
        if self._storages is not None:
            due = min(due, self._storages.deadline)
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_later(max(due - clock(), 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        self._tick_at = -math.inf
        self._turn()


async def serve(
    settings: dict[str, Any], lifeline: int | None, tell: Callable[..., object]
) -> None:
    """Bind, tell where, and schedule until the lifeline comes to its end, SIGINT or SIGTERM comes.

    Another signal ends it at once. Whoever started it with SIGINT ignored wants that.

    Raises ConfigError if it cannot bind, or finds no object storage where there must be one.
    """
    storage, storages, publisher = None, None, None
    wanted, known_as = settings.get("storages", []), settings.get("known_as", [])
    listener = listen_at(wanted[0]) if len(wanted) == 1 else None
    if wanted and listener is None:
        storages = Storages(wanted, known_as)
        settings["place"] = asdict(StorageDirs())
    try:
        make_directories(settings)
        link = zmq_link.bind(settings["address"], io_threads=settings.get("io_threads", 1))
        if storages is None and listener is None:
            listener = _listen_beside(link, settings.get("beside", ""))
        if "monitor" in settings:
            publisher = _publish(link, settings)
    except ConfigError:
        if storages is not None:
            storages.close()
        remove_directories(settings)
        raise
    if storages is not None:
        homes = storages.homes
    else:
        where = known_as[0] if known_as else address_of(listener)
        homes = (StorageDirs(**settings["place"]).served_at(where),)
        storage = StorageProcess(settings | {"address": link.address}, listener, known_as=where)
    config = SchedulerConfig(
        python=PYTHON_VERSION,
        pid_space=pid_space(),
        homes=homes,
        homes_are_elsewhere=storages is not None,
        monitor=publisher.address if publisher is not None else "",
        dashboard=settings.get("dashboard", ""),
        **settings.get("scheduler", {}),
    )
    core = SchedulerCore(config, clock())
    is_checked = settings.get("check", False)
    shell = SchedulerShell(link, core, storage, storages, publisher, check=is_checked)
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)

    def on_signal() -> None:
        shell.over.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    if lifeline is not None:
        loop.add_reader(lifeline, _on_lifeline, lifeline, shell.over)
    log.info("Scheduler: listen to scheduler address %s", link.address)
    for home in homes:
        log.info("Scheduler: connect to object storage server %s", home.address or home.disk)
    monitor = ""
    if publisher is not None:
        monitor = publisher.address
        log.info("Scheduler: listen to scheduler monitor address %s", monitor)
    tell(address=link.address, monitor=monitor)
    remove_stale_directories(settings)
    # What was imported stays: the collector need not look at it again.
    gc.freeze()
    await shell.over.wait()
    if lifeline is not None:
        loop.remove_reader(lifeline)
    shell.close()
    remove_directories(settings)


def _on_lifeline(lifeline: int, over: asyncio.Event) -> None:
    if not os.read(lifeline, 4096):
        over.set()


def _listen_beside(link: zmq_link.ZmqLink, address: str) -> socket.socket | None:
    """Return what the scheduler's own storage listens on: at an address, or any free one."""
    if not address:
        return listen_beside(link.address)
    listener = listen_at(address)
    if listener is None:
        link.close(linger_ms=0)
        raise ConfigError(
            f"cannot listen at {address}, for the object storage: it is in use; name another "
            "address with --object-storage-address"
        )
    return listener


def _publish(link: zmq_link.ZmqLink, settings: dict[str, Any]) -> zmq_link.Publisher:
    """Return what tells those who watch: at an address, or two ports after the scheduler's."""
    address = settings["monitor"]["address"] or address_after(settings["address"], 2, "_monitor")
    try:
        return zmq_link.publish(link, address, TOPICS)
    except ConfigError as error:
        link.close(linger_ms=0)
        raise ConfigError(
            f"{error}; that is for monitors: name another address with --monitor-address"
        ) from error


def run(settings: dict[str, Any], lifeline: int | None, tell: Callable[..., object]) -> None:
    """Run a scheduler in this process; see :func:`serve`."""
    log.info("use event loop: %s", settings.get("event_loop"))
    allow_many_files()
    if settings.get("event_loop") == "uvloop":
        try:
            import uvloop
        except ImportError:
            raise ConfigError(
                "event_loop: uvloop is not installed: pip install 'scaler-exec[uvloop]'"
            ) from None
        uvloop.run(serve(settings, lifeline, tell))
    else:
        asyncio.run(serve(settings, lifeline, tell))


def main() -> None:
    """Run the scheduler process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = read_settings()
    log_as_told(settings)
    try:
        run(settings, LIFELINE_FD, say_ready)
    except ConfigError as error:
        say_ready(error=str(error))


if __name__ == "__main__":
    main()
