"""Objects between machines: who is asked to copy what, and what becomes of it."""

from __future__ import annotations

import pytest

from scaler_cluster.core.objects import STORAGE_DOWN_MAX_S
from scaler_cluster.core.scheduler import SchedulerConfig
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    function_id,
    hello,
    object_id,
    segment,
    submission,
)
from scaler_cluster.wire import messages as m

A = segment(b"C1", 0)
NAME = A.decode()
RESULT = segment(b"W2", 0)
COPY = f"Copy {NAME} from tcp://home"


@pytest.fixture
def far():
    """Two machines: S1 is the scheduler's, S2 has worker W2 and storage O2. C1 stored object a."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, storage="tcp://home"))
    bench.client()
    bench.supervisor(b"S1", workers=0)
    bench.supervisor(b"S2")
    bench.worker(b"W2", b"S2", disk="/elsewhere")
    bench.storage(b"O1")
    bench.storage(b"O2", supervisor=b"S2")
    bench.store("a")
    return bench


def transferred(bench, error="", *, peer=b"O2"):
    """Let a storage report that the object has come, or has not."""
    return bench.feed(peer, m.Transferred(A, error))


def test_an_object_is_copied_where_a_worker_needs_it(far):
    """The worker is told at once, and finds the segment when it has come."""
    sent = far.submit(0, objects="a")

    assert sent["W2"][-1] == f"Assign 1:0 f with {NAME}"
    assert sent["O2"] == [COPY]
    assert transferred(far) == {}


def test_it_is_copied_once_for_all_workers_and_tasks(far):
    """Neither while it is under way, nor when it is there."""
    far.submit(0, objects="a")
    assert "O2" not in far.worker(b"W3", b"S2", disk="/elsewhere")
    assert "O2" not in far.submit(1, 10, objects="a")
    transferred(far)
    for task in range(11):
        assert "O2" not in far.done(task, peer=far_worker(far, task))
    assert "O2" not in far.submit(11, objects="a")


def far_worker(bench, task):
    """Return the worker that has a task."""
    for peer, worker in bench.core.table.workers.items():
        if any(run.first <= task < run.stop for run in worker.runs):
            return peer
    raise AssertionError(f"nobody has task {task}")


def test_both_copies_are_freed(far):
    """The last user of an object takes all its copies along."""
    far.submit(0, objects="a")
    transferred(far)
    far.done(0, peer=b"W2")

    release = [f"Release {NAME}"]
    assert far.release("a") == {"W2": release, "O1": release, "O2": release}


def test_a_copy_under_way_is_given_up(far):
    """An object that is freed meanwhile is not waited for; its late arrival is no news."""
    far.submit(0, objects="a")
    far.feed(b"C1", m.Cancel(0, 1))
    far.feed(b"W2", m.Aborted(1, 0, 1))

    assert far.release("a")["O2"] == [f"Release {NAME}"]
    assert transferred(far) == {}


def test_workers_hear_that_a_copy_failed(far):
    """Only those of that machine wait for it; the next task tries again."""
    far.submit(0, objects="a")

    assert transferred(far, "cut") == {"W2": [f"Missing {NAME}: cut"]}
    assert far.submit(1, objects="a")["O2"] == [COPY]


def test_a_storage_that_comes_late_gets_its_orders_then(far):
    """As does one that takes the place of another: what is still under way begins again."""
    far.lose(b"O2")
    assert "O2" not in far.submit(0, objects="a")

    assert far.storage(b"O3", supervisor=b"S2")["O3"][1:] == [COPY]
    assert far.storage(b"O4", supervisor=b"S2")["O4"][1:] == [COPY]
    with pytest.raises(RemoteProtocolError):
        transferred(far, peer=b"O3")


def test_a_storage_that_never_comes_is_not_waited_for(far):
    """After a while the tasks that wait for a copy hear that it will not come."""
    far.lose(b"O2")
    far.submit(0, objects="a")

    sent: dict[str, list[str]] = {}
    for _ in range(int(STORAGE_DOWN_MAX_S / 5) + 1):
        far.feed(b"S2", m.Heartbeat())
        sent |= far.wait(5)
    assert sent["W2"] == [f"Missing {NAME}: the object storage does not start"]


def test_a_function_is_brought_with_each_task(far):
    """When its copy failed once, the next task has it fetched again."""
    function = m.Function(function_id("f"), b"f", (object_id("a"),))
    _, submit = submission(0)
    assert far.feed(b"C1", function, submit)["O2"] == [COPY]
    transferred(far, "cut")

    assert far.feed(b"C1", submission(1)[1])["O2"] == [COPY]


def test_a_result_is_fetched_where_it_was_made(far):
    """The client is told of the address, and the machine when the result is not needed."""
    far.submit(0)

    returned = m.Returned(0, b"r", (RESULT,), "tcp://S2")
    far.core.receive(b"W2", [m.Stored(1, 0, 0.1, b"r", (RESULT,))], far.now)
    assert far.act_raw()[b"C1"] == [returned]
    assert far.feed(b"C1", m.Release((RESULT,))) == {"O2": [f"Release {RESULT.decode()}"]}


def test_what_a_dead_worker_left_is_removed_there(far):
    """Its remains are on its own machine."""
    prefix = RESULT[:-1].decode()
    assert far.died(worker=b"W2", supervisor=b"S2")["O2"] == [f"Purge {prefix} but "]


def test_a_machine_that_is_lost_takes_its_copies_along(far):
    """The object is still where it came from, and its storage is told to leave."""
    far.submit(0, objects="a")
    transferred(far)

    assert "Goodbye: its supervisor is gone" in far.lose(b"S2")["O2"]
    assert far.release("a") == {}
    far.supervisor(b"S3")
    assert far.worker(b"W3", b"S3", disk="/third")["W3"][-1] == f"Assign 1:0 f with {NAME}"
    assert far.storage(b"O3", supervisor=b"S3")["O3"][1:] == [COPY]


def test_an_object_that_is_nowhere_is_not_waited_for(far):
    """A function or task that needs what was lost fails by itself."""
    record = far.core.table.objects.records[object_id("a")]
    record.stores.clear()

    assert far.submit(0, objects="a")["W2"][-2:] == [
        f"Assign 1:0 f with {NAME}",
        f"Missing {NAME}: the machine that held this object was lost",
    ]


def test_a_storage_without_its_supervisor_is_sent_away(far):
    """It comes again with that."""
    hi = hello(m.STORAGE, supervisor=b"S9")

    assert far.feed(b"O9", hi) == {"O9": ["Goodbye: its supervisor is not here"]}


@pytest.mark.parametrize("peer", [b"C1", b"W2", b"S1"])
def test_only_storages_report_transfers(far, peer):
    """Nobody else may."""
    with pytest.raises(RemoteProtocolError):
        far.core.receive(peer, [m.Transferred(A)], far.now)


@pytest.mark.parametrize("name", [b"x", segment(b"C2", 0), A + b"/../x", segment(b"C1", 0)[:-1]])
def test_segments_of_others_are_not_announced(far, name):
    """A segment has its owner's name, which no path can hide in."""
    with pytest.raises(RemoteProtocolError, match="somebody else"):
        far.core.receive(b"C1", [m.Object(object_id("b"), name)], far.now)
