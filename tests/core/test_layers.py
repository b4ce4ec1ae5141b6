"""The nodes of graphs by name: what is counted of each, in every step of random graphs."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.client.key_prefixes import prefix_of
from scaler_cluster.core.graph.layers import Layers
from scaler_cluster.core.graph.node_states import CANCELLED, DONE, FAILED, WAITING
from scaler_cluster.core.graph.topology import GraphPart
from scaler_cluster.core.records.totals import Names
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX, LAYERS_MAX
from scaler_cluster.testing.bench import graph_of, payloads_of


def part_of(count, names=(), layers=b"", start=0):
    """Return a part of a graph whose nodes depend on nothing."""
    message = graph_of(0, *[""] * count)
    message.start, message.names, message.layers = start, tuple(names), bytes(layers)
    message.batch = payloads_of(start, count)
    return GraphPart(message)


def layers_of(count, names=(), layers=b"", inputs=0):
    """Return the layers of a graph that came in one part."""
    made = Layers(Names(), "whole")
    made.add(part_of(count, names, layers), inputs)
    return made


@given(st.data())
def test_counts_by_name_are_the_counts_of_the_graph(data):
    """In every state of all nodes, in parts, with inputs; ranges are shared out in full."""
    names = Names()
    layers = Layers(names, "whole")
    known = inputs = 0
    every: list[int] = []
    for part in range(data.draw(st.integers(1, 3))):
        count = data.draw(st.integers(1, 12))
        fresh = data.draw(st.integers(0, 3))
        known += fresh or (not part)
        numbers = data.draw(
            st.just([]) | st.lists(st.integers(0, known - 1), min_size=count, max_size=count)
        )
        if not part:
            inputs = data.draw(st.integers(0, count))
        layers.add(
            part_of(count, [f"n{part}.{n}" for n in range(fresh)], numbers, len(every)),
            inputs if not part else 0,
        )
        every += numbers or [0] * count
    states = bytearray(
        data.draw(
            st.lists(
                st.sampled_from([WAITING, DONE, FAILED, CANCELLED]),
                min_size=len(every),
                max_size=len(every),
            )
        )
    )

    counts = layers.counts(states, inputs)

    expected = Counter(zip(every[inputs:], states[inputs:], strict=True))
    found = {
        (layer, state): count
        for layer, of in enumerate(counts)
        for state, count in of.items()
        if count
    }
    assert found == expected
    assert [one.nodes for one in layers.records] == [
        sum(count for (layer, _), count in expected.items() if layer == number)
        for number in range(len(layers.records))
    ]
    assert sum(totals.submitted for _, totals in names) == len(every) - inputs
    low = data.draw(st.integers(0, len(every)))
    high = data.draw(st.integers(low, len(every)))
    shares = {one.name: count for one, count in layers.shares(low, high)}
    assert shares == Counter(layers.of(node).name for node in range(low, high))
    stretches = list(layers.stretches(low, high))
    assert [n for first, stop, _ in stretches for n in range(first, stop)] == [*range(low, high)]
    assert all(
        layers.of(n).name == name for first, stop, name in stretches for n in (first, stop - 1)
    )
    layers.end(states, inputs)
    for _, totals in names:
        assert (totals.pending, totals.users) == (0, 0)
    assert sum(one.done for _, one in names) == states.count(DONE, inputs)


def test_time_of_several_names_is_shared_out_by_number():
    """Of nodes that are reported together nobody knows more."""
    layers = layers_of(4, ("a", "b"), b"\0\1\1\1")
    layers.measured(0, 4, 2.0)
    layers.measured(1, 2, 1.0)
    a, b = layers.records
    assert (a.total_s, b.total_s) == (0.5, 2.5)
    assert (a.totals.busy_s, b.totals.busy_s) == (0.5, 2.5)
    assert (a.totals.mean_s, a.mean_s) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (part_of(2, ("a",), b"\0\1"), "no names"),
        (part_of(1, (), b"\1"), "no names"),
        (part_of(1, ["a"] * (LAYERS_MAX + 1)), "too many names"),
        (part_of(1, ["a" * (FUNCTION_NAME_CHARS_MAX + 1)]), "too long"),
    ],
)
def test_names_that_must_not_come(part, reason):
    """A node has one of the names that came, of which there are few, and which are short."""
    with pytest.raises(RemoteProtocolError, match=reason):
        Layers(Names(), "whole").check(part)


def test_a_name_for_only_some_nodes_must_not_come():
    """All nodes of a message have names, or none."""
    with pytest.raises(RemoteProtocolError, match="some nodes have no names"):
        part_of(2, ("a",), b"\0")


def test_as_many_names_as_there_may_be():
    """The last number is the last name."""
    names = [f"n{n}" for n in range(LAYERS_MAX)]
    layers = Layers(Names(), "whole")
    part = part_of(2, names, bytes((0, LAYERS_MAX - 1)))
    layers.check(part)
    layers.add(part, 0)
    assert [layers.of(node).name for node in (0, 1)] == [names[0], names[-1]]
    assert layers.label == "n0, n1, n2, n3, ..."


@pytest.mark.parametrize(
    ("key", "prefix"),
    [
        ((), "Other"), (None, "Other"), (1, "Other"), ("", "Other"), ("-1", "Other"),
        (b"\xffx-1", "\ufffdx"), ("x" * 1000, "x" * FUNCTION_NAME_CHARS_MAX),
        ("add-" * 500, ("add-" * 500)[:FUNCTION_NAME_CHARS_MAX]),
        (("mean_chunk-abc123", 0, 1), "mean_chunk"), ("<", "Other"),
    ],
)  # fmt: skip
def test_prefixes_of_odd_keys(key, prefix):
    """Whatever a key is, its prefix is a short text. Those of Dask: tests/compat."""
    assert prefix_of(key) == prefix


def test_a_key_of_tuples_within_tuples():
    """It is not followed forever."""
    key: object = "deep-1"
    for _ in range(100_000):
        key = (key,)
    assert prefix_of(key) == "Other"
