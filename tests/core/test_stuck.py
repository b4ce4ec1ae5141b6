"""Workers that are stopped, or do nothing: when that is said, and when they are killed."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.supervisor.config import SupervisorConfig
from scaler_cluster.core.supervisor.stuck import (
    LOOK_MAX_S,
    LOOK_MIN_S,
    QUIET_CPU_SHARE,
    TELL_S,
    Look,
    look_after_s,
)
from scaler_cluster.core.supervisor.supervisor import Exit, Kill, Send, Spawn, SupervisorCore
from scaler_cluster.wire import messages as m

NOW = 100.0
RAN = (1, 7, 3)


class Machine:
    """A supervisor with one worker, which is looked at as often as it asks for."""

    def __init__(self, stopped_s=math.inf, hang_s=math.inf):
        config = SupervisorConfig(1, stopped_timeout_s=stopped_s, hang_timeout_s=hang_s)
        self.core = SupervisorCore(config, b"S1", "host", NOW)
        self.now = NOW
        self.core.start(NOW)
        self.core.tick(NOW)
        self.peer = next(one.peer for one in self.core.take_actions() if isinstance(one, Spawn))
        self.core.spawned(0, 1000)

    def pass_by(
        self, duration_s, *, stopped=False, cpu_share=0.0, cpu_s=0.0, ran=RAN, running=False
    ):
        """Let time pass; return what the supervisor says and does of the worker."""
        for _ in range(round(duration_s / self.core.look_after_s)):
            self.now += self.core.look_after_s
            cpu_s += cpu_share * self.core.look_after_s
            look = Look(stopped, cpu_s, ran, is_running=running)
            self.core.looked(0, look, self.now)
        found = self.core.take_actions()
        said = [one.message for one in found if isinstance(one, Send)]
        return said + [one for one in found if isinstance(one, Kill)]


def test_a_stopped_worker_is_reported_and_killed():
    """A stopped worker is reported once, and killed when its time is over, which is the reason."""
    machine = Machine(stopped_s=30.0)
    assert machine.pass_by(3.0) == []
    said = machine.pass_by(29.0, stopped=True)
    assert said == [m.Stuck(machine.peer, 1000, 1, 7, TELL_S, m.STOPPED, True, 25.0)]

    # It was first seen a second after it was well.
    assert machine.pass_by(2.0, stopped=True) == [Kill(0, 1000)]
    assert machine.pass_by(60.0, stopped=True) == []
    machine.core.died(0, Exit(1000, None, 9, 1, "", True, False, 1, 7), machine.now)
    lost = machine.pass_by(0.0)
    assert lost[0].death["reason"] == "its process was stopped (SIGSTOP) for 30.0 s"
    assert lost[0].task == 7


def test_a_worker_that_goes_on_is_well():
    """A worker that was continued in time is not killed, and is reported anew the next time."""
    machine = Machine(stopped_s=30.0)
    for _ in range(3):
        assert len(machine.pass_by(29.0, stopped=True)) == 1
        assert machine.pass_by(1.0) == []


def test_a_stopped_worker_may_stay():
    """Without a time for it, a stopped worker is reported, and never killed."""
    machine = Machine()
    said = machine.pass_by(3600.0, stopped=True)
    assert said == [m.Stuck(machine.peer, 1000, 1, 7, TELL_S, m.STOPPED, False, 0.0)]


def test_a_supervisor_that_was_stopped_itself_begins_anew():
    """Time in which the supervisor did not look counts for nothing: it may have been stopped too."""
    machine = Machine(stopped_s=30.0, hang_s=40.0)
    assert machine.pass_by(3.0, stopped=True) == []
    machine.now += 70.0
    assert len(machine.pass_by(30.0, stopped=True)) == 1
    assert machine.pass_by(1.0, stopped=True) == [Kill(0, 1000)]


def test_a_task_that_does_nothing_is_reported():
    """A task without progress or CPU time is reported after each such time; the scheduler decides."""
    machine = Machine(hang_s=60.0)
    assert machine.pass_by(60.0) == []
    assert machine.pass_by(1.0) == [m.Stuck(machine.peer, 1000, 1, 7, 60.0, m.QUIET, True, 0.0)]
    assert machine.pass_by(59.0) == []
    assert len(machine.pass_by(1.0)) == 1


def test_progress_and_cpu_time_are_life():
    """A worker that uses CPU time, or comes to other tasks, does not hang, nor does one stopped."""
    machine = Machine(hang_s=60.0)
    assert machine.pass_by(200.0, cpu_share=2 * QUIET_CPU_SHARE) == []
    assert machine.pass_by(200.0, running=True) == []
    for task in range(10):
        assert machine.pass_by(50.0, ran=(1, task, 3)) == []
    for cpu_s in (9.0, 3.0, 12.0, 0.0):
        assert machine.pass_by(50.0, cpu_s=cpu_s) == []
    assert [one.how for one in machine.pass_by(200.0, stopped=True)] == [m.STOPPED]


@pytest.mark.parametrize(
    ("stopped_s", "hang_s", "look_s"),
    [
        (math.inf, math.inf, LOOK_MAX_S),
        (30.0, math.inf, LOOK_MAX_S),
        (2.0, math.inf, 0.4),
        (30.0, 1.0, 0.2),
        (0.001, 1.0, LOOK_MIN_S),
    ],
)
def test_how_often_workers_are_looked_at(stopped_s, hang_s, look_s):
    """Workers are looked at several times before they are killed, but not too often."""
    assert look_after_s(stopped_s, hang_s) == look_s
