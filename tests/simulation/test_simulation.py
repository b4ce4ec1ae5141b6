"""The whole cluster from one seed: drops, repetitions, delays, pauses and deaths."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from scaler_cluster.testing import describe
from scaler_cluster.testing.plan import PLANS, Plan
from scaler_cluster.testing.simulation import Simulation, simulate
from scaler_cluster.wire import messages as m

SEEDS = {
    "tasks": 60,
    "graphs": 35,
    "objects": 30,
    "nested": 15,
    "one worker": 15,
    "everything": 10,
}
"""How often each plan is tried here; ``python -m scaler_cluster.testing`` tries it more often."""
SEEDS_AT_ONCE = 5
pytestmark = pytest.mark.slow
ROUNDS = [(plan, start) for plan in PLANS for start in range(0, SEEDS[plan], SEEDS_AT_ONCE)]


@pytest.mark.parametrize(("plan", "start"), ROUNDS)
def test_everything_comes_back_once(plan: str, start: int) -> None:
    """Whatever is lost, repeated or killed: what live clients asked for comes back, and is right.

    That holds for graphs, for what tasks submit and wait for, and for large objects, of which
    nothing is left in the end.
    """
    for seed in range(start, start + SEEDS_AT_ONCE):
        simulate(seed, PLANS[plan])


@pytest.mark.parametrize("seed", range(10))
def test_clients_may_vanish(seed: int) -> None:
    """What a vanished client asked for is dropped, and the others do not notice."""
    simulate(seed, Plan(clients=3, leavers=2))


@pytest.mark.parametrize("seed", range(10))
def test_machines_may_vanish(seed: int) -> None:
    """Tasks survive the loss of one machine after the other."""
    simulate(seed, Plan(machines=3, machine_crashes=6, worker_crashes=10))


@pytest.mark.parametrize("plan", ["tasks", "graphs", "nested"])
def test_machines_may_come_back(plan: str) -> None:
    """A machine that was silent until the scheduler gave it up comes back as a new one.

    Its workers may have gone on meanwhile: what they did does not count.
    """
    for seed in range(10):
        simulate(seed, replace(PLANS[plan], silences=2))


@pytest.mark.parametrize("plan", ["tasks", "graphs", "nested"])
def test_schedulers_may_be_started_anew(plan: str) -> None:
    """A scheduler that knows nothing is asked again for all that has not come back.

    So is one that had not heard from a client for too long. Whatever comes back is right, and no
    task starts twice that must not.
    """
    for seed in range(10):
        simulate(seed, replace(PLANS[plan], scheduler_crashes=2, silences=1))


@pytest.mark.parametrize("limit", [1, 5, 20])
def test_clients_may_have_to_ask_first(limit: int) -> None:
    """Every task comes back even where few tasks may wait in the scheduler."""
    for seed in range(8):
        simulate(seed, Plan(clients=3, leavers=1, tasks_waiting_max=limit))


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
