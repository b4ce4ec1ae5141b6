"""Who may name an object, and when it is unmapped and removed."""

from __future__ import annotations

import pytest

from scaler_cluster.core.scheduler import objects as module
from scaler_cluster.core.scheduler.garbage import WAIT_BYTES, WAIT_S
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import function_id as digest_of_function
from scaler_cluster.testing.bench import named, object_id, segment, submission
from scaler_cluster.wire import messages as m

RESULT = segment(b"W1", 0)
C1_0, C1_1, C2_0 = segment(b"C1", 0), segment(b"C1", 1), segment(b"C2", 0)


@pytest.fixture
def stored(one):
    """``one`` with storage O1, where client C1 stored object a."""
    one.storage()
    one.store("a")
    return one


def text(*segments):
    """Return names of segments as they are described."""
    return " ".join(name.decode() for name in segments)


def stored_result(bench, task, *segments, worker=b"W1"):
    """Let a worker return a value in segments."""
    return bench.feed(worker, m.Stored(1, task, 0.001, b"r", segments, (7,) * len(segments)))


# -- arguments -------------------------------------------------------------------------------


def test_a_worker_is_told_where_objects_lie(stored):
    """A task that names an object reaches its worker with the segment that holds it."""
    sent = stored.submit(0, objects="a")

    assert sent["W1"][-1] == f"Assign 1:0 f with {text(C1_0)}"


def test_an_object_lives_as_long_as_its_client_may_name_it(stored):
    """An object outlives the tasks that needed it, until its client releases it."""
    stored.submit(0, objects="a")

    assert stored.done(0) == {"C1": ["Results 0 [r0]"]}
    assert stored.release("a") == {
        "W1": [f"Release {text(C1_0)}"],
        "O1": [f"Release {text(C1_0)}"],
    }
    assert stored.core.table.objects.records == {}


def test_an_object_lives_as_long_as_tasks_need_it(stored):
    """A client may release what it has just submitted: it goes with the last task."""
    stored.submit(0, 2, objects="a")

    assert stored.release("a") == {}
    stored.done(0)
    assert stored.done(1)["O1"] == [f"Release {text(C1_0)}"]


def test_cancelled_tasks_let_go_of_their_objects(stored):
    """A task that only waited needs its objects no longer once it is cancelled."""
    stored.submit(0, objects="a")
    stored.submit(1, 1000, objects="a")
    stored.release("a")
    stored.feed(b"C1", m.Cancel(1, 1000))
    stored.feed(b"W1", m.Aborted(1, 1, stored.core.table.workers[b"W1"].count - 1))

    assert stored.done(0)["O1"] == [f"Release {text(C1_0)}"]


def test_a_worker_that_was_not_told_is_not_asked_to_unmap(stored):
    """Only workers that got a task with an object hear of the object's end."""
    stored.submit(0, objects="a")
    stored.worker(b"W2")

    assert "W2" not in stored.release("a") | stored.done(0)


def test_a_retry_finds_its_objects(stored):
    """Objects stay with a task whose worker died, and its next worker is told of them."""
    stored.submit(0, options=m.TaskOptions(retries=1), objects="a")
    stored.release("a")
    stored.died(0)

    assert stored.worker(b"W2")["W2"][-1] == f"Assign 1:0 f with {text(C1_0)}"


def test_equal_content_is_kept_once(stored):
    """Two clients may name what one had stored; the other releases its own when it is told."""
    stored.client(b"C2")

    assert stored.store("a", peer=b"C2") == {
        "C2": [f"Object a in {text(C1_0)} instead of {text(C2_0)}"]
    }
    # If the scheduler died by now, the client would name this to the next one.
    assert stored.feed(b"C2", m.Release((C2_0,))) == {"O1": [f"Release {text(C2_0)}"]}
    assert stored.release("a") == {}
    sent = stored.submit(0, peer=b"C2", objects="a")
    assert sent["W1"][-1] == f"Assign 2:0 f with {text(C1_0)}"
    assert stored.release("a", peer=b"C2") == {}


def test_a_client_that_leaves_takes_its_objects_along(stored):
    """Whatever a client stored is removed when it leaves, announced or not."""
    assert stored.feed(b"C1", m.Goodbye()) == {
        "O1": [f"Release {text(C1_0)}", f"Purge {segment(b'C1', 0)[:-1].decode()} but "]
    }


def test_what_others_still_need_is_spared(stored):
    """A client that leaves does not take along what another one names as well."""
    stored.client(b"C2")
    stored.store("a", peer=b"C2")

    assert stored.feed(b"C1", m.Goodbye()) == {
        "O1": [f"Purge {segment(b'C1', 0)[:-1].decode()} but {text(C1_0)}"]
    }


@pytest.mark.parametrize("name", ["b", "ab"])
def test_naming_what_one_has_not_fails_the_tasks(stored, name):
    """Tasks that name an unknown object, or another client's, fail; the client goes on."""
    stored.client(b"C2")
    stored.store("b", peer=b"C2")

    assert stored.submit(0, 2, objects=name) == {"C1": ["FailedRange 0-1 missing"]}
    assert stored.submit(2, objects="a")["W1"][-1].startswith("Assign 1:2")


# -- functions -------------------------------------------------------------------------------


def test_the_objects_of_a_function_live_with_it(stored):
    """A heavy function is forgotten by its workers, with its objects, when its client is done."""
    objects = (object_id("a"),)
    function = m.Function(digest_of_function(b"f", objects), b"f", objects)
    _, submit = submission(0)
    submit = named(function, submit)

    sent = stored.feed(b"C1", function, submit, m.Release((object_id("a"),)))
    name = function.function.hex()
    assert sent["W1"] == [f"Function {name} with {text(C1_0)}", f"Assign 1:0 {name}"]
    stored.done(0)
    assert stored.feed(b"C1", m.Forget(function.function)) == {
        "W1": [f"Forget {name}", f"Release {text(C1_0)}"],
        "O1": [f"Release {text(C1_0)}"],
    }


# -- results ---------------------------------------------------------------------------------


def test_a_stored_result_is_its_clients(stored):
    """A client is told of a result's segments, and has them removed when it needs them no more."""
    stored.submit(0)

    assert stored_result(stored, 0, RESULT) == {"C1": [f"Returned 0 with {text(RESULT)}"]}
    assert stored.feed(b"C1", m.Release((RESULT,))) == {"O1": [f"Release {text(RESULT)}"]}


def test_a_result_outlives_its_worker(stored):
    """What a worker returned before it died is spared when its remains are removed."""
    stored.submit(0)
    stored_result(stored, 0, RESULT)

    prefix = RESULT[:-1].decode()
    assert stored.died()["O1"] == [f"Purge {prefix} but {text(RESULT)}"]
    assert stored.feed(b"C1", m.Release((RESULT,))) == {"O1": [f"Release {text(RESULT)}"]}


def test_a_result_that_nobody_waits_for_is_removed(stored):
    """A task that was cancelled meanwhile leaves nothing, nor does one of a client that left."""
    stored.submit(0)
    stored.feed(b"C1", m.Cancel(0, 1))

    assert stored_result(stored, 0, RESULT) == {"O1": [f"Release {text(RESULT)}"]}


def test_a_result_of_a_worker_given_up_is_removed(stored):
    """What a worker stores after it was given up is removed: its task runs elsewhere."""
    stored.submit(0)
    stored.died(0)

    assert stored_result(stored, 0, RESULT)["O1"] == [f"Release {text(RESULT)}"]


def test_other_results_of_the_run_are_not_disturbed(stored):
    """A task in the middle of a run may return in segments, its neighbours in messages."""
    stored.submit(0, 3)
    stored.done(0)
    stored_result(stored, 1, RESULT)

    assert stored.done(2) == {"C1": ["Results 2 [r2]"]}
    assert stored.core.table.workers[b"W1"].count == 0


# -- the storage -----------------------------------------------------------------------------


def test_what_was_released_before_there_is_a_storage_is_removed_later(one):
    """A storage that comes up is told what to remove, and nothing that is in use."""
    one.store("a", number=0)
    one.store("b", number=1)
    one.release("a")

    assert one.storage(b"O1", C1_0, C1_1)["O1"][1:] == [f"Release {text(C1_0)}"]


def test_what_a_storage_finds_of_peers_that_are_gone_is_removed(one):
    """A storage removes what peers that are gone left, and spares that of live ones."""
    drafts = segment(b"C9", 0), segment(b"C1", 5), segment(b"W1", 5)

    assert one.storage(b"O1", *drafts)["O1"][1:] == [f"Release {text(drafts[0])}"]


def test_what_a_storage_finds_of_other_machines_are_copies(one):
    """A storage removes copies from other machines that nobody needs, though their maker lives."""
    one.supervisor(b"S2")
    one.worker(b"W2", b"S2", disk="/2")
    copy = segment(b"W2", 0)

    assert one.storage(b"O1", copy)["O1"][1:] == [f"Release {text(copy)}"]
    assert one.storage(b"O2", segment(b"C1", 0), supervisor=b"S2")["O2"][1:] != []


def test_a_storage_can_be_replaced(stored):
    """Objects outlive their storage, and the next storage goes on with them."""
    stored.lose(b"O1")
    stored.submit(0, objects="a")
    stored.done(0)
    stored.release("a")

    assert stored.storage(b"O2", C1_0)["O2"][1:] == [f"Release {text(C1_0)}"]


# -- hostile peers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "message", "reason"),
    [
        (b"C1", m.Object(b"short", C1_1, 7), "an object that is not named by its digest"),
        (b"C1", m.Release((object_id("x"),)), "an object that it does not hold"),
        (b"C1", m.Inventory(()), "only a storage says this"),
        (b"W1", m.Object(object_id("x"), C1_1, 7), "only a client says this"),
        (b"W1", m.Release((object_id("a"),)), "only a client says this"),
        (b"W1", m.Stored(1, 0, 0.1, b"", (C1_0,), (7,)), "segments that somebody else wrote"),
        (b"W1", m.Stored(1, 0, 0.1, b"", (RESULT,), ()), "more segments or fewer than sizes"),
        (b"W1", m.Stored(1, 7, 0.1, b"", (RESULT,), (7,)), "is not next on this worker"),
        (b"O1", m.Stored(1, 0, 0.1, b"", (RESULT,), (7,)), "segments that somebody else wrote"),
    ],
)
def test_who_breaks_the_rules_is_refused(stored, peer, message, reason):
    """Releasing what one has not, or storing over others breaks the protocol."""
    stored.submit(0)
    # A result of client C1 that has the name of the segment.
    stored.core.table.objects.records.setdefault(
        C1_0, stored.core.table.objects.records[object_id("a")]
    )
    try:
        with pytest.raises(RemoteProtocolError, match=reason):
            stored.core.receive(peer, [message], stored.now)
    finally:
        del stored.core.table.objects.records[C1_0]


def test_an_object_may_be_announced_again(stored):
    """The second segment of an object that is announced twice is removed."""
    assert stored.store("a", number=1) == {"O1": [f"Release {text(C1_1)}"]}
    assert stored.release("a") == {}
    assert stored.wait(WAIT_S)["O1"] == [f"Release {text(C1_0)}"]


def test_what_is_released_in_quick_succession_is_removed_together(stored):
    """The first segment is removed at once, the next ones wait for more of them."""
    for number, letter in enumerate("bcd", 1):
        stored.store(letter, number=number)

    assert "O1" in stored.release("a")
    assert stored.release("b") == stored.release("c") == {}
    assert stored.wait(WAIT_S / 2) == {}
    assert stored.wait(WAIT_S)["O1"] == [f"Release {text(C1_1, segment(b'C1', 2))}"]
    stored.wait(WAIT_S)
    assert "O1" in stored.release("d"), "nothing was released for a while"


def test_much_that_is_released_does_not_wait(stored):
    """Its room may be wanted."""
    for number, letter in enumerate("bc", 1):
        stored.store(letter, number=number, nbytes=WAIT_BYTES // 2 + 1)
    stored.release("a")

    assert stored.release("b") == {}
    assert stored.release("c") == {"O1": [f"Release {text(C1_1, segment(b'C1', 2))}"]}


def test_a_function_whose_objects_are_gone_fails_its_tasks(stored):
    """Tasks of a function whose objects were cleared fail, and the client goes on."""
    lost, whole = (
        m.Function(digest_of_function(b"g", (one,)), b"g", (one,))
        for one in (object_id("x"), object_id("a"))
    )
    (_, submit), (_, again) = submission(0, 2, "g"), submission(2, 1, "g")
    submit, again = named(lost, submit), named(whole, again)

    assert stored.feed(b"C1", lost, submit) == {"C1": ["FailedRange 0-1 missing"]}
    stored.feed(b"C1", m.Forget(lost.function))
    assert stored.feed(b"C1", whole, again)["W1"][-1].startswith("Assign 1:2")


def test_drafts_of_the_living_are_spared(one):
    """A storage that comes up spares what live peers are writing at that moment."""
    drafts = b"draft-" + C1_0, b"draft-" + segment(b"C9", 0)

    assert one.storage(b"O1", *drafts)["O1"][1:] == [f"Release {text(drafts[1])}"]


def test_a_worker_that_died_is_forgotten_by_its_objects(stored):
    """An object forgets the workers that used it and died, however many there were."""
    stored.submit(0, objects="a")
    stored.died()

    assert stored.core.table.objects.records[object_id("a")].workers == {}


def test_a_client_must_release_some_day(stored, monkeypatch):
    """A client that announces objects without end is dropped."""
    monkeypatch.setattr(module, "SESSION_OBJECTS_MAX", 1)

    with pytest.raises(RemoteProtocolError, match="never releases"):
        stored.store("b", number=1)
