"""The whole cluster from one seed: drops, repetitions, delays, pauses and deaths."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import astuple, replace

import pytest

from scaler_cluster.testing import describe
from scaler_cluster.testing.nodes import SchedulerNode
from scaler_cluster.testing.plan import FAULTS, PLANS, Plan, drawn
from scaler_cluster.testing.runner import play
from scaler_cluster.testing.simulation import Simulation, simulate
from scaler_cluster.wire import messages as m

SEEDS = 50
"""How often each plan is tried here; ``python -m scaler_cluster.testing`` tries it more often."""
pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plan", PLANS)
def test_everything_comes_back_once(plan: str) -> None:
    """Whatever is lost, repeated or killed: what live clients asked for comes back, and is right.

    That holds for graphs, for what tasks submit and wait for, and for large objects, of which
    nothing is left in the end. It holds if clients vanish, if machines are lost one after the other
    or come back after the scheduler gave them up, if the scheduler is started anew and knows
    nothing, and where few tasks may wait in it. It holds if links are cut, are slow or bring things
    late, if anybody is stopped for a minute, and if a peer says anything. Calls of actors run where
    the actor lives, each client's in order, none twice, and fail if it is gone.
    """
    tally = play(plan, range(SEEDS))

    assert not tally.failures, "\n\n".join(tally.failures)


def test_a_thousand_contend_for_three_locks() -> None:
    """A thousand clients, some of which die, all get their turn at a few locks, one at a time."""
    plan = Plan(
        machines=1, workers=1, worker_crashes=0, machine_crashes=0, clients=1000, tasks=0,
        rounds=1, leavers=50, check_every=1000,
    )  # fmt: skip

    simulate(1, plan)


def test_faults_really_happen() -> None:
    """The simulation does what it is for: tasks are lost, run again, stopped and cancelled."""
    simulations = [Simulation(seed) for seed in range(10)]
    for simulation in simulations:
        simulation.run()

    outcomes = [
        getattr(outcome, "kind", type(outcome).__name__)
        for simulation in simulations
        for client in simulation.clients
        for outcome in client.resolved.values()
    ]
    starts = [count for simulation in simulations for count in simulation.started.values()]

    assert {"bytes", "timeout", "exception", "worker_died", "NoneType"} <= set(outcomes)
    assert max(starts) > 1
    assert any(simulation.machines_lost for simulation in simulations)


def test_the_seed_decides_everything() -> None:
    """The same seed gives the same messages, also in an interpreter that hashes otherwise."""
    code = "from scaler_cluster.testing.simulation import simulate; print(simulate(7))"
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}

    elsewhere = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()

    assert simulate(7) == simulate(7) == elsewhere


@pytest.mark.timeout(600)
def test_ten_thousand_workers() -> None:
    """A cluster of 10,000 workers runs 4,000 tasks and survives deaths."""
    plan = Plan(
        machines=100,
        workers=100,
        tasks=2_000,
        worker_crashes=50,
        machine_crashes=2,
        faults_s=2.0,
        check_every=3000,
    )

    simulate(1, plan)


def test_the_seed_decides_everything_again() -> None:
    """The same seed gives the same messages whenever the interpreter collects its garbage.

    The tasks of a worker that was killed are such garbage, and their ends must change nothing.
    """
    assert len({simulate(479, PLANS["everything"]) for _ in range(3)}) == 1


def test_each_message_can_be_told() -> None:
    """A run that prints its messages has a line for every kind of message."""
    kinds = {
        one
        for one in vars(m).values()
        if isinstance(one, type) and issubclass(one, m.Message) and one is not m.Message
    }

    assert kinds == describe._TELLERS.keys()


def test_a_seed_draws_a_part_of_a_plan() -> None:
    """No seed plays more than its plan says, most play much less, and they differ."""
    whole = PLANS["everything"]
    plans = [drawn(whole, seed) for seed in range(200)]

    assert all(plan.tasks <= whole.tasks and plan.machines <= whole.machines for plan in plans)
    assert all(getattr(plan, name) <= getattr(whole, name) for plan in plans for name in FAULTS)
    assert sorted(plan.tasks for plan in plans)[100] <= whole.tasks / 3
    assert len(set(map(astuple, plans))) > 190
    assert plans[7] == drawn(whole, 7)


def test_a_failure_names_the_line_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed seed is told in a sentence, with the call and the command that play it again."""
    monkeypatch.setattr(SchedulerNode, "check", _fail)

    tally = play("tasks", [3])

    assert tally.played == 1
    assert len(tally.failures) == 1
    assert "ValueError: broken" in tally.failures[0]
    assert f"simulate(3, {replace(drawn(PLANS['tasks'], 3), check_every=1)})" in tally.failures[0]
    assert "python -m scaler_cluster.testing 'tasks' 3" in tally.failures[0]


def _fail(_: object) -> None:
    raise ValueError("broken")


def test_the_command_sums_up(capfd: pytest.CaptureFixture[str]) -> None:
    """The command plays seeds on several processes, and ends with a line that sums them up."""
    command = [sys.executable, "-m", "scaler_cluster.testing", "all", "0", "2", "--jobs", "2"]

    assert subprocess.run(command, check=False).returncode == 0

    assert f"all: {2 * len(PLANS)} schedules, 0 failed; " in capfd.readouterr().out


@pytest.mark.parametrize("seed", range(32, 60))
def test_what_is_stored_outlives_the_scheduler(seed: int) -> None:
    """On one machine no task lacks an object after a restart, and nothing is left at the end."""
    plan = replace(PLANS["objects"], machines=1, machine_crashes=0, scheduler_crashes=2)
    simulate(seed, plan)
