"""A user's program: never run, but checked, so that what people call has the types they expect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, Future, as_completed, wait

from typing_extensions import assert_type

from scaler_exec import (
    Client,
    ObjectReference,
    ScalerExecutor,
    ScalerFuture,
    SchedulerClusterCombo,
    WorkerDied,
)


def root(number: int) -> float:
    """Return a square root."""
    return number**0.5


def told(number: int, *, unit: str) -> str:
    """Return a text."""
    return f"{number} {unit}"


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
        assert_type(executor.options(priority=3, retries=2), ScalerExecutor)
        assert_type(executor.send_object([1]), ObjectReference)
        futures = [future]
        done, _ = wait(futures)
        assert_type(done, set[Future[float]])
        for one in as_completed(futures):
            assert_type(one.result(), float)
        error = future.exception()
        if isinstance(error, WorkerDied):
            assert_type(error.death.pid, int)


async def use_asyncio(executor: ScalerExecutor) -> None:
    """Await a future, and run in an executor."""
    assert_type(await executor.submit(root, 4), float)
    assert_type(await asyncio.get_running_loop().run_in_executor(executor, root, 4), float)


def use_client() -> None:
    """Submit and map on a cluster."""
    with SchedulerClusterCombo(n_workers=2) as cluster, Client(cluster) as client:
        assert_type(cluster.get_address(), str)
        assert_type(client.submit(root, 4), ScalerFuture[float])
        assert_type(client.map(root, [1, 2]), list[float])
