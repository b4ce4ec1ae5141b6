"""What two levels of schedulers do to single promises: each case is played with one level, too.

``python -m scaler_cluster.testing two_levels`` prints what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.testing import race
from scaler_cluster.testing.paced import LoadClient
from scaler_cluster.testing.plan import drawn
from scaler_cluster.testing.race import START_S, Race, check_over
from scaler_cluster.testing.two_levels import PLAN, study
from scaler_cluster.testing.wide import wide_workers
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT_US, LONG_US = 5_000, 50_000
FAR = (("far", -1.0),)
"""What one of the machines offers, and some tasks demand."""


def fairness(*, has_levels: bool) -> float:
    """Return what a client with short tasks gets of the time that one with long ones gets."""
    with wide_workers():
        arena = Race(4, 8, has_levels=has_levels)
        arena.run_for(START_S)
        short = LoadClient(arena, [SHORT_US] * 20_000, 1_000)
        long = LoadClient(arena, [LONG_US] * 2_000, 500)
        arena.run_for(0.5)
        before = short.came, long.came
        arena.run_for(1.5)
        shares = (short.came - before[0]) * SHORT_US, (long.came - before[1]) * LONG_US
    return shares[0] / shares[1]


def cancellation_s(*, has_levels: bool) -> float:
    """Return how long others wait for a task, after a client cancelled all that was running."""
    with wide_workers():
        arena = Race(4, 8, has_levels=has_levels)
        arena.run_for(START_S)
        hog = LoadClient(arena, [10_000_000] * 200, 200)
        arena.run_for(0.5)
        hog.cancel_all()
        began = arena.now
        other = LoadClient(arena, [10] * 32, 32)
        arena.run_until(lambda: other.is_done)
        took_s = other.last_at - began
        arena.run_for(1.0)
        check_over(arena)
    return took_s


def lone_s(*, has_levels: bool) -> float:
    """Return how long a client waits for a task that takes no time, from an idle cluster."""
    with wide_workers():
        arena = Race(4, 8, has_levels=has_levels)
        arena.run_for(START_S)
        client = LoadClient(arena, [0] * 50, 1)
        began = arena.now
        arena.run_until(lambda: client.is_done)
        took_s = client.last_at - began
    return took_s / 50


def late_members(*, has_levels: bool) -> float:
    """Return by how much more than the ideal time tasks take whose machines double meanwhile."""
    with wide_workers():
        arena = Race(2, 8, has_levels=has_levels)
        arena.run_for(START_S)
        began = arena.now
        client = LoadClient(arena, [30_000] * 1_600, 1_600)
        arena.run_for(0.5)
        arena.join(8)
        arena.join(8)
        arena.run_until(lambda: client.is_done)
        took_s = client.last_at - began
        arena.run_for(0.5)
        check_over(arena)
    # 16 workers for half a second, then 32 for the rest.
    return took_s / (0.5 + (1_600 * 0.03 - 8.0) / 32)


def capabilities(*, has_levels: bool) -> tuple[float, bool]:
    """Return how much of the ideal time tasks with a demand take, and whether others ran too."""
    with wide_workers():
        arena = Race(3, 8, has_levels=has_levels)
        arena.join(8, FAR)
        arena.run_for(START_S)
        began = arena.now
        demanding = LoadClient(arena, [20_000] * 400, 400, m.TaskOptions(capabilities=FAR))
        others = LoadClient(arena, [20_000] * 1_200, 1_200)
        arena.run_until(lambda: demanding.is_done and others.is_done)
        elsewhere = arena.machines[:3]
        ran_elsewhere_s = sum(worker.busy_s for one in elsewhere for worker in one.workers)
        took_s = max(demanding.last_at, others.last_at) - began
    # Had one of them run elsewhere, the others would have taken less than their part of the time.
    return took_s / (400 * 0.02 / 8), ran_elsewhere_s <= 1_200 * 0.02 + 1e-9


def machine_lost(*, has_levels: bool) -> tuple[float, int]:
    """Return by how much more than the ideal time tasks take of which a machine's are lost.

    Besides, how many tasks were run in all: those that the machine had run twice.
    """
    with wide_workers():
        arena = Race(4, 8, has_levels=has_levels)
        arena.run_for(START_S)
        began = arena.now
        client = LoadClient(arena, [20_000] * 3_200, 3_200)
        arena.run_for(0.5)
        arena.lose(0)
        arena.run_until(lambda: client.is_done)
        took_s = client.last_at - began
    ran = sum(arena.started.values())
    return took_s / (0.5 + (3_200 * 0.02 - 16.0) / 24), ran


CASES: tuple[tuple[str, Callable[..., object]], ...] = (
    ("time of 5 ms tasks / time of 50 ms tasks, of two clients", fairness),
    ("seconds from a cancellation to the results of others' 32 tasks", cancellation_s),
    ("seconds that a lone task takes, without what schedulers compute", lone_s),
    ("machines double after 0.5 s: time / ideal time", late_members),
    ("tasks with a demand: time / ideal time; nothing ran where it must not", capabilities),
    ("a machine is lost after 0.5 s: time / ideal time; tasks run (of 3,200)", machine_lost),
)


def compare(tell: Callable[[str], object]) -> None:
    """Tell the figures of all loads, then those of all cases, of one level and of two."""
    race.compare(tell)
    for name, case in CASES:
        one, two = _shown(case(has_levels=False)), _shown(case(has_levels=True))
        tell(f"{name}: one level {one}, two levels {two}")


def play(first: int, count: int, tell: Callable[[str], object]) -> int:
    """Play seeds with faults, one alone with a log; return how many failed."""
    failed = 0
    for seed in range(first, first + count):
        try:
            study(seed, drawn(PLAN, seed), tell if count == 1 else None)
        except AssertionError as error:
            failed += 1
            tell(f"{seed}: {error}")
    tell(f"two_levels: {count} schedules, {failed} failed")
    return failed


def _shown(figure: object) -> str:
    parts = figure if isinstance(figure, tuple) else (figure,)
    return " ".join(f"{part:.4g}" if isinstance(part, float) else str(part) for part in parts)
