"""The libraries that are compared, by name.

A library is imported when its peer is opened and never before: whoever measures one peer pays
nothing for the others, and a missing one is no error until it is asked for.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.engines import Executorlib, Mpire, Parsl, Ray, Scaler
from benchmarks.peer import ExecutorPeer, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Ours(ExecutorPeer):
    """The engine of this repository, as an embedded cluster."""

    name = "ours"
    module = "scaler_exec"
    distribution = "scaler-exec"
    depth_max = 1_000_000
    copies = False

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = None

    def make(self) -> Any:
        from scaler_exec import ScalerExecutor

        return ScalerExecutor(max_workers=self.workers)

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        return list(self._client().get(graph, keys).values())

    def compute(self, collection: Any) -> Any:
        return _computed(collection, scheduler=self._client())

    def _client(self) -> Any:
        from scaler_exec import Client

        if self.client is None:
            self.client = Client(self.executor.address)
        return self.client

    def close(self) -> None:
        if self.client is not None:
            self.client.disconnect()
            self.client = None
        super().close()

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        return list(self.executor.map(function, itertools.repeat(value), items))

    def share_sent(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        """As :meth:`share`, with a value that is sent ahead."""
        reference = self.executor.send_object(value)
        return self.collect([self.executor.submit(function, reference, item) for item in items])


class ProcessPool(ExecutorPeer):
    """The standard library's executor."""

    name = "ppe"
    module = "concurrent.futures"

    def make(self) -> Any:
        return ProcessPoolExecutor(max_workers=self.workers)


class Loky(ExecutorPeer):
    """loky's executor, as joblib uses it."""

    name = "loky"
    module = "loky"
    distribution = "loky"

    def make(self) -> Any:
        return importlib.import_module("loky").ProcessPoolExecutor(max_workers=self.workers)


class MultiprocessingPool(Peer):
    """The standard library's pool: ``imap`` for a map, ``apply_async`` for a submit."""

    name = "pool"
    module = "multiprocessing.pool"
    copies = True

    def __init__(self) -> None:
        self.pool: Any = None

    def open(self) -> None:
        self.pool = multiprocessing.Pool(self.workers)

    def close(self) -> None:
        self.pool.close()
        self.pool.join()

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        results: Iterable[Any] = self.pool.imap(function, items, chunksize)
        return results

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        return self.pool.apply_async(function, (item,))

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        return self.collect([self.pool.apply_async(function, (value, item)) for item in items])

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return [handle.get() for handle in handles]


def _computed(collection: Any, **config: Any) -> Any:
    """Compute a collection as a program does that has set its scheduler once.

    So what Dask computes on the way, as the borders of partitions, runs there too.
    """
    from dask import config as dask_config

    with dask_config.set(**config):
        return collection.compute()


class _Gathered:
    """Futures of Dask that are gathered in one go when somebody iterates."""

    def __init__(self, client: Any, futures: Sequence[Any]) -> None:
        self.client = client
        self.futures = futures

    def __iter__(self) -> Iterator[Any]:
        return iter(self.client.gather(self.futures))


class Dask(Peer):
    """Dask distributed: a scheduler in this process, worker processes of one thread each.

    ``pure=False``: results of an earlier, equal call must not answer for this one.
    """

    name = "dask"
    module = "distributed"
    distribution = "distributed"
    scale = 10
    depth_max = 10_000
    is_threaded: ClassVar[bool] = False
    """One process has all workers as threads."""

    def __init__(self) -> None:
        self.cluster: Any = None
        self.client: Any = None

    def open(self) -> None:
        distributed = importlib.import_module("distributed")
        self.cluster = distributed.LocalCluster(
            n_workers=1 if self.is_threaded else self.workers,
            threads_per_worker=self.workers if self.is_threaded else 1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        )
        self.client = distributed.Client(self.cluster)

    def close(self) -> None:
        self.client.close()
        self.cluster.close()

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        return _Gathered(self.client, self.client.map(function, items, pure=False))

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        return self.client.submit(function, item, pure=False)

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        shared = self.client.scatter(value, broadcast=True, hash=False)
        futures = [self.client.submit(function, shared, item, pure=False) for item in items]
        return self.collect(futures)

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        results: Sequence[Any] = self.client.get(graph, keys)
        return results

    def compute(self, collection: Any) -> Any:
        return _computed(collection, scheduler=self.client)

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        results: list[Any] = self.client.gather(handles)
        return results


class DaskOneWorker(Dask):
    """Dask distributed with one worker process of as many threads as the others have workers."""

    name = "dask_1x2"
    is_threaded = True


class DaskLocal(Peer):
    """A scheduler of Dask itself, without distributed: it computes collections and nothing else."""

    module = "dask"
    distribution = "dask"

    def open(self) -> None:
        """There is nothing to start."""

    def close(self) -> None:
        """There is nothing to end."""

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        raise NotImplementedError

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        raise NotImplementedError

    def compute(self, collection: Any) -> Any:
        return _computed(collection, scheduler=self.name)


class DaskSynchronous(DaskLocal):
    """One task after the other, in this thread."""

    name = "sync"


class DaskThreads(DaskLocal):
    """Threads of this process."""

    name = "threads"

    def compute(self, collection: Any) -> Any:
        return _computed(collection, scheduler=self.name, num_workers=self.workers)


class DaskProcesses(DaskLocal):
    """A pool of processes, as Dask makes it, that is kept: a new one each time costs seconds."""

    name = "processes"

    def __init__(self) -> None:
        self.pool: Any = None

    def open(self) -> None:
        from dask import multiprocessing as dask_processes

        self.pool = ProcessPoolExecutor(
            self.workers,
            mp_context=dask_processes.get_context(),
            initializer=dask_processes.initialize_worker_process,
        )

    def close(self) -> None:
        self.pool.shutdown()

    def compute(self, collection: Any) -> Any:
        return _computed(collection, scheduler=self.name, pool=self.pool)


class Joblib(Peer):
    """joblib with its default backend and batches of its own size. A call gives all results."""

    name = "joblib"
    module = "joblib"
    distribution = "joblib"
    is_whole = True

    def __init__(self) -> None:
        self.parallel: Any = None

    def open(self) -> None:
        self.parallel = importlib.import_module("joblib").Parallel(n_jobs=self.workers)
        self.parallel.__enter__()

    def close(self) -> None:
        self.parallel.__exit__(None, None, None)
        # Else its workers stay for the next one.
        get_executor = importlib.import_module("joblib.externals.loky").get_reusable_executor
        get_executor(max_workers=self.workers).shutdown()

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        calls = [self.submit(function, item) for item in items]
        if chunksize == 1:
            return self.collect(calls)
        joblib = importlib.import_module("joblib")
        results: list[Any] = joblib.Parallel(n_jobs=self.workers, batch_size=chunksize)(calls)
        return results

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        return importlib.import_module("joblib").delayed(function)(item)

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        delayed = importlib.import_module("joblib").delayed(function)
        return self.collect([delayed(value, item) for item in items])

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        results: list[Any] = self.parallel(handles)
        return results


class BarePipeline(Peer):
    """No library at all: the sockets alone. Only the scenario of its name runs on it."""

    name = "bare"
    module = "zmq"
    distribution = "pyzmq"

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        raise NotImplementedError

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        raise NotImplementedError


PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        Ours,
        ProcessPool,
        MultiprocessingPool,
        Loky,
        Joblib,
        Mpire,
        Parsl,
        Executorlib,
        Ray,
        Scaler,
        Dask,
        DaskOneWorker,
        DaskProcesses,
        DaskThreads,
        DaskSynchronous,
        BarePipeline,
    )
}
