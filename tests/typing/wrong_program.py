"""A user's slips: never run, but checked, so that a type checker finds each of them.

Each comment is needed: where one of these lines were right, a checker would say that it is not.
"""
# mypy: warn-unused-ignores, enable-error-code="arg-type, operator"
# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from concurrent.futures import as_completed
from typing import Any

from scaler_exec import (
    Client,
    ScalerExecutor,
    ScalerFuture,
    SchedulerClusterCombo,
    Serializer,
    scaler_get,
)


def root(number: int) -> float:
    """Return a square root."""
    return number**0.5


class Half(Serializer):
    """A serializer that cannot read what it wrote."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        """Return an object as bytes."""
        return bytes(obj)


class OfText(Serializer):
    """A serializer that makes text, not bytes."""

    @staticmethod
    def serialize(obj: Any) -> str:  # type: ignore[override]
        """Return an object as text."""
        return str(obj)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        """Return the object."""
        return payload


def misuse_executor() -> None:
    """Give an executor what it does not take."""
    ScalerExecutor(max_workers="2")  # type: ignore[arg-type]
    ScalerExecutor(workers=2)  # type: ignore[call-arg]
    ScalerExecutor(1, None, None, (), 5)  # type: ignore[call-arg]
    with ScalerExecutor() as executor:
        executor.submit(5)  # type: ignore[arg-type]
        executor.submit()  # type: ignore[call-arg]
        executor.map(root, 5)  # type: ignore[arg-type]
        executor.map(root, [1], chunksize="1")  # type: ignore[arg-type]
        executor.options(retries="2")  # type: ignore[arg-type]
        executor.options(prio=2)  # type: ignore[call-arg]
        executor.shutdown(cancel=True)  # type: ignore[call-arg]


def misuse_futures(executor: ScalerExecutor) -> None:
    """Take a result for what it is not."""
    future = executor.submit(root, 4)
    text: str = future.result()  # type: ignore[assignment]
    number: float = future  # type: ignore[assignment]
    other: ScalerFuture[str] = future  # type: ignore[assignment]
    for one in as_completed([future]):
        one.result().upper()  # type: ignore[attr-defined]
    future.result("5")  # type: ignore[arg-type]
    print(text, number, other, future + 1)  # type: ignore[operator]


async def misuse_asyncio(executor: ScalerExecutor) -> None:
    """Take what was awaited for what it is not."""
    text: str = await executor.submit(root, 4)  # type: ignore[arg-type]
    print(text)


def misuse_client(address: str) -> None:
    """Give a client what it does not take."""
    Client(8516)  # type: ignore[arg-type]
    Client(address, serializer=bytes)  # type: ignore[arg-type]
    Client(address, serializer=Half())  # type: ignore[abstract]
    with Client(address) as client:
        client.submit(5)  # type: ignore[arg-type]
        client.map(root, 5)  # type: ignore[arg-type]
        client.starmap(root, [1, 2])  # type: ignore[list-item]
        client.get(["a"], "a")  # type: ignore[arg-type]
        results: list[str] = client.map(root, [1])  # type: ignore[arg-type]
        print(results)
    scaler_get({})  # type: ignore[call-arg]


def misuse_cluster() -> None:
    """Give a cluster what it does not take."""
    SchedulerClusterCombo()  # type: ignore[call-arg]
    SchedulerClusterCombo("2")  # type: ignore[arg-type]
    with SchedulerClusterCombo(2) as cluster:
        cluster.get_adress()  # type: ignore[attr-defined]
