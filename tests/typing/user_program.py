"""A user's program: never run, but checked, so that what people call has the types they expect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Executor, Future, as_completed, wait
from typing import Any

from typing_extensions import assert_type

from scaler_exec import (
    Client,
    DefaultSerializer,
    ObjectReference,
    ProfileResult,
    ScalerError,
    ScalerExecutor,
    ScalerFuture,
    SchedulerClusterCombo,
    Serializer,
    TaskTimeoutError,
    WorkerDiedError,
    rejoin,
    scaler_get,
    secede,
)


def root(number: int) -> float:
    """Return a square root."""
    return number**0.5


def added(one: int, other: int) -> int:
    """Return a sum."""
    return one + other


def told(number: int, *, unit: str) -> str:
    """Return a text."""
    return f"{number} {unit}"


class Json(Serializer):
    """What a user gives a client, to serialize values as JSON."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        """Return an object as bytes."""
        return json.dumps(obj).encode()

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        """Return the object."""
        return json.loads(payload)


def use_any_executor(executor: Executor) -> None:
    """Take whatever executor there is."""
    assert_type(executor.submit(root, 4), Future[float])


def use_executor() -> None:
    """Submit, map, wait and ask for options."""
    with ScalerExecutor(max_workers=2, memory_limit="2GB") as executor:
        assert_type(executor, ScalerExecutor)
        use_any_executor(executor)
        future = executor.submit(root, 4)
        assert_type(future, ScalerFuture[float])
        assert_type(future.result(timeout=5), float)
        assert_type(executor.submit(told, 1, unit="m").result(), str)
        assert_type(executor.map(root, range(5)), Iterator[float])
        assert_type(executor.map(added, [1, 2], [3, 4], buffersize=10), Iterator[int])
        assert_type(executor.options(priority=3, retries=2), ScalerExecutor)
        assert_type(executor.options(capabilities={"gpu": 1}).submit(root, 4).result(), float)
        assert_type(executor.send_object([1]), ObjectReference)
        assert_type(executor.submit(len, executor.send_object([1])).result(), int)
        assert_type(executor.address, str)


def use_futures(executor: ScalerExecutor) -> None:
    """Wait for futures with the functions of the standard library."""
    futures = [executor.submit(root, number) for number in range(4)]
    assert_type(futures, list[ScalerFuture[float]])
    done, not_done = wait(futures)
    assert_type(done, set[Future[float]])
    assert_type(not_done, set[Future[float]])
    for one in as_completed(futures, timeout=5):
        assert_type(one, Future[float])
        assert_type(one.result(), float)
    by_future = {executor.submit(told, number, unit="m"): number for number in range(4)}
    for named in as_completed(by_future):
        assert_type(named.result(), str)
    first = futures[0]
    assert_type(first.cancel(), bool)
    assert_type(first.done(), bool)
    assert_type(first.profiling_info(), ProfileResult)
    first.add_done_callback(lambda ended: print(ended.result() + 1.0))


def use_errors(future: ScalerFuture[float]) -> None:
    """Catch what a task raised, and look at how a worker died."""
    error = future.exception()
    assert_type(error, BaseException | None)
    if isinstance(error, WorkerDiedError):
        assert_type(error.death.pid, int)
        assert_type(error.death.signal, int | None)
    try:
        future.result()
    except TaskTimeoutError as late:
        of_the_library: TimeoutError = late
        ours: ScalerError = late
        print(of_the_library, ours)


async def use_asyncio(executor: ScalerExecutor) -> None:
    """Await a future, and run in an executor."""
    assert_type(await executor.submit(root, 4), float)
    assert_type(await asyncio.get_running_loop().run_in_executor(executor, root, 4), float)


def use_client() -> None:
    """Submit and map on a cluster."""
    with SchedulerClusterCombo(n_workers=2) as cluster, Client(cluster) as client:
        assert_type(cluster, SchedulerClusterCombo)
        assert_type(client, Client)
        assert_type(cluster.get_address(), str)
        assert_type(client.submit(root, 4), ScalerFuture[float])
        assert_type(client.submit_verbose(told, (1,), {"unit": "m"}).result(), str)
        assert_type(client.map(root, [1, 2]), list[float])
        assert_type(client.starmap(root, [(1,), (2,)]), list[float])
        assert_type(client.send_object([1], name="one"), ObjectReference)
        for one in as_completed([client.submit(root, 4)]):
            assert_type(one.result(), float)
        client.progress([client.submit(root, 4)])
        with client.performance_report("report.html"):
            client.clear()
        cluster.shutdown()


def use_serializers(address: str) -> None:
    """Give a client a serializer, as a class or as an instance."""
    for serializer in (Json, Json(), DefaultSerializer, None):
        Client(address, serializer=serializer).disconnect()
    assert_type(Json.serialize([1]), bytes)


def use_dask(client: Client, graph: dict[str, Any]) -> None:
    """Run graphs of Dask on the process's own cluster, and on another one."""
    print(scaler_get(graph, ["a"], retries=2)[0], client.dask_get(graph, "a"))
    print(client.get(graph, ["a"])["a"])


def use_inside_of_tasks() -> float:
    """Submit from within a task, which leaves its place while it waits."""
    secede()
    result = ScalerExecutor().submit(root, 4).result()
    rejoin()
    return result
