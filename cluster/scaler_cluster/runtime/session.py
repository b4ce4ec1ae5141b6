"""A client's session: one socket, one lock, one I/O thread, and whoever waits.

A thread that waits for a result *leads*: it reads the socket itself, which saves the hand-off
from the I/O thread; that one takes over when nobody leads. Sockets and core are used under the
lock only; futures are settled and callbacks run without it.
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
from scaler_cluster.core.client import ClientCore
from scaler_cluster.core.exchange import Exchange
from scaler_cluster.errors import (
    ClusterBroken,
    ClusterUnreachable,
    PayloadError,
    RemoteProtocolError,
    ScalerError,
    SessionClosed,
    SessionForked,
)
from scaler_cluster.links import zmq_link
from scaler_cluster.links.link import HUB
from scaler_cluster.runtime.interrupts import deferred
from scaler_cluster.runtime.process import PYTHON_VERSION, host_name, make_peer_id
from scaler_cluster.runtime.readiness import Readiness, notify, signal_pipe
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler_cluster.client.map import MapCall
    from scaler_cluster.runtime.spawn import EmbeddedCluster
    from scaler_cluster.wire.batch import Batch

log = logging.getLogger("concurrent.futures")
"""The standard library's: who listens for failing callbacks there hears of them here."""

TORN = "a submit was interrupted in the middle by Ctrl-C or an exit: make a new one"

CONNECT_TIMEOUT_S = 10.0
HEARTBEAT_S = 1.0
SILENCE_MAX_S = 60.0
"""A scheduler that answered no heartbeat for so long is gone."""
FLUSH_TASKS = 128
"""Tasks submitted one by one that are sent by the submitting thread; fewer wait for the I/O
thread, which comes as soon as the submitting thread lets go of the interpreter."""
SPIN_S = 0.0005
"""How long a waiting thread looks for its result before it sleeps; see ``ZmqLink.spin``."""
TICK_S = 0.005
"""Repetitions and acknowledgements are looked after this often at most."""
DRAIN_LIMIT = 64
FOLLOW_S = 0.05
"""The I/O thread, waiting inside a callback for another thread's lead, looks after this."""

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """A connection to a scheduler, shared by all threads of this process.

    Raises ClusterUnreachable if nobody answers at ``address`` within ``timeout`` seconds, or with
    the scheduler's sentence if it refuses.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = CONNECT_TIMEOUT_S,
        cluster: EmbeddedCluster | None = None,
    ) -> None:
        self.address = address
        self.cluster = cluster
        self.core = ClientCore()
        self.lock = threading.Lock()
        self._lead = threading.Lock()
        self._leader = 0
        self._following = 0
        """Threads that wait for results of a map while another thread leads."""
        self._arrivals = threading.Condition()
        self._printing = threading.Lock()
        """Keeps what tasks printed in order."""
        self._exchange = Exchange(os.getpid())
        self._pickle_function = payloads.FunctionPickler()
        self._closed = ""
        self._forked = False
        self._torn = False
        """True while a thread changes what a KeyboardInterrupt must not leave half changed."""
        self._error: ScalerError | None = None
        self._dropped_calls: deque[MapCall] = deque()
        self._callbacks: deque[tuple[ScalerFuture[Any], list[Any]]] = deque()
        self._link = zmq_link.connect(address, make_peer_id("C"))
        self._tick_at = 0.0
        self._wake_read, self._wake_write = signal_pipe()
        self._nudge_read, self._nudge_write = signal_pipe()
        self._io_ready = Readiness(self._wake_read, self._link.fd, on=True)
        self._leader_ready = Readiness(self._nudge_read, self._link.fd, on=True)
        self._finished = threading.Event()
        try:
            self._shake_hands(timeout)
        except BaseException:
            self._close_sockets()
            raise
        self._thread = threading.Thread(target=self._io, name="scaler-io", daemon=True)
        self._thread.start()
        _sessions.add(self)

    def _shake_hands(self, timeout: float) -> None:
        core = self.core
        core.say(m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), host_name()))
        deadline = clock() + timeout
        while not core.session:
            self._pump()
            if core.refused:
                raise ClusterUnreachable(f"the scheduler at {self.address} says: {core.refused}")
            left = deadline - clock()
            if left <= 0:
                raise ClusterUnreachable(
                    f"no scheduler answered at {self.address} within {timeout} s: is it running, "
                    "and is this its address?"
                )
            if not core.session:
                self._link.wait(min(left, max(self._exchange.deadline - clock(), 0.0), 0.1))
                dead = self.cluster.dead_child() if self.cluster is not None else ""
                if dead:
                    raise ClusterUnreachable(dead)

    # -- asking ------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise SessionForked, SessionClosed or ClusterBroken if no task can be submitted."""
        if self._forked:
            raise SessionForked(
                "this was made by the parent of this forked process: make a new one here"
            )
        if self._closed:
            raise SessionClosed(self._closed)
        if self._torn:
            raise ClusterBroken(TORN)
        if self._error is not None:
            raise ClusterBroken(str(self._error)) from self._error

    def submit(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: m.TaskOptions = m.DEFAULT_OPTIONS,
    ) -> ScalerFuture[Any]:
        """Ask for one call; what cannot be pickled fails its future alone."""
        if self._closed or self._forked or self._error is not None:
            self.check_usable()
        future: ScalerFuture[Any] = ScalerFuture(self)
        try:
            digest, packed = self._pickle_function(function)
            payload = payloads.dumps_call(function, args, kwargs)
        except PayloadError as error:
            settle_all([(future, error)])
            return future
        core = self.core
        with self.lock:
            self.check_usable()
            self._torn = True
            core.teach(digest, packed)
            call = m.CALL_KWARGS if kwargs else m.CALL_ARGS
            future._task = core.submit(digest, call, options, payload, future)
            unsent = core.unsent
            self._torn = False
        if unsent < FLUSH_TASKS and (len(core.waiters) > 1 or core.calls):
            if unsent == 1:
                self._wake()
        else:
            with deferred:
                with self.lock:
                    settled = self._pump()
                if settled:
                    self._after(settled)
        return future

    def cancel(self, futures: Sequence[ScalerFuture[Any]]) -> int:
        """Give tasks up; return how many had not come back."""
        if self._forked:
            return 0
        with deferred:
            with self.lock:
                given_up = self.core.cancel([future._task for future in futures])
                settled = self._pump() if self._error is None else []
            for future in given_up:
                future._cancel_here()  # type: ignore[attr-defined]
            self._after(settled)
        return len(given_up)

    def function(self, function: Callable[..., Any]) -> tuple[bytes, bytes]:
        """Return digest and pickle of a function; raises PayloadError."""
        return self._pickle_function(function)

    def open_call(self, call: MapCall) -> int:
        """Take a map in; return the id that its first task will have."""
        with deferred, self.lock:
            self.check_usable()
            return self.core.open_call(call)

    def submit_run(
        self,
        function: tuple[bytes, bytes],
        first: int,
        call: int,
        options: m.TaskOptions,
        batch: Batch,
    ) -> None:
        """Ask for contiguous tasks of a map, and take in what has arrived meanwhile."""
        with deferred:
            with self.lock:
                self.check_usable()
                self.core.teach(*function)
                self.core.submit_run(first, function[0], call, options, batch)
                settled = self._pump()
            self._after(settled)

    def drop_call(self, call: MapCall) -> None:
        """Nobody will ask this map for results any more; called from a finalizer, so no lock."""
        if not self._forked:
            self._dropped_calls.append(call)
            with contextlib.suppress(OSError):
                self._wake()

    # -- waiting -----------------------------------------------------------------------------

    def wait(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Wait until ``done()``, at most ``timeout`` seconds; return what it returned last."""
        deadline = None if timeout is None else clock() + timeout
        while not done():
            if self._forked:
                raise SessionForked("the parent of this forked process waits for this, not I")
            if self._finished.is_set():
                raise SessionClosed("this was closed before the result came")
            if self._lead.acquire(blocking=False):
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
        if not self._lead.acquire(blocking=False):
            yield
            return
        try:
            self._begin_lead()
            yield
        finally:
            self._end_lead()
            self._lead.release()

    def _begin_lead(self) -> None:
        self._leader = threading.get_ident()
        self._switch_io(on=False)

    def _end_lead(self) -> None:
        # The last thing a leader did with the link found it empty: what comes now is signalled.
        self._leader = 0
        self._switch_io(on=True)
        if self._callbacks:
            self._wake()

    def _switch_io(self, *, on: bool) -> None:
        try:
            self._io_ready.switch(on=on)
        except (ValueError, OSError):
            # The session has ended meanwhile.
            return

    def _lead_until(self, done: Callable[[], bool], deadline: float | None) -> None:
        lock, link = self.lock, self._link
        arrived = self.core.has_actions
        self._begin_lead()
        deferred.tell(self._nudge_write)
        try:
            while not self._finished.is_set() and deferred.came is None:
                if arrived:
                    with lock:
                        settled = self._pump()
                    self._after(settled)
                if done():
                    return
                with lock:
                    arrived = link.spin(SPIN_S if self.core.is_lone else 0.0)
                if arrived:
                    continue
                now = clock()
                if deadline is not None and now >= deadline:
                    return
                until = self._exchange.deadline if deadline is None else deadline
                self._leader_ready.wait(min(max(until - now, 0.0), HEARTBEAT_S))
                arrived = True
        finally:
            self._end_lead()

    def _follow(
        self, done: Callable[[], bool], future: ScalerFuture[Any] | None, deadline: float | None
    ) -> None:
        left = None if deadline is None else max(deadline - clock(), 0.0)
        if threading.current_thread() is self._thread:
            left = FOLLOW_S if left is None else min(left, FOLLOW_S)
        condition = self._arrivals if future is None else future._condition
        with condition:
            self._following += future is None
            try:
                if not done():
                    condition.wait(left)
            finally:
                self._following -= future is None

    # -- the lock's keepers ------------------------------------------------------------------

    def _pump(self) -> list[tuple[Any, object]]:
        """Send what is to be sent and take in what has arrived; the lock is held.

        Returns what the caller must hand to :meth:`_after` without the lock.
        """
        link, exchange, core = self._link, self._exchange, self.core
        while self._dropped_calls:
            call = self._dropped_calls.popleft()
            core.close_call(call.first, call.asked)
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
                    self._error = error
            if len(received) < DRAIN_LIMIT and not core.has_actions:
                break
        settled: list[tuple[Any, object]] = core.settled  # type: ignore[assignment]
        core.settled = []
        return settled

    def _after(self, settled: list[tuple[Any, object]]) -> None:
        """Settle futures, and let their callbacks run in the I/O thread."""
        if self.core.printed:
            self._print()
        if settled:
            for future, payload in settled:
                if payload is None:
                    future._cancel_here()
            called = settle_all(settled)
            if called:
                self._callbacks.extend(called)
                if threading.current_thread() is not self._thread:
                    self._wake()
        self._wake_followers()

    def _wake_followers(self) -> None:
        """Let those who wait look again, other than this thread."""
        if self._leader and self._leader != threading.get_ident():
            notify(self._nudge_write)
        if self._following:
            with self._arrivals:
                self._arrivals.notify_all()

    def _print(self) -> None:
        # Another thread that prints will come to this as well: do not wait for its terminal.
        while self.core.printed and self._printing.acquire(blocking=False):
            try:
                with self.lock:
                    outputs, dropped = self.core.take_printed()
                if dropped:
                    text = f"\n[scaler: {dropped} characters came too fast to be shown]\n"
                    outputs.append(m.Output(0, "stderr", text))
                for output in outputs:
                    stream = sys.stdout if output.stream == "stdout" else sys.stderr
                    # A stream that is closed or broken here must not cost a result.
                    with contextlib.suppress(Exception):
                        stream.write(output.text)
                        stream.flush()
            finally:
                self._printing.release()

    def _wake(self) -> None:
        notify(self._wake_write)

    # -- the I/O thread ----------------------------------------------------------------------

    def _io(self) -> None:
        try:
            self._serve()
        except Exception as error:
            # A bug of ours must not leave anybody waiting.
            self._error = ClusterBroken(f"the I/O thread failed: {error!r}")
            self._error.__cause__ = error
            self._break(self._error)
        self._run_callbacks()
        self._finish()

    def _serve(self) -> None:
        core = self.core
        heartbeat_at = clock() + HEARTBEAT_S
        core.heard_at = clock()
        while True:
            due = min(self._exchange.deadline, heartbeat_at)
            self._io_ready.wait(max(due - clock(), 0.0))
            now = clock()
            with self.lock:
                if now >= heartbeat_at:
                    late = now - heartbeat_at > HEARTBEAT_S
                    heartbeat_at = now + HEARTBEAT_S
                    core.say(m.Heartbeat())
                    self._check_cluster(now, late=late)
                settled = self._pump()
                trouble = self._trouble()
            self._after(settled)
            if trouble is not None:
                self._break(trouble)
            self._run_callbacks()
            with self.lock:
                if self._closed and (self._error is not None or not core.busy):
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
        dead = self.cluster.dead_child() if self.cluster is not None else ""
        if dead:
            self._error = ClusterBroken(dead)
        elif late:
            # This process was stopped or starved: the answers may only be waiting.
            core.heard_at = now
        elif now - core.heard_at > SILENCE_MAX_S:
            self._error = ClusterUnreachable(
                f"the scheduler at {self.address} has not answered for {SILENCE_MAX_S:.0f} s"
            )

    def _trouble(self) -> ScalerError | None:
        core = self.core
        if self._torn:
            self._error = ClusterBroken(TORN)
        elif core.broken:
            self._error = ClusterBroken(core.broken)
        elif core.lost:
            self._error = ClusterUnreachable(
                f"the scheduler at {self.address} does not know this client any more"
            )
        return self._error

    def _break(self, error: ScalerError) -> None:
        """Fail everything that is pending: nothing will come back any more."""
        with self.lock:
            waiters = self.core.waiters
            settled: list[tuple[Any, object]] = [(waiter, error) for waiter in waiters.values()]
            waiters.clear()
            for call in self.core.calls.values():
                call.abort(error)  # type: ignore[attr-defined]
            self.core.calls.clear()
        self._after(settled)

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
            with self.lock:
                if not self._closed:
                    self._closed = reason
                if cancel_queued and not self._finished.is_set():
                    self.core.take_back()
                    settled = self._pump()
            self._after(settled)
        if abandon:
            self.give_up()
        if not self._finished.is_set():
            with contextlib.suppress(OSError):
                self._wake()
        if wait and threading.current_thread() is not self._thread:
            self._finished.wait()

    def give_up(self) -> None:
        """Cancel everything that has not come back."""
        if self._forked or self._finished.is_set():
            return
        with deferred:
            with self.lock:
                cancelled: list[Any] = self.core.cancel(list(self.core.waiters))
                calls: list[Any] = list(self.core.calls.values())
                for call in calls:
                    self.core.close_call(call.first, call.asked)
                    call.abort(CancelledError())
                settled = self._pump() if not self._finished.is_set() else []
            for future in cancelled:
                future._cancel_here()
            self._after(settled)
            self._wake_followers()

    def break_now(self, error: ScalerError) -> None:
        """Fail everything pending with ``error`` and take no more work."""
        with self.lock:
            self._error = error
        self._break(error)

    def _finish(self) -> None:
        with self.lock:
            if self._error is None:
                self.core.say(m.Goodbye())
                self._pump()
            self._close_sockets()
        if self.cluster is not None:
            self.cluster.close_lifelines()
            self.cluster.stop()
        _sessions.discard(self)
        self._finished.set()

    def _close_sockets(self) -> None:
        self._io_ready.close()
        self._leader_ready.close()
        # A Goodbye is worth a moment's wait; a scheduler that is gone is not.
        self._link.close(zmq_link.LINGER_MS if self._error is None and self.core.session else 0)
        fds = self._wake_read, self._wake_write, self._nudge_read, self._nudge_write
        # Whoever calls too late must not write into a file that got the same number.
        self._wake_read = self._wake_write = self._nudge_read = self._nudge_write = -1
        for fd in fds:
            os.close(fd)


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
