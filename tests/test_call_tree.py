"""Call trees: what is merged, and its bytes."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.call_tree import DEPTH_MAX, NODES_MAX, CallTree, Frame, nodes_of, unpacked
from scaler_cluster.errors import RemoteProtocolError

frames = st.builds(Frame, st.sampled_from("abcdefg"), st.sampled_from(["x.py", "y.py"]), st.just(1))
seen = st.lists(st.tuples(st.lists(frames, max_size=8), st.integers(1, 1000)), max_size=40)


def tree_of(stacks, nodes_max=NODES_MAX):
    tree = CallTree(nodes_max)
    for stack, us in stacks:
        tree.add(stack, us)
    return tree


def told(tree):
    return {tuple(stack): us for stack, us in tree.stacks()}


@given(seen, seen)
def test_merging_adds_up(one, two):
    """A merge of two trees is the tree of all that either has seen, to the microsecond."""
    begun = tree_of(one)
    merged = begun.copy()
    merged.merge(tree_of(two))

    assert told(merged) == told(tree_of([*one, *two]))
    assert told(begun) == told(tree_of(one))


@given(seen, seen)
def test_merging_below_a_frame_adds_up(one, two):
    """A merge below a frame is the tree of all that was seen, each stack beginning with it."""
    top = Frame("task", "", 0)
    merged, read = tree_of(one), tree_of(one)
    merged.merge(tree_of(two), top)
    read.merge_nodes(*nodes_of(tree_of(two).packed()), top)

    assert told(read) == told(merged)
    assert told(merged) == told(tree_of([*one, *(([top, *stack], us) for stack, us in two)]))


@given(st.lists(seen, max_size=4), st.integers(0, 12))
def test_a_bounded_tree_loses_no_time(parts, nodes_max):
    """A tree never exceeds its bound, and what it has no room for counts at a caller of it."""
    merged, read = CallTree(nodes_max), CallTree(nodes_max)
    for part in parts:
        merged.merge(tree_of(part))
        read.merge_nodes(*nodes_of(tree_of(part).packed()))

    assert told(read) == told(merged)
    assert len(merged) <= nodes_max
    assert merged.total_us == sum(us for part in parts for _, us in part)
    whole = told(tree_of([one for part in parts for one in part]))
    for stack in told(merged):
        assert any(path[: len(stack)] == stack for path in whole)


@given(seen)
def test_its_bytes_are_the_tree(stacks):
    """A tree comes back from its bytes as it was."""
    tree = tree_of(stacks)

    assert told(unpacked(tree.packed())) == told(tree)


@given(
    st.one_of(
        st.binary(max_size=60),
        st.builds(
            msgpack.packb,
            st.recursive(st.integers(-2, 9) | st.text(max_size=2), st.lists, max_leaves=20),
        ),
    )
)
def test_any_bytes_are_a_tree_or_are_refused(data):
    """Bytes that are no tree raise RemoteProtocolError and nothing else."""
    with contextlib.suppress(RemoteProtocolError):
        unpacked(data)


def test_a_deep_recursion_is_cut():
    """Of a stack that is too deep, the outermost frames are kept."""
    tree = tree_of([([Frame("f", "x.py", 1)] * (3 * DEPTH_MAX), 7)])

    assert len(tree) == DEPTH_MAX
    assert tree.total_us == 7


def test_a_recursion_counts_once():
    """The whole time of a function that calls itself is not counted twice."""
    f, g = Frame("f", "x.py", 1), Frame("g", "x.py", 9)
    tree = tree_of([([f, g, f], 10), ([f], 5)])

    assert tree.by_frame() == {f: (15, 15), g: (0, 10)}
    assert tree.whole_us() == [15, 15, 10, 10]


@given(seen, st.integers(0, 300))
def test_functions_below_a_call_are_added_up(stacks, number):
    """What is told of functions below a call are sums over the stacks that begin with it."""
    tree = tree_of(stacks)
    top = number % (len(tree) + 1)
    path = tuple(tree.frames[node] for node in tree.path(top))
    below = [(stack[max(len(path) - 1, 0) :], us) for stack, us in tree.stacks()
             if tuple(stack[: len(path)]) == path]  # fmt: skip
    whole: dict[Frame, int] = {}
    own: dict[Frame, int] = {}
    for stack, us in below:
        for frame in set(stack):
            whole[frame] = whole.get(frame, 0) + us
        if stack:
            own[stack[-1]] = own.get(stack[-1], 0) + us

    assert tree.by_frame(top) == {frame: (own.get(frame, 0), us) for frame, us in whole.items()}


def test_too_deep_bytes_are_refused():
    """Bytes of a tree that is deeper than any may be are refused."""
    nodes = [0]
    for node in range(DEPTH_MAX + 1):
        nodes += [node, 0, 1]

    with pytest.raises(RemoteProtocolError, match="too deep"):
        unpacked(msgpack.packb([[["f", "", 0]], nodes]))


def test_too_many_nodes_are_refused():
    """Bytes of a tree that is larger than any may be are refused."""
    nodes = [0]
    for node in range(NODES_MAX + 1):
        nodes += [node, 0, 1]

    with pytest.raises(RemoteProtocolError, match="too many nodes"):
        unpacked(msgpack.packb([[["f", "", 0]], nodes]))
