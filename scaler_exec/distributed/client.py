"""The client: the calls of distributed's, on a session of this engine."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import wait as wait_for
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask

from scaler_cluster.client import worker_context
from scaler_cluster.client.client import Client as EngineClient
from scaler_cluster.client.future import settle_all
from scaler_cluster.client.task_session import TaskSession
from scaler_cluster.errors import SessionClosedError
from scaler_cluster.process.dashboard_link import widget
from scaler_exec.distributed import current
from scaler_exec.distributed.arriving import Gathered, as_completed
from scaler_exec.distributed.awaiting import Opened, awaited
from scaler_exec.distributed.cluster import LocalCluster
from scaler_exec.distributed.coding import Coding
from scaler_exec.distributed.computing import Computing
from scaler_exec.distributed.future import Future, Task
from scaler_exec.distributed.futures_of import futures_of
from scaler_exec.distributed.managing import Managing
from scaler_exec.distributed.observing import Observing, read_scheduler_file
from scaler_exec.distributed.refused import refused_of
from scaler_exec.distributed.sharing import Sharing
from scaler_exec.distributed.submitting import Submitting
from scaler_exec.distributed.timing import seconds_of

if TYPE_CHECKING:
    import contextlib
    import os
    from collections.abc import Hashable

    from scaler_cluster.client.future import ScalerFuture

CONNECT_TIMEOUT_S = 30.0
_open: weakref.WeakSet[Client] = weakref.WeakSet()


class SchedulerAddress:
    """What ``client.scheduler`` is: where the scheduler is reached."""

    def __init__(self, address: str) -> None:
        self.address = address


class Client(Opened, Submitting, Computing, Observing, Managing, Coding, Sharing):
    """A client of a cluster, with the calls of ``distributed``'s.

    Equal calls share one task as long as somebody has a future of it. A task is cancelled when the
    last future of it goes.

    Args:
        address: The scheduler's address, as "tcp://HOST:PORT" or "HOST:PORT", a
            :class:`LocalCluster` or a ``SchedulerClusterCombo``. None: inside of a task its
            cluster, elsewhere that of Dask's setting ``scheduler-address``, or else a new
            LocalCluster, which ends with this client.
        loop: Ignored, as are the serializers and all else that is not said here.
        timeout: Seconds to wait for the scheduler, or text as "10s"; default: Dask's setting
            ``distributed.comm.timeouts.connect``, or else 30.
        set_as_default: Whether Dask's collections are computed on this cluster, and
            :func:`get_client` returns this, until it is closed.
        scheduler_file: A file with the address, see :meth:`write_scheduler_file`.
        security: The path of keys that ``scaler_keys`` made, or "insecure"; default: the
            environment's.
        asynchronous: For programs of asyncio: the client is made by ``await`` or ``async with``,
            and in the event loop all calls that wait return what is to be awaited.
        name: For people.
        stream_output: Print here what tasks print.
        **cluster: What a new LocalCluster takes, as ``n_workers`` and ``threads_per_worker``.

    Raises:
        ClusterUnreachableError: No scheduler answers in time; it is a ``ConnectionError``.
        TypeError: An argument has the wrong type, or is for a new cluster and there is none.
        ConfigError: A setting cannot work.

    An asynchronous one raises this where it is awaited.

    """

    def __init__(
        self,
        address: str | LocalCluster | Any = None,
        loop: object = None,
        timeout: float | str | None = None,
        set_as_default: bool = True,
        scheduler_file: str | os.PathLike[str] | None = None,
        security: str | os.PathLike[str] | None = None,
        asynchronous: bool = False,
        name: str | None = None,
        heartbeat_interval: object = None,
        serializers: object = None,
        deserializers: object = None,
        extensions: object = None,
        direct_to_workers: object = None,
        connection_limit: object = None,
        *,
        stream_output: bool = False,
        **cluster: Any,
    ) -> None:
        if isinstance(address, type):
            raise TypeError(
                "Scheduler address must be a string or a Cluster instance, not the class "
                f"{address!r}"
            )
        self.asynchronous = asynchronous
        self.cluster: LocalCluster | None = None
        self._owned: LocalCluster | None = None
        self._lock = threading.RLock()
        self._tasks: weakref.WeakValueDictionary[Hashable, Task] = weakref.WeakValueDictionary()
        self._detached: dict[ScalerFuture[Any], Task] = {}
        """Those of :func:`fire_and_forget`, until they are done."""
        self.id = f"{type(self).__name__}-{name or 'scaler'}-{uuid4()}"
        self.status = "connecting"
        self._connecting = partial(
            self._connect,
            address,
            scheduler_file,
            seconds_of("timeout", timeout),
            set_as_default,
            cluster,
            stream_output=stream_output,
            keys=security,
        )
        if not asynchronous:
            self._start()

    def _connect(
        self,
        address: Any,
        scheduler_file: str | os.PathLike[str] | None,
        timeout_s: float | None,
        is_default: bool,
        cluster: dict[str, Any],
        **settings: Any,
    ) -> None:
        if scheduler_file is not None and address is None:
            address = read_scheduler_file(scheduler_file)
        if address is None and not cluster and not worker_context.is_worker():
            address = dask.config.get("scheduler-address", None)
        if timeout_s is None:
            configured = dask.config.get("distributed.comm.timeouts.connect", CONNECT_TIMEOUT_S)
            timeout_s = seconds_of("distributed.comm.timeouts.connect", configured)
            assert timeout_s is not None
        if isinstance(address, str) and "://" not in address:
            address = f"tcp://{address}"
        if isinstance(address, LocalCluster):
            self.cluster = address
        elif address is None and not worker_context.is_worker():
            self.cluster = self._owned = LocalCluster(**cluster)
            address = self._owned
        elif cluster:
            raise TypeError(f"{min(cluster)!r} is for a new cluster, but this client joins one")
        try:
            self._engine = EngineClient(address, timeout_seconds=timeout_s, **settings)
        except BaseException:
            self.status = "closed"
            if self._owned is not None:
                self._owned.close()
            raise
        self.status = "running"
        self.scheduler = SchedulerAddress(self._engine._session.address)
        if is_default and not worker_context.is_worker():
            current.make_default(self)
        _open.add(self)

    # -- futures -----------------------------------------------------------------------------

    @awaited
    def gather(
        self,
        futures: Any,
        errors: str = "raise",
        direct: object = None,
        asynchronous: object = None,
    ) -> Any:
        """Return the results of futures, in the lists, tuples, sets and dicts that hold them.

        Args:
            futures: The futures; of an iterator an iterator is returned.
            errors: "raise" what the first one raised; "skip" leaves those that failed out of a
                list, and puts None in their place elsewhere.
            direct: Ignored.
            asynchronous: Ignored.

        """
        if isinstance(futures, Iterator):
            return (self.gather(one, errors) for one in futures)
        gathered = Gathered(futures, errors)
        for one in as_completed(gathered.pending):
            gathered.take(one, one.task.outcome())
        return gathered.values()

    @awaited
    def cancel(
        self,
        futures: Any,
        asynchronous: object = None,
        force: bool = False,
        reason: str | None = None,
        msg: str | None = None,
    ) -> None:
        """Cancel the tasks of these futures, queued or running, for all who have futures of them.

        A result that is there is let go of. What a task of :func:`fire_and_forget` is or takes runs
        on, unless ``force`` says otherwise. The others make no difference.
        """
        found = [one.task for one in futures_of(futures, self)]
        session = self._engine._session
        kept = {} if force else self._needed()
        # Dropped by those who have it here, but not cancelled.
        session.cancel([one.future for one in found if one.future not in kept])
        for one in found:
            if not one.future.cancelled():
                one.future = session.future_class(session)
                one.future._cancel_here()
            with self._lock:
                self._tasks.pop(one.key, None)

    @awaited
    def retry(self, futures: Any, asynchronous: object = None) -> None:
        """Run tasks that failed again, and those that they take and that failed.

        Raises ValueError for the value of a collection or graph: compute that again.
        """
        for one in futures_of(futures, self):
            one.task.run_again()

    def futures_of(self, futures: Any) -> list[Future[Any]]:
        """Return the futures in containers and collections, see :func:`futures_of`."""
        return futures_of(futures, self)

    def detach(self, futures: Any) -> None:
        """Let tasks be run though nobody keeps futures of them."""
        for one in futures_of(futures, self):
            future = one.future
            self._detached[future] = one.task
            future.add_done_callback(partial(_forget, self._detached))

    def received(self, key: Hashable, came: object) -> Future[Any]:
        """Return a future of a task of others, which came back with this."""
        with self._lock:
            task = self._tasks.get(key)
            if task is None:
                session = self._engine._session
                future: ScalerFuture[Any] = session.future_class(session)
                settle_all([(future, came)])
                task = self._tasks[key] = Task(key, session, future, [], is_kept=True)
        return Future(task, self)

    def _needed(self) -> dict[ScalerFuture[Any], Task]:
        """Return the tasks that :func:`fire_and_forget` let run, and all that these take."""
        needed: dict[ScalerFuture[Any], Task] = {}
        stack = list(self._detached.items())
        while stack:
            future, task = stack.pop()
            if future not in needed:
                needed[future] = task
                stack += [(one.future, one) for one in task.takes]
        return needed

    def _cancel_all(self) -> None:
        with self._lock:
            needed = self._needed()
            tasks = [one for one in self._tasks.values() if one.future not in needed]
        self.cancel([Future(one, self) for one in tasks])

    # -- the end -----------------------------------------------------------------------------

    @awaited
    def close(self, timeout: object = None) -> None:
        """Cancel all tasks but those of :func:`fire_and_forget`, wait for these, and leave.

        A cluster that was made for this client ends. Idempotent.
        """
        if self.status != "running":
            return
        self.status = "closed"
        current.drop_default(self)
        session = self._engine._session
        is_nested = isinstance(session, TaskSession)
        try:
            if self._detached and not is_nested:
                self._cancel_all()
                wait_for(list(self._detached))
        finally:
            if not is_nested:
                self._engine.disconnect()
            if self._owned is not None:
                self._owned.close()

    @awaited
    def shutdown(self) -> None:
        """End the cluster, with its scheduler and all workers.

        Raises ConfigError if the scheduler is protected from this; the client is closed all the
        same.
        """
        try:
            if self.cluster is not None:
                self._engine.disconnect()
                self.cluster.close()
            else:
                self._engine.shutdown()
        finally:
            self.close()

    def as_current(self) -> contextlib.AbstractContextManager[None]:
        """Let this be the default client in the body of ``with``, of this thread."""
        return current.as_current(self)

    @classmethod
    def current(cls, allow_global: bool = True) -> Any:
        """Return the default client, or that of this context alone; raises ValueError."""
        return current.default_client(is_global=allow_global)

    @awaited
    def start(self) -> None:
        """Connect an asynchronous client that is not connected; others are from the beginning."""
        self._start()

    def _start(self) -> None:
        with self._lock:
            if self.status == "connecting":
                self._connecting()

    def __repr__(self) -> str:
        """Show where the scheduler is, and how many workers there are."""
        if self.status != "running":
            return f"<{type(self).__name__}: No scheduler connected>"
        return f"<{type(self).__name__}: {self.scheduler.address!r}{self._sizes()}>"

    def _repr_html_(self) -> str:
        link = self._engine.dashboard_link if self.status == "running" else None
        return widget(self, link)

    def __getattr__(self, name: str) -> Any:
        if name in {"_engine", "scheduler"}:
            raise SessionClosedError(
                "this client is not connected yet: await it, or use it by `async with`"
            )
        return refused_of(self, "Client", name)

    def __reduce__(self) -> Any:
        raise TypeError("this client cannot be pickled: a task calls get_client()")


def _forget(detached: dict[ScalerFuture[Any], Task], future: Any) -> None:
    detached.pop(future, None)


LocalCluster.client_class = Client


def _close_all() -> None:
    """Close the clients that the program leaves open."""
    for one in list(_open):
        one.close()


atexit.register(_close_all)
