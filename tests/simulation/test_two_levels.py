"""Two levels of schedulers, a study: everything comes back once, and the centre has less to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scaler_cluster.core.scheduler import dispatch
from scaler_cluster.testing.bench import function_id
from scaler_cluster.testing.foreman import ForemanCore
from scaler_cluster.testing.plan import Plan, drawn
from scaler_cluster.testing.race import Load, run
from scaler_cluster.testing.two_level_cases import (
    cancellation_s,
    capabilities,
    late_members,
    lone_s,
)
from scaler_cluster.testing.two_levels import PLAN, study
from scaler_cluster.testing.wide import WIDTHS, wide_workers
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

CALM = Plan(
    machines=2, workers=2, tasks=30, faults_s=4.0, drop=0.0, duplicate=0.0, worker_crashes=0,
    machine_crashes=0, pauses=0,
)  # fmt: skip
FEW = Load("few", 1, 200, 1_200, (15_000, 25_000), 4, 16)


@pytest.mark.parametrize("seed", range(100, 110))
def test_everything_comes_back_once_whatever_happens(seed: int) -> None:
    """With all faults of the plan, clients get what they should, and nothing is left anywhere."""
    study(seed, drawn(PLAN, seed))


@pytest.mark.parametrize(
    ("faults", "local_crashes"),
    [
        ({}, 3),
        ({"scheduler_crashes": 3}, 0),
        ({"scheduler_crashes": 2}, 2),
        ({"machine_crashes": 3}, 0),
        ({"worker_crashes": 6, "task_limit": 3}, 0),
        ({"partitions": 4}, 0),
        ({"drop": 0.1, "duplicate": 0.1}, 0),
    ],
    ids=["machine schedulers", "centre", "both", "machines", "workers", "partitions", "envelopes"],
)
def test_each_fault_alone(faults: dict[str, float], local_crashes: int) -> None:
    """Schedulers killed, machines and messages lost: each by itself leaves no task behind."""
    plan = replace(CALM, **faults)  # type: ignore[arg-type]
    for seed in range(2):
        study(seed, plan, local_crashes=local_crashes)


def test_the_same_seed_repeats_everything() -> None:
    """A study is determined by its seed."""
    assert study(5, drawn(PLAN, 5)) == study(5, drawn(PLAN, 5))


def test_the_centre_has_less_to_do() -> None:
    """Tasks that workers ask for one by one go between centre and machines in batches."""
    one, two = (run(FEW, has_levels=has_levels) for has_levels in (False, True))

    assert one.envelopes > 3.0
    assert two.envelopes < one.envelopes / 3
    assert two.messages < 0.6 * one.messages
    assert two.took_s < 1.02 * one.took_s


def test_cancelled_tasks_make_room_as_fast() -> None:
    """What was cancelled makes room for others about as soon as with one level."""
    assert cancellation_s(has_levels=True) < cancellation_s(has_levels=False) + 0.001


def test_a_lone_task_waits_for_no_others() -> None:
    """A lone task takes four hops within the machine more, and waits for no batch."""
    assert lone_s(has_levels=True) <= lone_s(has_levels=False) + 4 * 31e-6


def test_machines_that_come_late_get_their_part() -> None:
    """What was given to machines ahead goes to those that came later."""
    assert late_members(has_levels=True) < 1.02


def test_demands_are_met() -> None:
    """Tasks run where there is what they demand, and keep that machine busy."""
    took, is_kept = capabilities(has_levels=True)

    assert took < 1.03
    assert is_kept


def test_nobody_else_sees_wide_workers() -> None:
    """The scheduler is as it was once a study is over."""
    before = vars(dispatch)["grant"]
    with wide_workers():
        WIDTHS[b"W"] = 3
        assert vars(dispatch)["grant"] is not before

    assert vars(dispatch)["grant"] is before
    assert not WIDTHS


# -- the foreman -------------------------------------------------------------------------------


def foreman_with(count: int, width: int = 2) -> ForemanCore:
    """Return a foreman that was given so many tasks of session 7, from number 10 on."""
    core = ForemanCore(width)
    digest = function_id("f")
    batch = Batch.of([b"p%d" % number for number in range(count)])
    assign = m.Assign(7, 10, digest, m.CALL_ARGS, False, False, batch, at_most_once=True)
    core.receive([m.Function(digest, b"f"), assign])
    core.feed()
    return core


def test_what_was_not_asked_for_is_given_back() -> None:
    """A foreman asks for little ahead, and gives the rest back at once."""
    core = foreman_with(10)
    kept = len(core.by_local)
    core.receive([m.Revoke(7, 10, 10)])

    assert core.take_actions(0.0) == [m.Revoked(7, 10, 10, kept)]
    assert 2 <= kept < 6
    assert not core.feed()


def test_what_is_dropped_is_cancelled_on_the_machine() -> None:
    """Tasks that the centre drops are answered at once, and stopped by the machine's scheduler."""
    core = foreman_with(10)
    core.client.take_actions()
    locals_asked = sorted(core.by_local)
    core.receive([m.Abort(7, 10, 10)])

    assert core.take_actions(0.0) == [m.Aborted(7, 10, 10)]
    cancels = [one for one in core.client.take_actions() if isinstance(one, m.Cancel)]
    assert cancels == [m.Cancel(locals_asked[0], len(locals_asked))]
    assert core.is_idle


def test_another_centre_is_told_what_is_held() -> None:
    """It names all it has, and what may not run twice; what nobody wants goes without a word."""
    core = foreman_with(10)
    asked = len(core.by_local)
    first = min(core.by_local)
    core.client.take_actions()
    core.client.receive([m.Results(first, Batch.single(b"r"))], 0.0)
    core.settle()
    held = core.come_back([])

    assert held[:3] == [
        m.Holding(7, 10, 1, 1, 0.0),
        m.Holding(7, 11, asked - 1, 0, 0.0),
        m.Holding(7, 10 + asked, 10 - asked, 0, 0.0),
    ]
    last = held[3]
    assert isinstance(last, m.Held)
    assert memoryview(bytes(last.started)).cast("Q").tolist() == [7, 10, asked]
    core.receive([m.Abort(7, 10, 10)])
    assert core.take_actions(1.0) == []
    core.receive([m.Welcome(0, 0)])
    assert core.take_actions(1.0) == []
    assert core.is_idle
