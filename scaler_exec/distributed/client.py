"""The client: the calls of distributed's, on a session of this engine."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import wait as wait_for
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scaler_cluster import arguments
from scaler_cluster.client import worker_context
from scaler_cluster.client.client import Client as EngineClient
from scaler_cluster.client.dask_graph import merge_options
from scaler_cluster.client.task_session import TaskSession
from scaler_exec.distributed import current
from scaler_exec.distributed.arriving import Gathered, as_completed
from scaler_exec.distributed.cluster import LocalCluster
from scaler_exec.distributed.coding import Coding
from scaler_exec.distributed.computing import Computing
from scaler_exec.distributed.future import Future, Task
from scaler_exec.distributed.futures_of import futures_of
from scaler_exec.distributed.observing import Observing, read_scheduler_file
from scaler_exec.distributed.refused import refused_of
from scaler_exec.distributed.submitting import Submitting
from scaler_exec.distributed.timing import seconds_of

if TYPE_CHECKING:
    import contextlib
    import os
    from collections.abc import Hashable
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.client.future import ScalerFuture
    from scaler_exec.executor import ScalerExecutor

EXECUTOR_KEYWORDS = frozenset(
    ("allow_other_workers", "priority", "pure", "resources", "retries", "workers")
)
"""What :meth:`Client.get_executor` takes; ``pure`` makes no difference."""
CONNECT_TIMEOUT_S = 30.0
_open: weakref.WeakSet[Client] = weakref.WeakSet()


class SchedulerAddress:
    """What ``client.scheduler`` is: where the scheduler is reached."""

    def __init__(self, address: str) -> None:
        self.address = address


class Client(Submitting, Computing, Observing, Coding):
    """A client of a cluster, with the calls of ``distributed``'s.

    Equal calls share one task as long as somebody has a future of it. A task is cancelled when the
    last future of it goes.

    Args:
        address: The scheduler's address, as "tcp://HOST:PORT" or "HOST:PORT", a
            :class:`LocalCluster` or a ``SchedulerClusterCombo``. None: inside of a task its
            cluster, elsewhere a new LocalCluster, which ends with this client.
        loop: Ignored, as are the serializers and all else that is not said here.
        timeout: Seconds to wait for the scheduler, or text as "10s"; default: 30.
        set_as_default: Whether Dask's collections are computed on this cluster, and
            :func:`get_client` returns this, until it is closed.
        scheduler_file: A file with the address, see :meth:`write_scheduler_file`.
        security: The path of keys that ``scaler_keys`` made, or "insecure"; default: the
            environment's.
        asynchronous: Must be False: futures and :class:`as_completed` can be awaited anyway.
        name: For people.
        stream_output: Print here what tasks print.
        **cluster: What a new LocalCluster takes, as ``n_workers`` and ``threads_per_worker``.

    Raises:
        ClusterUnreachableError: No scheduler answers in time; it is a ``ConnectionError``.
        NotImplementedError: ``asynchronous`` is True.
        TypeError: An argument has the wrong type, or is for a new cluster and there is none.
        ConfigError: A setting cannot work.

    """

    asynchronous = False
    """For Dask, which asks every client."""

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
        if asynchronous:
            raise NotImplementedError(
                "Client(asynchronous=True) is not served: use this client, whose futures can be "
                "awaited and whose as_completed is an asynchronous iterator as well"
            )
        if scheduler_file is not None and address is None:
            address = read_scheduler_file(scheduler_file)
        if isinstance(address, type):
            raise TypeError(f"address must be a text or a cluster, not the class {address!r}")
        if isinstance(address, str) and "://" not in address:
            address = f"tcp://{address}"
        self.cluster: LocalCluster | None = None
        self._owned: LocalCluster | None = None
        if isinstance(address, LocalCluster):
            self.cluster = address
        elif address is None and not worker_context.is_worker():
            self.cluster = self._owned = LocalCluster(**cluster)
            address = self._owned
        elif cluster:
            raise TypeError(f"{min(cluster)!r} is for a new cluster, but this client joins one")
        waits_s = seconds_of("timeout", timeout)
        try:
            self._engine = EngineClient(
                address,
                timeout_seconds=CONNECT_TIMEOUT_S if waits_s is None else waits_s,
                stream_output=stream_output,
                keys=security,
            )
        except BaseException:
            if self._owned is not None:
                self._owned.close()
            raise
        self._lock = threading.RLock()
        self._tasks: weakref.WeakValueDictionary[Hashable, Task] = weakref.WeakValueDictionary()
        self._detached: dict[ScalerFuture[Any], Task] = {}
        """Those of :func:`fire_and_forget`, until they are done."""
        self.id = f"{type(self).__name__}-{name or 'scaler'}-{uuid4()}"
        self.status = "running"
        self.scheduler = SchedulerAddress(self._engine._session.address)
        if set_as_default and not worker_context.is_worker():
            current.make_default(self)
        _open.add(self)

    # -- futures -----------------------------------------------------------------------------

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

    # -- the cluster -------------------------------------------------------------------------

    @property
    def dashboard_link(self) -> str:
        """The link that opens the cluster's dashboard; empty: there is none."""
        return str(self._engine.dashboard_link or "")

    def get_executor(self, **named: Any) -> ScalerExecutor:
        """Return a :class:`concurrent.futures.Executor` on the same cluster.

        ``named`` are ``workers``, ``resources``, ``retries`` and ``priority`` of its tasks, each of
        which is its own. It is a connection of its own: shut it down.
        """
        from scaler_exec.executor import ScalerExecutor

        engine = self._engine
        # Before it connects: a keyword may be wrong.
        unknown = named.keys() - EXECUTOR_KEYWORDS
        if unknown:
            raise TypeError(f"get_executor() does not know the argument {min(unknown)!r}")
        merge_options(engine._asked.own, named)
        executor = ScalerExecutor(address=engine._session.address, keys=engine._settings.keys)
        asked = executor._asked
        executor._take_options(replace(asked, own=merge_options(asked.own, named)))
        return executor

    def forward_logging(self, logger_name: str | None = None, level: int | str = 1) -> None:
        """Pass what tasks log from now on to the loggers of the same names here.

        Of the tasks that are submitted from now on, from a level on. Raises NotImplementedError
        for one logger alone.
        """
        if logger_name:
            raise NotImplementedError(
                "forward_logging passes on what all loggers log: filter it at the logger here"
            )
        self._forward(arguments.log_level(level or 1))

    def unforward_logging(self, logger_name: str | None = None) -> None:
        """Pass on nothing of tasks that are submitted from now on."""
        self._forward(0)

    def _forward(self, level: int) -> None:
        asked = self._engine._asked
        self._engine._take_options(replace(asked, own=replace(asked.own, log_level=level)))

    def restart(self, timeout: float | str | None = None, wait_for_workers: bool = True) -> None:
        """Cancel all tasks of this client, and replace all workers of its LocalCluster.

        Raises NotImplementedError if the cluster is another one, TimeoutError.
        """
        if self.cluster is None:
            raise NotImplementedError(
                "restart() replaces the workers of a LocalCluster; those of another cluster belong "
                "to other clients as well"
            )
        timeout_s = seconds_of("timeout", timeout)
        self._cancel_all()
        workers = self.cluster.resize(0)
        try:
            self._await_snapshot(lambda now: not now.workers, timeout_s)
        finally:
            self.cluster.resize(workers)
        if wait_for_workers:
            self.wait_for_workers(workers, timeout_s)

    def _cancel_all(self) -> None:
        with self._lock:
            needed = self._needed()
            tasks = [one for one in self._tasks.values() if one.future not in needed]
        self.cancel([Future(one, self) for one in tasks])

    # -- the end -----------------------------------------------------------------------------

    def close(self, timeout: object = None) -> None:
        """Cancel all tasks but those of :func:`fire_and_forget`, wait for these, and leave.

        A cluster that was made for this client ends. Idempotent.
        """
        if self.status == "closed":
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
    def current(cls) -> Any:
        """Return the default client; raises ValueError if there is none."""
        return current.default_client()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Show its state and the scheduler's address."""
        return f"<Client: {self.status}, scheduler={self.scheduler.address!r}>"

    def __getattr__(self, name: str) -> Any:
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
