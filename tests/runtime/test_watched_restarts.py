"""What those who watch a cluster see when its scheduler is killed, and another takes its place."""

from __future__ import annotations

import time
from operator import add
from typing import TYPE_CHECKING

import pytest

from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.wire import feed as f
from scaler_exec import ScalerExecutor
from scaler_monitoring.feed import Feed
from scaler_monitoring.model import Model, SchedulerRestarted
from scaler_monitoring.recording import Recorder, read
from tests.runtime.helpers import (
    BOUND_S,
    cluster_process,
    scheduling,
    wait_gone,
    wait_until,
    wait_workers,
)
from tests.runtime.tasks import hold, raise_this

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK_S = 0.05
"""Between snapshots, so that tests need not wait for them."""


class Witness:
    """Watches a cluster, and records what it hears."""

    def __init__(self, address: str, path: str) -> None:
        self.model = Model()
        # In this order: by the time of the first snapshot, events are told as well.
        self._feed = Feed(address, (EVENTS, SNAPSHOT))
        self._recorder = Recorder(path)

    def wait(self, condition: Callable[[f.Snapshot], bool], what: str) -> f.Snapshot:
        """Watch until a condition on the last snapshot holds; return that."""
        deadline = time.monotonic() + BOUND_S
        while self.model.snapshot is None or not condition(self.model.snapshot):
            message = self._feed.next(max(deadline - time.monotonic(), 0.0))
            assert message is not None, (what, self.model.snapshot)
            now = time.monotonic()
            self.model.apply(message, now)
            self._recorder.apply(message, now)
        return self.model.snapshot

    def close(self) -> None:
        self._feed.close()
        self._recorder.close()


@pytest.fixture
def cluster():
    """Return a cluster of two workers, that says often how it is."""
    made = EmbeddedCluster(2, scheduling=scheduling(feed_interval_s=QUICK_S))
    wait_workers(2)
    yield made
    made.stop()


def kill_scheduler() -> None:
    victim = cluster_process("scheduler")
    victim.kill()
    wait_gone(victim.pid)


def test_a_monitor_knows_what_was_before(cluster, flags, tmp_path) -> None:
    """Counts go on, a failure of before is told, workers are the same, and a replay says it too."""
    path = str(tmp_path / "run.rec")
    witness = Witness(cluster.monitor_address, path)
    try:
        witness.wait(lambda now: len(now.workers) == 2, "the workers are not told")
        with ScalerExecutor(address=cluster.address) as executor:
            assert sum(executor.map(add, range(50), range(50))) == 2450
            error = executor.submit(raise_this, "KeyError", "missing").exception(BOUND_S)
            assert isinstance(error, KeyError)
            running = executor.submit(hold, flags.path("started"), flags.path("go"))
            flags.wait("started")
            # Events are told in batches, later than a snapshot may be.
            before = witness.wait(
                lambda now: (
                    (now.tasks.done, now.tasks.failed, now.tasks.running) == (50, 1, 1)
                    and bool(witness.model.failures)
                ),
                "what ran is not counted, or not told",
            )
            (client,) = before.clients

            kill_scheduler()
            flags.set("go")
            running.result(BOUND_S)
            assert sum(executor.map(add, range(10), range(10))) == 90
            after = witness.wait(
                lambda now: now.tasks.done >= 61, "what ran afterwards is not counted"
            )

        assert witness.model.restarts == 1
        assert (after.run != before.run, after.tasks.done, after.tasks.failed) == (True, 61, 1)
        counted = {row.name: (row.done, row.failed, row.pending) for row in after.functions}
        assert counted == {"add": (60, 0, 0), "raise_this": (0, 1, 0), "hold": (1, 0, 0)}
        assert [(row.session, row.submitted, row.done) for row in after.clients] == [
            (client.session, 62, 61)
        ]
        assert {row.worker for row in after.workers} == {row.worker for row in before.workers}
        assert witness.model.failures["raise_this", "KeyError"].last.message == "'missing'"
        # Those that come back are no news.
        told = [type(one) for one in witness.model.news]
        assert told[told.index(SchedulerRestarted) + 1 :] in ([], [f.ClientLeft])
    finally:
        witness.close()

    replayed = Model()
    for now, message in read(path):
        replayed.apply(message, now)
    assert str(vars(replayed)) == str(vars(witness.model))


def test_a_dashboard_tells_of_a_failure_before(make_executor, open_window) -> None:
    """A page marks that the scheduler was started again, and still tells of what failed before."""
    executor = make_executor(2, dashboard=True)
    executor.submit(raise_this, "KeyError", "missing").exception(BOUND_S)
    page = open_window().open(executor.dashboard_link)
    page.get_by_text("2 workers").first.wait_for()
    for _ in range(2):
        executor.submit(raise_this, "ValueError", "while it is watched").exception(BOUND_S)
    failure = page.get_by_text("ValueError: while it is watched").first
    failure.wait_for()
    tile = page.locator("div.tile", has_text="Failed").locator("dd").first
    wait_until(lambda: tile.inner_text().startswith("3"), "the failures are not counted")

    kill_scheduler()

    page.get_by_text("scheduler restarted once").wait_for()
    page.get_by_text("the scheduler was started again").wait_for()
    assert failure.is_visible()
    assert tile.inner_text().startswith("3")
    page.close()
