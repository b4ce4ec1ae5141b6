"""The scheduler's shell: moves bytes between its sockets and its core.

There is no coroutine per message: the loop calls one function when the socket is readable, which
takes in what is there, lets the core act once, and sends one envelope per peer.
"""

from __future__ import annotations

import asyncio
import logging
import math
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.objects import HOME
from scaler_cluster.core.scheduler.scheduler import SHUT_DOWN
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import alias_of
from scaler_cluster.links.link import LINGER_MS, new_incarnation
from scaler_cluster.process.process import with_the_last_files
from scaler_cluster.runtime.feed_door import FeedDoor
from scaler_cluster.runtime.key_watch import LOOK_S
from scaler_cluster.runtime.process_watch import ProcessWatch
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.scheduler.scheduler import SchedulerCore
    from scaler_cluster.links.feed_link import Publisher
    from scaler_cluster.links.open_link import Hub
    from scaler_cluster.runtime.key_watch import KeyWatch
    from scaler_cluster.runtime.roster_file import RosterFile
    from scaler_cluster.runtime.storage_process import StorageProcess
    from scaler_cluster.runtime.storages import Storages

log = logging.getLogger("scaler.scheduler")

DRAIN_LIMIT = 256
"""The shell takes in so many envelopes at most before the core acts: a bound for each answer."""
DRAIN_LEAST = 8
DRAIN_S = 0.001
"""If it takes longer to take in so many, it is fewer the next time: what one peer sends without end
must not keep the answers to others."""
SPIN_S = 0.0003
"""How long the loop looks for the next message before it sleeps; see ``Spinning.spin``."""
TICK_S = 0.001
"""While messages keep coming, the shell looks at the time this often."""
LATE_S = 0.02
"""So late at most are acknowledgements and probes: those of many peers go out together."""
EARLY_S = 0.002
"""A timer that would go off so much too early is set anew: for nothing it would wake the process,
which takes 0.1 ms with cold caches."""
UNREAD_BYTES_MAX = 256 << 20
"""Bytes of results that a client may leave unread: more than a client has under way that reads, and
little enough for a machine that serves some dozens of stopped ones."""
TURN_S = 0.05
"""While messages keep coming, asyncio has a look at signals and timers this often."""
STORAGE_START_AFTER_S = 0.3
"""The storage starts a little later: its start takes CPU time from tasks that have just begun."""
LAST_WORD_S = 5.0
"""A scheduler that ends the whole cluster waits this long for its machines, which may be busy."""
LOG_EVERY_S = 1.0
"""Broken peers and bugs are logged at most this often: garbage must not fill a disk."""

REASON_CHARS_MAX = 1000
"""How much of the reason a dropped client is sent: its own garbage may be part of it."""


def fitting(drain: int, took_s: float) -> int:
    """Return how many envelopes to take in at once, after so many took this long."""
    if took_s > DRAIN_S:
        return max(drain // 2, DRAIN_LEAST)
    return min(drain * 2, DRAIN_LIMIT) if took_s < DRAIN_S / 4 else drain


def farewell(address: str, error: RemoteProtocolError) -> m.Goodbye:
    """Return what a client is told that the scheduler at an address drops."""
    reason = str(error)[:REASON_CHARS_MAX]
    return m.Goodbye(f"the scheduler at {address} dropped this client: {reason}")


class SchedulerShell:
    """Moves bytes between the link and the core."""

    def __init__(
        self,
        link: Hub,
        core: SchedulerCore,
        storage: StorageProcess | None,
        storages: Storages | None,
        publisher: Publisher,
        roster_file: RosterFile,
        key_watch: KeyWatch,
        *,
        check: bool = False,
    ) -> None:
        self._link = link
        self._storage = storage
        """The storage beside this scheduler; None if clients store in other ones."""
        self._storages = storages
        """The storages that run by themselves; None if clients do not store in them."""
        self._is_storage_wanted = False
        """True once there was a need for the storage beside this scheduler."""
        self._roster_file = roster_file
        self._key_watch = key_watch
        self._core = core
        self._check = check
        self._exchange = Exchange(new_incarnation(), UNREAD_BYTES_MAX)
        link.knows = self._exchange.knows
        self._loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        """Set when it is time to end."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._is_closing = False
        self._drain = DRAIN_LIMIT
        """Envelopes that are taken in before the core acts: fewer, if they take long."""
        self._tick_at = -math.inf
        self._due = -math.inf
        """When the core has something to do; to ask costs as much as a task."""
        self._is_due_new = False
        self._process_watch = ProcessWatch(
            self._loop, lambda peer: core.process_over(peer, clock()), core.table.knows
        )
        """Of supervisors and clients on this machine."""
        self._logged_at: dict[bool, float] = {}
        """When a bug of ours (True) and a fault of a peer (False) was logged last."""
        self._troubles = 0
        self._loop.add_reader(link.fd, self._turn)
        for fd in storages.fds if storages is not None else ():
            self._loop.add_reader(fd, self._turn)
        if storage is not None:
            core.expect_storage(storage.peer)
            if storage.listener is not None:
                self._loop.add_reader(storage.listener, self._on_knock)
        self._feed_door = FeedDoor(publisher, core.feed, link.address, self._loop, self._turn_now)
        self._turn()
        self._look_at_keys()

    def close(self) -> None:
        """Stop, tell the clients that are still connected, and close the link."""
        self._is_closing = True
        self._loop.remove_reader(self._link.fd)
        self._process_watch.close()
        if self._core.table.sessions:
            # The last client said Goodbye before it closed our lifeline: that is about to arrive.
            self._link.wait(0.01)
            self._turn()
        clients = list(self._core.table.sessions)
        for peer in clients:
            self._send(peer, [m.Goodbye(SHUT_DOWN)], clock())
        if self._core.is_over:
            self._await_supervisors()
        # Not before the last turn, which sets it anew.
        if self._timer is not None:
            self._timer.cancel()
        self._feed_door.close()
        self._link.close(LINGER_MS if clients else 0)
        if self._storages is not None:
            for fd in self._storages.fds:
                self._loop.remove_reader(fd)
            self._storages.close(SHUT_DOWN if self._core.is_over else "")
        if self._storage is not None:
            if self._storage.listener is not None:
                self._loop.remove_reader(self._storage.listener)
            self._storage.stop()

    def _await_supervisors(self) -> None:
        """Wait until all supervisors have left, as the core told them.

        A connection that is closed too early loses messages that its other end has not read. A
        supervisor that missed the end of the cluster would wait for long.
        """
        end = clock() + LAST_WORD_S
        while self._core.table.supervisors and (left := end - clock()) > 0:
            self._link.wait(left)
            self._turn()

    def _turn(self) -> None:
        """Work until nothing more arrives for a moment, or until asyncio is to have its turn."""
        link, core = self._link, self._core
        limit = self._drain
        end = math.inf
        has_tasks = False
        while True:
            has_tasks |= core.table.in_flight > 0
            received = link.receive(limit)
            now = clock()
            for peer, frames in received:
                self._take_in(peer, frames, now)
            is_full = len(received) >= self._drain
            if is_full:
                limit = self._drain = fitting(self._drain, clock() - now)
            has_news = self._storages is not None and self._take_from_storages(now)
            acts = received or has_news or now >= self._tick_at
            if acts:
                try:
                    self._act(now)
                except Exception:
                    # The next turn tries again what was left undone, and the peers go on.
                    self._failed("a turn", now)
            if end == math.inf:
                end = now + TURN_S
            elif now >= end:
                # The descriptor may not signal what is there already.
                self._loop.call_soon(self._go_on)
                break
            if self._storages is not None and acts:
                # Sending to the storages may have consumed the signal that more has arrived.
                continue
            if not is_full:
                lone = core.single_in_flight
                # With one task in flight, more messages are unlikely, and a look for them would
                # delay the answer.
                limit = 1 if lone else self._drain
                # After a heartbeat, nobody is about to answer: thousands of machines send them.
                is_talk = lone and (has_tasks or core.table.in_flight > 0)
                if not link.spin(SPIN_S if is_talk else 0.0):
                    break
        self._set_timer()

    def _go_on(self) -> None:
        if not self._is_closing:
            self._turn()

    def _take_from_storages(self, now: float) -> bool:
        """Take in messages of storages that run by themselves; return True if there were any."""
        assert self._storages is not None
        news = self._storages.turn()
        for key, message in news:
            if isinstance(message, m.Unknown):
                # The storage was started anew, and its objects are gone.
                try:
                    self._core.peer_lost(key, now)
                except Exception:
                    self._failed("the loss of a storage", now)
            else:
                self._receive(key, [message], now)
        return bool(news)

    def _take_in(self, peer: bytes, frames: list[Any], now: float) -> None:
        exchange = self._exchange
        if self._storages is not None and peer in self._storages:
            error = RemoteProtocolError("it calls itself by the address of a storage")
            self._drop(peer, error, now, is_known=False)
            return
        try:
            messages = exchange.receive(peer, frames, now)
        except RemoteProtocolError as error:
            self._drop(peer, error, now, is_known=exchange.knows(peer))
            return
        except Exception:
            self._failed(f"an envelope of peer {alias_of(peer).hex()}", now)
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
                # The peer is innocent: its next messages are handled.
                self._failed(f"a message of peer {alias_of(peer).hex()}", now)
                continue
            return

    def _failed(self, what: str, now: float) -> None:
        """Count and log a bug of ours."""
        self._core.failed()
        self._log(now, f"{what} failed by a bug of the scheduler, please report it", is_bug=True)

    def _drop(
        self, peer: bytes, error: RemoteProtocolError, now: float, *, is_known: bool = True
    ) -> None:
        """Drop a peer that broke the protocol; one that is not known has nothing here to end."""
        if peer in self._core.table.sessions:
            self._send(peer, [farewell(self._link.address, error)], now)
        if is_known:
            self._core.peer_lost(peer, now)
            self._exchange.drop(peer)
        self._link.forget(peer)
        self._log(now, f"dropped peer {alias_of(peer).hex()}: {error}", is_bug=False)

    def _send(self, peer: bytes, messages: Sequence[m.Message], now: float) -> None:
        for frames in self._exchange.send(peer, messages, now):
            self._link.send(peer, frames)

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
            if now >= self._due:
                core.tick(now)
        if exchange.unread or core.held_back:
            core.hold_back(exchange.unread, now)
        storages = self._storages
        actions = core.take_actions(now)
        if core.table.is_roster_new:
            # Before a machine hears that it is welcome.
            self._roster_file.write(core.roster)
            core.table.is_roster_new = False
        for peer, messages in actions.items():
            if storages is not None and peer in storages:
                storages.send(peer, messages)
            else:
                for frames in exchange.send(peer, messages, now):
                    link.send(peer, frames)
        if core.table.outbox.parting:
            for peer in core.take_gone():
                exchange.drop(peer)
                link.forget(peer)
        if core.is_over:
            self.over.set()
        if core.table.to_watch:
            for peer, pid in core.table.to_watch:
                self._process_watch.watch(peer, pid)
            core.table.to_watch.clear()
        if core.to_nudge:
            for peer in core.to_nudge:
                link.send(peer, exchange.unknown())
            core.to_nudge.clear()
        if core.table.journal.has_lines:
            for is_warning, line in core.table.journal.take(now):
                log.log(logging.WARNING if is_warning else logging.INFO, "%s", line)
        if self._storage is not None and now >= self._storage.look_at and self._needs_storage():
            self._look_after(self._storage, now)
        if ticks and now >= exchange.deadline:
            for peer, frames in exchange.tick(now):
                link.send(peer, frames)
        if now >= core.feed.due:
            self._feed_door.publish(now)
        self._is_due_new = ticks
        if ticks:
            self._due = core.deadline
        if self._check:
            invariants.check(core)

    def _look_at_keys(self) -> None:
        """End what users have here whose keys were removed; do so again in a while."""
        if not self._key_watch.is_needed or self._is_closing:
            return
        self._loop.call_later(LOOK_S, self._look_at_keys)
        is_out = self._key_watch.look()
        if is_out is None:
            return
        self._core.let_in(self._key_watch.allowed.users)
        if self._storage is not None:
            self._storage.begin_with(self._key_watch.credentials)
        if is_out:
            self._core.expel(self._link.expelled, clock())
            self._feed_door.drop_listeners()
        self._turn_now()

    def _needs_storage(self) -> bool:
        """Return True if there are objects, or may be, or another machine is about to send some.

        Once there was a storage, there always is one: if it dies, the next one removes what it did
        not come to.
        """
        if self._is_storage_wanted:
            return True
        objects = self._core.table.objects
        return bool(objects.records or objects.stores[HOME].garbage or objects.adopts)

    def _on_knock(self) -> None:
        """Start the storage: a peer connects to it, and it is to answer."""
        assert self._storage is not None and self._storage.listener is not None  # noqa: PT018
        self._loop.remove_reader(self._storage.listener)
        self._is_storage_wanted = True
        with with_the_last_files():
            self._storage.look_after(clock())
        self._core.expect_storage(self._storage.peer)

    def _look_after(self, storage: StorageProcess, now: float) -> None:
        if not storage.look_at:
            storage.look_at = now + STORAGE_START_AFTER_S
            return
        self._is_storage_wanted = True
        try:
            with with_the_last_files():
                had_died = storage.look_after(now)
        except OSError as error:
            # The machine is out of descriptors, processes or memory: that may be over soon.
            self._log(now, f"cannot start the object storage: {error}", is_bug=False)
            return
        self._core.expect_storage(storage.peer)
        if had_died:
            # The storage before has died.
            for peer, key in list(self._core.table.objects.storages.items()):
                if key == HOME:
                    self._core.peer_lost(peer, now)

    def _set_timer(self) -> None:
        if not self._is_due_new:
            self._due = self._core.deadline
        due = self._next_due()
        if due < self._timer_at or due > self._timer_at + EARLY_S:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_later(max(due - clock(), 0.0), self._on_timer)

    def _next_due(self) -> float:
        due = min(self._due, self._exchange.deadline + LATE_S)
        return due if self._storages is None else min(due, self._storages.deadline)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        # What it was set for may have moved on.
        act = self._turn_now if clock() >= self._next_due() else self._set_timer
        act()

    def _turn_now(self) -> None:
        """Take a turn that looks at the time."""
        self._tick_at = -math.inf
        self._turn()
