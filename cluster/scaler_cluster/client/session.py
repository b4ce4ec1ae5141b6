"""A client's session: what its users ask for, through one connection."""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from concurrent.futures import CancelledError
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.client import at_exit
from scaler_cluster.client.call_pickler import CallPickler
from scaler_cluster.client.connection import LATER, SEND, Connection
from scaler_cluster.client.future import ScalerFuture
from scaler_cluster.client.handshake import shake_hands
from scaler_cluster.client.input_supplier import InputSupplier
from scaler_cluster.client.io_thread import IoThread
from scaler_cluster.client.leader_follower import LeaderFollower
from scaler_cluster.client.live_graphs import SessionGraphs
from scaler_cluster.client.named_calls import NamedFuture, submit_named
from scaler_cluster.client.settler import Settler
from scaler_cluster.client.waiter import Waiter
from scaler_cluster.core.client.liveness import (
    CONNECT_TIMEOUT_S,
    HEARTBEAT_S,
    RECONNECT_TIMEOUT_S,
    Liveness,
)
from scaler_cluster.errors import (
    ClusterUnreachableError,
    ConfigError,
    FutureInsideError,
    NamedCallError,
    PayloadError,
    QuotaExceededError,
    ScalerError,
    StorageFullError,
    StorageUnreachableError,
)
from scaler_cluster.links.link import as_reached
from scaler_cluster.pickling.reloads import watch_reloads
from scaler_cluster.process.dashboard_link import DashboardLink
from scaler_cluster.process.interrupts import deferred
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import CLIENT
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    import contextlib
    from collections import deque
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.client_map import ClientMap
    from scaler_cluster.core.client.coordination import Asked
    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.pickling.payload import ObjectReference
    from scaler_cluster.process.embedded_cluster import EmbeddedCluster
    from scaler_cluster.wire.batch import Batch

OWN_KEYS = Credentials(role=CLIENT)
"""Those of this user, where nothing else was said."""

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """A connection to a scheduler, shared by all threads of this process.

    Raises ClusterUnreachableError if nobody answers at ``address`` within ``timeout`` seconds, or
    with the scheduler's sentence if it refuses. After ``silence_s`` without an answer to a
    heartbeat everything fails with ClusterUnreachableError. ``storages`` as for
    :func:`shake_hands`.
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
        silence_s: float = RECONNECT_TIMEOUT_S,
        storages: Sequence[str] = (),
        credentials: Credentials = OWN_KEYS,
    ) -> None:
        self.address = address
        self.cluster = cluster
        self.connection = connection or Connection(address, credentials)
        self._lead = LeaderFollower(self.connection.fd)
        try:
            events = shake_hands(self.connection, timeout, self._dead_child, storages)
        except BaseException:
            self._close_sockets()
            raise
        watch_reloads()
        self.pickler = CallPickler(self.connection)
        self.supplier = InputSupplier(self.connection, self.pickler, self._lead)
        self._settler = Settler(self.connection, self._lead, self.supplier)
        self._waiter = Waiter(self.connection, self._lead, self._settler)
        self._io = IoThread(
            self.connection,
            self._lead,
            self._settler,
            Liveness(heartbeat_s, silence_s, clock()),
            self._dead_child,
            self._look_after_callbacks,
            self._finish,
        )
        self._lists = itertools.count(1)
        self._settler.handle(events)
        _sessions.add(self)

    def _dead_child(self) -> str:
        return self.cluster.dead_child() if self.cluster is not None else ""

    @property
    def monitor_address(self) -> str:
        """Where the scheduler is watched, as reached from here; empty: nowhere."""
        return as_reached(self.connection.welcome.monitor, self.address)

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """Link of the cluster's dashboard, as reached from here; None if it has none."""
        link = as_reached(self.connection.welcome.dashboard, self.address)
        return DashboardLink(link) if link else None

    @property
    def graphs(self) -> SessionGraphs:
        """Return what asks for graphs; not kept, for it refers to this."""
        return SessionGraphs(self)

    @property
    def waits_as(self) -> str:
        """Why no worker can run some tasks now; empty: all are run in time."""
        return self.connection.waits_as

    def new_identity(self) -> bytes:
        """Return what names a client that speaks through this."""
        return self.connection.peer

    @property
    def is_open(self) -> bool:
        """Return True unless it was closed, forked, or its cluster is gone."""
        return self.state == "open"

    @property
    def state(self) -> str:
        """What this is, in a word, for people: open, closed, broken, or another process's."""
        if self.connection.forked:
            return "forked"
        if self.connection.error is not None:
            return "broken"
        return "closed" if self.connection.closing else "open"

    def check_usable(self) -> None:
        """Raise if no task can be submitted.

        SessionForkedError, SessionClosedError or ClusterBrokenError.
        """
        self.connection.check_usable()

    # -- asking ------------------------------------------------------------------------------

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

        With ``again`` also what nobody may write to is looked at. Raises MissingObjectsError.
        """
        connection = self.connection
        if connection.closing or connection.forked or connection.error is not None:
            connection.check_usable()
        held: list[bytes] = []
        try:
            packed, payload, objects = self.pickler.call(function, args, kwargs, held, again=again)
        except FutureInsideError:
            return self.graphs.submit_linked(function, args, kwargs, options, again=again)
        except NamedCallError:
            return submit_named(self, function, args, kwargs, options)
        except (PayloadError, StorageFullError, StorageUnreachableError) as error:
            return self.failed(error)
        future: ScalerFuture[Any] = ScalerFuture(self)
        call = m.CALL_KWARGS if kwargs else m.CALL_ARGS
        sending = connection.submit(packed, call, options, objects, payload, future)
        if held:
            self.pickler.release(held)
        if sending == SEND:
            self.push()
        elif sending != LATER and not self._lead.is_mine:
            self._lead.wake_io()
        return future

    def ask_named(
        self, packed: Function, payload: bytes, options: m.TaskOptions
    ) -> ScalerFuture[Any]:
        """Ask for one call of a named function."""
        future: ScalerFuture[Any] = NamedFuture(self)
        sending = self.connection.submit(packed, m.CALL_NAMED, options, (), payload, future)
        if sending == SEND:
            self.push()
        elif sending != LATER and not self._lead.is_mine:
            self._lead.wake_io()
        return future

    def failed(self, error: Exception) -> ScalerFuture[Any]:
        """Return the future of a call that could not be asked for."""
        self.check_usable()
        future: ScalerFuture[Any] = self.future_class(self)
        self._settler.settle([(future, error)])
        return future

    def wake(self) -> None:
        """Let the I/O thread send what there is to send."""
        self._lead.wake_io()

    def push(self) -> None:
        """Send what is to be sent, and take in what has arrived meanwhile."""
        with deferred:
            self._settler.handle(self.connection.pump())

    def cancel(self, futures: Sequence[ScalerFuture[Any]]) -> int:
        """Give tasks up; return how many had not come back."""
        if self.connection.forked:
            return 0
        with deferred:
            given_up, events = self.connection.cancel([future._task for future in futures])
            for future in given_up:
                future._cancel_here()
            self._settler.handle(events)
        return len(given_up)

    def drop(self, future: ScalerFuture[Any]) -> None:
        """Nobody has this future any more: cancel its task; called from a finalizer, so no lock."""
        if not self.connection.forked:
            self.connection.drop_task(future._task)
            self._lead.wake_io()

    def send_object(self, value: object, name: str) -> ObjectReference:
        """Store a value now; raises PayloadError, StorageFullError, MissingObjectsError."""
        self.check_usable()
        with deferred:
            reference = self.pickler.send_object(value, name)
            self._settler.handle(self.connection.pump())
        return reference

    def clear_objects(self) -> None:
        """Let go of every object that was stored."""
        self.pickler.clear()
        self._lead.wake_io()

    # -- maps --------------------------------------------------------------------------------

    def open_call(self, call: ClientMap) -> int:
        """Take a map in; return the id that its first task will have."""
        with deferred:
            return self.connection.open_call(call)

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
        connection = self.connection
        with deferred:
            events = connection.submit_run(function, first, call, options, objects, batch)
            self._settler.handle(events)

    def put_here(self, call: ClientMap, result: object) -> None:
        """Let a call that is not one of a map's tasks have come back with this."""
        self.connection.put_here(call, result)

    def drop_call(self, call: ClientMap, *, cancel: bool) -> None:
        """Nobody will ask this map for results any more; called from a finalizer, so no lock.

        With ``cancel`` what has not run will not.
        """
        if not self.connection.forked:
            self.connection.drop_call(call, cancel=cancel)
            self._lead.wake_io()

    def leading(self) -> contextlib.AbstractContextManager[None]:
        """Keep the I/O thread asleep while this thread submits and takes in much."""
        return self._waiter.leading()

    # -- waiting -----------------------------------------------------------------------------

    def wait(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None = None,
        timeout: float | None = None,
        task: int | deque[int] = -1,
    ) -> bool:
        """Wait until ``done()``, at most ``timeout`` seconds; return what it returned last.

        ``future`` is the one that is waited for, if it is one alone, or ``task`` tells the tasks.
        """
        return self._waiter.wait(done, future, timeout)

    # -- locks, queues and the like ----------------------------------------------------------

    @property
    def scope_number(self) -> int:
        """What asks here: the number of a task's scope; 0: a program."""
        return 0

    def ask(self, asked: Asked, timeout: float | None) -> m.Coordinated | None:
        """Ask for a lock, a value of a queue or the like, and wait at most ``timeout`` seconds.

        Returns None if there was no answer in time: then nothing was asked for. Raises ConfigError
        or QuotaExceededError if the scheduler refuses, CancelledError if another thread withdraws
        it or its task ends, and else what :meth:`check_usable` does.
        """
        self.check_usable()
        try:
            with deferred:
                with self.connection.coordination() as coordination:
                    coordination.ask(asked)
                self.push()
            self._wait_for_others(
                lambda: asked.is_over or self.connection.error is not None, timeout
            )
            if not asked.is_over:
                self.check_usable()
        except BaseException:
            self.withdraw(asked)
            raise
        if asked.is_withdrawn:
            raise CancelledError("nobody waits for this any more")
        answer = asked.answer
        if answer is None:
            self.withdraw(asked)
        elif answer.refused:
            raise (ConfigError if answer.is_conflict else QuotaExceededError)(answer.refused)
        return answer

    def withdraw(self, asked: Asked, *, has_values: bool = False) -> bool:
        """Give back what was asked for; see :class:`ClientCoordination`.

        Raises SessionForkedError.
        """
        with deferred:
            with self.connection.coordination() as coordination:
                was_here = coordination.withdraw(asked, has_values=has_values)
            if was_here:
                self.push()
        return was_here

    def _wait_for_others(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for what others do; see :meth:`wait`."""
        return self._waiter.wait(done, None, timeout)

    def _look_after_callbacks(self) -> None:
        """Called in the I/O thread after callbacks were run."""

    # -- the end -----------------------------------------------------------------------------

    def close(
        self, reason: str, *, wait: bool = True, cancel_queued: bool = False, abandon: bool = False
    ) -> None:
        """Take no more work; when what was submitted has come back, leave.

        ``cancel_queued`` takes back what no worker has yet, ``abandon`` gives everything up.
        Idempotent; with ``wait`` it returns when everything has ended.
        """
        if self.connection.forked:
            return
        with deferred:
            self.connection.take_no_more(reason)
            if cancel_queued:
                self._settler.handle(self.connection.take_back())
        if abandon:
            self.give_up()
        if not self._io.finished.is_set():
            self._lead.wake_io()
        if wait and not self._io.is_current:
            self._io.finished.wait()

    def give_up(self) -> None:
        """Cancel everything that has not come back."""
        if self.connection.forked or self._io.finished.is_set():
            return
        with deferred:
            cancelled = self.connection.give_up(CancelledError())
            events = self.connection.pump()
            for future in cancelled:
                future._cancel_here()
            self._settler.handle(events)

    def shut_down(self) -> None:
        """Ask the scheduler to end the cluster, and wait until it does.

        Raises ConfigError if it is protected, ClusterUnreachableError if it does not answer.
        """
        settler, connection = self._settler, self.connection
        settler.refused = ""
        connection.say(m.Shutdown())
        self.push()
        has_ended = self.wait(
            lambda: bool(settler.refused or connection.error), timeout=CONNECT_TIMEOUT_S
        )
        if not has_ended:
            raise ClusterUnreachableError(f"the scheduler at {self.address} does not answer")
        if settler.refused:
            raise ConfigError(settler.refused)

    def list_workers(self, timeout: float = CONNECT_TIMEOUT_S) -> m.WorkerList | None:
        """Return the workers that take tasks now; None: the scheduler has not said it in time."""
        self.check_usable()
        number = next(self._lists)
        self.connection.say(m.ListWorkers(number))
        self.push()

        def is_told() -> bool:
            listed = self._settler.listed
            return self.connection.error is not None or (
                listed is not None and listed.number >= number
            )

        self.wait(is_told, timeout=timeout)
        self.check_usable()
        listed = self._settler.listed
        return listed if listed is not None and listed.number >= number else None

    def break_now(self, error: ScalerError) -> None:
        """Fail everything pending with ``error`` and take no more work."""
        with deferred:
            self._io.fail_all(error)

    def _finish(self) -> None:
        connection = self.connection
        if connection.sent is not None:
            connection.sent.keep_results()
        if connection.error is None:
            connection.leave()
        self._close_sockets()
        if self.cluster is not None:
            self.cluster.close_lifelines()
            self.cluster.stop()
        _sessions.discard(self)

    def _close_sockets(self) -> None:
        self._lead.close()
        self.connection.close()

    def mark_forked(self) -> None:
        """This process was forked from the one that made this."""
        self.connection.forked = True
        if self.cluster is not None:
            # The parent's death must reach its cluster, however long this child lives.
            self.cluster.close_lifelines()


def open_sessions() -> list[Session]:
    """Return the sessions of this process through which tasks can be submitted."""
    return [session for session in list(_sessions) if session.is_open]


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
        session.mark_forked()


at_exit.finishers.append(_finish_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
