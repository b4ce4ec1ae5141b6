"""Objects between machines: who is asked to copy what, and what becomes of it."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.scheduler import objects as module
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.objects import STORAGE_DOWN_MAX_S
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import alias_of
from scaler_cluster.ids import function_id as digest_of_function
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    hello,
    named,
    object_id,
    segment,
    submission,
)
from scaler_cluster.wire import feed
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

A = segment(b"C1", 0)
NAME = A.decode()
RESULT = segment(b"W2", 0)
COPY = f"Copy {NAME} from tcp://home"


RETENTION_S = 2.0


@pytest.fixture
def far():
    """Two machines: S1 is the scheduler's, S2 has worker W2 and storage O2. C1 stored object a."""
    homes = (m.StorageEndpoint("tcp://home"),)
    bench = SchedulerBench(SchedulerConfig(PYTHON, homes=homes, object_retention_s=RETENTION_S))
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
    """A worker gets its task at once, and is told when the copy of its argument has come."""
    sent = far.submit(0, objects="a")

    assert sent["W2"][-1] == f"Assign 1:0 f with {NAME}"
    assert sent["O2"] == [COPY]
    assert transferred(far) == {"W2": [f"Arrived {NAME}"]}


def test_a_copy_that_is_being_made_is_not_removed(far):
    """A storage that says what it has, because another worker came back, goes on with its copies."""
    far.submit(0, objects="a")

    assert far.feed(b"O2", m.Inventory((b"draft-" + A,))) == {}
    transferred(far)
    assert far.feed(b"O2", m.Inventory((A,))) == {}


def test_all_who_wait_for_a_copy_hear_that_it_has_come(far):
    """The workers that got tasks during a copy are told once when it has come."""
    far.submit(0, objects="a")
    far.worker(b"W3", b"S2", disk="/elsewhere")
    far.submit(1, 10, objects="a")

    assert transferred(far) == {"W2": [f"Arrived {NAME}"], "W3": [f"Arrived {NAME}"]}
    assert transferred(far) == {}


def test_nobody_is_told_where_nothing_is_copied(far):
    """A worker on the machine where the client stored an object hears nothing but its task."""
    far.worker(b"W1", b"S1")
    sent = far.submit(0, 2, objects="a")

    assert [line.split()[0] for line in sent["W1"]] == ["Function", "Assign"]
    assert "W1" not in transferred(far)


def test_a_copy_that_a_later_storage_makes_is_told_as_well(far):
    """A worker that waits is told of the copy that the storage's successor has made."""
    far.submit(0, objects="a")
    far.lose(b"O2")
    far.storage(b"O3", supervisor=b"S2")

    assert transferred(far, peer=b"O3") == {"W2": [f"Arrived {NAME}"]}


def test_it_is_copied_once_for_all_workers_and_tasks(far):
    """An object is not copied again while its copy is under way, nor when it is there."""
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
    """All copies of an object are freed when its last user is done."""
    far.submit(0, objects="a")
    transferred(far)
    far.done(0, peer=b"W2")

    release = [f"Release {NAME}"]
    assert far.release("a") == {"W2": release, "O1": release, "O2": release}


def test_a_copy_under_way_is_given_up(far):
    """The late copy of an object that was freed meanwhile changes nothing."""
    far.submit(0, objects="a")
    far.feed(b"C1", m.Cancel(0, 1))
    far.feed(b"W2", m.Aborted(1, 0, 1))

    assert far.release("a")["O2"] == [f"Release {NAME}"]
    assert transferred(far) == {}


def test_workers_hear_that_a_copy_failed(far):
    """The workers of the machine hear that a copy failed; the next task tries again."""
    far.submit(0, objects="a")

    assert transferred(far, "cut") == {"W2": [f"Missing {NAME}: cut"]}
    assert far.submit(1, objects="a")["O2"] == [COPY]


def test_a_storage_that_comes_late_gets_its_orders_then(far):
    """A storage that comes late, or replaces another, is told to make the copies under way."""
    far.lose(b"O2")
    assert "O2" not in far.submit(0, objects="a")

    assert far.storage(b"O3", supervisor=b"S2")["O3"][1:] == [COPY]
    assert far.storage(b"O4", supervisor=b"S2")["O4"][1:] == [COPY]


def test_a_storage_that_never_comes_is_not_waited_for(far):
    """Tasks that wait for a copy hear after a while that it will not come."""
    far.lose(b"O2")
    far.submit(0, objects="a")

    sent: dict[str, list[str]] = {}
    for _ in range(int(STORAGE_DOWN_MAX_S / 5) + 1):
        far.feed(b"S2", m.Heartbeat())
        sent |= far.wait(5)
    assert sent["W2"] == [f"Missing {NAME}: the object storage does not start"]


def test_a_function_is_brought_with_each_task(far):
    """A function whose copy failed is fetched again for the next task."""
    objects = (object_id("a"),)
    function = m.Function(digest_of_function(b"f", objects), b"f", objects)
    (_, submit), (_, again) = submission(0), submission(1)
    submit, again = named(function, submit), named(function, again)
    assert far.feed(b"C1", function, submit)["O2"] == [COPY]
    transferred(far, "cut")

    assert far.feed(b"C1", again)["O2"] == [COPY]


def test_a_result_is_fetched_where_it_was_made(far):
    """A client is told where a result is, and that machine when it is not needed any more."""
    far.submit(0)

    returned = m.Returned(0, b"r", (RESULT,), "tcp://S2", (7,))
    far.core.receive(b"W2", [m.Stored(1, 0, 0.1, b"r", (RESULT,), (7,))], far.now)
    assert far.act_raw()[b"C1"] == [returned]
    assert far.feed(b"C1", m.Release((RESULT,))) == {"O2": [f"Release {RESULT.decode()}"]}


def test_what_a_dead_worker_left_is_removed_there(far):
    """The remains of a dead worker are removed on its own machine."""
    prefix = RESULT[:-1].decode()
    assert far.died(worker=b"W2", supervisor=b"S2")["O2"] == [f"Purge {prefix} but "]


def test_a_machine_that_is_lost_takes_its_copies_along(far):
    """An object outlives a lost machine that held a copy, whose storage is sent away."""
    far.submit(0, objects="a")
    transferred(far)

    assert "Goodbye: its supervisor is gone" in far.lose(b"S2")["O2"]
    assert far.release("a") == {}
    far.supervisor(b"S3")
    assert far.worker(b"W3", b"S3", disk="/third")["W3"][-1] == f"Assign 1:0 f with {NAME}"
    assert far.storage(b"O3", supervisor=b"S3")["O3"][1:] == [COPY]


def test_what_a_machine_still_has_when_it_comes_back_can_be_had_again(far):
    """A result of a machine that was only cut off for too long stays until its client drops it.

    What nobody names any more is removed there.
    """
    far.submit(0, 2)
    second = segment(b"W2", 1)
    for task, name in enumerate((RESULT, second)):
        far.feed(b"W2", m.Stored(1, task, 0.1, b"r", (name,), (7,)))
    far.lose(b"S2")
    far.feed(b"C1", m.Release((second,)))

    far.supervisor(b"S2")
    sent = far.storage(b"O3", RESULT, second, supervisor=b"S2")
    assert sent == {"O3": ["Welcome 0, 0 workers", f"Release {second.decode()}"]}
    assert far.feed(b"C1", m.Release((RESULT,))) == {"O3": [f"Release {RESULT.decode()}"]}


def test_an_object_that_is_nowhere_is_not_waited_for(far):
    """A function or task that needs a lost object fails by itself."""
    lose_original(far, "a")

    assert far.submit(0, objects="a")["W2"][-2:] == [
        f"Assign 1:0 f with {NAME}",
        f"Missing {NAME}: the machine that held this object was lost",
    ]


def test_a_storage_without_its_supervisor_is_sent_away(far):
    """A storage whose supervisor is unknown is sent away with that reason."""
    hi = hello(m.STORAGE, supervisor=b"S9")

    assert far.feed(b"O9", hi) == {"O9": ["Goodbye: its supervisor is not here"]}


def test_what_a_replaced_storage_still_said_is_no_fault(far):
    """A storage in whose place another one came may have spoken before it heard of that."""
    far.submit(0, objects="a")
    place = m.StorageEndpoint("tcp://S2")
    far.core.receive(b"O3", [hello(m.STORAGE, supervisor=b"S2", place=place)], far.now)

    far.core.receive(b"O2", [m.Transferred(A, ""), m.Inventory(())], far.now)
    assert far.act() == {"O3": ["Welcome 0, 0 workers", COPY]}
    assert transferred(far, "", peer=b"O3") == {"W2": [f"Arrived {NAME}"]}


@pytest.mark.parametrize("peer", [b"C1", b"W2", b"S1"])
def test_only_storages_report_transfers(far, peer):
    """A report of a transfer from a peer that is no storage is refused."""
    with pytest.raises(RemoteProtocolError, match="only a storage says this"):
        far.core.receive(peer, [m.Transferred(A)], far.now)


@pytest.mark.parametrize("name", [b"x", segment(b"C2", 0), A + b"/../x", segment(b"C1", 0)[:-1]])
def test_segments_of_others_are_not_announced(far, name):
    """A client may announce only segments with its own name, in which no path can hide."""
    with pytest.raises(RemoteProtocolError, match="somebody else"):
        far.core.receive(b"C1", [m.Object(object_id("b"), name, 7)], far.now)


# -- copies have bounds ----------------------------------------------------------------------


def use(bench, letter, task):
    """Let a task on the far machine use an object, which comes there."""
    sent = bench.submit(task, objects=letter)
    bench.feed(b"O2", *(m.Transferred(name) for name in copied(sent)))
    bench.done(task, peer=b"W2")
    return sent


def lose_original(bench, letter):
    """Let an object be gone from where its client stored it."""
    objects = bench.core.table.objects
    record = objects.records[object_id(letter)]
    del record.stores[b""]
    objects.stores[b""].nbytes -= record.nbytes
    objects.stores[b""].objects -= 1


def copied(sent):
    """Return the segments that O2 was told to copy."""
    lines = [line.split() for line in sent.get("O2", ())]
    return [line[1].encode() for line in lines if line[0] == "Copy"]


@pytest.fixture
def small(far, monkeypatch):
    """The far machine has room for two of the objects a, b, c and d."""
    monkeypatch.setattr(module, "COPIES_KEPT", 1.0)
    far.storage(b"O2", supervisor=b"S2", memory_limit=2000)
    for number, letter in enumerate("bcd", 1):
        far.store(letter, number=number)
    return far


def test_the_copy_used_longest_ago_makes_room(small):
    """The copy that was used longest ago makes room, and is fetched again when it is needed."""
    use(small, "a", 0)
    use(small, "b", 1)
    use(small, "a", 2)
    old = segment(b"C1", 1).decode()

    sent = use(small, "c", 3)
    assert sent["W2"][-1] == f"Release {old}"
    assert sent["O2"] == [f"Release {old}", f"Copy {segment(b'C1', 2).decode()} from tcp://home"]
    assert copied(use(small, "b", 4)) == [segment(b"C1", 1)]


def test_what_tasks_need_is_not_removed(small):
    """Copies that tasks need stay, however large: what has no room in memory goes to disk."""
    sent = small.submit(0, objects="abc")

    assert "Release" not in str(sent)
    assert len(copied(sent)) == 3


def test_where_others_fetch_it_from_it_stays(small):
    """A copy stays that has become the only one because its home was lost."""
    use(small, "a", 0)
    lose_original(small, "a")
    use(small, "b", 1)
    sent = use(small, "c", 2)

    assert sent["O2"][0] == f"Release {segment(b'C1', 1).decode()}"
    assert b"S2" in small.core.table.objects.records[object_id("a")].stores


def released(sent):
    """Return the segments that O2 was told to remove."""
    lines = [line.split() for line in sent.get("O2", ())]
    return [line[1].encode() for line in lines if line[0] == "Release"]


def test_a_copy_that_nobody_uses_goes(small):
    """A copy goes between one and two retention times after its last use."""
    use(small, "a", 0)
    use(small, "b", 1)
    assert released(small.wait(RETENTION_S)) == []
    assert copied(use(small, "b", 2)) == []

    assert released(small.wait(RETENTION_S)) == [A]
    assert copied(use(small, "b", 3)) == []
    assert copied(use(small, "a", 4)) == [A]


def test_a_copy_comes_after_the_one_before_has_gone(small):
    """A storage is told to remove a segment before it is asked for the same one again."""
    small.core.table.objects.garbage.tell(math.inf)  # From now on nothing is told by itself.
    use(small, "a", 0)
    assert released(small.wait(2 * RETENTION_S)) == []

    assert small.submit(1, objects="a")["O2"] == [f"Release {NAME}", COPY]


def test_a_copy_that_a_task_uses_for_long_stays(small):
    """A copy stays as long as a task uses it, and goes after that."""
    small.submit(0, objects="a")
    transferred(small)
    for _ in range(3):
        assert released(small.wait(RETENTION_S)) == []
    small.done(0, peer=b"W2")

    assert released(small.wait(2 * RETENTION_S)) == [A]


def test_what_a_cancelled_node_needed_is_not_kept(small):
    """The input of a cancelled node is dropped though a worker still has to stop the node."""
    use(small, "a", 0)
    small.graph(10, "", "0")
    assert "AssignNodes 1:11" in str(small.done(10, peer=b"W2"))
    small.feed(b"C1", m.Cancel(11, 1))

    assert released(small.wait(RETENTION_S)) == []
    assert released(small.wait(RETENTION_S)) == [A]


def test_a_storage_that_missed_that_a_copy_was_to_go_removes_it_later(small):
    """A storage that replaces another removes a copy that the other was to remove."""
    use(small, "a", 0)
    small.wait(RETENTION_S)
    assert released(small.wait(RETENTION_S)) == [A]

    sent = small.storage(b"O3", A, supervisor=b"S2")
    assert sent["O3"][1:] == [f"Release {NAME}"]


def test_the_only_copy_stays(small):
    """The only copy of an object stays, however long nobody uses it."""
    use(small, "a", 0)
    lose_original(small, "a")

    for _ in range(3):
        assert released(small.wait(RETENTION_S)) == []
    assert b"S2" in small.core.table.objects.records[object_id("a")].stores


def test_the_report_tells_what_lies_where(small):
    """The report has the totals of each machine, and the largest objects with their users."""
    use(small, "a", 0)
    small.store("e", number=4, nbytes=5000)

    snapshot = small.snapshot()
    assert (snapshot.objects, snapshot.objects_bytes) == (5, 9000)
    home, there = snapshot.stores
    assert (home.address, home.objects, home.nbytes) == ("tcp://home", 5, 9000)
    assert there == feed.Store(alias_of(b"S2"), "tcp://S2", 1, 1000, 2000, 1, is_up=True)
    assert snapshot.largest[0] == feed.LargeObject(alias_of(object_id("e")), 5000, 1, 0, 1, 1)


# -- storages that run by themselves ---------------------------------------------------------

HOMES = m.StorageEndpoint("tcp://one", disk="/one"), m.StorageEndpoint("tcp://two", disk="/two")
ONE, TWO = (home.address.encode() for home in HOMES)


@pytest.fixture
def apart():
    """Clients store in two storages that run by themselves; worker W1 is on a third machine."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, homes=HOMES, homes_are_elsewhere=True))
    bench.client()
    bench.supervisor(b"S1")
    bench.worker(b"W1", b"S1", disk="/third")
    bench.storage(b"O1", supervisor=b"S1")
    for key, home in zip((ONE, TWO), HOMES, strict=True):
        bench.feed(key, hello(m.STORAGE, place=home), m.Inventory(()))
    return bench


def test_an_object_lies_where_its_id_says(apart):
    """An object's id says in which storage it lies, from where workers fetch it."""
    apart.store("a", number=0)
    apart.store("b", number=1)
    first, second = (segment(b"C1", number).decode() for number in (0, 1))

    assert (object_id("a")[0] % 2, object_id("b")[0] % 2) == (1, 0)
    assert apart.submit(0, objects="ab")["O1"] == [
        f"Copy {first} from tcp://two",
        f"Copy {second} from tcp://one",
    ]
    apart.feed(b"W1", m.Done(1, 0, 0.1, Batch.of([b"r"])))
    released = apart.release("ab")
    assert released["tcp://two"] == [f"Release {first}"]
    assert released["tcp://one"] == [f"Release {second}"]


def test_a_client_that_goes_is_purged_from_each(apart):
    """Every storage removes what a client that left wrote there, announced or not."""
    sent = apart.feed(b"C1", m.Goodbye())

    assert sent["tcp://one"][0].startswith("Purge")
    assert sent["tcp://two"][0].startswith("Purge")


def test_a_storage_that_falls_silent_is_lost(apart):
    """A silent storage is lost with its objects; another one at its address is taken in."""
    apart.store("a")
    for _ in range(5):
        apart.feed(b"S1", m.Heartbeat())
        apart.feed(ONE, m.Heartbeat())
        apart.wait(4)

    assert list(apart.core.table.objects.storages.values()) == [b"S1", ONE]
    name = segment(b"C1", 0).decode()
    missing = f"Missing {name}: the machine that held this object was lost"
    assert apart.submit(0, objects="a")["W1"][-1] == missing
    apart.feed(TWO, hello(m.STORAGE, place=HOMES[1]))
    assert apart.core.table.objects.stores[TWO].peer == TWO


def test_a_worker_beside_a_storage_maps_what_that_has(apart):
    """A worker beside a storage fetches only what the other storages have."""
    apart.supervisor(b"S2")
    apart.worker(b"W2", b"S2", disk="/two")
    apart.store("a", number=0)
    apart.store("b", number=1)
    apart.lose(b"S1")

    second = segment(b"C1", 1).decode()
    assert apart.submit(0, objects="ab")["tcp://two"] == [f"Copy {second} from tcp://one"]


def test_a_storage_may_run_another_python(apart):
    """A storage may run another Python, as it never unpickles."""
    other = m.Hello(m.STORAGE, m.PROTOCOL_VERSION, "3.99", 1, "host", place=HOMES[0])

    assert apart.feed(ONE, other)["tcp://one"] == ["Welcome 0, 0 workers"]


def test_monitors_see_what_moved_between_machines(far):
    """Copies are counted by where they came from and where they went, until one of these is gone."""
    far.submit(0, objects="a")
    transferred(far, "cut")
    assert moved(far) == [(0, 0, 1)]

    far.submit(1, objects="a")
    far.lose(b"O2")
    far.storage(b"O2b", supervisor=b"S2")
    transferred(far, peer=b"O2b")
    (row,) = far.snapshot().transfers
    nbytes = far.snapshot().objects_bytes
    places = {one.machine for one in far.snapshot().stores}
    assert {row.source, row.target} == places
    assert row == feed.Transfer(alias_of(b""), alias_of(b"S2"), 1, nbytes, 1)

    far.lose(b"S2")
    assert moved(far) == []


def moved(bench):
    """Return what was copied between each two machines."""
    return [(one.copies, one.nbytes, one.failed) for one in bench.snapshot().transfers]
