"""The client for programs of asyncio."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster import arguments
from scaler_cluster.client import event_loops, worker_context
from scaler_cluster.client.async_map import async_map
from scaler_cluster.client.client import Client
from scaler_cluster.client.dask_names import is_of_dask
from scaler_cluster.client.graph import Arrangement
from scaler_cluster.client.graph_runner import CancellableRunner
from scaler_cluster.client.kept_calls import refuse_graphs
from scaler_cluster.combo import SchedulerClusterCombo
from scaler_cluster.errors import ConfigError, SessionClosedError
from scaler_cluster.process.process import usable_cpus

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Mapping
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from scaler_cluster.client.call_options import CallKeywords
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.config.values import HasAddress
    from scaler_cluster.pickling.payload import ObjectReference
    from scaler_cluster.process.dashboard_link import DashboardLink

T = TypeVar("T")


class AsyncClient:
    """A client for asyncio, of a running cluster or of one of its own; use it by ``async with``.

    Nothing that it does blocks the event loop, but for the pickling of functions and arguments, and
    with a cache for their digests and for reading what is kept.
    It can be used from several event loops and threads at a time.

    Args:
        address: As for :class:`Client`. Default: the cluster that runs the task, inside of a task;
            elsewhere a cluster on this machine, which is started here and ends with the client.
        n_workers: How many workers that one has; default: the CPUs that this process may use.
        **settings: As for :class:`Client`.

    Raises:
        TypeError: An argument has the wrong type, or ``n_workers`` is given with an address.

    The first ``async with`` or ``await`` raises what :class:`Client` raises.

    """

    def __init__(
        self,
        address: str | HasAddress | None = None,
        *,
        n_workers: int | None = None,
        **settings: Any,
    ) -> None:
        if n_workers is not None:
            if address is not None:
                raise TypeError("n_workers is for a cluster of the client's own: without address")
            n_workers = arguments.whole("n_workers", n_workers, 1)
        self._address = address
        self._n_workers = n_workers
        self._settings = settings
        self._combo: SchedulerClusterCombo | None = None
        self._joined: Client | None = None
        self._joining = threading.Lock()

    # -- the way in and out ------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        """Connect; :meth:`close` is then up to the caller."""
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Cancel all tasks that are pending, and leave the cluster; idempotent.

        A cluster of the client's own ends.
        """
        await asyncio.to_thread(self._leave)

    async def _open(self) -> Self:
        if self._joined is None:
            await asyncio.to_thread(self._join)
        return self

    def _join(self) -> None:
        # Several coroutines and threads may use it for the first time at once.
        with self._joining:
            if self._joined is None:
                self._connect()

    def _connect(self) -> None:
        address = self._address
        if address is None and worker_context.nested_session(None) is None:
            address = self._combo = SchedulerClusterCombo(self._n_workers or usable_cpus())
        try:
            self._joined = Client(address, **self._settings)
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        if self._joined is not None:
            self._joined.disconnect()
        if self._combo is not None:
            self._combo.shutdown()

    @property
    def _client(self) -> Client:
        if self._joined is None:
            raise SessionClosedError("this AsyncClient is not connected: use it by `async with`")
        return self._joined

    # -- what it asks for --------------------------------------------------------------------

    def options(self, **named: Unpack[CallKeywords]) -> AsyncClient:
        """Return a view of this client that submits with these options; see Client.options."""
        view = AsyncClient.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._joined = self._client.options(**named)
        return view

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> ScalerFuture[T]:
        """Submit ``fn(*args, **kwargs)`` as a task and return its future, to be awaited.

        Where a coroutine that awaits it is cancelled, so is the task, also if it runs. If the
        task itself is cancelled, who awaits it gets :class:`asyncio.CancelledError`. Raises as
        :meth:`Client.submit` does.
        """
        return self._client.submit(fn, *args, **kwargs)

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any] | AsyncIterable[Any],
        buffersize: int | None = None,
    ) -> AsyncIterator[T]:
        """Return the results of ``fn`` over ``iterables``, in order, as they come: ``async for``.

        The first step submits the first calls. An exception of a call or of an iterable ends it.
        What has not run then, or when the iteration is given up, is cancelled.

        Args:
            fn: Called with one item of each iterable.
            *iterables: The shortest one ends it. They may be asynchronous, and endless.
            buffersize: Calls submitted ahead of the results taken; default: 10,000.

        Raises ConfigError if results are to be kept by a cache.

        """
        arguments.function(fn, "map")
        if not iterables:
            raise TypeError("map() must have at least one iterable")
        if buffersize is not None:
            buffersize = arguments.whole("buffersize", buffersize, 1)
        client = self._client
        serialization = client._serialization
        asked = client._asked.of(fn)
        if asked.cache is not None:
            raise ConfigError(
                "the results of an asynchronous map are not kept: submit the calls one by one, or "
                "map by options(cache=None)"
            )
        return async_map(
            client._session,
            fn if serialization is None else serialization.function(fn),
            iterables,
            asked,
            value=None if serialization is None else serialization.value,
            buffersize=buffersize,
        )

    async def get(self, graph: Mapping[Any, Any], keys: Iterable[Any], **named: Any) -> Any:
        """Run a graph and return a dict of the values of ``keys``; see :meth:`Client.get`.

        If who awaits it is cancelled, or a node raises, the rest of the graph is cancelled. Graphs
        of Dask are taken as :meth:`Client.get` takes them.
        """
        client = self._client
        if is_of_dask(graph, keys):
            return await _get_of_dask(client, graph, keys, named)
        start = partial(client.get, graph, keys, block=False, **named)
        starting = asyncio.ensure_future(asyncio.to_thread(start))
        try:
            futures = await asyncio.shield(starting)
            # Who stops waiting cancels what was made here, not what the graph was given.
            waiting = (asyncio.shield(asyncio.ensure_future(one)) for one in futures.values())
            values = await asyncio.gather(*waiting)
        except BaseException:
            # The thread may still be making them.
            starting.add_done_callback(partial(_give_up, client, graph))
            raise
        return dict(zip(futures, values, strict=True))

    def as_completed(self, futures: Iterable[ScalerFuture[T]]) -> AsyncIterator[ScalerFuture[T]]:
        """Return futures for ``async for``, each as soon as it is done."""
        return event_loops.as_completed(futures)

    async def send_object(self, obj: Any, name: str | None = None) -> ObjectReference:
        """Store a value now, and return a reference to it; see :meth:`Client.send_object`."""
        return await asyncio.to_thread(self._client.send_object, obj, name)

    async def shutdown(self) -> None:
        """Cancel all tasks that are pending, and end the cluster; see :meth:`Client.shutdown`."""
        await asyncio.to_thread(self._client.shutdown)

    @property
    def dashboard_link(self) -> DashboardLink | None:
        """The link that opens the cluster's dashboard; None: the cluster has none."""
        return self._client.dashboard_link

    @property
    def monitor_address(self) -> str:
        """The address for monitors, such as ``scaler_top``; empty: the scheduler has none."""
        return self._client.monitor_address

    def __repr__(self) -> str:
        """Show what it is connected to."""
        return f"<{type(self).__name__} of {self._joined!r}>"


def _give_up(client: Client, graph: Mapping[Any, Any], starting: asyncio.Future[Any]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        futures = starting.result().values()
        client._graphs.cancel_made(Arrangement.futures_of(graph), futures)


async def _get_of_dask(client: Client, graph: Any, keys: Any, named: dict[str, Any]) -> Any:
    from scaler_cluster.client import dask_graph

    refuse_graphs(client._asked)
    runner = CancellableRunner(client._session, client._serialization)
    options = client._asked.unmeasured
    try:
        return await asyncio.to_thread(dask_graph.get, runner, graph, keys, options, **named)
    except asyncio.CancelledError:
        runner.give_up()
        raise
