"""How busy workers were: no second is lost or counted twice, at any width of buckets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.records.totals import OTHERS
from scaler_cluster.wire import feed as f
from scaler_monitoring import activity as activity_module
from scaler_monitoring.activity import FUNCTIONS_MAX, Activity
from scaler_monitoring.cells import HEIGHTS, blocks, seconds_of, waits
from scaler_monitoring.model import Model
from scaler_monitoring.tracks import BUCKETS, LEVELS_S, WINDOW_S, Grid, Track

W1, W2 = b"W1", b"W2"
M1, M2 = b"M1", b"M2"
WINDOWS = (10, 30, 60, 300, 600, 1800)


def worker(one=W1, machine=M1, **fields):
    return f.Worker(one, machine, "host", up_s=50.0, **fields)


def done(at, busy_s, function="f", first=0, count=1, one=W1):
    return f.Done(at, one, 1, first, count, function, busy_s)


class Heard:
    """What follows a model that hears these messages, by the scheduler's clock."""

    def __init__(self, *workers, clock=100.0):
        self.activity = Activity()
        self._model = Model(follower=self.activity)
        self._seq = {f.Snapshot: 0, f.Events: 0}
        self.run = "run"
        self.snapshot(clock, *(workers or [worker()]))

    def _hear(self, kind, clock, **fields):
        self._seq[kind] += 1
        self._model.apply(kind(run=self.run, seq=self._seq[kind], clock=clock, **fields), clock)

    def snapshot(self, clock, *workers, **fields):
        self._hear(f.Snapshot, clock, workers=list(workers), interval_s=1.0, **fields)

    def events(self, clock, *events, skipped=None):
        self._hear(f.Events, clock, events=list(events), skipped=skipped or {})

    def seconds(self, one=W1, level=1):
        """Return the seconds of a worker by function, as one level has them."""
        return {
            name: pytest.approx(float(whole(track, level)), abs=1e-3)
            for name, track in self.activity.lives[one].tracks.items()
        }


def whole(track, level):
    last = int(track.end // LEVELS_S[level])
    return track.read(level, last - BUCKETS + 1, BUCKETS).sum(dtype=np.float64)


# -- buckets -----------------------------------------------------------------------------------

times = st.floats(1000.0, 1020.0)


@given(st.lists(st.tuples(times, st.floats(0.0, 4.0), st.floats(1e-4, 3.0)), max_size=30))
def test_no_second_is_lost_at_any_width(pieces):
    """All widths of buckets hold the same sum, whatever the order in which it comes."""
    track = Track()
    for start, took_s, seconds in pieces:
        track.add(start, start + took_s, seconds)
    expected = sum(seconds for _, _, seconds in pieces)

    for level in range(len(LEVELS_S)):
        assert whole(track, level) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@given(st.floats(5000.0, 6000.0), st.sampled_from(WINDOWS), st.integers(50, 1000))
def test_any_window_is_whole(now, window_s, columns):
    """A window that ends now has cells from its beginning to its end, with all of its seconds."""
    track = Track()
    track.add(now - 1900, now, 1900.0)
    grid = Grid(now - window_s, now, columns, now)
    seconds = grid.read(track, grid.first, grid.last)

    assert grid.first * grid.width_s <= now - window_s
    assert grid.last * grid.width_s >= now
    assert len(seconds) <= 1.6 * columns + 2
    assert seconds[1:-2] == pytest.approx(grid.width_s, rel=1e-3)


def test_what_is_too_old_makes_room():
    """Buckets hold their last time only, and what comes too late for it is left out."""
    track = Track()
    track.add(10.0, 11.0, 1.0)
    track.add(10.0 + BUCKETS * LEVELS_S[0], 11.0 + BUCKETS * LEVELS_S[0], 1.0)
    track.add(10.0, 11.0, 0.5)

    assert whole(track, 0) == pytest.approx(1.0, abs=0.03)
    assert whole(track, 3) == pytest.approx(2.5)


def test_all_windows_fit_into_the_buckets():
    """The coarsest buckets reach farther back than a model does."""
    assert BUCKETS * LEVELS_S[-1] > WINDOW_S * 1.25


# -- what is counted ---------------------------------------------------------------------------


def test_work_counts_when_it_was_done():
    """Work that ended counts in the time that it took."""
    heard = Heard()
    heard.events(100.5, done(100.4, 0.3), done(100.5, 0.1, "g"))

    assert heard.seconds() == {"f": 0.3, "g": 0.1}
    assert heard.activity.lives[W1].tracks["f"].read(1, 1001, 3).tolist() == pytest.approx(
        [0.1, 0.1, 0.1], abs=1e-3
    )


def test_a_running_task_counts_before_it_ends():
    """A task that runs counts from its beginning, and once only when it has ended."""
    heard = Heard(worker(tasks=1, session=1, task=7, function="f", age_s=20.0))
    heard.events(100.1)
    running = heard.activity.lives[W1].running
    assert running is not None
    before = heard.seconds(level=1)
    heard.snapshot(101.0, worker(tasks=1, session=1, task=7, function="f", age_s=21.0))
    heard.events(101.5, done(101.5, 21.5, first=7))

    assert (running.start, running.function) == (80.0, "f")
    assert before == {"f": 20.0}
    assert heard.seconds() == {"f": 21.5}
    assert heard.activity.lives[W1].running is None
    assert [one.first for one in heard.activity.kept(0.0, 200.0)] == [7]


def test_the_end_of_another_task_is_not_its_end():
    """What a task ran itself while it waited does not end it."""
    heard = Heard(worker(tasks=1, session=1, task=7, function="f", age_s=20.0))
    heard.events(100.5, done(100.5, 0.2, "child", first=8))

    running = heard.activity.lives[W1].running
    assert running is not None
    assert running.task == 7


def test_what_was_not_told_is_counted_by_the_sums():
    """Seconds that no event told come from the worker's sum, with the functions of the others."""
    heard = Heard()
    heard.events(100.05)
    heard.events(100.5, done(100.5, 0.1, "f"), done(100.6, 0.1, "g"), skipped={"done": 6})
    heard.snapshot(101.0, worker(busy_s=0.8))
    heard.events(101.05)

    assert heard.seconds() == {"f": 0.4, "g": 0.4}
    assert whole(heard.activity.estimated, 0) == pytest.approx(0.6, abs=1e-3)


def test_sums_do_not_count_what_is_known():
    """A task that ran at the last snapshot, and whose end nobody told, counts once."""
    heard = Heard(worker(tasks=1, function="f", age_s=5.0))
    heard.events(100.05)
    heard.snapshot(101.0, worker(busy_s=5.5))
    heard.events(101.05)

    assert heard.seconds() == {"f": 5.5}


@given(st.lists(st.tuples(st.floats(0.001, 0.2), st.booleans(), st.sampled_from("fgh")),
                min_size=1, max_size=60))  # fmt: skip
def test_seconds_are_exact_however_few_events_are_told(tasks):
    """One task after the other, of which some are told: each worker's seconds are exact."""
    heard = Heard()
    heard.events(100.01)
    clock, next_s, busy_s = 100.02, 101.0, 0.0
    told: list[f.Event] = []
    for task, (took_s, is_told, function) in enumerate(tasks):
        end = clock + took_s
        while end > next_s:
            age_s = next_s - clock if next_s > clock else 0.0
            row = worker(busy_s=busy_s, tasks=int(age_s > 0), session=1, task=task, function=function,
                         age_s=age_s)  # fmt: skip
            heard.events(next_s - 1e-4, *told)
            heard.snapshot(next_s, row)
            told = []
            next_s += 1.0
        clock, busy_s = end, busy_s + took_s
        if is_told:
            told.append(done(clock, took_s, function, task))
    heard.events(clock, *told)
    heard.snapshot(next_s, worker(busy_s=busy_s))
    heard.events(next_s + 0.05)

    tracks = heard.activity.lives[W1].tracks.values()
    assert sum(whole(one, 2) for one in tracks) == pytest.approx(busy_s, abs=0.01)


def test_a_task_that_waits_is_not_work():
    """While a task only waits for others, its worker waits."""
    heard = Heard()
    heard.snapshot(101.0, worker(tasks=1, function="f", age_s=1.0, is_blocked=True))
    heard.events(101.05)
    life = heard.activity.lives[W1]
    grid = Grid(95.0, 105.0, 100, 101.0)

    assert life.tracks == {}
    assert list(waits(life, grid, grid.first, grid.last)) == [(1000, 1010)]


def test_functions_of_a_worker_are_bounded():
    """Functions of a worker that have no room are counted together."""
    heard = Heard()
    heard.events(101.0, *(done(100.9, 0.1, f"f{n}") for n in range(FUNCTIONS_MAX + 5)))

    assert len(heard.activity.lives[W1].tracks) == FUNCTIONS_MAX + 1
    assert heard.seconds()[OTHERS] == 0.5


def test_all_functions_together_are_bounded(monkeypatch):
    """Once all room is taken, each worker has one more function at most."""
    monkeypatch.setattr(activity_module, "TRACKS_MAX", 2)
    heard = Heard(worker(), worker(W2))
    heard.events(101.0, *(done(100.9, 0.1, f"f{n}", one=one) for n in range(5) for one in (W1, W2)))

    assert sorted(heard.activity.lives[W1].tracks) == [OTHERS, "f0"]
    assert sorted(heard.activity.lives[W2].tracks) == [OTHERS, "f0"]
    assert heard.activity.tracks == 4


def test_workers_are_bounded(monkeypatch):
    """Workers that have no room are counted."""
    monkeypatch.setattr(activity_module, "LIVES_MAX", 1)
    heard = Heard(worker(), worker(W2))
    heard.events(101.0, done(101.0, 0.5, one=W2))

    assert list(heard.activity.lives) == [W1]
    assert heard.activity.turned_away == 1


def test_what_is_old_is_forgotten():
    """Dead workers, functions and work of long ago are forgotten."""
    heard = Heard(worker(), worker(W2))
    heard.events(101.0, done(101.0, 1.5), f.WorkerLeft(101.0, W2, M1))
    later = 101.0 + WINDOW_S + 20
    heard.snapshot(later, worker())
    heard.events(later + 0.1)

    assert list(heard.activity.lives) == [W1]
    assert heard.activity.lives[W1].tracks == {}
    assert (heard.activity.tracks, len(heard.activity.long)) == (0, 0)


def test_another_scheduler_counts_from_nothing():
    """The sums of another scheduler are not compared with those of the one before."""
    heard = Heard()
    heard.events(100.1)
    heard.snapshot(101.0, worker(busy_s=0.5))
    heard.events(101.1)
    heard.run, heard._seq = "other", {f.Snapshot: 0, f.Events: 0}
    heard.snapshot(3.0, worker(busy_s=90.0))
    heard.events(3.1)

    tracks = heard.activity.lives[W1].tracks.values()
    assert sum(whole(one, 1) for one in tracks) == pytest.approx(0.5, abs=1e-3)


# -- rows --------------------------------------------------------------------------------------


def test_rows_keep_their_order_when_workers_die():
    """Rows are in order of machines, then of who joined; a death changes none of them."""
    heard = Heard(worker(W1), worker(b"W3", M2), worker(W2))
    before = [life.worker for life in heard.activity.rows(90.0, 101.0)]
    died = f.WorkerDied(100.5, W1, M1, signal=9)
    came = f.WorkerJoined(100.6, b"W4", M1)
    heard.events(100.7, died, came)
    rows = heard.activity.rows(90.0, 101.0)

    assert before == [W1, W2, b"W3"]
    assert [life.worker for life in rows] == [W1, W2, b"W4", b"W3"]
    assert (rows[0].ended_at, rows[0].ending) == (100.5, "signal 9")
    assert [life.worker for life in heard.activity.rows(101.0, 102.0)] == [W2, b"W4", b"W3"]


def test_a_worker_that_is_not_there_any_more_has_ended():
    """A worker that a snapshot leaves out has ended, though nobody told; until it is back."""
    heard = Heard(worker(), worker(W2))
    heard.snapshot(101.0, worker())
    gone = heard.activity.lives[W2].ended_at
    heard.snapshot(102.0, worker(), worker(W2))

    assert gone == 101.0
    assert heard.activity.lives[W2].ended_at is None


# -- blocks ------------------------------------------------------------------------------------


def test_a_block_has_its_share_and_its_main_function():
    """Many short tasks are one block, as high as the worker was busy, of the main function."""
    heard = Heard()
    heard.events(
        102.0,
        *(done(100.0 + n / 50 + 0.015, 0.012, "f") for n in range(100)),
        *(done(100.0 + n / 50 + 0.019, 0.003, "g") for n in range(100)),
    )
    grid = Grid(100.0, 102.0, 20, 102.0)
    (block,) = blocks(heard.activity.lives[W1], grid, grid.first, grid.last)

    assert (block.first, block.last, block.function, block.functions) == (1000, 1020, "f", 2)
    assert block.share == pytest.approx(0.75, abs=0.01)
    assert block.part == pytest.approx(0.8, abs=0.01)
    assert blocks(heard.activity.lives[W1], grid, grid.first, grid.last, "none") == []


pieces = st.tuples(st.floats(100.1, 109.0), st.floats(0.001, 0.9), st.sampled_from("fgh"))


@given(st.lists(pieces, min_size=1, max_size=40), st.integers(10, 500))
def test_blocks_have_all_seconds(work, columns):
    """Blocks are apart, in order, and have all seconds of their worker that fit into their time."""
    heard = Heard()
    heard.events(110.0, *(done(start + took_s, took_s, name) for start, took_s, name in work))
    life = heard.activity.lives[W1]
    grid = Grid(100.0, 110.0, columns, 110.0)
    found = blocks(life, grid, grid.first, grid.last)
    cells = np.sum([grid.read(one, grid.first, grid.last) for one in life.tracks.values()], axis=0)
    drawn = sum(one.share * (one.last - one.first) * grid.width_s for one in found)

    assert all(a.last <= b.first for a, b in pairwise(found))
    assert drawn <= cells.sum() + 1e-3
    if cells.max() <= grid.width_s:
        assert drawn == pytest.approx(sum(took_s for _, took_s, _ in work), abs=1e-2)
    assert all(0 < one.share <= 1 and 0 < one.part <= 1.0001 for one in found)
    assert sum(seconds_of([life], grid, grid.first, grid.last).values()) == pytest.approx(
        sum(took_s for _, took_s, _ in work), abs=1e-2
    )


def test_neighbours_that_look_alike_are_one_block():
    """A worker that is busy evenly has one block; each step of its height begins another."""
    heard = Heard()
    heard.events(110.0, *(done(101.0 + n, 0.001 + n / HEIGHTS, "f") for n in range(HEIGHTS)))
    grid = Grid(100.0, 109.0, 9, 110.0)
    found = blocks(heard.activity.lives[W1], grid, grid.first, grid.last)

    assert len(found) == HEIGHTS
