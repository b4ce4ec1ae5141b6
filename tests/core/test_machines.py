"""What the workers of a machine share: amounts, GPUs by the piece, and several workers at once."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.amounts import Amounts
from scaler_cluster.core.records.credit import STALL_S
from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.resumption import GRACE_S
from scaler_cluster.core.scheduler.scheduler import LAG_S
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    function_id,
    hello,
    payloads_of,
    submission,
)
from scaler_cluster.wire import messages as m

LONG_S = 1.0


def gpus(count: float = 1, **more: object) -> m.TaskOptions:
    """Return the options of tasks that need so many GPUs."""
    return m.TaskOptions(capabilities=(("gpu", count),), **more)  # type: ignore[arg-type]


def cores(count: int, **more: object) -> m.TaskOptions:
    """Return the options of tasks that need so many cores."""
    return m.TaskOptions(cores=count, **more)  # type: ignore[arg-type]


def machine(
    bench: SchedulerBench, workers: int, *shared: tuple[str, float], peer: bytes = b"S1"
) -> SchedulerBench:
    """Let a machine come, with workers W1, W2 and so on, or V1 on the second machine."""
    bench.supervisor(peer, workers=workers, capabilities=shared)
    letter = b"W%d" if peer == b"S1" else b"V%d"
    for number in range(1, workers + 1):
        bench.worker(letter % number, supervisor=peer)
    return bench


def running(bench: SchedulerBench) -> dict[int, bytes]:
    """Return the tasks that workers have, each with its worker."""
    return {
        task: peer
        for peer, worker in bench.core.table.workers.items()
        for run in worker.runs
        for task in range(run.first, run.stop)
    }


def devices(bench: SchedulerBench) -> dict[int, tuple[int, ...]]:
    """Return the tasks that have GPUs."""
    workers = bench.core.table.workers.values()
    runs = (run for worker in workers for run in worker.runs)
    return {run.first: run.portion.devices for run in runs if run.portion is not None}


@pytest.fixture
def eight(bench):
    """A client and a machine of eight workers that share four GPUs."""
    bench.client()
    return machine(bench, 8, ("gpu", 4))


@pytest.fixture
def four(bench):
    """A client and a machine of four workers."""
    bench.client()
    return machine(bench, 4)


# -- amounts -----------------------------------------------------------------------------------


def test_only_as_many_run_as_the_machine_has(eight):
    """Of tasks that need a GPU of the four, four run at once; the others wait for no worker."""
    eight.submit(0, 6, options=gpus())
    assert sorted(running(eight)) == [0, 1, 2, 3]
    eight.submit(100, 4)
    assert sum(task >= 100 for task in running(eight)) == 4

    eight.done(1, peer=running(eight)[1], each_s=LONG_S)
    assert sorted(task for task in running(eight) if task < 100) == [0, 2, 3, 4]


def test_who_needs_more_of_it_leaves_less(eight):
    """Two tasks that need two GPUs each have all four; part of one is a whole one."""
    eight.submit(0, 3, options=gpus(2))
    assert sorted(running(eight)) == [0, 1]
    eight.done(0, peer=running(eight)[0], each_s=LONG_S)
    eight.submit(10, 2, options=gpus(0.5))

    assert sorted(running(eight)) == [1, 2]
    eight.done(1, peer=running(eight)[1], each_s=LONG_S)
    assert sorted(running(eight)) == [2, 10, 11]


def test_other_amounts_add_up_exactly(bench):
    """Amounts that are no GPUs are used up in any parts: ten tenths are one."""
    bench.client()
    machine(bench, 12, ("memory", 1))
    bench.submit(0, 12, options=m.TaskOptions(capabilities=(("memory", 0.1),)))

    assert len(running(bench)) == 10


def test_nothing_is_promised_ahead(eight):
    """However short such tasks are, a worker has no second one that waits behind the first."""
    eight.submit(0, 1, options=gpus())
    eight.done(0, peer=running(eight)[0], each_s=1e-6)
    eight.submit(1, 50, options=gpus())

    assert sorted(running(eight)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "end",
    [
        lambda bench, peer: bench.done(0, peer=peer),
        lambda bench, peer: bench.erred(0, peer=peer),
        lambda bench, peer: bench.died(0, worker=peer),
        lambda bench, peer: (
            bench.feed(b"C1", m.Cancel(0, 1)) and bench.feed(peer, m.Aborted(1, 0, 1))
        ),
        lambda bench, _: bench.feed(b"C1", m.Goodbye()) and bench.client(),
    ],
    ids=["returns", "raises", "dies", "is cancelled", "loses its client"],
)
def test_each_end_gives_it_back_once(bench, end):
    """However a task ends, what it had is free again, and no more than that."""
    bench.client()
    machine(bench, 2, ("gpu", 1))
    bench.submit(0, options=gpus())
    peer = running(bench)[0]
    end(bench, peer)
    if bench.core.table.sessions and 0 in running(bench):
        # Its client is gone, and it is still to stop.
        bench.feed(peer, m.Aborted(1, 0, 1))
    bench.client(b"C2")
    bench.submit(1, 2, peer=b"C2", options=gpus())

    assert len(devices(bench)) == 1


def test_a_task_that_is_being_stopped_has_it_still(bench):
    """A cancelled task keeps its GPU until its worker has let go of it."""
    bench.client()
    machine(bench, 2, ("gpu", 1))
    bench.submit(0, 2, options=gpus())
    peer = running(bench)[0]
    bench.feed(b"C1", m.Cancel(0, 1))
    assert list(devices(bench)) == [0]

    bench.feed(peer, m.Aborted(1, 0, 1))
    assert list(devices(bench)) == [1]


def test_a_retry_takes_it_anew(bench):
    """A task that is run again after its worker died has a GPU again, and only one."""
    bench.client()
    machine(bench, 2, ("gpu", 1))
    bench.submit(0, options=gpus(retries=1))
    first = running(bench)[0]
    bench.died(0, worker=first)

    assert devices(bench) == {0: (0,)}
    assert running(bench)[0] != first


def test_a_lost_machine_has_nothing_to_give_back(eight):
    """Tasks of a machine that was lost run on another one, with what that has."""
    machine(eight, 2, ("gpu", 1), peer=b"S2")
    eight.submit(0, 6, options=gpus())
    assert len(running(eight)) == 5
    eight.lose(b"S1")

    assert devices(eight) == {0: (0,)} or len(devices(eight)) == 1


def test_machines_do_not_share_with_each_other(bench):
    """Each machine has its own amount, and a worker may have one of its own besides."""
    bench.client()
    machine(bench, 2, ("gpu", 1))
    machine(bench, 2, ("gpu", 1), peer=b"S2")
    bench.supervisor(b"S3")
    bench.worker(b"X1", supervisor=b"S3", capabilities=(("gpu", 1),))
    bench.submit(0, 5, options=gpus())

    assert len(running(bench)) == 3
    assert len({peer[:1] for peer in running(bench).values()}) == 3


def test_a_demand_beyond_every_machine_is_told(eight):
    """A client hears of tasks that need more than any machine has, as of any other demand."""
    eight.submit(0, options=gpus(5))
    eight.submit(1, options=cores(9))
    told = eight.wait(LAG_S / 2)["C1"]

    assert told == [
        "Unplaced: Tasks wait for a worker with gpu=5: none has it.",
        "Unplaced: Tasks wait for a worker with 9 cores of one machine: none has it.",
    ]


# -- who is next -------------------------------------------------------------------------------


def test_a_large_demand_does_not_starve_behind_small_ones(eight):
    """Tasks that need all GPUs and tasks that need one get their turns, one after the other."""
    eight.submit(0, 20, options=gpus())
    eight.submit(100, 2, options=gpus(4))
    order = []
    while running(eight):
        task, peer = min(running(eight).items())
        order.append(task)
        eight.done(task, peer=peer, each_s=LONG_S)

    assert len(order) == 22
    assert order.index(100) < 8
    assert order.index(101) < 16


def test_a_long_task_finds_an_idle_worker_behind_short_ones(bench):
    """A worker that is busy with a stream of short tasks runs dry for one that needs a GPU."""
    bench.client()
    machine(bench, 1, ("gpu", 1))
    bench.submit(900)
    bench.done(900, peer=b"W1", each_s=1e-5)
    bench.submit(0, 5000)
    bench.submit(9000, options=gpus())
    (run,) = bench.core.table.workers[b"W1"].runs
    bench.done(run.first, run.count, peer=b"W1", each_s=1e-5)

    assert running(bench)[9000] == b"W1"


# -- GPUs by the piece -------------------------------------------------------------------------


def test_each_task_has_gpus_of_its_own(eight):
    """Tasks that run at once are told different GPUs."""
    eight.submit(0, 2, options=gpus())
    eight.submit(10, options=gpus(2))

    assert sorted(devices(eight).values()) == [(0,), (1,), (2, 3)]


def test_the_worker_is_told(eight):
    """The message that brings the task names what it has."""
    (said,) = eight.submit(0, options=gpus(2)).values()
    assert said[-1] == "Assign 1:0 f having gpu=2 devices 0,1"
    (said,) = eight.graph(10, "", options=[gpus()], kinds=[0]).values()
    assert said[-1] == "AssignNodes 1:10 g having gpu=1 devices 2"


def test_a_worker_gets_the_same_gpu_again(eight):
    """A worker that has had a GPU gets it again, and others do not get it meanwhile."""
    eight.submit(0, 4, options=gpus())
    before = {running(eight)[task]: found for task, found in devices(eight).items()}
    for task, peer in running(eight).items():
        eight.done(task, peer=peer, each_s=LONG_S)
    eight.submit(10, 4, options=gpus())

    assert {running(eight)[task]: found for task, found in devices(eight).items()} == before


def test_a_worker_that_had_others_is_replaced(bench):
    """A worker whose libraries may use other GPUs leaves; the task waits for the one after it."""
    bench.client()
    machine(bench, 1, ("gpu", 2))
    bench.submit(0, options=gpus())
    bench.done(0, peer=b"W1", each_s=LONG_S)
    assert bench.submit(1, options=gpus(2)) == {"W1": ["Retire"]}
    assert bench.submit(2) == {}
    bench.feed(b"W1", m.Goodbye())
    bench.worker(b"W2")

    assert devices(bench) == {1: (0, 1)}


def test_a_replacement_is_waited_for(bench):
    """While one worker is on its way, no other is sent off for the same reason."""
    bench.client()
    machine(bench, 3, ("gpu", 2))
    bench.submit(0, 2, options=gpus())
    bench.submit(2)
    for task, peer in running(bench).items():
        bench.done(task, peer=peer, each_s=LONG_S)
    bench.submit(3, 1, options=gpus())
    # W3 never had a GPU, and takes both.
    bench.done(3, peer=running(bench)[3], each_s=LONG_S)
    bench.submit(4, options=gpus(2))
    assert devices(bench) == {4: (0, 1)}
    bench.done(4, peer=running(bench)[4], each_s=LONG_S)
    bench.submit(5, options=gpus(2))

    assert devices(bench) == {5: (0, 1)}


# -- several cores -----------------------------------------------------------------------------


def test_a_task_with_several_cores_keeps_others_off_the_machine(four):
    """While a task with three cores runs on one of four workers, one other runs tasks."""
    four.submit(0, options=cores(3))
    four.submit(10, 8)
    assert len({peer for task, peer in running(four).items() if task >= 10}) <= 2

    before = len(set(running(four).values()))
    assert before == 2
    four.done(0, peer=running(four)[0], each_s=LONG_S)
    assert len(set(running(four).values())) == 4


def test_the_worker_is_told_its_cores(four):
    """The message that brings the task says how many cores it has, and whether they are all."""
    (said,) = four.submit(0, options=cores(2)).values()
    assert said[-1] == "Assign 1:0 f having 2 cores"
    four.done(0, peer=running(four)[0], each_s=LONG_S)
    (said,) = four.submit(1, options=cores(m.WHOLE_MACHINE)).values()
    assert said[-1] == "Assign 1:1 f having 4 cores of all"


def test_a_whole_machine_is_empty(four):
    """A task that needs a whole machine starts when nothing runs there, and nothing joins it."""
    four.submit(0)
    four.submit(1, options=cores(m.WHOLE_MACHINE))
    assert 1 not in running(four)
    four.submit(10, 8)
    assert set(running(four)) == {0}
    four.done(0, peer=running(four)[0], each_s=LONG_S)
    assert set(running(four).values()) == {running(four)[1]}
    four.worker(b"W5")
    assert set(running(four).values()) == {running(four)[1]}

    four.done(1, peer=running(four)[1], each_s=LONG_S)
    assert len(set(running(four).values())) == 5


def test_such_a_task_does_not_starve_behind_a_stream(four):
    """Workers that become free are kept for a task that is next, and busy ones get no more."""
    four.submit(900)
    four.done(900, peer=running(four)[900], each_s=1e-4)
    four.submit(0, 5000)
    four.submit(9000, options=cores(4))
    for _ in range(20):
        if 9000 in running(four):
            break
        for peer, worker in list(four.core.table.workers.items()):
            for run in list(worker.runs):
                four.done(run.first, run.count, peer=peer, each_s=1e-4)

    assert set(running(four).values()) == {running(four)[9000]}


def test_only_as_many_workers_are_kept_as_are_needed(four):
    """While a task with two cores waits for one worker, two others go on."""
    four.submit(0, 4)
    for task, peer in list(running(four).items()):
        four.done(task, peer=peer, each_s=LONG_S)
    four.submit(10, 4)
    four.submit(20, 2, options=cores(2))
    four.submit(30, 10)
    assert set(running(four)) == {10, 11, 12, 13}
    four.done(10, peer=running(four)[10], each_s=LONG_S)
    assert 20 not in running(four)
    assert len(running(four)) == 3
    kept = sum(worker.parked for worker in four.core.table.workers.values())
    assert kept == 2

    for task in (11, 12, 13):
        four.done(task, peer=running(four)[task], each_s=LONG_S)
    assert {20, 21} <= set(running(four))


def test_a_more_urgent_task_does_not_wait_for_it(four):
    """What is kept for a task is kept from equal tasks, not from more urgent ones."""
    four.submit(0, 3)
    four.submit(10, options=cores(4))
    four.submit(20, options=m.TaskOptions(priority=1))

    assert 20 in running(four)


def test_a_parked_worker_that_dies_is_made_up_for(four):
    """If one of the workers dies whose place a task needs, the worker after it has its place."""
    four.submit(0, options=cores(4))
    runner = running(four)[0]
    parked = next(peer for peer in four.core.table.workers if peer != runner)
    four.submit(10, 4)
    four.died(None, worker=parked)
    four.worker(b"W9")

    assert set(running(four).values()) == {runner}
    assert four.core.table.workers[b"W9"].parked


def test_cores_come_back_when_the_worker_dies(four):
    """If the worker dies that runs such a task, those that were parked for it get work."""
    four.submit(0, options=cores(4))
    four.submit(10, 3)
    four.died(0, worker=running(four)[0])

    assert set(running(four)) == {10, 11, 12}


def test_a_task_that_waits_lets_its_cores_go(four):
    """A task that waits for others needs no cores meanwhile: what it submits may run on them."""
    four.submit(0, options=cores(4))
    peer = running(four)[0]
    four.feed(b"N1", hello(m.CLIENT, worker=peer))
    wide = cores(4, depth=1)
    four.feed(b"N1", *submission(0, options=wide), m.Blocked(is_blocked=True))
    assert [run.session for run in four.core.table.workers[peer].runs] == [1]
    four.worker(b"W9", spare=True)
    nested = {one for one, w in four.core.table.workers.items() if w.runs and one != peer}
    assert len(nested) == 1

    four.feed(b"N1", m.Blocked(is_blocked=False))
    four.done(0, peer=nested.pop(), session=2, each_s=LONG_S)
    assert sum(worker.parked for worker in four.core.table.workers.values()) == 3


def test_cores_and_gpus_go_together(bench):
    """A task may need a GPU and some cores; it starts once all of it is free."""
    bench.client()
    machine(bench, 3, ("gpu", 1))
    both = m.TaskOptions(capabilities=(("gpu", 1),), cores=2)
    bench.submit(0, 2, options=both)
    assert set(running(bench)) == {0}
    bench.submit(10)
    assert set(running(bench)) == {0, 10}
    bench.done(0, peer=running(bench)[0], each_s=LONG_S)

    assert set(running(bench)) == {1, 10}


def test_the_time_of_all_its_cores_counts(four):
    """A client whose tasks take a whole machine has had the time of all its workers."""
    four.client(b"C2")
    four.submit(0, options=cores(4))
    four.done(0, peer=running(four)[0], each_s=LONG_S)

    (user,) = four.core.table.backlog.users
    assert user.served_s == pytest.approx(4 * LONG_S)


def test_all_that_wait_may_run_what_they_wait_for(bench):
    """If all workers of a machine wait, a task with several cores runs on the stack of one."""
    bench.client()
    machine(bench, 2)
    bench.submit(0, 2)
    peers = running(bench)
    for nested, peer in ((b"N1", peers[0]), (b"N2", peers[1])):
        bench.feed(nested, hello(m.CLIENT, worker=peer))
        bench.feed(nested, *submission(0, options=cores(2, depth=1)))
    bench.feed(b"N1", m.Blocked(is_blocked=True))
    assert "N1" not in bench.feed(b"N1", m.Cancel(0, 1, queued_only=True))

    bench.feed(b"N2", m.Blocked(is_blocked=True))
    assert bench.feed(b"N1", m.Cancel(0, 1, queued_only=True))["N1"] == ["Cancelled 0"]


def test_a_waiting_task_is_not_given_what_it_lacks(eight):
    """A task without a GPU that waits for one with a GPU does not get it back to run it."""
    eight.submit(0, 1)
    peer = running(eight)[0]
    eight.submit(10, options=gpus(4))
    eight.feed(b"N1", hello(m.CLIENT, worker=peer))
    eight.feed(b"N1", *submission(0, options=gpus(1, depth=1)), m.Blocked(is_blocked=True))
    assert "N1" not in eight.feed(b"N1", m.Cancel(0, 1, queued_only=True))


def test_nodes_that_follow_have_their_gpus_too(bench):
    """A node of a graph that needs a GPU is not given out with the node before it."""
    bench.client()
    machine(bench, 2, ("gpu", 1))
    bench.graph(900, "", options=[gpus()], kinds=[0])
    bench.done(900, peer=running(bench)[900], each_s=1e-6)
    bench.graph(0, "", "0", "1", "2", "3", options=[gpus()], kinds=[0] * 5)
    for node in range(5):
        bench.act()
        assert list(running(bench)) == [node]
        assert len(devices(bench)) == 1
        bench.done(node, peer=running(bench)[node], each_s=1e-6)


# -- another scheduler -------------------------------------------------------------------------


def returning() -> SchedulerBench:
    """Return a scheduler to which a machine comes back, with workers W1 and W2."""
    bench = SchedulerBench(SchedulerConfig(PYTHON))
    hi = hello(m.SUPERVISOR, workers=2, capabilities=(("gpu", 2),), resume=1)
    bench.feed(b"S1", hi, m.Roll((b"W1", b"W2"), is_whole=True))
    bench.feed(b"C1", hello(m.CLIENT))
    return bench


def come_back(
    bench: SchedulerBench, peer: bytes, *holdings: m.Holding, devices: tuple[int, ...] = ()
) -> None:
    """Let a worker come that another scheduler knew."""
    hi = hello(m.WORKER, supervisor=b"S1", resume=1)
    bench.feed(peer, hi, *holdings, m.Held(b"", True, 0, devices))


def test_a_scheduler_learns_what_running_tasks_have():
    """What a worker's task has of the machine is counted, also if nobody asks for the task."""
    bench = returning()
    portion = m.Portion((("gpu", 1),), (1,))
    come_back(bench, b"W1", m.Holding(7, 50, 1, 1, 3.0, portion=portion), devices=(1,))
    come_back(bench, b"W2")
    bench.submit(0, 2, options=gpus())
    bench.wait(GRACE_S + 1)

    assert sorted(devices(bench).values()) == [(0,), (1,)]
    assert bench.core.table.workers[b"W1"].devices == (1,)
    bench.died(50, worker=b"W1", session=0)
    bench.worker(b"W3")
    assert devices(bench) == {0: (0,), 1: (1,)}


def test_a_worker_tells_what_its_task_has():
    """A worker that comes back names what its task has, and the GPUs it was told last."""
    core, portion = WorkerCore(), m.Portion((("gpu", 1),), (3,))
    function, batch = function_id("f"), payloads_of(0, 1)
    assign = m.Assign(1, 0, function, m.CALL_ARGS, False, False, batch, portion=portion)
    core.receive([m.Function(function, b"f"), assign])
    holding, held = core.come_back((), 0, 1.0)

    assert isinstance(holding, m.Holding)
    assert holding.portion == portion
    core.queue[0].cursor = 0
    core.reports.begin(core.queue[0], 0.0)
    holding, held = core.come_back((), 0, 1.0)
    assert isinstance(holding, m.Holding)
    assert isinstance(held, m.Held)
    assert (holding.portion, holding.started, held.devices) == (portion, 1, (3,))


def test_nothing_is_given_out_before_all_workers_have_told():
    """A machine that comes back gives out nothing it shares until all its workers have spoken."""
    bench = returning()
    come_back(bench, b"W2")
    bench.submit(0, options=gpus())
    bench.wait(GRACE_S + 1)
    assert not running(bench)
    come_back(bench, b"W1")

    assert running(bench)


def test_cores_are_parked_again():
    """The other workers stay idle for a task with several cores that a worker came back with."""
    bench = returning()
    portion = m.Portion(cores=2)
    come_back(bench, b"W2")
    come_back(bench, b"W1", m.Holding(7, 0, 1, 1, 3.0, portion=portion))
    bench.wait(GRACE_S + 1)
    bench.submit(0, 2)
    assert bench.core.table.workers[b"W2"].parked

    bench.feed(b"W1", m.Aborted(0, 0, 1))
    assert set(running(bench)) == {0, 1}


@pytest.mark.parametrize(
    "portion",
    [
        m.Portion((("gpu", 3),), (0, 1, 2)),
        m.Portion((("gpu", 1),)),
        m.Portion((("gpu", 1),), (5,)),
        m.Portion((("gpu", -1),)),
        m.Portion((("gpu", 1), ("gpu", 1)), (0,)),
        m.Portion((("fpga", 1),)),
        m.Portion((("gpu", 2),), (0, 0)),
    ],
    ids=str,
)
def test_what_cannot_be_is_not_counted(portion):
    """A worker that says it has what the machine does not have is told to stop its task."""
    bench = returning()
    come_back(bench, b"W1", m.Holding(7, 0, 1, 1, 3.0, portion=portion))
    come_back(bench, b"W2")
    bench.wait(GRACE_S + 1)

    assert not devices(bench)
    invariants.check(bench.core)


def test_a_portion_is_of_one_task():
    """A worker that says that several tasks have one portion is dropped."""
    bench = returning()
    hi = hello(m.WORKER, supervisor=b"S1", resume=1)
    with pytest.raises(RemoteProtocolError, match="several tasks with one portion"):
        bench.feed(b"W1", hi, m.Holding(7, 0, 2, 1, 3.0, portion=m.Portion()))


@pytest.mark.parametrize("count", [0.5, 1025])
def test_gpus_of_a_machine_are_counted_by_the_piece(bench, count):
    """A supervisor that offers part of a GPU, or thousands, is dropped."""
    with pytest.raises(RemoteProtocolError, match="by the piece"):
        bench.supervisor(capabilities=(("gpu", count),))


# -- what is counted ---------------------------------------------------------------------------


def test_amounts_are_checked_when_they_are_taken():
    """To take what somebody has is a bug that is noticed at once."""
    amounts = Amounts((("gpu", 1),))
    portion = m.Portion((("gpu", 1),), (0,))
    amounts.take(portion)
    with pytest.raises(AssertionError, match="taken twice"):
        amounts.take(portion)
    amounts.give_back(portion)
    assert amounts.is_right([])


def test_long_tasks_behind_such_a_task_go_elsewhere(eight):
    """What waits behind a task that uses a GPU is asked back when that turns out long."""
    eight.submit(900)
    eight.done(900, peer=running(eight)[900], each_s=1e-4)
    eight.submit(0, 4, options=gpus())
    eight.submit(100, 400)
    asked = eight.wait(STALL_S * 3)

    assert any(line.startswith("Revoke") for lines in asked.values() for line in lines)
    assert len(devices(eight)) == 4
