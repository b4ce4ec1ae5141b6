"""Named calls: what they carry, what they refuse, and what becomes of them in Python alone."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from scaler_cluster.client.future import settle_all
from scaler_cluster.client.named_calls import NamedFuture
from scaler_cluster.errors import NamedCallError, PayloadError
from scaler_cluster.pickling.exceptions import loads_exception
from scaler_cluster.pickling.named import (
    is_named,
    load_named,
    pack,
    pack_call,
    packed,
    unpack,
    unpack_call,
)
from scaler_cluster.wire.messages import FAILED_EXCEPTION, Failed
from scaler_exec import (
    AsyncClient,
    Client,
    DefaultSerializer,
    NamedFunction,
    RemoteError,
    ScalerExecutor,
    SchedulerClusterCombo,
    TaskTimeoutError,
    UnpicklableResultError,
)
from tests.runtime.helpers import BOUND_S, standing_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

SQRT = NamedFunction("math:sqrt")


# -- what is sent --------------------------------------------------------------------------------


def test_a_function_is_its_name() -> None:
    """Its payload is a list in MessagePack, which begins as no pickle does."""
    _, payload, objects, name = packed(SQRT)

    assert payload == msgpack.packb(["math:sqrt"])
    assert (objects, name) == ((), "math:sqrt")
    assert is_named(payload)
    assert not is_named(pickle.dumps(len))
    assert not is_named(b"")
    assert load_named(payload) == SQRT
    assert load_named(payload) != NamedFunction("math:cos")


@pytest.mark.parametrize("payload", [b"\x91\x01", b"\x90", b"\x91", b"\x91\xa0"])
def test_no_name_is_refused(payload: bytes) -> None:
    """Also what is cut off, or empty."""
    with pytest.raises(PayloadError):
        load_named(payload)


def test_what_is_carried_comes_back() -> None:
    """A tuple becomes a list."""
    args: tuple[Any, ...] = (
        None,
        True,
        -(2**63),
        2**64 - 1,
        1.5,
        "é",
        b"\x80",
        [1, (2,)],
        {"a": {"b": []}},
    )

    found = unpack_call(pack_call(SQRT, args, {"k": 1}))

    assert found == ([*args[:-2], [1, [2]], args[-1]], {"k": 1})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "set"),
        (2**64, "int"),
        ({1: 2}, "the key int 1 of a dict is no text"),
        ([{"a": {b"k": 2}}], "the key bytes b'k' of a dict is no text"),
        ("\ud800", "surrogates"),
        (len, "builtin_function"),
    ],
)
def test_what_is_not_carried_is_named(value: Any, why: str) -> None:
    """The argument at fault, why, and what may be sent."""
    for args, kwargs, place in (((1, value), {}, "argument 1"), ((), {"k": value}, "argument 'k'")):
        with pytest.raises(
            PayloadError, match=f"^{place} of math:sqrt: .* cannot carry "
        ) as caught:
            pack_call(SQRT, args, kwargs)
        assert why in str(caught.value)
        assert "integers of 64 bits" in str(caught.value)


@pytest.mark.parametrize(
    "payload", [pack([]), pack([1, {}]), pack([[], []]), b"\x92", b"\x80\x04."]
)
def test_a_call_that_is_none_is_refused(payload: bytes) -> None:
    """A pickle, too."""
    with pytest.raises(PayloadError):
        unpack_call(payload)


def test_a_pickle_is_never_loaded() -> None:
    """What comes back is taken for MessagePack, whatever it is."""
    with pytest.raises(PayloadError, match="is not in MessagePack"):
        unpack(pickle.dumps([1, 2]))


@pytest.mark.parametrize(
    ("name", "error"), [("", ValueError), ("x" * 201, ValueError), (1, TypeError)]
)
def test_a_name_is_a_short_text(name: Any, error: type[Exception]) -> None:
    """One that is too long would be cut where people see it."""
    with pytest.raises(error, match="name must"):
        NamedFunction(name)


def test_an_error_without_a_pickle_is_told_in_words() -> None:
    """It is no fault of anybody's that it has none."""
    detail = {"type": "RangeError", "message": "no", "traceback": "at f (f.mjs:1:2)"}

    error = loads_exception(b"", detail)

    assert isinstance(error, RemoteError)
    assert str(error) == "RangeError: no"
    assert str(error.__cause__).strip('"\n') == "at f (f.mjs:1:2)"


class _Nobody:
    """Stands for a session."""


def test_no_pickle_that_came_back_is_loaded() -> None:
    """Neither as a result, nor with a failure, nor from a segment."""

    def end(payload: object) -> BaseException | None:
        future: NamedFuture[Any] = NamedFuture(_Nobody())  # type: ignore[arg-type]
        settle_all([(future, payload)])
        return future.exception()

    evil = pickle.dumps(ValueError("unpickled"))
    failed = Failed(0, FAILED_EXCEPTION, evil, {"type": "RangeError", "message": "no"})

    assert end(pack([1])) is None
    assert isinstance(end(evil), PayloadError)
    assert str(end(failed)) == "RangeError: no"
    assert isinstance(end(_Nobody()), PayloadError)
    assert isinstance(end(KeyError("lost")), KeyError)


# -- what becomes of it --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(standing: set[int]) -> Iterator[SchedulerClusterCombo]:
    """Return a cluster with two workers."""
    with standing_cluster(2, standing) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: SchedulerClusterCombo) -> Iterator[Client]:
    """Return a client of it."""
    with Client(cluster.get_address()) as client:
        yield client


def _ask_nested(address: str) -> tuple[Any, Any, str]:
    with Client(address) as client:
        failed = client.submit(SQRT, -1).exception(BOUND_S)
        return client.submit(SQRT, 9).result(BOUND_S), client.map(SQRT, [1, 4]), str(failed)


@pytest.mark.slow
def test_python_calls_by_name(client: Client, cluster: SchedulerClusterCombo) -> None:
    """By all doors: a client, one with a serializer, an asyncio client, an executor, a task."""
    assert client.submit(SQRT, 9).result(BOUND_S) == 3
    assert client.map(SQRT, [1, 4, 9]) == [1, 2, 3]
    assert client.get({"a": (SQRT, 9), "b": (abs, "a")}, ["b"]) == {"b": 3}
    nested = client.submit(_ask_nested, cluster.get_address()).result(BOUND_S)
    assert nested[:2] == (3, [1, 2])
    assert nested[2].startswith("ValueError: ")
    with Client(cluster.get_address(), serializer=DefaultSerializer) as other:
        assert other.submit(SQRT, 9).result(BOUND_S) == 3
        assert other.map(SQRT, [1, 4]) == [1, 2]
    with ScalerExecutor(address=cluster.get_address()) as executor:
        assert list(executor.map(SQRT, [1, 4, 9], chunksize=2)) == [1, 2, 3]

    async def ask() -> Any:
        async with AsyncClient(cluster.get_address()) as other:
            with pytest.raises(NamedCallError, match="can be passed to submit"):
                [one async for one in other.map(SQRT, [1])]
            return await other.submit(SQRT, 9)

    assert asyncio.run(ask()) == 3


@pytest.mark.slow
def test_errors_come_in_words(client: Client) -> None:
    """What was raised, and what has no name, no values, no time."""
    raised = client.submit(SQRT, -1).exception(BOUND_S)
    assert isinstance(raised, RemoteError)
    assert str(raised).startswith("ValueError: ")
    assert "Traceback (most recent call last)" in str(raised.__cause__)
    for name in ("sqrt", "math:no", "no.module:f"):
        unknown = client.submit(NamedFunction(name), 1).exception(BOUND_S)
        assert str(unknown).startswith("LookupError: ")
        assert repr(name) in str(unknown)
    result = client.submit(NamedFunction("builtins:set"), [1]).exception(BOUND_S)
    assert isinstance(result, UnpicklableResultError)
    assert "the worker cannot send the result: a named call cannot carry set {1}" in str(result)
    late = client.options(timeout=0.1).submit(NamedFunction("time:sleep"), 1000)
    assert isinstance(late.exception(BOUND_S), TaskTimeoutError)


@pytest.mark.slow
def test_its_future_is_an_argument_once_it_is_done(client: Client) -> None:
    """Before, the scheduler would hand its result to who unpickles it. A named call takes none."""
    waiting = client.submit(NamedFunction("time:sleep"), 1000)
    done = client.submit(SQRT, 9)
    assert done.result(BOUND_S) == 3

    assert client.submit(pow, done, 2).result(BOUND_S) == 9
    assert client.submit(sum, [done, client.submit(abs, -1)]).result(BOUND_S) == 4
    early = client.submit(pow, waiting, 2).exception(BOUND_S)
    assert isinstance(early, PayloadError)
    assert "cannot be an argument before it is done: pass its result" in str(early)
    refused = client.submit(SQRT, done).exception(BOUND_S)
    assert "argument 0 of math:sqrt: a named call cannot carry NamedFuture" in str(refused)
    assert waiting.cancel()
