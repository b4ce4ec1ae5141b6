"""A client's connection: link, exchange and core, which move together under one lock.

Only this locks. What a door returns as events is to be handled without the lock; see
:class:`Settler`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.printing import TaskPrinter
from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.errors import (
    ClusterBrokenError,
    RemoteProtocolError,
    ScalerError,
    SessionClosedError,
    SessionForkedError,
)
from scaler_cluster.ids import HUB
from scaler_cluster.links.link import LINGER_MS, as_forwarded, new_incarnation
from scaler_cluster.links.open_link import connect
from scaler_cluster.objects.reported_names import ReportedNames
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.process import host_name, make_peer_id
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler_cluster.client.client_map import ClientMap
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.core.client.coordination import ClientCoordination
    from scaler_cluster.core.client.events import ClientEvent
    from scaler_cluster.core.client.requests import Function, Objects
    from scaler_cluster.objects.client_store import ClientStore
    from scaler_cluster.objects.remote_store import RemoteStore
    from scaler_cluster.objects.sent import SentObjects
    from scaler_cluster.security.credentials import Credentials
    from scaler_cluster.wire.batch import Batch

SPIN_S = 0.0005
"""How long a waiting thread looks for its result before it sleeps; see ``Spinning.spin``."""
TICK_S = 0.005
"""Repetitions and acknowledgements are looked after this often at most."""
DRAIN_LIMIT = 64
FLUSH_TASKS = 128
"""Tasks submitted one by one that are sent by the submitting thread; fewer wait for the I/O
thread, which comes as soon as the submitting thread lets go of the interpreter."""

LATER, WAKE, SEND = range(3)
"""After a submission: somebody will send it; the I/O thread is to be woken; it is to be sent."""


class Connection:
    """The client's end of the wire, for all threads of a process."""

    starts_over = True
    """Whether it comes anew to a scheduler that has forgotten it."""

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        core: ClientCore | None = None,
        worker: bytes = b"",
    ) -> None:
        self.address = address
        self.credentials = credentials
        self.error: ScalerError | None = None
        """Why nothing comes back any more."""
        self.closing = ""
        """Why no more tasks are taken; empty: they are."""
        self.forked = False
        """True in a child that this process forked."""
        self.closed = False
        """True once the socket is gone."""
        self.stores = False
        """True if large values are stored; else they travel inside of messages."""
        self.peer = make_peer_id("C")
        self._segment_names = ReportedNames(self.peer)
        self.printer = TaskPrinter()
        """What tasks printed, in the order in which it came."""
        self._core = core or ClientCore()
        self._core.first_segment = lambda: self._segment_names.first
        self._core.lazy_result = lambda message: self._stored().lazy_result(message)
        self._lock = threading.Lock()
        self._has_left = False
        self._sent: SentObjects | None = None
        """What was stored; None as long as nothing was."""
        self._abandoned: list[SentObjects] = []
        """What was stored and is gone, as the scheduler forgot this client."""
        self.on_forgotten: Callable[[], None] = lambda: None
        """Called when what was stored is gone."""
        self._exchange = Exchange(new_incarnation())
        self._dropped_calls: deque[tuple[ClientMap, bool]] = deque()
        self._dropped_tasks: deque[int] = deque()
        self._tick_at = 0.0
        self._hello: m.Hello | None = None
        self._storages: Sequence[str] = ()
        self._detours: dict[str, str] = {}
        self.worker = worker
        """Peer id of the worker whose tasks this is of; empty: it is a program's."""
        self.process = os.getpid(), host_name()
        """Pid and machine that this says it is of."""
        passport = credentials.passport(address)
        self._link = connect(address, self.peer, passport)

    @property
    def fd(self) -> int:
        """Becomes readable when something may have arrived."""
        return self._link.fd

    @property
    def deadline(self) -> float:
        """When :meth:`pump` has something to do though nothing has come."""
        with self._lock:
            return min(self._exchange.deadline, self._link.deadline)

    @property
    def welcome(self) -> m.Welcome:
        """What the scheduler said when this client came."""
        return self._core.welcome

    @property
    def heard_at(self) -> float:
        """When the scheduler was heard last."""
        return self._core.heard_at

    @property
    def waits_as(self) -> str:
        """Why no worker can run some tasks now; empty: all are run in time."""
        return self._core.waits_as

    @property
    def is_drained(self) -> bool:
        """Return True once no more tasks are taken and none is pending."""
        with self._lock:
            return bool(self.closing) and (self.error is not None or not self._core.busy)

    @property
    def has_unsent(self) -> bool:
        """Return True if :meth:`pump` has something new to send."""
        return self._core.requests.has_some

    def check_usable(self) -> None:
        """Raise if no task can be submitted.

        SessionForkedError, SessionClosedError or ClusterBrokenError.
        """
        self.check_own()
        if self.closing:
            raise SessionClosedError(self.closing)
        if self.error is not None:
            raise ClusterBrokenError(str(self.error)) from self.error

    def check_own(self) -> None:
        """Raise SessionForkedError in a forked child."""
        if self.forked:
            raise SessionForkedError(
                "this was made by the parent of this forked process: make a new one here"
            )

    # -- the beginning -----------------------------------------------------------------------

    def greet(self, hello: m.Hello) -> None:
        """Say who this is, now and whenever the scheduler has forgotten it."""
        self._hello = hello
        self.say(hello)

    @property
    def refusal(self) -> str:
        """Why the scheduler does not listen to this process; empty: nobody said so."""
        return self._link.refusal

    @property
    def is_refused(self) -> bool:
        """Return True if there is a :attr:`refusal` that will not change."""
        return self._link.is_refused

    def wait(self, timeout_s: float) -> None:
        """Wait until something has arrived, before any other thread uses this."""
        self._link.wait(min(timeout_s, max(self.deadline - clock(), 0.0)))

    def reach_storages(self, storages: Sequence[str]) -> None:
        """Note at which addresses the storages are reached from here; without any, at their own."""
        homes = self._core.welcome.homes
        self._storages = storages
        self._detours = {
            home.address: as_forwarded(storage, home.address)
            for home, storage in zip(homes, storages, strict=False)
        }
        self.stores = all(home.address or StorageDirs.of(home).is_here for home in homes)

    # -- tasks -------------------------------------------------------------------------------

    def submit(
        self,
        function: Function,
        call: int,
        options: m.TaskOptions,
        objects: Objects,
        payload: bytes,
        future: ScalerFuture[Any],
    ) -> int:
        """Ask for one task; return what is to be done about it: LATER, WAKE or SEND."""
        core = self._core
        with self._lock:
            if self.closing or self.error is not None:
                self.check_usable()
            future._task = core.submit(function, call, options, objects, payload, future)
            unsent = len(core.requests.asked)
            if unsent >= FLUSH_TASKS or (unsent == 1 and core.single_in_flight):
                return SEND
            return WAKE if unsent == 1 else LATER

    def submit_run(
        self,
        function: Function,
        first: int,
        call: int,
        options: m.TaskOptions,
        objects: Objects,
        batch: Batch,
    ) -> list[ClientEvent]:
        """Ask for contiguous tasks of a map, and take in what has arrived meanwhile."""
        with self._lock:
            self.check_usable()
            requests = self._core.requests
            requests.teach(*function)
            requests.submit_run(first, function[0], call, options, objects, batch)
        return self.pump()

    def open_call(self, call: ClientMap) -> int:
        """Take a map in; return the id that its first task will have."""
        with self._lock:
            self.check_usable()
            return self._core.open_call(call)

    def put_here(self, call: ClientMap, result: object) -> None:
        """Let a call that is not one of a map's tasks have come back with this."""
        with self._lock:
            call.put_next(result)

    def number_nodes(self, count: int, *, is_single: bool) -> int:
        """Return the id that the first node of a graph will have.

        The number of a single node comes from those of single tasks: there are fewer calls.
        """
        with self._lock:
            self.check_usable()
            requests = self._core.requests
            return requests.reserve(count) if is_single else requests.open_call()

    def submit_graph(
        self,
        function: Function,
        part: m.Graph,
        waiters: dict[int, object],
        inputs: Sequence[object],
    ) -> int:
        """Ask for a graph; return how many messages waited to be sent before."""
        with self._lock:
            self.check_usable()
            unsent = self._core.requests.unsent_messages
            self._core.submit_graph(function, part, waiters, inputs)
            return unsent

    def go_on_with(self, part: m.Graph) -> None:
        """Send more of a graph, with the next :meth:`pump`."""
        with self._lock:
            self._core.requests.go_on_with(part)

    def beat(self) -> None:
        """Ask the scheduler for a sign of life, unless it has never answered."""
        with self._lock:
            if self._core.welcome.session or self._core.requests.starts_over:
                self._core.requests.beat()
        for sent in filter(None, (*self._abandoned, self._sent)):
            sent.store.tend()

    def say(self, message: m.Message) -> None:
        """Send a message, with the next :meth:`pump`."""
        with self._lock:
            self._core.requests.say(message)

    def cancel(self, tasks: Sequence[int]) -> tuple[list[Any], list[ClientEvent]]:
        """Give single tasks up; return who waited for them, but for those that came back."""
        with self._lock:
            waiters = self._core.cancel(tasks)
        return waiters, self.pump()

    def take_back(self) -> list[ClientEvent]:
        """Ask for everything back that has not gone to a worker yet."""
        with self._lock:
            self._core.take_back()
        return self.pump()

    def take_no_more(self, reason: str) -> None:
        """Refuse further tasks, for this reason unless there is one."""
        with self._lock:
            self.closing = self.closing or reason

    def give_up(self, error: BaseException) -> list[Any]:
        """Give everything up; return who waited for single tasks."""
        with self._lock:
            waiters = self._core.cancel(self._core.pending())
            self._core.abort_calls(error)
            return waiters

    def drop_call(self, call: ClientMap, *, cancel: bool) -> None:
        """Forget a map with the next :meth:`pump`, or once it is over; takes no lock."""
        self._dropped_calls.append((call, cancel))

    def drop_task(self, task: int) -> None:
        """Cancel a task with the next :meth:`pump`, as nobody has its future; takes no lock."""
        self._dropped_tasks.append(task)

    @contextlib.contextmanager
    def coordination(self) -> Iterator[ClientCoordination]:
        """Keep all other threads away from what is asked of locks, queues and the like.

        Raises SessionForkedError: in a forked child another thread may seem to be at it for ever.
        """
        self.check_own()
        with self._lock:
            yield self._core.coordination

    # -- objects -----------------------------------------------------------------------------

    def stored(self) -> SentObjects:
        """Return what stores objects here; only where :attr:`stores` is true."""
        with self._lock:
            return self._stored()

    @property
    def sent(self) -> SentObjects | None:
        """What has stored objects here; None as long as none was."""
        return self._sent

    def _stored(self) -> SentObjects:
        if self._sent is None:
            # Not at the start: most sessions never store anything.
            from scaler_cluster.objects.sent import SentObjects

            self._sent = SentObjects(self, self._make_store())
        return self._sent

    def _make_store(self) -> ClientStore:
        from scaler_cluster.objects.client_store import ClientStore

        return ClientStore(self._core.welcome.homes, self._segment_names, self._connect)

    def _connect(self, storage: str) -> RemoteStore:
        from scaler_cluster.objects.remote_store import RemoteStore

        reached_at = self._detours.get(storage, storage)
        passport = self.credentials.passport(reached_at)
        return RemoteStore(reached_at, self.address, make_peer_id("F"), passport)

    def offer(self, one: bytes, segment: bytes, nbytes: int) -> None:
        """Say that an object is stored."""
        with self._lock:
            self._core.requests.offer(one, segment, nbytes)

    def release(self, objects: Objects) -> None:
        """Say that objects will not be named again by what is asked for from now on."""
        with self._lock:
            self._core.release(objects)

    def forget(self, function: bytes) -> None:
        """Say that a function will not be named again by what is asked for from now on."""
        with self._lock:
            self._core.requests.forget(function)

    # -- moving ------------------------------------------------------------------------------

    def spin(self) -> bool:
        """Return True if something has arrived, or does within a moment in which it is likely."""
        with self._lock:
            spin_s = SPIN_S if self._core.single_in_flight else 0.0
            return self.closed or self._link.spin(spin_s)

    def pump(self) -> list[ClientEvent]:
        """Send what is to be sent, take in what has arrived, and return what happened.

        Nothing happens on a connection that was closed.
        """
        if self._dropped_calls or self._dropped_tasks or self._sent is not None:
            self._sweep()
        with self._lock:
            return self._pump()

    def _pump(self) -> list[ClientEvent]:
        if self.closed:
            return []
        link, exchange, core = self._link, self._exchange, self._core
        requests = core.requests
        while True:
            now = clock()
            if requests.has_some and (actions := core.take_actions()):
                for frames in exchange.send(HUB, actions, now):
                    link.send(HUB, frames)
            if now >= self._tick_at or now >= link.deadline:
                self._tick_at = now + TICK_S
                for _, frames in exchange.tick(now):
                    link.send(HUB, frames)
                link.tend()
            # After the last send: that may swallow the signal that something has arrived.
            received = link.receive(DRAIN_LIMIT)
            for _, frames in received:
                try:
                    core.receive(exchange.receive(HUB, frames, now), now)
                except RemoteProtocolError as error:
                    self.error = error
            if len(received) < DRAIN_LIMIT and not requests.has_some:
                break
        if core.events.news:
            self._heed(core.events.news)
            if requests.has_some:
                return core.events.take() + self._pump()
        return core.events.take()

    def _heed(self, news: list[ClientEvent]) -> None:
        """Do what is to be done here about what the scheduler says."""
        is_sent_away = self.error is not None
        for event in news:
            if type(event) is m.Output:
                # Here, where no other thread can come before it with what was printed later.
                self.printer.add(event)
            elif type(event) is m.Goodbye:
                is_sent_away = True
            elif type(event) is m.Unknown and self.starts_over and not is_sent_away:
                self._start_over()
            elif type(event) is m.Welcome:
                self.reach_storages(self._storages)
                if not self._core.is_stored:
                    self._abandon_stored()

    def _start_over(self) -> None:
        """Come anew to a scheduler that has forgotten this client."""
        assert self._hello is not None
        self._exchange = Exchange(new_incarnation())
        self._core.start_over(self._hello)

    def _abandon_stored(self) -> None:
        """What was stored is gone."""
        if self._sent is not None:
            self._sent.abandon()
            self._abandoned.append(self._sent)
            self._sent = None
        self.on_forgotten()

    def _sweep(self) -> None:
        """Let go of what nobody in this process asks for any more."""
        if self._has_left or self.closed:
            return
        if self._sent is not None and self._sent.has_dead:
            self._sent.sweep()
        if self._dropped_calls or self._dropped_tasks:
            with self._lock:
                self._close_dropped()

    def _close_dropped(self) -> None:
        tasks = self._dropped_tasks
        self._core.cancel([tasks.popleft() for _ in range(len(tasks))])
        while self._dropped_calls:
            call, cancel = self._dropped_calls.popleft()
            if call.leave() or cancel:
                self._core.close_call(call.first, call.asked)
                if call.linked and cancel:
                    self._core.cancel([future.task_id for future in call.linked])
            # Else it comes again when everything has come back.

    # -- the end -----------------------------------------------------------------------------

    def leave(self) -> None:
        """Say Goodbye, and nothing after that, whatever is let go of meanwhile."""
        self._sweep()
        self._has_left = True
        self.say(m.Goodbye())
        self.pump()

    def close(self) -> None:
        """Let go of the socket."""
        with self._lock:
            self.closed = True
            for sent in filter(None, (*self._abandoned, self._sent)):
                sent.store.close()
            # A Goodbye is worth a moment's wait; a scheduler that is gone is not.
            is_worth_it = self.error is None and self._core.welcome.session
            self._link.close(LINGER_MS if is_worth_it else 0)
