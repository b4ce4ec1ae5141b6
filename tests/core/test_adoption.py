"""What a scheduler takes over that clients of the one before it had stored."""

from __future__ import annotations

import pytest

from scaler_cluster.core.scheduler.adoption import ADOPTION_S
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, hello, object_id, segment
from scaler_cluster.wire import messages as m

A, B = object_id("a"), object_id("b")
OLD = segment(b"W9", 1), segment(b"W9", 2)
C1_0, C2_0 = segment(b"C1", 0), segment(b"C2", 0)


@pytest.fixture
def later():
    """A scheduler that adopts, with client C1 (session 1), supervisor S1 and worker W1."""
    made = SchedulerBench(SchedulerConfig(PYTHON, adopts=True))
    made.supervisor()
    made.client()
    made.worker()
    return made


def keep(*pairs, address=""):
    """Return what names objects, each with its segment."""
    objects, segments = zip(*pairs, strict=True)
    return m.Keep(address, objects, segments, (1000,) * len(pairs))


def stay(bench, duration_s):
    """Let time pass in which peers live; return what the storage is told."""
    said = []
    for _ in range(int(duration_s)):
        for peer in (b"C1", b"S1"):
            bench.feed(peer, m.Heartbeat())
        said += bench.wait(1.0).get("O1", [])
    return said


def test_what_a_client_names_is_there(later):
    """Objects and results can be named by tasks, and go when they are released."""
    later.storage(b"O1", C1_0, *OLD)
    assert later.feed(b"C1", keep((A, C1_0), (OLD[0], OLD[0]))) == {}

    assert later.submit(0, objects="a")["W1"][-1] == f"Assign 1:0 f with {C1_0.decode()}"
    later.done(0)
    assert later.core.table.objects.owners.nbytes == 2000
    assert later.feed(b"C1", m.Release((OLD[0],))) == {"O1": [f"Release {OLD[0].decode()}"]}
    assert "O1" not in later.release("a")
    assert later.core.table.objects.owners.nbytes == 0
    # Another client may still come that had stored the same.
    assert stay(later, ADOPTION_S + 1) == [f"Release {C1_0.decode()}", "Welcome 0, 0 workers"]


def test_what_nobody_names_is_removed_after_a_while(later):
    """A storage is not told to remove anything before all clients had time to come back."""
    assert later.storage(b"O1", C1_0, *OLD) == {"O1": ["Welcome 0, 0 workers"]}
    later.feed(b"C1", keep((A, C1_0)))
    later.died()

    assert stay(later, ADOPTION_S - 1) == []
    assert stay(later, 2) == ["Welcome 0, 0 workers"]
    assert later.feed(b"O1", m.Inventory((C1_0, *OLD))) == {
        "O1": [f"Release {OLD[0].decode()} {OLD[1].decode()}"]
    }


def test_clients_are_told_whether_they_may_name_it(later):
    """A client that comes in time may, also if it was given up since; not one that comes late."""

    def adopts(peer):
        later.core.receive(peer, [hello(m.CLIENT)], later.now)
        return [one.adopts for one in later.act_raw()[peer] if isinstance(one, m.Welcome)] == [True]

    later.storage(b"O1", C2_0)
    assert adopts(b"C2")
    later.feed(b"C2", keep((A, C2_0)))
    assert later.lose(b"C2") == {}
    assert adopts(b"C2")
    later.feed(b"C2", keep((A, C2_0)))
    assert later.release("a", peer=b"C2") == {}
    stay(later, ADOPTION_S)
    assert not adopts(b"C4")


def test_equal_content_of_two_clients_stays_one(later):
    """Both name the segment of one of them."""
    later.storage(b"O1", C1_0)
    later.client(b"C2")
    later.feed(b"C2", keep((A, C1_0)))
    assert later.feed(b"C1", keep((A, C1_0))) == {}
    assert later.feed(b"C1", keep((A, C1_0))) == {}

    later.feed(b"C1", m.Goodbye())
    assert later.core.table.objects.records[A].users == 1


def test_a_second_segment_stays_while_a_client_may_name_it(later):
    """Should the scheduler be started once more, a client that was not told names it again.

    A client that was told releases it; others may name it until all had time to come back.
    """
    later.storage(b"O1", C1_0, C2_0)
    for peer in (b"C2", b"C3"):
        later.client(peer)
    later.feed(b"C1", keep((A, C1_0)))
    told = f"Object a in {C1_0.decode()} instead of {C2_0.decode()}"
    assert later.feed(b"C2", keep((A, C2_0))) == {"C2": [told]}
    assert later.feed(b"C3", keep((A, C2_0))) == {"C3": [told]}

    assert later.submit(0, peer=b"C2", objects="a")["W1"][-1].endswith(f"with {C1_0.decode()}")
    later.done(0, session=2)
    for peer in (b"C2", b"C3"):
        assert later.feed(peer, m.Release((C2_0,))) == {}
    assert C2_0 not in later.core.table.objects.records
    assert f"Release {C2_0.decode()}" in stay(later, ADOPTION_S + 1)


def test_a_result_waits_for_its_storage(later):
    """A result on another machine can be had once that machine's storage is back."""
    later.feed(b"C1", keep((OLD[0], OLD[0]), address="tcp://S2"))
    record = later.core.table.objects.records[OLD[0]]
    assert not record.stores
    later.supervisor(b"S2")
    later.storage(b"O2", OLD[0], supervisor=b"S2")

    assert list(record.stores) == [b"S2"]


@pytest.mark.parametrize(
    "message",
    [
        m.Keep("", (A,), (), (1,)),
        m.Keep("", (A,), (C1_0,), ()),
        keep((A, b"../../etc/passwd")),
    ],
)
def test_nonsense_is_refused(later, message):
    """What names no segments is no honest client's."""
    with pytest.raises(RemoteProtocolError, match="an object in no segment|without segments"):
        later.feed(b"C1", message)


def test_a_first_scheduler_adopts_nothing(one):
    """A scheduler that nothing was there before is not named anything."""
    with pytest.raises(RemoteProtocolError, match="another scheduler knew"):
        one.feed(b"C1", keep((A, C1_0)))
