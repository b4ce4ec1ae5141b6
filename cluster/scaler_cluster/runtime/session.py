"""A client's session: one connection, one I/O thread, and whoever waits.

Futures are settled and callbacks run without the connection's lock.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import weakref
from collections import deque
from concurrent.futures import CancelledError
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster import payload as payloads
from scaler_cluster.client.future import ScalerFuture, settle_all
from scaler_cluster.errors import (
    ClusterBroken,
    ClusterUnreachable,
    ConfigError,
    FutureInside,
    MissingObjects,
    PayloadError,
    ScalerError,
    SessionClosed,
    SessionForked,
    StorageFull,
    StorageUnreachable,
)
from scaler_cluster.function_pickler import FunctionPickler
from scaler_cluster.links.link import as_reached
from scaler_cluster.reloads import watch_reloads
from scaler_cluster.runtime.connection import Connection
from scaler_cluster.runtime.dashboard_link import DashboardLink
from scaler_cluster.runtime.graphs import SessionGraphs
from scaler_cluster.runtime.interrupts import deferred
from scaler_cluster.runtime.leader_follower import LeaderFollower
from scaler_cluster.runtime.printing import TaskPrinter
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler_cluster.client.map import MapCall
    from scaler_cluster.core.client import Function
    from scaler_cluster.objects.sent import CallObjects
    from scaler_cluster.payload import ObjectReference
    from scaler_cluster.runtime.spawn import EmbeddedCluster
    from scaler_cluster.wire.batch import Batch

log = logging.getLogger("concurrent.futures")
"""For what the standard library's executors log as well."""
client_log = logging.getLogger("scaler_cluster.client")
"""The standard library's: who listens for failing callbacks there hears of them here."""

CONNECT_TIMEOUT_S = 10.0
HEARTBEAT_S = 1.0
SILENCE_MAX_S = 60.0
"""A scheduler that answered no heartbeat for so long is gone."""
LOOK_S = 1.0
"""A thread that waits for results looks after its connection this often at least."""
FLUSH_TASKS = 128
"""Tasks submitted one by one that are sent by the submitting thread; fewer wait for the I/O
thread, which comes as soon as the submitting thread lets go of the interpreter."""
FOLLOW_S = 0.05
"""The I/O thread, waiting inside a callback for another thread's lead, looks after this."""

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """A connection to a scheduler, shared by all threads of this process.

    Raises ClusterUnreachable if nobody answers at ``address`` within ``timeout`` seconds, or with
    the scheduler's sentence if it refuses. After ``silence_s`` without an answer to a heartbeat
    everything fails with ClusterUnreachable. ``storages`` as for :meth:`Connection.shake_hands`.
    """

    future_class: type[ScalerFuture[Any]] = ScalerFuture

    def __init__(
        self,
        address: str,
        *,
        timeout: float = CONNECT_TIMEOUT_S,
        cluster: EmbeddedCluster | None = None,
        connection: Connection | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        silence_s: float = SILENCE_MAX_S,
        storages: Sequence[str] = (),
    ) -> None:
        self.address = address
        self.cluster = cluster
        self.connection = connection or Connection(address)
        self.core = self.connection.core
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._closed = ""
        self._forked = False
        self._callbacks: deque[tuple[ScalerFuture[Any], list[Any]]] = deque()
        self._printer = TaskPrinter(self.core, self.connection.lock)
        self._lead = LeaderFollower(self.connection.fd)
        self._finished = threading.Event()
        try:
            self.connection.shake_hands(timeout, self._dead_child, storages)
        except BaseException:
            self._close_sockets()
            raise
        watch_reloads()
        stored = self.connection.stored if self.connection.stores else None
        self._pickle_function = FunctionPickler(stored)
        self._thread = threading.Thread(target=self._io, name="scaler-io", daemon=True)
        self._thread.start()
        _sessions.add(self)

    def _dead_child(self) -> str:
        return self.cluster.dead_child() if self.cluster is not None else ""

    @property
    def monitor_address(self) -> str:
        """Where the scheduler is watched, as reached from here; empty: nowhere."""
        return as_reached(self.core.welcome.monitor, self.address)

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """Link of the cluster's dashboard, as reached from here; None if it has none."""
        link = as_reached(self.core.welcome.dashboard, self.address)
        return DashboardLink(link) if link else None

    @property
    def graphs(self) -> SessionGraphs:
        """Return what asks for graphs; not kept, for it refers to this."""
        return SessionGraphs(self)

    def new_identity(self) -> bytes:
        """Return what names a client that speaks through this."""
        return self.connection.peer

    # -- asking ------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Return True unless it was closed, forked, or its cluster is gone."""
        return not (self._closed or self._forked or self.connection.error is not None)

    @property
    def state(self) -> str:
        """What this is, in a word, for people: open, closed, broken, or another process's."""
        if self._forked:
            return "forked"
        if self.connection.error is not None:
            return "broken"
        return "closed" if self._closed else "open"

    def check_usable(self) -> None:
        """Raise SessionForked, SessionClosed or ClusterBroken if no task can be submitted."""
        if self._forked:
            raise SessionForked(
                "this was made by the parent of this forked process: make a new one here"
            )
        if self._closed:
            raise SessionClosed(self._closed)
        if self.connection.error is not None:
            raise ClusterBroken(str(self.connection.error)) from self.connection.error

    def submit(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: m.TaskOptions = m.DEFAULT_OPTIONS,
        *,
        again: bool = False,
    ) -> ScalerFuture[Any]:
        """Ask for one call; what cannot be pickled or stored fails its future alone.

        With ``again`` also what nobody may write to is looked at. Raises MissingObjects.
        """
        if self._closed or self._forked or self.connection.error is not None:
            self.check_usable()
        held: list[bytes] = []
        try:
            packed, payload, objects = self._pack(function, args, kwargs, held, again=again)
        except FutureInside:
            return self.graphs.submit_linked(function, args, kwargs, options, again=again)
        except (PayloadError, StorageFull, StorageUnreachable) as error:
            return self.failed(error)
        future: ScalerFuture[Any] = ScalerFuture(self)
        call = m.CALL_KWARGS if kwargs else m.CALL_ARGS
        core = self.core
        with self.connection.lock:
            if self._closed or self.connection.error is not None:
                self.check_usable()
            future._task = core.submit(packed, call, options, objects, payload, future)
            unsent = core.unsent
        self.release(held)
        if unsent < FLUSH_TASKS and not (unsent == 1 and core.single_in_flight):
            if unsent == 1:
                self._lead.wake_io()
        else:
            with deferred:
                with self.connection.lock:
                    settled = self.connection.pump()
                if settled:
                    self._after(settled)
        return future

    def failed(self, error: Exception) -> ScalerFuture[Any]:
        """Return the future of a call that could not be asked for."""
        self.check_usable()
        future: ScalerFuture[Any] = self.future_class(self)
        settle_all([(future, error)])
        return future

    def wake(self) -> None:
        """Let the I/O thread send what there is to send."""
        self._lead.wake_io()

    def push(self) -> None:
        """Send what is to be sent, and take in what has arrived meanwhile."""
        with deferred:
            with self.connection.lock:
                settled = self.connection.pump()
            self._after(settled)

    def _pack(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        held: list[bytes],
        *,
        again: bool,
    ) -> tuple[Function, bytes, tuple[bytes, ...]]:
        """Pickle a call; what was stored for it is added to ``held``, to be released after."""
        objects: tuple[bytes, ...] = ()
        try:
            packed = self._pickle_function(function, held)
            stores = self.connection.stores
            payload, buffers = payloads.dumps_call(function, args, kwargs, stores=stores)
            if buffers:
                objects = self.connection.stored().hold(buffers, again=again)
                held += objects
        except BaseException:
            self.release(held)
            raise
        return packed, payload, objects

    def cancel(self, futures: Sequence[ScalerFuture[Any]]) -> int:
        """Give tasks up; return how many had not come back."""
        if self._forked:
            return 0
        with deferred:
            with self.connection.lock:
                given_up = self.core.cancel([future._task for future in futures])
                settled = self.connection.pump()
            for future in given_up:
                future._cancel_here()  # type: ignore[attr-defined]
            self._after(settled)
        return len(given_up)

    def function(self, function: Callable[..., Any], held: list[bytes]) -> Function:
        """Return a function as it is sent; see :class:`FunctionPickler`."""
        return self._pickle_function(function, held)

    def release(self, held: list[bytes]) -> None:
        """Let go of objects that were stored for what has been asked for by now."""
        if held:
            self.connection.stored().release(held)

    def send_object(self, value: object, name: str) -> ObjectReference:
        """Store a value now; raises PayloadError, StorageFull, MissingObjects."""
        self.check_usable()
        if not self.connection.stores:
            raise MissingObjects(
                "this client is not on the machine of the cluster's object storage: pass the "
                "value itself"
            )
        with deferred:
            reference = self.connection.stored().send(value, name)
            with self.connection.lock:
                settled = self.connection.pump()
            self._after(settled)
        return reference

    def clear_objects(self) -> None:
        """Let go of every object that was stored."""
        if self.connection.sent is not None:
            self._pickle_function.clear()
            self.connection.sent.clear()
            self._lead.wake_io()

    def call_objects(self, *, again: bool, steady: bool) -> CallObjects:
        """Return what stores the large values of one map or graph."""
        from scaler_cluster.objects.sent import CallObjects

        return CallObjects(self.connection.stored(), again=again, steady=steady)

    def open_call(self, call: MapCall) -> int:
        """Take a map in; return the id that its first task will have."""
        with deferred, self.connection.lock:
            self.check_usable()
            return self.core.open_call(call)

    def submit_run(
        self,
        function: Function,
        first: int,
        call: int,
        options: m.TaskOptions,
        objects: tuple[bytes, ...],
        batch: Batch,
    ) -> None:
        """Ask for contiguous tasks of a map, and take in what has arrived meanwhile."""
        with deferred:
            with self.connection.lock:
                self.check_usable()
                self.core.teach(*function)
                self.core.submit_run(first, function[0], call, options, objects, batch)
                settled = self.connection.pump()
            self._after(settled)

    def drop_call(self, call: MapCall, *, cancel: bool) -> None:
        """Nobody will ask this map for results any more; called from a finalizer, so no lock.

        With ``cancel`` what has not run will not.
        """
        if not self._forked:
            self.connection.drop_call(call, cancel=cancel)
            self._lead.wake_io()

    # -- waiting -----------------------------------------------------------------------------

    def wait(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None = None,
        timeout: float | None = None,
        task: int = -1,
    ) -> bool:
        """Wait until ``done()``, at most ``timeout`` seconds; return what it returned last.

        ``future`` is the one that is waited for, or ``task`` the task, if it is one alone.
        """
        deadline = None if timeout is None else clock() + timeout
        while not done():
            if self._forked:
                raise SessionForked("the parent of this forked process waits for this, not I")
            if self.connection.closed and not done():
                raise SessionClosed("this was closed before the result came")
            if self._lead.acquire():
                try:
                    with deferred:
                        self._lead_until(done, deadline)
                finally:
                    self._lead.release()
            else:
                self._follow(done, future, deadline)
            if deadline is not None and clock() >= deadline:
                return done()
        return True

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Keep the I/O thread asleep while this thread submits and takes in much."""
        if not self._lead.acquire():
            yield
            return
        try:
            self._lead.begin()
            yield
        finally:
            self._end_lead()
            self._lead.release()

    def _end_lead(self) -> None:
        self._lead.end()
        if self._callbacks:
            self._lead.wake_io()

    def _lead_until(self, done: Callable[[], bool], deadline: float | None) -> None:
        connection, lead = self.connection, self._lead
        arrived = self.core.has_actions
        lead.begin()
        deferred.tell(lead.nudge_pipe)
        try:
            while not connection.closed and not deferred.is_awaited:
                if arrived:
                    with connection.lock:
                        settled = connection.pump()
                    self._after(settled)
                if done():
                    return
                with connection.lock:
                    arrived = connection.spin()
                if arrived:
                    continue
                now = clock()
                if deadline is not None and now >= deadline:
                    return
                until = connection.deadline if deadline is None else deadline
                lead.wait(min(max(until - now, 0.0), LOOK_S))
                arrived = True
        finally:
            self._end_lead()

    def _follow(
        self, done: Callable[[], bool], future: ScalerFuture[Any] | None, deadline: float | None
    ) -> None:
        left = None if deadline is None else max(deadline - clock(), 0.0)
        if threading.current_thread() is self._thread:
            left = FOLLOW_S if left is None else min(left, FOLLOW_S)
        self._lead.follow(done, future._condition if future is not None else None, left)

    # -- what came back ----------------------------------------------------------------------

    def _after(self, settled: list[tuple[Any, object]]) -> None:
        """Settle futures, and let their callbacks run in the I/O thread."""
        if self.core.printed:
            self._printer.print_all()
        while self.core.unplaced:
            client_log.warning(self.core.unplaced.pop())
        if settled:
            for future, payload in settled:
                if payload is None:
                    future._cancel_here()
            called = settle_all(settled)
            if called:
                self._callbacks.extend(called)
                if threading.current_thread() is not self._thread:
                    self._lead.wake_io()
        if self.core.unmet:
            self.graphs.supply_unmet()
        self._lead.wake_others()

    # -- the I/O thread ----------------------------------------------------------------------

    def _io(self) -> None:
        try:
            self._serve()
        except Exception as error:
            # A bug of ours must not leave anybody waiting.
            self.connection.error = ClusterBroken(f"the I/O thread failed: {error!r}")
            self.connection.error.__cause__ = error
            self._break(self.connection.error)
        try:
            self._run_callbacks()
            self._finish()
        finally:
            self._finished.set()

    def _serve(self) -> None:
        core = self.core
        heartbeat_at = clock() + self._heartbeat_s
        core.heard_at = clock()
        while True:
            due = min(self.connection.deadline, heartbeat_at)
            self._lead.wait_as_io(max(due - clock(), 0.0))
            now = clock()
            with self.connection.lock:
                if now >= heartbeat_at:
                    late = now - heartbeat_at > self._heartbeat_s
                    heartbeat_at = now + self._heartbeat_s
                    core.say(m.Heartbeat())
                    self._check_cluster(now, late=late)
                settled = self.connection.pump()
                trouble = self._trouble()
            self._after(settled)
            if trouble is not None:
                self._break(trouble)
            self._run_callbacks()
            with self.connection.lock:
                if self._closed and (self.connection.error is not None or not core.busy):
                    return

    def _run_callbacks(self) -> None:
        while self._callbacks:
            future, callbacks = self._callbacks.popleft()
            for callback in callbacks:
                try:
                    callback(future)
                except BaseException:
                    # Even of a SystemExit: this thread has others to serve.
                    log.exception("exception calling callback for %r", future)

    def _check_cluster(self, now: float, *, late: bool) -> None:
        core = self.core
        if dead := self._dead_child():
            self.connection.error = ClusterBroken(dead)
        elif late:
            # This process was stopped or starved: the answers may only be waiting.
            core.heard_at = now
        elif now - core.heard_at > self._silence_s:
            self.connection.error = ClusterUnreachable(
                f"the scheduler at {self.address} has not answered for {self._silence_s:g} s"
            )

    def _trouble(self) -> ScalerError | None:
        core = self.core
        if core.broken:
            self.connection.error = ClusterBroken(core.broken)
        elif core.lost:
            self.connection.error = ClusterUnreachable(
                f"the scheduler at {self.address} does not know this client any more: it was "
                "started anew, or had not heard from this client for too long"
            )
        return self.connection.error

    def _break(self, error: ScalerError) -> None:
        """Fail everything that is pending: nothing will come back any more."""
        with self.connection.lock:
            waiters = self.core.cancel(self.core.pending())
            for call in self.core.calls.values():
                call.abort(error)  # type: ignore[attr-defined]
            self.core.calls.clear()
        self._after([(waiter, error) for waiter in waiters])

    # -- the end -----------------------------------------------------------------------------

    def close(
        self, reason: str, *, wait: bool = True, cancel_queued: bool = False, abandon: bool = False
    ) -> None:
        """Take no more work; when what was submitted has come back, leave.

        ``cancel_queued`` takes back what no worker has yet, ``abandon`` gives everything up.
        Idempotent; with ``wait`` it returns when everything has ended.
        """
        if self._forked:
            return
        settled: list[tuple[Any, object]] = []
        with deferred:
            with self.connection.lock:
                if not self._closed:
                    self._closed = reason
                if cancel_queued:
                    self.core.take_back()
                    settled = self.connection.pump()
            self._after(settled)
        if abandon:
            self.give_up()
        if not self._finished.is_set():
            self._lead.wake_io()
        if wait and threading.current_thread() is not self._thread:
            self._finished.wait()

    def give_up(self) -> None:
        """Cancel everything that has not come back."""
        if self._forked or self._finished.is_set():
            return
        with deferred:
            with self.connection.lock:
                cancelled: list[Any] = self.core.cancel(self.core.pending())
                calls: list[Any] = list(self.core.calls.values())
                for call in calls:
                    self.core.close_call(call.first, call.asked)
                    call.abort(CancelledError())
                settled = self.connection.pump()
            for future in cancelled:
                future._cancel_here()
            self._after(settled)
            self._lead.wake_others()

    def shut_down(self) -> None:
        """Ask the scheduler to end the cluster, and wait until it does.

        Raises ConfigError if it is protected, ClusterUnreachable if it does not answer.
        """
        core = self.core
        with self.connection.lock:
            core.refused = ""
            core.say(m.Shutdown())
        self.push()
        if not self.wait(lambda: bool(core.refused or core.broken), timeout=CONNECT_TIMEOUT_S):
            raise ClusterUnreachable(f"the scheduler at {self.address} does not answer")
        if core.refused:
            raise ConfigError(core.refused)

    def break_now(self, error: ScalerError) -> None:
        """Fail everything pending with ``error`` and take no more work."""
        with deferred:
            with self.connection.lock:
                self.connection.error = error
            self._break(error)

    def _finish(self) -> None:
        if self.connection.sent is not None:
            self.connection.sent.keep_results()
        with self.connection.lock:
            if self.connection.error is None:
                self.connection.leave()
            self._close_sockets()
        if self.cluster is not None:
            self.cluster.close_lifelines()
            self.cluster.stop()
        _sessions.discard(self)

    def _close_sockets(self) -> None:
        self._lead.close()
        self.connection.close()


def _finish_all() -> None:
    """Let what was submitted finish before the interpreter exits, as the standard library does."""
    # Whoever ends the program by Ctrl-C does not want to wait for what runs.
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    reason = "cannot schedule new futures after interpreter shutdown"
    sessions = list(_sessions)
    try:
        for session in sessions:
            session.close(reason, abandon=interrupted)
    except KeyboardInterrupt:
        for session in sessions:
            session.close(reason, abandon=True)
        raise


def _mark_forked() -> None:
    for session in list(_sessions):
        session._forked = True
        if session.cluster is not None:
            # The parent's death must reach its cluster, however long this child lives.
            session.cluster.close_lifelines()


atexit.register(_finish_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
