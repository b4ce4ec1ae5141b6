"""What is kept of samples, and how it is drawn: buckets of call trees, the flame graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.call_tree import CallTree, Frame
from scaler_cluster.wire import feed as f
from scaler_monitoring import profiled as module
from scaler_monitoring.flame import BARS_MAX, DEPTH_MAX, SHARE_MIN, flame, node_of
from scaler_monitoring.flame_figure import BLACK, WHITE, FlameFigure, ink_on
from scaler_monitoring.profiled import BUCKET_S, WINDOW_S, Profiled, functions
from scaler_monitoring.theme import LIGHT, SERIES

frames = st.builds(Frame, st.sampled_from("abcde"), st.just("x.py"), st.just(1))
seen = st.lists(st.tuples(st.lists(frames, max_size=6), st.integers(1, 1000)), max_size=40)


def tree_of(*stacks):
    tree = CallTree()
    for stack, us in stacks:
        tree.add([Frame(name, "x.py", 1) for name in stack], us)
    return tree


def samples(tree, function="f", count=1, **more):
    """Return what a scheduler publishes of one worker."""
    return f.Samples(sampled=[f.Sampled(b"W", function, count, tree.packed())], **more)


# -- what is kept ----------------------------------------------------------------------------


def test_trees_are_found_by_time():
    """Of a range of time the trees of its buckets are merged, each function's below its name."""
    kept = Profiled()
    kept.add(samples(tree_of(("ab", 10)), "one", 2), 100.0)
    kept.add(samples(tree_of(("ab", 5)), "one"), 100.0 + 2 * BUCKET_S)
    kept.add(samples(tree_of(("c", 7)), ""), 100.0 + 4 * BUCKET_S)

    def told(start, end):
        got = kept.seen(start, end)
        return {
            "".join(one.name for one in path): us for path, us in got.tree.stacks()
        }, got.samples

    assert told(100.0, 100.0 + 3 * BUCKET_S) == ({"oneab": 15}, 3)
    assert told(100.0 + 4 * BUCKET_S, 1e9) == ({"(other functions)c": 7}, 1)
    assert told(0.0, 99.0) == ({}, 0)
    assert functions(kept.seen(0.0, 1e9).tree) == ["(other functions)", "one"]
    assert [tasks for _, tasks in kept.by_time()] == [us / 1e6 / BUCKET_S for us in (10, 5, 7)]

    # Whoever has asked for a time gets what was seen since as well; what it got does not change.
    before = kept.seen(0.0, 1e9)
    for at in (4, 4, 6, 6, 8):
        kept.add(samples(tree_of(("c", 1)), "two"), 100.0 + at * BUCKET_S)
        for start, end in ((0.0, 1e9), (100.0 + BUCKET_S, 1e9), (0.0, 100.0 + 6 * BUCKET_S)):
            assert told(start, end) == fresh(kept, start, end)
    assert told(0.0, 1e9)[0] == {"oneab": 15, "(other functions)c": 7, "twoc": 5}
    assert before.tree.total_us == 22


def fresh(kept, start, end):
    """Return what was seen in a range of time, merged anew."""
    tree, count = CallTree(), 0
    for one in kept._buckets:
        if start - BUCKET_S < one.start < end:
            tree.merge(one.tree)
            count += one.samples
    return {"".join(one.name for one in path): us for path, us in tree.stacks()}, count


def test_what_is_old_is_forgotten():
    """Buckets that are older than the window go."""
    kept = Profiled()
    for step in range(int(3 * WINDOW_S / BUCKET_S)):
        kept.add(samples(tree_of(("a", 1))), step * BUCKET_S)

    assert len(kept.by_time()) == WINDOW_S / BUCKET_S + 1


def test_all_is_bounded(monkeypatch):
    """However many calls and functions come, so many nodes are kept, and the newest at that."""
    monkeypatch.setattr(module, "NODES", 500)
    monkeypatch.setattr(module, "BUCKET_NODES", 100)
    kept = Profiled()
    for step in range(100):
        stacks = [((f"{step}-{number}",), 1) for number in range(200)]
        kept.add(samples(tree_of(*stacks), f"f{step}"), step * BUCKET_S)
    ran = [f.Running(age_s=float(age)) for age in range(2 * module.RUNNING_MAX)]
    kept.add(f.Samples(running=ran), 100 * BUCKET_S)

    assert sum(len(one.tree) for one in kept._buckets) <= 600
    assert len(kept._frames) <= 501
    assert functions(kept.seen(99 * BUCKET_S, 1e9).tree) == ["f99"]
    assert kept.seen(99 * BUCKET_S, 1e9).tree.total_us == 200
    assert len(kept.running) == module.RUNNING_MAX
    assert kept.running[0].age_s == 2 * module.RUNNING_MAX - 1


def test_what_cannot_be_read_is_counted():
    """A worker that sends no tree spoils nothing of what others say."""
    kept = Profiled()
    message = samples(tree_of(("a", 4)), skipped=2)
    message.sampled.append(f.Sampled(b"V", "f", 3, b"\xc1"))
    kept.add(message, 1.0)
    got = kept.seen(0.0, 2.0)

    assert (got.samples, got.skipped, got.tree.total_us) == (1, 5, 4)


# -- how it is drawn -------------------------------------------------------------------------


@given(seen)
def test_widths_are_shares(stacks):
    """A bar is as wide as its share, within its caller's, and none covers another one."""
    tree = CallTree()
    for stack, us in stacks:
        tree.add(stack, us)
    drawn = flame(tree)
    whole = tree.whole_us()
    places = {bar.node: bar for bar in drawn.bars}
    for bar in drawn.bars:
        assert bar.right - bar.left == pytest.approx(whole[bar.node] / tree.total_us)
        above = places.get(tree.parents[bar.node])
        assert bar.depth == (above.depth + 1 if above else 0)
        if above:
            assert above.left - 1e-9 <= bar.left
            assert bar.right <= above.right + 1e-9
    for depth in range(10):
        row = sorted((bar.left, bar.right) for bar in drawn.bars if bar.depth == depth)
        assert all(one[1] <= two[0] + 1e-9 for one, two in pairwise(row))
    expected = {node for node in range(1, len(whole)) if whole[node] >= SHARE_MIN * tree.total_us}
    assert set(places) == expected


def test_a_call_is_zoomed_into():
    """Below a chosen call its part has the whole width, and its callers stand above it."""
    tree = tree_of(("ab", 30), ("abc", 10), ("d", 60))
    drawn = flame(tree, node_of(tree, [Frame("a", "x.py", 1), Frame("b", "x.py", 1)]))
    told = [(tree.frames[bar.node].name, bar.right - bar.left, bar.is_above) for bar in drawn.bars]

    assert told == [("a", 1.0, True), ("b", 1.0, False), ("c", 0.25, False)]
    assert drawn.total_us == 40
    assert node_of(tree, [Frame("a", "x.py", 1), Frame("gone", "x.py", 1)]) == 1


def test_bars_are_bounded():
    """Many calls are cut to a bound, as are deep ones, and those left out are counted."""
    wide = tree_of(*((("a", f"{number}", "b", "c", "d"), 1) for number in range(600)))
    deep = tree_of(("a" * 150, 1))

    assert (len(flame(wide).bars), flame(wide).left_out) == (BARS_MAX, 1 + 4 * 600 - BARS_MAX)
    assert (len(flame(deep).bars), flame(deep).left_out) == (DEPTH_MAX, 1)
    assert flame(CallTree()) == ([], 0, 0)


def test_a_figure_shows_names_that_fit():
    """A bar has the part of its name that fits; what is looked for stands out, the rest is pale."""
    tree = tree_of((("function_with_a_long_name",), 90), (("other",), 10))
    figure = FlameFigure(LIGHT)
    figure.show(tree, flame(tree), 160, "other")
    data = figure.source.data

    assert list(data["text"]) == ["function_with_a_l…", ""]
    assert list(data["name"]) == ["function_with_a_long_name", "other"]
    assert list(data["whole"]) == [0.9, 0.1]
    assert [alpha < 1 for alpha in data["alpha"]] == [True, False]
    figure.show(CallTree(), flame(CallTree()), 160)
    assert list(figure.source.data["text"]) == []


@pytest.mark.parametrize("colour", SERIES)
def test_text_can_be_read_on_every_colour(colour):
    """Text on a bar has the contrast that WCAG asks of it."""
    assert contrast(colour, ink_on(colour)) >= 4.5
    assert contrast(BLACK, WHITE) == pytest.approx(21)


def contrast(one, two):
    lights = sorted(brightness(colour) + 0.05 for colour in (one, two))
    return lights[1] / lights[0]


def brightness(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
