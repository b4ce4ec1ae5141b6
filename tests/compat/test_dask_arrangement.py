"""What of a graph of Dask is run, and how tasks that Dask fused are run; without a cluster."""

from __future__ import annotations

import operator
import pickle
import weakref
from typing import Any

import pytest

spec = pytest.importorskip("dask._task_spec")

from dask.local import get_sync  # noqa: E402

from scaler_cluster.client.dask_arrangement import DaskArrangement  # noqa: E402
from scaler_cluster.client.dask_subgraphs import (  # noqa: E402
    Subgraph,
    call_task,
    chain_of,
    compiled,
    run_subgraph,
)
from scaler_cluster.client.graph import GraphCycle  # noqa: E402
from scaler_cluster.pickling.payload import function_name  # noqa: E402

Task, TaskRef, Alias = spec.Task, spec.TaskRef, spec.Alias


def both(*values: Any, **named: Any) -> Any:
    return values, named


FUSED = {
    "chain": [Task("x", both, TaskRef("in"), 1), Task("y", both, TaskRef("x"))],
    "branches": [
        Task("x", both, TaskRef("in")),
        Task("y", both, TaskRef("x")),
        Task("z", both, TaskRef("y"), TaskRef("x"), TaskRef("other")),
    ],
    "deeper": [
        Task("x", both, TaskRef("in")),
        Task("y", both, spec.List(TaskRef("x"), spec.Dict({"a": TaskRef("other")})), k=1),
        Task("z", both, k=TaskRef("y")),
    ],
    "data": [
        spec.DataNode("x", 3),
        Alias("w", "x"),
        Task("y", both, TaskRef("x"), spec.DataNode(None, (1, 2)), TaskRef("w"), TaskRef("in")),
    ],
    "fused": [
        Task("x", both, TaskRef("in")),
        Task.fuse(Task("p", both, TaskRef("x")), Task("q", both, TaskRef("p")), key="y"),
    ],
}


@pytest.mark.parametrize("name", FUSED)
def test_a_compiled_subgraph(name) -> None:
    """A subgraph returns what Dask returns for it, also where it is unpickled and called again."""
    task = Task.fuse(*FUSED[name], key="end")
    given = {"in": "I", "other": "O"}
    subgraph = compiled(*task.args[:3])
    values = [given[one.key] for one in task.args[3:]]
    for one in (subgraph, pickle.loads(pickle.dumps(subgraph))):
        assert one(*values) == one(*values) == task(given)


class Value:
    """Something that can be watched."""


def test_a_subgraph_lets_go_of_values() -> None:
    """A value within a subgraph lives until the last task that takes it has begun."""
    seen: list[weakref.ref[Value]] = []

    def make() -> Value:
        value = Value()
        seen.append(weakref.ref(value))
        return value

    def is_gone(_: Any) -> bool:
        return seen[0]() is None

    tasks = Task("x", make), Task("y", id, TaskRef("x")), Task("z", is_gone, TaskRef("y"))
    assert compiled({task.key: task for task in tasks}, "z", ())()


def test_the_name_of_a_subgraph() -> None:
    """People see the function that makes the result."""
    assert function_name(compiled(*Task.fuse(*FUSED["chain"]).args[:3])) == "both"


@pytest.mark.parametrize(("name", "keys"), [("chain", ["x", "y"]), ("fused", ["x", "y"])])
def test_a_chain(name, keys) -> None:
    """Tasks of which each takes only the one before are a chain."""
    inner, end, *_ = Task.fuse(*FUSED[name]).args
    assert chain_of(inner, end) == keys


@pytest.mark.parametrize("name", ["branches", "deeper", "data"])
def test_no_chain(name) -> None:
    """Tasks are no chain if one takes two others, or a value within an argument."""
    inner, end, *_ = Task.fuse(*FUSED[name]).args
    assert chain_of(inner, end) == []


def functions(arrangement: DaskArrangement) -> list[Any]:
    return [arrangement.steps[number][0] for number in arrangement.order]


def test_blocks_share_a_subgraph() -> None:
    """All tasks with one inside but the first have one function; they return what Dask returns."""
    fused = Task.fuse(*FUSED["branches"], key="end")
    graph: dict[Any, Any] = {
        n: fused.substitute({"in": ("in", n), "other": ("in", 0)}, key=n) for n in range(4)
    }
    graph |= {("in", n): Task(("in", n), both, n) for n in range(4)}
    arrangement = DaskArrangement(graph, range(4))
    found = [one for one in functions(arrangement) if one is not both]

    assert found[0] is run_subgraph
    assert type(found[1]) is Subgraph
    assert found[1] is found[2] is found[3]
    (first, *_) = arrangement.steps[arrangement.numbers[0]][1]
    expected = get_sync(graph, list(range(4)))
    for n, subgraph in ((0, first), (2, found[1])):
        given: dict[str, Any] = {"in": ((n,), {}), "other": ((0,), {})}
        assert subgraph(*map(given.__getitem__, fused.args[2])) == expected[n]


def test_a_fused_chain_is_several_calls() -> None:
    """A chain that Dask fused is calls of its functions again, which all have its key."""
    graph = {"in": Task("in", both), "end": Task.fuse(*FUSED["chain"], key="end")}
    arrangement = DaskArrangement(graph, ["end"])

    assert functions(arrangement) == [both, both, both]
    assert [arrangement.keys[number] for number in arrangement.order] == ["in", "end", "end"]
    assert list(arrangement.by_number({"end": 1}).values()) == [1, 1]


def test_what_dask_must_run() -> None:
    """A call within the arguments of another is left to Dask."""
    graph = {
        "in": Task("in", both),
        "end": Task("end", both, Task(None, operator.neg, TaskRef("in"))),
    }
    arrangement = DaskArrangement(graph, ["end"])
    assert functions(arrangement) == [both, call_task]


def test_an_alias_has_no_number_of_its_own() -> None:
    """What stands for a call shares its number, over several steps; options of it are not meant."""
    graph = {"a": Alias("a", "b"), "b": Alias("b", "c"), "c": Task("c", both)}
    arrangement = DaskArrangement(graph, ["a", "c"])
    assert set(arrangement.numbers.values()) == {0}
    assert arrangement.by_number({"a": 1}) == {}


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ({"a": Alias("a", "b"), "b": Task("b", both, TaskRef("a"))}, "'a' -> 'b' -> 'a'"),
        ({"a": Alias("a", "b"), "b": Alias("b", "a")}, "'a' -> 'b' -> 'a'"),
        ({"a": Task("a", both, TaskRef("a"))}, "'a' -> 'a'"),
    ],
)
def test_cycles(graph, text) -> None:
    """The text of a cycle names aliases as well."""
    with pytest.raises(GraphCycle, match=f"{text}$"):
        DaskArrangement(graph, ["a"])


@pytest.mark.parametrize("node", [Alias("a"), Alias("a", "b"), Task("a", both, TaskRef("b"))])
def test_what_is_not_there(node) -> None:
    """A key that is not in the graph is named."""
    with pytest.raises(KeyError, match="a" if getattr(node, "target", "b") == "a" else "b"):
        DaskArrangement({"a": node}, ["a"])
