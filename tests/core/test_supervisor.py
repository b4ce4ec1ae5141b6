"""Workers are started, watched, killed and started again."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.supervisor.config import HEARTBEAT_S, SupervisorConfig
from scaler_cluster.core.supervisor.supervisor import (
    BACKOFF_MAX_S,
    BACKOFF_S,
    STARTS_MAX,
    STILLBORN_MAX,
    ComeBack,
    Exit,
    Kill,
    Leave,
    Send,
    Spawn,
    SupervisorCore,
)
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.describe import describe
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.messages import ACTORS_MAX

NOW = 100.0


def make(workers=2, memory_limit_bytes=0):
    config = SupervisorConfig(workers, memory_limit_bytes=memory_limit_bytes)
    core = SupervisorCore(config, b"Sxyz", "host", NOW)
    core.start(NOW)
    return core


def spawn(core, now=NOW):
    """Let time come; start what is to be started, and return slots and names."""
    core.tick(now)
    started = [(one.slot, one.peer) for one in taken(core, Spawn)]
    for index, _ in started:
        core.spawned(index, 1000 + index)
    return started


def taken(core, kind):
    """Empty the outbox, and return the actions of one kind."""
    return [one for one in core.take_actions() if isinstance(one, kind)]


def killed(core):
    """Return the slots whose workers are to be killed."""
    return [one.slot for one in taken(core, Kill)]


def messages(core):
    """Return what is to be sent to the scheduler."""
    return [one.message for one in taken(core, Send)]


def reason_to_leave(core):
    """Return why to leave; None: it stays."""
    reasons = [one.reason for one in taken(core, Leave)]
    return reasons[-1] if reasons else None


def an_exit(*, ready=True, exit_code=None, signal=9, initializer_failed=False, ran=(0, 0)):
    return Exit(1234, exit_code, signal, 5_000_000, "last words", ready, initializer_failed, *ran)


def sent(core):
    return [describe(message) for message in messages(core)]


@pytest.fixture
def core():
    """A supervisor whose two workers run."""
    made = make()
    spawn(made)
    return made


def test_every_slot_gets_a_worker_at_once():
    """A supervisor starts as many workers as it is to keep, each with a name of its own."""
    spawned = spawn(make(3))

    assert [index for index, _ in spawned] == [0, 1, 2]
    assert [name[:4] for _, name in spawned] == [b"Wxyz"] * 3
    assert len({name for _, name in spawned}) == 3


def test_many_workers_are_ordered_bit_by_bit():
    """No more starts are under way than fit into the fork server's socket."""
    core = make(workers=3 * STARTS_MAX)
    core.tick(NOW)
    ordered = [one.slot for one in taken(core, Spawn)]
    assert ordered == list(range(STARTS_MAX))
    # Nothing is due until the fork server answers.
    assert core.deadline == NOW + HEARTBEAT_S

    for index in ordered[:2]:
        core.spawned(index, 1000 + index)

    assert core.deadline == NOW
    core.tick(NOW)
    assert [one.slot for one in taken(core, Spawn)] == [STARTS_MAX, STARTS_MAX + 1]


def test_a_worker_is_started_once(core):
    """A slot whose worker lives asks for no other worker."""
    assert spawn(core, NOW + 100) == []


def test_it_says_that_the_machine_lives(core):
    """A supervisor sends a heartbeat each HEARTBEAT_S."""
    assert core.deadline == NOW + HEARTBEAT_S
    core.tick(NOW + HEARTBEAT_S)

    assert sent(core) == ["Heartbeat"]
    assert core.deadline == NOW + 2 * HEARTBEAT_S


# -- a scheduler that is silent --------------------------------------------------------------


def with_timeouts(**timeouts):
    core = SupervisorCore(SupervisorConfig(1, **timeouts), b"Sxyz", "host", NOW)
    core.start(NOW)
    return core


def test_a_scheduler_that_is_silent_is_given_up():
    """A supervisor leaves when it has heard nothing of its scheduler for death_timeout_s."""
    core = with_timeouts(heartbeat_s=2.0, death_timeout_s=5.0, address="tcp://host:1")
    core.tick(NOW + 2.0)
    core.heard(NOW + 2.5)
    core.tick(NOW + 4.0)
    core.tick(NOW + 6.0)
    assert reason_to_leave(core) is None
    assert core.deadline == NOW + 7.5

    core.tick(NOW + 7.5)
    assert reason_to_leave(core) == (
        "the scheduler at tcp://host:1 has not answered for 5.0 s: is it running, and is this its "
        "address?"
    )


def test_a_machine_that_slept_gives_nobody_up():
    """Time during which this machine slept is no silence of the scheduler."""
    core = with_timeouts(heartbeat_s=2.0, death_timeout_s=5.0)
    core.tick(NOW + 100.0)
    assert reason_to_leave(core) is None
    core.tick(NOW + 102.0)
    core.tick(NOW + 103.0)
    assert reason_to_leave(core) is not None


# -- tasks that run for too long -------------------------------------------------------------


def test_a_task_that_runs_for_too_long_is_reported():
    """A task that runs for too long is reported once for each attempt."""
    core = with_timeouts(task_timeout_s=10.0)
    ((index, peer),) = spawn(core)
    for ran, after in [((3, 7, 1), 0.0), ((3, 8, 1), 9.0), ((3, 8, 1), 18.0), ((3, 8, 2), 18.5)]:
        core.seen(index, ran, NOW + after)
    core.seen(index, (3, 8, 2), NOW + 28.0)
    assert messages(core) == []

    core.seen(index, (3, 8, 2), NOW + 28.5)
    core.seen(index, (3, 8, 2), NOW + 100.0)
    assert messages(core) == [m.Overdue(peer, 3, 8, 10.0)]


def test_a_worker_that_has_run_nothing_is_not_reported():
    """A worker that has run nothing is not reported, however long it lives."""
    core = with_timeouts(task_timeout_s=10.0)
    ((index, _),) = spawn(core)
    core.seen(index, (0, 0, 0), NOW)
    core.seen(index, (0, 0, 0), NOW + 100.0)

    assert messages(core) == []


# -- deaths ----------------------------------------------------------------------------------


def test_a_death_is_reported_with_its_diagnosis(core):
    """The scheduler learns which worker died, what it ran, and how it ended."""
    name = core.slots[1].peer
    core.died(1, an_exit(signal=11, ran=(3, 7)), NOW)

    (lost,) = messages(core)
    assert lost == m.WorkerLost(
        name,
        3,
        7,
        {
            "pid": 1234,
            "host": "host",
            "exit_code": None,
            "signal": 11,
            "peak_rss_bytes": 5_000_000,
            "out_of_memory": False,
            "stderr_tail": "last words",
            "reason": "",
        },
    )


def test_a_worker_that_died_at_work_is_replaced_at_once(core):
    """A worker that had been ready leaves a slot that is due now, for one of another name."""
    name = core.slots[0].peer
    core.died(0, an_exit(), NOW + 5)

    ((index, replacement),) = spawn(core, NOW + 5)
    assert index == 0
    assert replacement != name


def test_stillborn_workers_back_off():
    """A worker that died before it was ready is started again later and later."""
    core = make(1)
    now, pauses = NOW, []
    for _ in range(STILLBORN_MAX - 1):
        spawn(core, now)
        core.died(0, an_exit(ready=False), now)
        pauses.append(core.slots[0].spawn_at - now)
        now = core.slots[0].spawn_at

    assert pauses == pytest.approx(
        [min(BACKOFF_S * 2**turn, BACKOFF_MAX_S) for turn in range(STILLBORN_MAX - 1)]
    )


def test_too_many_stillborn_workers_break_the_cluster():
    """After STILLBORN_MAX in a row none is started again, and the scheduler learns why."""
    core = make(2)
    now = NOW
    for _ in range(STILLBORN_MAX):
        spawn(core, now)
        core.take_actions()
        core.died(0, an_exit(ready=False, signal=None, exit_code=3), now)
        now += BACKOFF_MAX_S

    _, failed = sent(core)
    assert failed == (
        "InitializerFailed: 5 workers in a row died before their first task (exit code 3)\n"
        "last words"
    )
    assert spawn(core, now + 1000) == []


def test_one_ready_worker_ends_the_row():
    """A worker that became ready shows that workers can: the count starts anew."""
    core = make(1)
    for turn in range(3 * STILLBORN_MAX):
        spawn(core, NOW + 100 * turn)
        core.died(0, an_exit(ready=turn % 2 == 1), NOW + 100 * turn)

    assert core.slots[0].spawn_at < math.inf


def test_a_failing_initializer_is_not_tried_again(core):
    """An initializer that raised is the user's error: no worker is started any more."""
    core.died(0, an_exit(ready=False, initializer_failed=True, signal=None, exit_code=66), NOW)

    assert sent(core)[1] == "InitializerFailed: last words"
    core.died(1, an_exit(ready=False, initializer_failed=True), NOW)
    assert spawn(core, NOW + 1000) == []


# -- kills -----------------------------------------------------------------------------------


def test_the_scheduler_may_have_a_worker_killed(core):
    """Kill names a worker; its slot is handed to the shell once, and the reason is reported."""
    core.receive([m.Kill(core.slots[1].peer, "too slow")] * 2)

    assert killed(core) == [1]
    core.died(1, an_exit(), NOW)
    (lost,) = messages(core)
    assert isinstance(lost, m.WorkerLost)
    assert lost.death["reason"] == "too slow"


def test_a_kill_that_comes_too_late_hits_nobody(core):
    """A worker that died already is not killed, and neither is the one in its place."""
    name = core.slots[0].peer
    core.died(0, an_exit(), NOW)
    spawn(core)
    core.receive([m.Kill(name, "too late")])

    assert killed(core) == []


def test_a_kill_that_comes_too_early_is_kept():
    """A worker whose pid is not known yet is killed when it is."""
    core = make(1)
    core.tick(NOW)
    core.receive([m.Kill(core.slots[0].peer, "early")])
    assert killed(core) == []
    core.spawned(0, 77)

    assert killed(core) == [0]


def test_a_killed_worker_is_no_stillborn_one():
    """A worker killed on request before it was ready is replaced at once."""
    core = make(1)
    for _ in range(3 * STILLBORN_MAX):
        ((_, name),) = spawn(core)
        core.receive([m.Kill(name, "again")])
        core.died(0, an_exit(ready=False), NOW)

    assert core.slots[0].spawn_at == NOW


def test_too_much_memory_kills():
    """A worker above its limit is killed, once, and its death says that it was out of memory."""
    core = make(2, memory_limit_bytes=100_000_000)
    spawn(core)
    core.sampled(0, 90_000_000)
    core.sampled(1, 110_000_000)
    core.sampled(1, 120_000_000)

    assert killed(core) == [1]
    core.died(1, an_exit(), NOW)
    (lost,) = messages(core)
    assert isinstance(lost, m.WorkerLost)
    assert lost.death["out_of_memory"]
    assert "110 MB exceeded the limit of 100 MB" in lost.death["reason"]


def test_workers_that_load_too_much_break_the_cluster():
    """Workers that exceed their memory limit before their first task break the cluster."""
    core = make(1, memory_limit_bytes=100_000_000)
    for turn in range(STILLBORN_MAX):
        spawn(core, NOW + 100 * turn)
        core.sampled(0, 150_000_000)
        assert core.slots[0].spawn_at < math.inf
        core.died(0, an_exit(ready=turn % 2 == 0), NOW + 100 * turn)

    assert core.slots[0].spawn_at == math.inf
    (broken,) = [one for one in messages(core) if isinstance(one, m.InitializerFailed)]
    assert "before their first task" in broken.text
    assert "150 MB exceeded the limit of 100 MB" in broken.text


def test_tasks_that_take_too_much_break_nothing():
    """A worker that ran a task is started again at once, however often it is killed for memory."""
    core = make(1, memory_limit_bytes=100_000_000)
    for turn in range(3 * STILLBORN_MAX):
        spawn(core, NOW + turn)
        core.sampled(0, 150_000_000)
        core.died(0, an_exit(ran=(1, turn)), NOW + turn)

        assert core.slots[0].spawn_at == NOW + turn


def test_memory_is_looked_at_more_often_near_the_limit():
    """Memory is looked at as soon as a worker could have reached its limit, within bounds."""
    core = make(1, memory_limit_bytes=1_000_000_000)

    assert core.sample_after_s(200_000_000) == pytest.approx(0.2)
    assert core.sample_after_s(990_000_000) == 0.02
    assert core.sample_after_s(2_000_000_000) == 0.02
    assert make(1, memory_limit_bytes=10**12).sample_after_s(0) == 0.5


def test_without_a_limit_memory_is_free(core):
    """Without a limit a worker is not killed, whatever its size."""
    core.sampled(0, 10**15)

    assert killed(core) == []


# -- the scheduler ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (m.Refused("no"), "no"),
        (m.Goodbye("go"), ""),
        (m.Welcome(0, 2), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, m.Message) else "",
)
def test_a_supervisor_is_told_to_leave(core, message, reason):
    """Refused and Goodbye end a supervisor, and its machine's workers with it."""
    core.receive([message])

    assert reason_to_leave(core) == reason


def test_a_supervisor_that_the_scheduler_does_not_know_comes_back():
    """Unknown, however often it comes, has a supervisor say Hello again, and who lives."""
    core = make()
    (_, first), (_, second) = spawn(core)
    taken(core, Send)
    core.receive([m.Unknown(), m.Unknown()])

    assert core.take_actions() == [ComeBack((m.Roll((first, second), True),))]


def test_a_supervisor_that_comes_back_says_who_has_died():
    """What a worker knew has died with it; that it has is said again if it may not have arrived."""
    core = make()
    (_, first), (_, second) = spawn(core)
    core.died(0, Exit(1000, None, 9, 0, "", True, False, 0, 0), NOW)
    (lost,) = (one.message for one in taken(core, Send) if isinstance(one.message, m.WorkerLost))
    core.receive([m.Unknown()])

    (back,) = core.take_actions()

    assert lost.worker == first
    assert back.words([m.Heartbeat(), lost]) == [m.Roll((second,), False), lost]


def test_a_unit_on_its_way_out_is_whole_for_another_scheduler():
    """The scheduler that let it go is gone, and maybe the manager that wanted it."""
    core = make()
    spawn(core)
    core.receive([m.Wanted(0)])
    for index in range(2):
        core.died(index, an_exit(exit_code=0, signal=None), NOW)
    assert spawn(core) == []

    core.receive([m.Unknown()])
    assert [index for index, _ in spawn(core)] == [0, 1]


def test_what_is_for_others_is_refused(core):
    """A message that is not for a supervisor breaks the protocol."""
    with pytest.raises(RemoteProtocolError, match="not for a supervisor"):
        core.receive([m.Retire()])


def test_spare_workers_are_started_on_demand(core):
    """The supervisor keeps as many spare workers as the scheduler wants, in their own places."""
    assert spawn(core) == []
    core.receive([m.Spares(2)])
    assert [index for index, _ in spawn(core)] == [2, 3]
    core.died(2, an_exit(), NOW)
    assert [index for index, _ in spawn(core)] == [2]


def test_spare_workers_that_are_not_wanted_are_not_replaced(core):
    """A spare worker that ends is not replaced once it is not wanted."""
    core.receive([m.Spares(1)])
    spawn(core)
    core.receive([m.Spares(0)])
    core.died(2, an_exit(exit_code=0, signal=None), NOW)
    assert spawn(core) == []
    assert core.deadline == NOW + HEARTBEAT_S


@pytest.mark.parametrize(("workers", "spares"), [(0, 0), (1, 4), (2, 4), (4, 4), (5, 5), (9, 9)])
def test_spare_workers_are_bounded(workers, spares):
    """A machine gets as many spare workers as it has workers, or 4 if it has fewer, or none.

    It has room for those that take the place of actors besides.
    """
    core = make(workers)

    assert len(core.slots) == workers + spares + ACTORS_MAX * (workers > 0)


def test_it_counts_workers_that_replace_dead_ones(core):
    """A worker counts as a restart once it is started in the place of one that died."""
    core.died(0, an_exit(), NOW)
    core.died(1, an_exit(exit_code=0, signal=None), NOW)
    assert core.restarts == 0
    spawn(core)

    assert core.restarts == 1
