"""What no peer may do: take another's role, speak of another's tasks, name what is another's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.roles import may_be
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import alias_of
from scaler_cluster.ids import function_id as digest_of
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    function_id,
    hello,
    segment,
    submission,
)
from scaler_cluster.wire import messages as m

SQRT = function_id("f")

# -- roles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "roles"),
    [
        ("", {"client", "worker", "supervisor", "storage", "home", "nested"}),
        ("client:alice", {"client"}),
        ("worker:m1", {"worker", "supervisor", "storage", "nested"}),
        ("scheduler:scheduler", {"home"}),
        ("owner:loopback", {"client", "worker", "supervisor", "storage", "home", "nested"}),
        ("monitor:screen", set()),
        ("storage:storage", set()),
        ("somebody:else", set()),
    ],
)
def test_a_key_has_one_role(user, roles) -> None:
    """What a peer may be is what the role of its key says, and nothing else."""
    hellos = {
        "client": hello(m.CLIENT),
        "nested": hello(m.CLIENT, worker=b"W1"),
        "worker": hello(m.WORKER, supervisor=b"S1"),
        "supervisor": hello(m.SUPERVISOR),
        "storage": hello(m.STORAGE, supervisor=b"S1"),
        "home": hello(m.STORAGE),
    }

    assert {name for name, one in hellos.items() if may_be(user, one)} == roles


def test_a_peer_in_another_role_is_dropped() -> None:
    """A client's key lets nobody in as a supervisor."""
    bench = SchedulerBench(SchedulerConfig(PYTHON))
    bench.core.table.user_of = lambda _: "client:alice"

    with pytest.raises(RemoteProtocolError, match="a supervisor with the key of client:alice"):
        bench.feed(b"S1", hello(m.SUPERVISOR))


def test_a_user_whose_key_is_removed_is_out() -> None:
    """Its sessions end, with their tasks; those of others go on."""
    bench = SchedulerBench(SchedulerConfig(PYTHON))
    bench.client(b"C1")
    bench.client(b"C2")
    bench.submit(0)

    bench.core.expel([b"C1", b"C7"], bench.now)

    assert bench.act()["C1"] == ["Goodbye: its key was removed"]
    assert list(bench.core.table.sessions) == [b"C2"]
    assert bench.core.table.backlog.count == 0


# -- functions and objects -------------------------------------------------------------------------


def test_a_function_under_the_name_of_another_is_refused(one) -> None:
    """A client cannot make others run its function in place of theirs."""
    with pytest.raises(RemoteProtocolError, match="under the name of another one"):
        one.feed(b"C1", m.Function(SQRT, b"exp"))

    assert SQRT not in one.core.table.functions


def test_what_another_client_has_taught_is_checked_as_well(one) -> None:
    """A name that is known already does not make another function right."""
    one.submit(0)
    one.client(b"C2")

    with pytest.raises(RemoteProtocolError, match="under the name of another one"):
        one.feed(b"C2", m.Function(SQRT, b"exp"))


# -- what tasks print ------------------------------------------------------------------------------


def test_a_worker_prints_to_the_sessions_of_its_tasks_alone(one) -> None:
    """What it says that a task of another session has printed reaches nobody."""
    one.client(b"C2")
    one.feed(b"C1", *submission(0))

    assert one.feed(b"W1", m.Printed(1, 0, "stdout", "mine")) == {"C1": ["Output 0 stdout 'mine'"]}
    assert one.feed(b"W1", m.Printed(2, 0, "stdout", "\x1b[2J")) == {}


def test_who_is_no_worker_prints_nothing(one) -> None:
    """Text comes from workers: a client that sends some breaks the protocol."""
    with pytest.raises(RemoteProtocolError):
        one.feed(b"C1", m.Printed(1, 0, "stdout", "\x1b[2J"))


# -- who takes whose place -------------------------------------------------------------------------


def test_the_session_of_a_workers_tasks_is_in_its_process(one) -> None:
    """Nobody else gives up the session that the tasks of a worker have."""
    one.feed(b"N1", hello(m.CLIENT, worker=b"W1"))
    stranger = replace(hello(m.CLIENT, worker=b"W1"), pid=4711)

    with pytest.raises(RemoteProtocolError, match="in another process"):
        one.feed(b"N2", stranger)

    assert one.core.table.workers[b"W1"].session == b"N1"


def test_a_storage_that_the_scheduler_did_not_start_is_refused() -> None:
    """Nobody takes the place of the scheduler's own storage, also before that has come."""
    bench = SchedulerBench(SchedulerConfig(PYTHON))
    bench.core.expect_storage(b"")
    with pytest.raises(RemoteProtocolError, match="did not start that storage"):
        bench.feed(b"O7", hello(m.STORAGE))
    bench.core.expect_storage(b"O1")
    bench.feed(b"O1", hello(m.STORAGE))

    with pytest.raises(RemoteProtocolError, match="did not start that storage"):
        bench.feed(b"O8", hello(m.STORAGE))

    assert bench.core.table.objects.storages == {b"O1": b""}


def test_the_link_of_the_dashboard_is_for_programs_alone() -> None:
    """Who is told of it may look: no worker, no storage, and no task need that."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, dashboard="http://x/?token=t"))
    for peer, one in {
        b"S1": hello(m.SUPERVISOR, workers=1),
        b"W1": hello(m.WORKER, supervisor=b"S1"),
        b"O1": hello(m.STORAGE),
        b"C1": hello(m.CLIENT),
        b"N1": hello(m.CLIENT, worker=b"W1"),
    }.items():
        bench.core.receive(peer, [one], bench.now)

    told = {
        peer: one.dashboard
        for peer, sent in bench.act_raw().items()
        for one in sent
        if isinstance(one, m.Welcome)
    }

    assert told.pop(b"C1") == "http://x/?token=t"
    assert set(told.values()) == {""}


# -- names -----------------------------------------------------------------------------------------


def test_the_feed_names_no_peer(one) -> None:
    """Whoever reads the feed cannot speak in the name of what it shows."""
    one.submit(0)
    one.storage()
    one.store("a")

    snapshot = one.snapshot()

    assert [row.worker for row in snapshot.workers] == [alias_of(b"W1")]
    assert [row.machine for row in snapshot.machines] == [alias_of(b"S1")]
    ids = [value for row in (*snapshot.workers, *snapshot.machines, *snapshot.stores,
                             *snapshot.largest, *snapshot.clients)
           for value in map(row.__getattribute__, row.__dataclass_fields__)
           if isinstance(value, bytes)]  # fmt: skip
    secrets = {b"W1", b"S1", b"O1", b"C1", *one.core.table.objects.records}
    assert ids
    assert secrets.isdisjoint(ids)


# -- sessions --------------------------------------------------------------------------------------


def test_a_client_has_its_session_again_and_nobody_elses() -> None:
    """The next scheduler gives a session to whom the one before has given it, and to no other."""
    configs = (SchedulerConfig(PYTHON, secret=b"schedulers' own", epoch=one) for one in (1, 2))
    before, after = map(SchedulerBench, configs)
    for bench in (before, after):
        bench.users |= {b"C1": "client:alice", b"C2": "client:mallory"}
    welcome, other = (raw_welcome(before, peer, hello(m.CLIENT)) for peer in (b"C1", b"C2"))
    stolen = hello(m.CLIENT, resume=welcome.session, proof=other.proof)
    shown = hello(m.CLIENT, resume=welcome.session, proof=welcome.proof)

    assert raw_welcome(after, b"C2", hello(m.CLIENT, resume=99)).session != 99
    assert raw_welcome(after, b"C2", stolen).session != welcome.session
    assert raw_welcome(after, b"C2", shown).session != welcome.session
    again = raw_welcome(after, b"C1", shown)
    assert (again.session, again.proof) == (welcome.session, welcome.proof)


def raw_welcome(bench, peer, greeting) -> m.Welcome:
    """Let a client come; return its welcome."""
    bench.core.receive(peer, [greeting], bench.now)
    (welcome,) = (one for one in bench.act_raw()[peer] if isinstance(one, m.Welcome))
    return welcome


# -- functions -------------------------------------------------------------------------------------


def test_no_end_of_a_function_is_taken_for_its_buffers(one) -> None:
    """The digest of a function says where its payload ends."""
    payload, end = b"a function with ", b"a tail of 16 chr"
    digest = digest_of(payload + end)
    one.feed(b"C1", m.Object(end, segment(b"C1", 0), 1000))

    with pytest.raises(RemoteProtocolError, match="under the name of another"):
        one.feed(b"C1", m.Function(digest, payload, (end,)))
