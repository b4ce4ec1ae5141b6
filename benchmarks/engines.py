"""Engines that run in an environment of their own: :mod:`benchmarks.environments` makes it.

Each is set up as its own documentation recommends for many small tasks on one machine.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.peer import ExecutorPeer, Peer
from benchmarks.tasks import run_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def by_handles(submit: Callable[..., Any], graph: dict[Any, Any], keys: Sequence[Any]) -> list[Any]:
    """Submit each node of a graph, in its order, with the handles of those it takes."""
    handles: dict[Any, Any] = {}
    for key, (function, *arguments) in graph.items():
        handles[key] = submit(function, *(handles.get(value, value) for value in arguments))
    return [handles[key] for key in keys]


class Mpire(Peer):
    """mpire: one pool for maps and another for lone calls, as one of both kinds confuses it."""

    name = "mpire"
    module = "mpire"
    distribution = "mpire"

    def __init__(self) -> None:
        self.pools: dict[str, Any] = {}

    def pool(self, kind: str) -> Any:
        """Return the pool of a kind; the first use starts it."""
        if kind not in self.pools:
            module = importlib.import_module("mpire")
            self.pools[kind] = module.WorkerPool(n_jobs=self.workers, keep_alive=True)
        return self.pools[kind]

    def open(self) -> None:
        """Nothing: workers start with the first call."""

    def close(self) -> None:
        while self.pools:
            _, pool = self.pools.popitem()
            pool.stop_and_join()

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        results: Iterable[Any] = self.pool("map").imap(function, items, chunk_size=chunksize)
        return results

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        return self.pool("apply").apply_async(function, (item,))

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return [handle.get() for handle in handles]

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        """Have a pool inherit the value, which is how mpire shares objects."""
        module = importlib.import_module("mpire")
        with module.WorkerPool(n_jobs=self.workers, shared_objects=value) as pool:
            results: Sequence[Any] = pool.map(function, items)
        return results


class Parsl(ExecutorPeer):
    """Parsl's executor for many short tasks, with one block of workers on this machine."""

    name = "parsl"
    module = "parsl"
    distribution = "parsl"
    scale = 50
    depth_max = 10_000

    def __init__(self) -> None:
        super().__init__()
        self.place: Any = None

    def make(self) -> Any:
        parsl = importlib.import_module("parsl")
        high_throughput = importlib.import_module("parsl.executors").HighThroughputExecutor(
            label="benchmark",
            address="127.0.0.1",
            loopback_address="127.0.0.1",
            max_workers_per_node=self.workers,
            cores_per_worker=1e-6,
            prefetch_capacity=self.workers,
            encrypted=False,
            provider=importlib.import_module("parsl.providers").LocalProvider(
                init_blocks=1, min_blocks=1, max_blocks=1
            ),
        )
        self.place = tempfile.TemporaryDirectory(prefix="scaler-benchmarks-")
        config = parsl.Config(
            executors=[high_throughput],
            run_dir=self.place.name,
            strategy="none",
            initialize_logging=False,
        )
        return importlib.import_module("parsl.concurrent").ParslPoolExecutor(config=config)

    def close(self) -> None:
        super().close()
        self.place.cleanup()

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        return self.collect(by_handles(self.executor.submit, graph, keys))


class Executorlib(ExecutorPeer):
    """executorlib with processes that are kept, which it calls block allocation."""

    name = "executorlib"
    module = "executorlib"
    distribution = "executorlib"
    scale = 50
    depth_max = 10_000

    def make(self) -> Any:
        return importlib.import_module("executorlib").SingleNodeExecutor(
            max_workers=self.workers, block_allocation=True, hostname_localhost=True
        )

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        return self.collect(by_handles(self.executor.submit, graph, keys))


class Ray(Peer):
    """Ray without its dashboard. Where calls go in chunks, a task has a chunk of them."""

    name = "ray"
    module = "ray"
    distribution = "ray"
    scale = 20
    depth_max = 10_000

    def __init__(self) -> None:
        self.functions: dict[Any, Any] = {}

    def load(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["RAY_AUTH_MODE"] = "disabled"
        super().load()

    def open(self) -> None:
        importlib.import_module("ray").init(
            num_cpus=self.workers,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
        )

    def close(self) -> None:
        self.functions.clear()
        importlib.import_module("ray").shutdown()

    def remote(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what submits a function, which Ray exports once."""
        if function not in self.functions:
            self.functions[function] = importlib.import_module("ray").remote(function).remote
        submit: Callable[..., Any] = self.functions[function]
        return submit

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        if chunksize == 1:
            return self.collect([self.submit(function, item) for item in items])
        starts = range(0, len(items), chunksize)
        batches = [
            self.remote(run_batch)(function, items[start : start + chunksize]) for start in starts
        ]
        return [result for batch in self.collect(batches) for result in batch]

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        if isinstance(function, partial):
            return self.remote(function.func)(item, **function.keywords)
        return self.remote(function)(item)

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        results: list[Any] = importlib.import_module("ray").get(list(handles))
        return results

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        shared = importlib.import_module("ray").put(value)
        return self.collect([self.remote(function)(shared, item) for item in items])

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        return self.collect(
            by_handles(lambda function, *values: self.remote(function)(*values), graph, keys)
        )


class Scaler(Peer):
    """opengris-scaler, whose package has the name of the one that we have for its programs."""

    name = "scaler"
    module = "scaler"
    distribution = "opengris-scaler"
    scale = 200
    depth_max = 10_000

    def __init__(self) -> None:
        self.cluster: Any = None
        self.client: Any = None

    def load(self) -> None:
        try:
            importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError as error:
            raise ImportError(str(error)) from error
        super().load()

    def open(self) -> None:
        scaler = importlib.import_module("scaler")
        self.cluster = scaler.SchedulerClusterCombo(
            n_workers=self.workers, logging_level="ERROR", logging_paths=(os.devnull,)
        )
        self.client = scaler.Client(address=self.cluster.get_address())

    def close(self) -> None:
        self.client.disconnect()
        self.cluster.shutdown()

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        results: Iterable[Any] = self.client.map(function, items)
        return results

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        return self.client.submit(function, item)

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        shared = self.client.send_object(value)
        return self.collect([self.client.submit(function, shared, item) for item in items])

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        """Have values be nodes of their own, and keys be texts, as it wants them."""
        texts = {key: repr(key) for key in graph}
        nodes: dict[str, Any] = {}
        for key, (function, *arguments) in graph.items():
            names = []
            for number, value in enumerate(arguments):
                if value in texts:
                    names.append(texts[value])
                    continue
                names.append(f"{texts[key]} {number}")
                nodes[names[-1]] = value
            nodes[texts[key]] = (function, *names)
        results = self.client.get(nodes, [texts[key] for key in keys])
        return [results[texts[key]] for key in keys]
