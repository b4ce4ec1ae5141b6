"""Whether a death was for lack of memory, by what the kernel counts."""

from __future__ import annotations

import pytest

from scaler_cluster.core.supervisor.config import SupervisorConfig
from scaler_cluster.core.supervisor.oom import OomKills, oom_reason
from scaler_cluster.core.supervisor.supervisor import Exit, Send, SupervisorCore
from scaler_cluster.wire import messages as m

FILE = "/sys/fs/cgroup/job/memory.events"
GROUP = f"in its control group: oom_kill in {FILE} rose"
MACHINE = "on this machine: oom_kill in /proc/vmstat rose"


@pytest.mark.parametrize(
    ("signal", "before", "after", "expected"),
    [
        (9, (3, 7), (4, 8), GROUP),
        (9, (3, -1), (4, -1), GROUP),
        (9, (-1, 7), (-1, 8), MACHINE),
        # Somebody sent the signal, also while another group was short of memory.
        (9, (3, 7), (3, 8), ""),
        (9, (3, 7), (3, 7), ""),
        # It could not be read before, or cannot now.
        (9, (-1, -1), (4, 8), ""),
        (9, (3, 7), (-1, -1), ""),
        (9, (3, 7), (-1, 8), ""),
        # The kernel killed another process.
        (11, (3, 7), (4, 8), ""),
        (None, (3, 7), (4, 8), ""),
    ],
)
def test_what_the_counts_say(signal, before, after, expected):
    """A death by SIGKILL was for lack of memory if the kernel's count of its group rose with it.

    The one of the machine is asked if the group has none.
    """
    reason = oom_reason(
        signal, OomKills(before[0], before[1], FILE), OomKills(after[0], after[1], FILE)
    )

    assert expected in reason
    assert bool(reason) == bool(expected)
    if reason:
        assert reason.startswith("out of memory: the kernel killed it")


def test_the_scheduler_is_told():
    """A death for lack of memory says so, and how that is known."""
    core = SupervisorCore(SupervisorConfig(1), b"S1", "host", 100.0)
    core.start(100.0)
    core.tick(100.0)
    core.spawned(0, 1000)
    core.take_actions()
    core.died(0, Exit(1000, None, 9, 5, "", True, False, 1, 7, "out of memory: so"), 101.0)

    lost = next(one.message for one in core.take_actions() if isinstance(one, Send))
    assert isinstance(lost, m.WorkerLost)
    assert lost.death["out_of_memory"] is True
    assert lost.death["reason"] == "out of memory: so"


def test_one_kill_explains_one_death():
    """A second death needs a second kill."""
    before, after = OomKills(3, 7, FILE), OomKills(4, 8, FILE)

    assert oom_reason(9, before, after)
    assert not oom_reason(9, before.after_one_more(), after)
    assert not oom_reason(9, before.at_least(before.after_one_more()), after)
    assert OomKills(-1, 7).after_one_more() == OomKills(-1, 8)
