"""Client.get and futures as arguments, on real processes."""

from __future__ import annotations

import graphlib
import os
import pickle
import re
import signal
import threading
from concurrent.futures import CancelledError
from typing import Any

import cloudpickle
import numpy as np
import pytest

from scaler_cluster.errors import UnpicklableResultError
from scaler_cluster.pickling import payload
from scaler_cluster.pickling.nodes import Call, Ref
from scaler_cluster.wire.codec import HEADER_BYTES_MAX
from scaler_exec import (
    Client,
    PayloadError,
    ScalerExecutor,
    SessionClosedError,
    WorkerDiedError,
)
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_delivered


def inc(i):
    return i + 1


def add(a, b):
    return a + b


def minus(a, b):
    return a - b


def total(values, *more):
    return sum(values) + sum(more)


def fail(value):
    raise ValueError(value)


def die(value):
    os.kill(os.getpid(), signal.SIGKILL)


def change(values):
    values.append(1)
    return len(values)


def mark(text):
    return text + "!"


class Marked:
    """Pickles, and leaves a mark."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        return b"M" + cloudpickle.dumps(obj)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        assert payload[:1] == b"M"
        return cloudpickle.loads(payload[1:])


def announce_after(path, _):
    tasks.announce(path)


# -- what a graph may hold -------------------------------------------------------------------


def test_the_documented_graph(client) -> None:
    """The graph of Scaler's documents runs: data, a bare callable and calls that name nodes."""
    graph: dict[Any, Any] = {
        "a": 2,
        "b": 2,
        "c": (inc, "a"),
        "d": (add, "a", "b"),
        "e": (minus, "d", "c"),
        "f": add,
    }
    result = client.get(graph, keys=["a", "b", "c", "d", "e", "f"])

    assert result == {"a": 2, "b": 2, "c": 3, "d": 4, "e": 1, "f": add}
    assert list(client.get(graph, ["e", "a"])) == ["e", "a"]


def test_literals_lists_and_any_key(client) -> None:
    """Arguments may be literals and nested lists; whatever is hashable may be a key."""
    graph: dict[Any, Any] = {
        ("x", 0): 3,
        7: (inc, ("x", 0)),
        None: (total, [7, ("x", 0), 100], 7, 0.5),
    }

    assert client.get(graph, [None, 7]) == {None: 4 + 3 + 100 + 4 + 0.5, 7: 4}


def test_a_node_may_be_named_twice(client) -> None:
    """A dependency that a node names several times is made once."""
    graph: dict[Any, Any] = {"a": (inc, 1.5), "b": (add, "a", "a"), "c": (total, ["a", "a"], "a")}

    assert client.get(graph, ["b", "c"]) == {"b": 5.0, "c": 7.5}


def test_explicit_calls(client) -> None:
    """A Call takes text as it is, keyword arguments, and a Ref anywhere in them; a Ref is an alias."""
    graph: dict[Any, Any] = {
        "a": Call(inc, [1]),
        "b": Ref("a"),
        "text": Call("{} {x}".format, ["a"], {"x": Ref("b")}),
        "deep": Call(dict, [], {"x": [{"y": (Ref("a"), "a")}]}),
    }

    assert client.get(graph, ["b", "text", "deep"]) == {
        "b": 2,
        "text": "a 2",
        "deep": {"x": [{"y": (2, "a")}]},
    }


def test_only_what_is_needed_runs(client, flags) -> None:
    """Nodes that no wanted key needs are not run."""
    graph: dict[Any, Any] = {"a": Call(tasks.announce, [flags.path("ran")]), "b": (inc, 1)}

    assert client.get(graph, ["b"]) == {"b": 2}
    assert not flags.seen("ran")


def test_a_long_chain_and_a_wide_fan(client) -> None:
    """10,000 links, and 5,000 nodes between one and one, are ordinary."""
    chain: dict[Any, Any] = {0: (inc, -1.0), **{n: (inc, n - 1) for n in range(1, 10_000)}}
    fan: dict[Any, Any] = {"a": 0.5, **{n: (add, "a", n + 0.25) for n in range(5000)}}
    fan["sum"] = Call(total, [[Ref(n) for n in range(5000)]])

    assert client.get(chain, [9_999]) == {9_999: 9_999.0}
    assert client.get(fan, ["sum"]) == {"sum": sum(n + 0.75 for n in range(5000))}


def test_data_is_wanted_beside_large_results(client) -> None:
    """Wanting data makes nothing else come back."""
    graph: dict[Any, Any] = {"a": 1, "b": Call(np.ones, [100_000]), "c": (np.sum, "b")}

    assert client.get(graph, ["a", "c"]) == {"a": 1, "c": 100_000}
    assert not client._session.connection._core.busy


def test_a_custom_serializer(cluster) -> None:
    """Functions, literals and results of nodes go through the client's serializer."""
    with Client(cluster.get_address(), serializer=Marked) as client:
        graph: dict[Any, Any] = {"a": "x", "b": (mark, "a"), "c": (mark, "b")}
        assert client.get(graph, ["b", "c"]) == {"b": "x!", "c": "x!!"}


def test_many_keys(client) -> None:
    """As many keys may be wanted as there are nodes, and each has its own result."""
    graph: dict[Any, Any] = {n: (inc, n + 0.5) for n in range(5000)}

    assert client.get(graph, graph) == {n: n + 1.5 for n in range(5000)}


def test_large_values_stay_on_the_cluster(client) -> None:
    """Large data goes once, large results are mapped by the nodes that need them."""
    graph: dict[Any, Any] = {
        "a": np.arange(100_000),
        "b": (np.multiply, "a", "a"),
        "c": (np.add, "b", "a"),
        "d": (np.sum, "b"),
        "e": (np.sum, "c"),
        "t": (add, b"x" * 100_000, b"y"),
    }
    result = client.get(graph, ["d", "e", "b", "t"])

    assert result["d"] == result["b"].sum()
    assert result["e"] == result["b"].sum() + graph["a"].sum()
    assert len(result["t"]) == 100_001


def test_nobody_shares_an_instance(client) -> None:
    """A node that changes its argument changes nothing for others that take the same."""
    graph: dict[Any, Any] = {
        "a": (list, (0,)),
        "b": (change, "a"),
        "c": (change, "a"),
        "d": (len, "a"),
    }

    assert client.get(graph, ["b", "c", "d"]) == {"b": 2, "c": 2, "d": 1}


def test_references(client) -> None:
    """An object that was sent ahead may be a node, an argument or part of a list."""
    graph: dict[Any, Any] = {
        "a": client.send_object([1, 2, 3]),
        "b": (sum, "a"),
        "c": Ref("a"),
        "d": (str, [["c"], "a", "b"]),
    }

    assert client.get(graph, ["a", "b"]) == {"a": [1, 2, 3], "b": 6}
    assert client.get(graph, ["d"]) == {"d": "[[[1, 2, 3]], [1, 2, 3], 6]"}


# -- bad graphs ------------------------------------------------------------------------------


def test_missing_duplicate_and_undefined_keys(client) -> None:
    """KeyError names the key at fault."""
    graph: dict[Any, Any] = {"a": (inc, "nowhere"), "b": 1, "c": (total, ["there", "b"])}
    for wanted, named in ((["x"], "x"), (["b", "b"], "b"), (["a"], "nowhere"), (["c"], "there")):
        with pytest.raises(KeyError, match=named):
            client.get(graph, wanted)


def test_a_cycle(client) -> None:
    """CycleError has the keys of the cycle, and survives pickling."""
    graph: dict[Any, Any] = {"a": (inc, "b"), "b": (inc, "c"), "c": (add, "a", 1), "d": (inc, "a")}
    with pytest.raises(graphlib.CycleError) as caught:
        client.get(graph, ["d"])

    assert set(caught.value.args[1]) == {"a", "b", "c"}
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.args) == (str(caught.value), caught.value.args)


@pytest.mark.parametrize("start", ["a", "b"])
def test_a_cycle_is_shown_as_text(client, start) -> None:
    """A cycle is shown as its keys with arrows, a long one in part."""
    with pytest.raises(graphlib.CycleError) as caught:
        client.get({"a": (inc, "b"), "b": (inc, "a")}, [start])
    assert str(caught.value) in {
        "nodes depend on each other: 'a' -> 'b' -> 'a'",
        "nodes depend on each other: 'b' -> 'a' -> 'b'",
    }
    with pytest.raises(graphlib.CycleError, match=r"^nodes depend on each other: 5 -> 5$"):
        client.get({5: (inc, 5)}, [5])
    ring = {n: (inc, (n + 1) % 1000) for n in range(1000)}
    with pytest.raises(graphlib.CycleError, match=r"(\d+ -> ){10}\(990 more\) -> \d+$"):
        client.get(ring, [0])


LOCK = threading.Lock()
HUGE = HEADER_BYTES_MAX + 1
"""Characters of a text that is longer than the part of a message that is no frame of its own."""


@pytest.mark.parametrize(
    ("node", "named"),
    [
        ((inc, LOCK), "argument 0 of inc: cannot pickle lock"),
        ((total, [1.5, [LOCK]]), "argument 0 of total: cannot pickle list"),
        (Call(inc, [], {"i": LOCK}), "argument 'i' of inc: cannot pickle lock"),
        ((lambda _=LOCK: 1,), "cannot pickle function"),
        ((total, {"a": [LOCK]}), "argument 0 of total: cannot pickle dict"),
    ],
)
def test_an_unpicklable_node_is_named(client, node, named, flags) -> None:
    """PayloadError names the key, and nothing was run."""
    graph: dict[Any, Any] = {
        "first": Call(tasks.announce, [flags.path("ran")]),
        "bad": node,
        "last": (inc, "bad"),
    }
    with pytest.raises(PayloadError, match=f"^node 'bad': {re.escape(named)}"):
        client.get(graph, ["first", "last"])

    assert client.get({"a": (inc, 1)}, ["a"]) == {"a": 2}
    assert not flags.seen("ran")


def test_unpicklable_data_is_named(client) -> None:
    """Data that cannot be pickled is named by its key, unless it is merely wanted."""
    graph: dict[Any, Any] = {
        ("data", 0): LOCK,
        "sent": client.send_object(b"x"),
        "a": (total, ["sent", ("data", 0)]),
        "b": (add, "sent", ("data", 0)),
    }
    for wanted in ("a", "b"):
        with pytest.raises(PayloadError, match=re.escape("node ('data', 0): cannot pickle lock")):
            client.get(graph, [wanted])
    assert client.get(graph, [("data", 0)]) == {("data", 0): LOCK}


def test_what_a_serializer_cannot_serialize_is_named(cluster) -> None:
    """What a serializer cannot serialize is named by its key; a single task fails alone."""
    with Client(cluster.get_address(), serializer=Marked) as client:
        for node in ((inc, LOCK), (lambda _=LOCK: 1,)):
            with pytest.raises(PayloadError, match="node 'bad': cannot serialize"):
                client.get({"bad": node}, ["bad"])
        with pytest.raises(PayloadError, match="cannot serialize lock"):
            client.submit(inc, LOCK).result(BOUND_S)
        assert client.submit(inc, 1).result(BOUND_S) == 2


def test_results_that_cannot_be_pickled(client) -> None:
    """A node with an unpicklable result fails with its dependants, and the rest finishes."""
    graph: dict[Any, Any] = {"a": (threading.Lock,), "b": (id, "a"), "c": (id, "a"), "d": (inc, 1)}
    futures = client.get(graph, ["b", "c", "d"], block=False)
    for key in ("b", "c"):
        with pytest.raises(UnpicklableResultError, match="cannot pickle lock"):
            futures[key].result(BOUND_S)
    assert futures["d"].result(BOUND_S) == 2


def test_huge_values(client, baseline) -> None:
    """A graph takes huge texts as data, arguments and results of its nodes."""
    huge = "x" * HUGE
    graph: dict[Any, Any] = {
        "data": huge,
        "made": (mark, "data"),
        "a": (len, "made"),
    }
    found = client.get(graph, ["made", "a"])

    assert found == {"made": huge + "!", "a": HUGE + 1}


def test_huge_values_without_a_storage(client, monkeypatch) -> None:
    """Large values of a graph travel in messages, and one that is too large is named."""
    monkeypatch.setattr(client._session.connection, "stores", False)
    graph: dict[Any, Any] = {"data": "x" * HUGE, "a": (len, "data")}
    assert client.get(graph, ["a"]) == {"a": HUGE}

    monkeypatch.setattr(payload, "BATCH_BYTES_MAX", HUGE)
    with pytest.raises(PayloadError, match="node 'data': an object of .* is larger than a message"):
        client.get(graph, ["a"])


def test_a_client_that_left(cluster) -> None:
    """get() on a disconnected client raises SessionClosedError."""
    client = Client(cluster.get_address())
    client.disconnect()
    with pytest.raises(SessionClosedError):
        client.get({"a": (inc, 1)}, ["a"])


# -- failures and cancellation ---------------------------------------------------------------


def test_a_failure_fails_what_depends_on_it(client) -> None:
    """The exception of a node is that of all that needs it, and of nothing else."""
    graph: dict[Any, Any] = {
        "a": (inc, 1),
        "b": (fail, "a"),
        "c": (inc, "b"),
        "d": (add, "c", "a"),
        "e": (inc, "a"),
    }
    futures = client.get(graph, ["e", "d", "b"], block=False)

    assert futures["e"].result(BOUND_S) == 3
    for key in ("b", "d"):
        error = futures[key].exception(BOUND_S)
        assert isinstance(error, ValueError)
        assert error.args == (2,)
        assert "in fail" in str(error.__cause__)
    with pytest.raises(ValueError, match="2"):
        client.get(graph, ["e", "d"])


def test_a_node_that_kills_its_worker(client) -> None:
    """What depends on a node that kills its worker fails with WorkerDied; the rest finishes."""
    graph: dict[Any, Any] = {
        "a": (die, 0.5),
        "b": (inc, "a"),
        **{n: (inc, n + 0.5) for n in range(100)},
    }
    graph["sum"] = Call(total, [[Ref(n) for n in range(100)]])
    futures = client.get(graph, ["b", "sum"], block=False)

    assert futures["sum"].result(BOUND_S) == sum(n + 1.5 for n in range(100))
    with pytest.raises(
        WorkerDiedError, match="was killed by signal 9 while it ran this task"
    ) as caught:
        futures["b"].result(BOUND_S)
    assert caught.value.death.signal == signal.SIGKILL


def test_cancelling_one_future(client, flags) -> None:
    """Cancelling a future of a graph cancels only what nothing else needs."""
    graph: dict[Any, Any] = {
        "a": Call(tasks.hold, [flags.path("a"), flags.path("go")]),
        "b": Call(announce_after, [flags.path("b"), Ref("a")]),
        "c": (str, "a"),
    }
    futures = client.get(graph, ["b", "c"], block=False)
    flags.wait("a")
    assert futures["b"].cancel()
    wait_delivered(client)
    flags.set("go")

    futures["c"].result(BOUND_S)
    with pytest.raises(CancelledError):
        futures["b"].result(BOUND_S)
    assert not flags.seen("b")


# -- futures as arguments --------------------------------------------------------------------


def test_a_future_as_an_argument(executor) -> None:
    """A future as an argument, by keyword or in a list, gives the task its result."""
    done = executor.submit(inc, 1)
    done.result(BOUND_S)
    pending = executor.submit(inc, executor.submit(inc, done))

    assert executor.submit(add, pending, done).result(BOUND_S) == 6
    assert executor.submit(total, [pending, done, 1], done).result(BOUND_S) == 9
    assert executor.submit(int, "11", base=executor.submit(inc, 1)).result(BOUND_S) == 3


def test_very_many_futures_in_a_list(executor) -> None:
    """A task may take more futures than one message has nodes."""
    futures = [executor.submit(inc, n) for n in range(5000)]

    assert executor.submit(sum, futures).result(BOUND_S) == sum(range(1, 5001))


def test_a_chain_of_futures(executor) -> None:
    """Each task may take the one before it, whether that has come back or not."""
    future = executor.submit(inc, 0)
    for _ in range(500):
        future = executor.submit(inc, future)

    assert future.result(BOUND_S) == 501


def test_a_large_result_as_an_argument(executor) -> None:
    """A result in shared memory is mapped by the task that takes it, fetched here or not."""
    there = executor.submit(np.ones, 100_000)
    assert executor.submit(np.sum, there).result(BOUND_S) == 100_000
    there.result(BOUND_S)
    assert executor.submit(np.sum, there).result(BOUND_S) == 100_000


def test_futures_as_items_of_a_map(executor) -> None:
    """map() takes futures as items too."""
    futures = [executor.submit(inc, n) for n in range(20)]

    assert list(executor.map(inc, futures)) == [n + 2 for n in range(20)]
    assert list(executor.map(inc, [1, *futures, 2], chunksize=5)) == [2, *range(2, 22), 3]


def test_futures_in_a_graph(client) -> None:
    """A future may be a node or an argument of a graph, and one of a graph an argument again."""
    a = client.submit(inc, 1)
    futures = client.get({"a": a, "b": (add, "a", a), "c": (inc, "b")}, ["a", "c"], block=False)

    assert client.submit(add, futures["c"], a).result(BOUND_S) == 7
    assert futures["a"].result(BOUND_S) == 2


def test_a_failed_future_as_an_argument(executor) -> None:
    """A task fails with the exception of its future argument, whether that was known or not."""
    failed = executor.submit(fail, 1)
    for future in (executor.submit(inc, failed), executor.submit(inc, failed)):
        with pytest.raises(ValueError, match="1"):
            future.result(BOUND_S)


def test_a_cancelled_future_as_an_argument(executor, flags) -> None:
    """A task is cancelled whose future argument was cancelled before, or is after."""
    slow = executor.submit(tasks.sleep, flags.path("slow"))
    after = executor.submit(inc, slow)
    flags.wait("slow")
    slow.cancel()
    before = executor.submit(inc, slow)
    for future in (after, before):
        with pytest.raises(CancelledError):
            future.result(BOUND_S)


def test_a_future_of_another_client(client, executor, flags) -> None:
    """Another client's result is passed as data; one that is not back fails the task."""
    pending = executor.submit(tasks.hold, flags.path("a"), flags.path("go"))
    with pytest.raises(PayloadError, match="another client"):
        client.submit(inc, pending).result(BOUND_S)
    flags.set("go")
    there = executor.submit(inc, 1)
    there.result(BOUND_S)

    assert client.submit(inc, there).result(BOUND_S) == 3


def test_a_future_elsewhere_is_refused(executor) -> None:
    """A future inside of another value is refused with where a future may stand."""
    with pytest.raises(PayloadError, match="argument of a task"):
        executor.submit(inc, {1: {executor.submit(inc, 1)}}).result(BOUND_S)


def test_workers_die_under_graphs() -> None:
    """Workers are killed while graphs run: each ends with its result or with WorkerDiedError."""
    with ScalerExecutor(2) as executor, Client(executor.address) as client:
        ended = 0
        for round_ in range(10):
            graph: dict[Any, Any] = {("leaf", n): (add, n + 0.5, 1) for n in range(2000)}
            graph |= {("pair", n): (add, ("leaf", 2 * n), ("leaf", 2 * n + 1)) for n in range(1000)}
            graph["sum"] = Call(total, [[Ref(("pair", n)) for n in range(1000)]])
            future = client.get(graph, ["sum"], block=False)["sum"]
            pid = executor.submit(os.getpid).result(BOUND_S)
            if round_ % 2:
                os.kill(pid, signal.SIGKILL)
            try:
                assert future.result(BOUND_S) == sum(n + 1.5 for n in range(2000))
                ended += 1
            except WorkerDiedError:
                pass
        assert ended >= 5
