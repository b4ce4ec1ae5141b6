"""How many workers managers are to have: each policy, by example, and what always holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.config.scaling_policy import SCALINGS, ScalingPolicy, read_policy
from scaler_cluster.core.records.cooldown import Cooldown
from scaler_cluster.core.scheduler.scaling import Demand, Load, Source, wanted

GPU = (("gpu", 1.0),)


def source(name: str = "a", here: int = 0, *, most: int = 10, least: int = 0, gpu: bool = False,
           is_failing: bool = False, per_unit: int = 1, size: int = 1, shared: int = 0) -> Source:  # fmt: skip
    return Source(name, dict(GPU) if gpu else {}, least, most, here, per_unit, is_failing, size,
                  {"gpu": shared} if shared else {})  # fmt: skip


def wide(*sources: Source, cores: int, tasks: int, mean_s=None) -> Load:
    return Load([Demand((), tasks, cores)], mean_s, sources)


def load(*sources: Source, tasks: int = 0, gpu: int = 0, mean_s=None, others=()) -> Load:
    demands = [Demand((), tasks), Demand(GPU, gpu)]
    return Load([one for one in demands if one.tasks], mean_s, sources, others)


def by_name(found: dict[Source, int]) -> dict[str, int]:
    return {one.name: count for one, count in found.items()}


def policy(content: str) -> ScalingPolicy:
    return read_policy("simple", f"allocate=even_load; scaling={content}")


@pytest.mark.parametrize(
    ("content", "given", "expected"),
    [
        # A worker for each task, within what is offered.
        ("adaptive", load(source(), tasks=3), {"a": 3}),
        ("adaptive", load(source(), tasks=300), {"a": 10}),
        ("adaptive", load(source(least=2)), {"a": 2}),
        # What the workers that are there already can do needs no others.
        ("adaptive", load(source(), tasks=3, others=[({}, 2)]), {"a": 1}),
        ("adaptive", load(source(), gpu=3, others=[({}, 2)]), {"a": 0}),
        # Tasks that demand something go to those who have it; others take the rest.
        ("adaptive", load(source(), source("b", gpu=True), tasks=12, gpu=4), {"a": 10, "b": 6}),
        # Short tasks need no worker each, but those that are there stay as long as each has one.
        ("adaptive", load(source(), tasks=1000, mean_s=0.002), {"a": 2}),
        ("adaptive", load(source(here=5), tasks=1000, mean_s=0.002), {"a": 5}),
        ("adaptive", load(source(here=5), tasks=3, mean_s=0.002), {"a": 3}),
        ("adaptive", load(source(), tasks=15, mean_s=6.0), {"a": 10}),
        # Who fails is asked last.
        ("adaptive", load(source(is_failing=True), source("b"), tasks=12), {"a": 2, "b": 10}),
        # A task with several cores needs so many workers, on one machine.
        ("adaptive", wide(source(size=8), cores=4, tasks=2), {"a": 8}),
        ("adaptive", wide(source(size=2), source("b", size=4), cores=4, tasks=1), {"a": 0, "b": 4}),
        ("adaptive", wide(source(size=8), cores=-1, tasks=1), {"a": 8}),
        ("adaptive", wide(source(size=4), cores=4, tasks=90, mean_s=0.001), {"a": 4}),
        # Four workers of a unit share two GPUs: two units for three tasks.
        ("adaptive", load(source(gpu=True, per_unit=4, shared=2), gpu=3), {"a": 6}),
        ("vanilla", load(source(), tasks=1), {"a": 1}),
        ("vanilla", load(source(), tasks=0), {"a": 0}),
        ("vanilla", load(source(here=2), tasks=21), {"a": 3}),
        ("vanilla", load(source(here=2), tasks=20), {"a": 2}),
        ("vanilla", load(source(here=30, most=40), tasks=25), {"a": 3}),
        ("vanilla", load(source(here=3), tasks=0), {"a": 0}),
        ("capability", load(source(), source("b", gpu=True), tasks=11, gpu=1), {"a": 3, "b": 4}),
        ("fixed_elastic", load(source(here=1), source("b", here=1), tasks=21), {"a": 1, "b": 2}),
        ("fixed_elastic", load(source(here=1), source("b", here=1), tasks=1), {"a": 1, "b": 0}),
        ("static", load(source(), source("b", most=3)), {"a": 10, "b": 3}),
        ("static:4", load(source(), source("b", most=3)), {"a": 4, "b": 3}),
        ("no", load(source(here=2), tasks=100), {}),
    ],
)  # fmt: skip
def test_a_policy(content, given, expected):
    """Each policy of the documents wants as many workers as they say."""
    assert by_name(wanted(policy(content), given)) == expected


RULES = """
# The machines that are paid for come first.
1, metal
2, cloud, 5   # at most five
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (load(source("metal", most=4), source("cloud"), tasks=1), {"metal": 1, "cloud": 0}),
        (load(source("metal", most=4), source("cloud"), tasks=61), {"metal": 4, "cloud": 3}),
        (load(source("metal", most=4), source("cloud"), tasks=999), {"metal": 4, "cloud": 5}),
        (load(source("cloud"), tasks=999), {"cloud": 5}),
        (load(source("metal", most=4), source("other"), tasks=999), {"metal": 4}),
        # The first keeps its workers until the others have none.
        (load(source("metal", here=4), source("cloud", here=1)), {"metal": 4, "cloud": 0}),
        (load(source("metal", here=4), source("cloud")), {"metal": 0, "cloud": 0}),
    ],
)
def test_a_waterfall(given, expected):
    """Workers are poured into managers by the priorities of their rules."""
    assert by_name(wanted(read_policy("waterfall_v1", RULES), given)) == expected


@pytest.mark.parametrize(
    ("engine", "content", "message"),
    [
        ("simple", "even", "must be of the form"),
        ("simple", "allocate=even", "must have scaling= with one of adaptive"),
        ("simple", "scaling=no", "must have allocate= with one of"),
        ("simple", "allocate=even; scaling=no; other=1", "has no other="),
        ("simple", "allocate=even; scaling=static:many", "static:N"),
        ("simple", "allocate=even; scaling=vanilla:2", "must have scaling="),
        ("waterfall_v1", "", "at least one line"),
        ("waterfall_v1", "1", "must have lines"),
        ("waterfall_v1", "1,", "must have lines"),
        ("waterfall_v1", "1,a,2,3", "must have lines"),
        ("waterfall_v1", "first,a", "whole numbers"),
        ("waterfall_v1", "1,a,some", "whole numbers"),
        ("waterfall_v1", "1,a,-1", "0 or more"),
        ("waterfall_v1", "1,a\n2,a", "names the manager 'a' twice"),
    ],
)
def test_policies_that_are_none(engine, content, message):
    """What is wrong with a policy is said as the end of a sentence."""
    with pytest.raises(ValueError, match=message):
        read_policy(engine, content)


sources = st.lists(
    st.builds(
        Source,
        st.sampled_from("ab"),
        st.sampled_from([{}, dict(GPU)]),
        st.integers(0, 5),
        st.integers(5, 50),
        st.integers(0, 50),
        st.integers(1, 4),
        st.booleans(),
    ),
    max_size=4,
)
loads = st.builds(
    Load,
    st.lists(st.builds(Demand, st.sampled_from([(), GPU]), st.integers(1, 10_000)), max_size=3),
    st.none() | st.floats(1e-6, 100.0),
    sources,
    st.lists(st.tuples(st.sampled_from([{}, dict(GPU)]), st.integers(0, 20)), max_size=2),
)


def test_two_of_one_name_are_two():
    """A supervisor may be called as a manager is."""
    some = load(source(most=3), source(most=5), tasks=7)

    assert list(wanted(ScalingPolicy(), some).values()) == [3, 4]


@given(loads, st.sampled_from(SCALINGS))
def test_no_policy_wants_more_than_is_offered(some, kind):
    """Whatever there is to do, each source is asked for what it offers."""
    found = wanted(ScalingPolicy(kind), some)

    for one in some.sources:
        assert one.least <= found.get(one, one.least) <= one.most


@given(loads)
def test_who_has_something_to_do_finds_somebody(some):
    """While a source could run tasks that nobody runs, adaptive scaling asks for a worker."""
    found = wanted(ScalingPolicy(), some)

    capable = [one for one in some.sources if one.offered or not some.demands]
    if some.demands and capable and not any(count for _, count in some.others):
        assert sum(found.values())


def test_a_cooldown_lets_a_number_rise_at_once_and_fall_later():
    """It falls to the most that was wanted meanwhile, once it was lower for the whole time."""
    cooldown = Cooldown()

    assert [cooldown.settle(count, 10.0, now) for count, now in ((5, 0.0), (2, 1.0), (3, 5.0))] == [
        5,
        5,
        5,
    ]
    assert cooldown.settle(0, 10.0, 11.0) == 3
    assert cooldown.settle(7, 10.0, 12.0) == 7
    assert cooldown.settle(6, 10.0, 13.0) == 7
    assert cooldown.settle(7, 10.0, 22.0) == 7
    assert cooldown.settle(0, 10.0, 23.0) == 7
    assert cooldown.settle(0, 10.0, 33.0) == 0
    assert cooldown.settle(4, 0.0, 34.0) == 4
    assert cooldown.settle(1, 0.0, 35.0) == 1
