"""What those who watch are told: when, how much, and nothing while nobody does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.records.totals import NAMES_MAX, OTHERS, Names
from scaler_cluster.core.scheduler import snapshot as snapshot_module
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.events import BATCH_MAX, BATCH_S, Sampler
from scaler_cluster.core.scheduler.monitor import PATIENCE_S, SHARE, SOON_S
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import EVENTS, SNAPSHOT, alias_of
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    function_id,
    graph_of,
    hello,
    segment,
    submission,
)
from scaler_cluster.wire import feed as f
from scaler_cluster.wire import messages as m

BOTH = SNAPSHOT, EVENTS

W1, S1 = alias_of(b"W1"), alias_of(b"S1")
RESULTS = segment(b"W1", 0), segment(b"W1", 1)


def vitals(sent_at, workers=(), **fields):
    """Return what a supervisor answers to Examine."""
    figures = {
        "held_s": 0.0, "cpus": 4, "cpu_milli": 1500, "memory_bytes": 1000, "free_bytes": 400,
        "agent_cpu_milli": 10, "agent_rss_bytes": 50, "workers": tuple(workers),
        "worker_cpu_milli": (990,) * len(workers), "worker_rss_bytes": (70,) * len(workers),
    }  # fmt: skip
    return m.Vitals(sent_at, **figures | fields)


@pytest.fixture
def watched(one):
    """As ``one``, and somebody watches the events."""
    one.watch(EVENTS)
    return one


def learn(bench, first, each_s=1e-6):
    """Let a task of f end, so that it is known how short they are."""
    bench.submit(first)
    bench.done(first, each_s=each_s)
    bench.events()


# -- when ------------------------------------------------------------------------------------


def test_nothing_is_collected_while_nobody_watches(one):
    """Without a watcher tasks come and go, and the feed is never due."""
    one.submit(0, 10)
    one.done(0)
    one.wait(5.0)

    assert one.published == []
    assert one.core.feed.due == math.inf


def test_who_comes_gets_a_snapshot_at_once(bench):
    """A new watcher gets a snapshot at once, even if nothing ever happens."""
    bench.watch(SNAPSHOT)

    (snapshot,) = bench.published
    assert (snapshot.seq, snapshot.clock) == (1, bench.now)


def test_bugs_are_counted(bench):
    """A snapshot counts the scheduler's own bugs, whose tracebacks its log has."""
    bench.core.failed()
    bench.watch(SNAPSHOT)

    assert bench.published[-1].errors == 1


def test_a_second_listener_gets_one_as_well(bench):
    """A second watcher of the same topics causes another snapshot."""
    bench.watch(*BOTH)
    bench.wait(2 * SOON_S)
    seq = bench.published[-1].seq
    bench.watch(*BOTH)

    assert [one.seq for one in bench.published] == [seq + 1]


def test_a_crowd_of_listeners_shares_one(bench):
    """Two snapshots are at least SOON_S apart, however many watchers come."""
    bench.watch(SNAPSHOT)
    for _ in range(10):
        bench.core.feed.watch((SNAPSHOT,), bench.now)
        bench.act()
    bench.wait(SOON_S)

    assert [one.seq for one in bench.published] == [1, 2]


def test_one_comes_each_interval(bench):
    """Snapshots come at the configured interval, while a watcher listens and no longer."""
    bench.watch(SNAPSHOT)
    bench.wait(5.5)
    seen = [one.seq for one in bench.published]
    bench.watch()
    bench.wait(5.5)

    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert bench.published == []


def test_what_costs_much_comes_less_often(bench):
    """The scheduler spends at most one second in SHARE on the feed."""
    bench.watch(SNAPSHOT)
    bench.wait(0.1)
    bench.published.clear()
    bench.core.feed.took(0.1, bench.now)
    bench.wait(0.1 * SHARE - 0.01)
    early = list(bench.published)
    bench.wait(0.02)

    assert early == []
    assert len(bench.published) == 1


def test_events_travel_together(watched):
    """Events within BATCH_S travel in one message."""
    watched.submit(0)
    watched.wait(BATCH_S / 2)
    watched.done(0)
    watched.wait(BATCH_S)

    (batch,) = watched.published
    assert [one.kind for one in batch.events] == ["assigned", "done"]
    assert (batch.seq, batch.skipped) == (1, {})


def test_a_quiet_cluster_says_nothing(watched):
    """Without events there is no batch, and nothing wakes the scheduler for one."""
    watched.wait(5.0)

    assert watched.published == []


def test_one_topic_does_not_cost_the_other(one):
    """Events are not collected for a watcher that wants snapshots only."""
    one.watch(SNAPSHOT)
    one.submit(0)
    one.done(0)
    one.wait(2.0)

    assert {type(each) for each in one.published} == {f.Snapshot}
    assert one.core.feed.monitor._events._events == []


def test_a_snapshot_says_which_events_it_follows(two):
    """A snapshot names the last batch of events that is counted in it."""
    two.watch(*BOTH)
    two.submit(0)
    two.wait(1.5)

    assert [(type(one), one.seq) for one in two.published[:2]] == [(f.Snapshot, 1), (f.Events, 1)]
    assert two.published[2].events == 1


# -- totals ----------------------------------------------------------------------------------


def test_a_late_viewer_knows_all_that_came_of_tasks(one):
    """The first snapshot counts all that ended before, by function and by client."""
    one.submit(0, 4)
    one.submit(4, function="h")
    one.submit(5, options=m.TaskOptions(capabilities=(("gpu", 1),)))
    for task in range(4):
        one.done(task)
    one.erred(4)
    one.feed(b"C1", m.Cancel(5, 1))
    one.submit(6, 2)

    snapshot = one.snapshot()
    rows = {row.name: row for row in snapshot.functions}
    assert (rows["f"].submitted, rows["f"].done, rows["f"].cancelled) == (7, 4, 1)
    assert rows["f"].busy_s == pytest.approx(0.004)
    assert (rows["h"].submitted, rows["h"].failed, rows["h"].pending) == (1, 1, 0)
    totals, (client,) = snapshot.tasks, snapshot.clients
    for row in totals, client:
        assert (row.submitted, row.done, row.failed, row.cancelled) == (8, 4, 1, 1)
    assert client.pending == rows["f"].pending == 2


@pytest.mark.parametrize("ending", ["released", "lost"])
def test_what_was_counted_outlives_who_asked_for_it(one, ending):
    """Counts of functions stay after the client that called them has left."""
    one.submit(0)
    one.done(0)
    one.submit(1)
    if ending == "lost":
        one.lose(b"C1")
    else:
        one.feed(b"C1", m.Goodbye())

    snapshot = one.snapshot()
    (row,) = snapshot.functions
    assert (row.name, row.submitted, row.done, row.cancelled, row.pending) == ("f", 2, 1, 1, 0)
    assert snapshot.clients == []


def test_retries_are_counted(one):
    """A snapshot counts how many tasks are run again after they raised."""
    one.submit(0, options=m.TaskOptions(retries=2))
    one.erred(0)
    one.erred(0)
    one.done(0)

    told = one.snapshot()
    assert (told.tasks.retried, told.tasks.done, told.tasks.failed) == (2, 1, 0)
    assert [row.retried for row in told.functions] == [2]


def test_rows_that_find_no_room_are_counted(two, monkeypatch):
    """A snapshot says of how many workers, machines and clients it has no rows."""
    monkeypatch.setattr(snapshot_module, "ROWS_MAX", 1)
    two.client(b"C2")
    two.client(b"C3")

    told = two.snapshot()
    assert (len(told.workers), len(told.machines), len(told.clients)) == (1, 1, 1)
    assert told.left_out == {"workers": 1, "clients": 2}


def test_tasks_that_a_task_takes_back_are_not_cancelled(one):
    """What a task takes back is pending until its worker tells what became of it."""
    one.submit(0)
    one.feed(b"N1", m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1"))
    one.submit(0, 3, peer=b"N1")
    one.feed(b"N1", m.Cancel(0, 3, queued_only=True))

    snapshot = one.snapshot()
    nested = next(row for row in snapshot.clients if row.worker)
    assert (nested.submitted, nested.recalled, nested.cancelled, nested.pending) == (3, 3, 0, 3)
    assert (snapshot.tasks.recalled, snapshot.tasks.cancelled) == (3, 0)


def test_tasks_that_run_on_the_stack_of_another_count_once(one):
    """What was recalled, what nobody had heard of, and what is given up: each counts once."""
    one.submit(0)
    one.feed(b"N1", m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1"))
    one.submit(0, 4, peer=b"N1")
    one.feed(b"N1", m.Cancel(0, 4, queued_only=True))
    name = one.snapshot().functions[0].name
    told = m.Inlined(name, done=5, failed=1, cancelled=1, recalled=2, busy_s=3.5)

    one.feed(b"N1", told)
    one.feed(b"N1", m.Inlined(name, again=1), *submission(3)[-1:])
    row = one.snapshot().functions[0]
    # One of C1, four that were recalled, and five that nobody had heard of.
    assert (row.submitted, row.done, row.failed, row.cancelled) == (10, 5, 1, 1)
    assert (row.recalled, row.pending, row.inlined) == (1, 3, 6)
    assert (row.busy_s, row.inlined_s) == (3.5, 3.5)

    one.feed(b"N1", m.Inlined("", is_last=True))
    row = one.snapshot().functions[0]
    assert (row.recalled, row.cancelled, row.pending) == (0, 2, 2)


def test_what_a_worker_had_back_is_cancelled_with_it(one):
    """Tasks that a worker took back and tells nothing of are given up when its session ends."""
    one.submit(0)
    one.feed(b"N1", m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1"))
    one.submit(0, 4, peer=b"N1")
    one.feed(b"N1", m.Cancel(0, 4, queued_only=True))
    one.lose(b"N1")

    tasks = one.snapshot().tasks
    assert (tasks.submitted, tasks.cancelled, tasks.recalled) == (5, 4, 0)


@pytest.mark.parametrize(
    "told",
    [
        m.Inlined("f", done=-1),
        m.Inlined("f", busy_s=-1.0),
        m.Inlined("f", done=1, recalled=2),
        m.Inlined("f", again=-1),
    ],
)
def test_a_worker_that_tells_what_cannot_be_is_refused(one, told):
    """A worker can tell neither of fewer than no tasks, nor of more given back than ended."""
    one.submit(0)
    one.feed(b"N1", m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1"))

    with pytest.raises(RemoteProtocolError):
        one.feed(b"N1", told)


def test_what_an_earlier_scheduler_gave_back_counts_as_new(one):
    """This one has never counted it; the worker knows nothing of that."""
    one.submit(0)
    one.feed(b"N1", m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1"))
    one.feed(b"N1", m.Inlined("f", done=2, recalled=2))
    one.feed(b"N1", m.Inlined("f", again=1))

    tasks = one.snapshot().tasks
    assert (tasks.submitted, tasks.done, tasks.recalled) == (3, 2, 0)


def test_nodes_that_a_task_runs_itself_count_as_its_graphs(one):
    """A node that was handed over is running, then ready once it is given back, and at last done."""
    one.submit(0)
    one.feed(b"N1", m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1"))
    one.graph(0, "", "0", peer=b"N1", options=[m.TaskOptions(depth=1)])
    one.feed(b"N1", m.Cancel(1, 1, queued_only=True))
    handed_over = one.snapshot().tasks
    one.feed(b"N1", m.ProvideInputs(0, m.NOT_RUN, b""))
    given_back = one.snapshot().tasks
    for node in range(2):
        one.feed(b"N1", m.Cancel(1, 1, queued_only=True))
        one.feed(b"N1", m.ProvideInputs(node, "", b"r"))
    over = one.snapshot()

    assert (handed_over.waiting, handed_over.ready, handed_over.assigned, handed_over.running) == (
        1,
        0,
        0,
        2,
    )
    assert (given_back.waiting, given_back.ready, given_back.running) == (1, 1, 1)
    assert (over.tasks.done, over.tasks.recalled, over.tasks.running) == (2, 0, 1)
    nested = next(row for row in over.clients if row.worker)
    assert (nested.submitted, nested.done, nested.pending) == (2, 2, 0)


def test_what_fails_with_what_it_needs_was_not_cancelled(watched):
    """A node that its worker was given ahead fails with what it needs: no event tells of it."""
    watched.graph(900, "")
    watched.done(900, each_s=1e-5)
    watched.graph(0, "", "0", "1", "", wanted="2 3")
    watched.events()
    assert watched.erred(0)["W1"] == ["Abort 1:1-2"]
    watched.feed(b"W1", m.Skipped(1, 1), m.Skipped(1, 2))

    watched.done(3)
    assert [one.kind for one in watched.events()] == ["failed", "graph_over", "done"]
    totals = watched.snapshot().tasks
    assert (totals.failed, totals.cancelled) == (3, 0)


@pytest.mark.parametrize("by", ["scheduler", "supervisor"])
def test_a_timeout_counts_as_a_failure_once(one, by):
    """A timed-out task counts once as failed, and not as cancelled when it is stopped."""
    timeout_s = 1.0 if by == "scheduler" else None
    one.watch(EVENTS)
    one.submit(0, options=m.TaskOptions(timeout_s=timeout_s))
    if by == "scheduler":
        one.feed(b"W1", m.Started(1, 0))
        one.wait(1.1)
    else:
        one.feed(b"S1", m.Overdue(b"W1", 1, 0, 1.0))
    one.feed(b"W1", m.Aborted(1, 0, 1))
    (failed,) = [event for event in one.events() if isinstance(event, f.Failed)]
    assert failed.reason == m.FAILED_TIMEOUT

    totals = one.snapshot().tasks
    assert (totals.failed, totals.cancelled, totals.done) == (1, 0, 0)


def test_nodes_count_while_their_graph_goes_on_and_after(one):
    """Nodes count as soon as they end, and only once when their graph is over."""
    one.graph(0, "", "0", "1", "0", wanted="2 3")
    one.done(0)
    going = one.snapshot()
    one.feed(b"C1", m.Cancel(3, 1))
    for task in 1, 2:
        one.done(task)
    over = one.snapshot()

    (graph,) = going.graphs
    assert (graph.name, graph.nodes, graph.done, graph.is_whole) == ("g", 4, 1, True)
    assert going.tasks.done == going.functions[0].done == going.clients[0].done == 1
    assert (going.tasks.submitted, over.tasks.submitted) == (4, 4)
    assert over.graphs == []
    totals = over.tasks
    assert (totals.done, totals.cancelled, totals.waiting, totals.ready) == (3, 1, 0, 0)


def test_names_are_bounded():
    """Beyond NAMES_MAX, what is of no use any more is counted together."""
    names = Names()
    for number in range(NAMES_MAX + 10):
        totals = names.enter(f"f{number}")
        totals.submitted += 1
        totals.done += 1
        totals.users -= number != 0

    rows = dict(names)
    assert len(rows) == NAMES_MAX + 1
    assert rows[OTHERS].done == 10
    assert "f0" in rows
    assert "f1" not in rows


def test_names_in_use_do_not_make_room():
    """New names are counted with the others where every known name is in use."""
    names = Names()
    kept = [names.enter(f"f{number}") for number in range(NAMES_MAX)]

    other = names.enter("late")
    other.submitted += 1

    assert other not in kept
    assert names.enter("later") is other
    assert dict(names)[OTHERS].submitted == 1


def test_messages_are_counted_by_kind(two):
    """Messages are counted by kind from the start, even without a watcher."""
    two.submit(0, 2)

    snapshot = two.snapshot()
    assert snapshot.received == {"Hello": 4, "Function": 1, "Submit": 1}
    assert snapshot.sent["Assign"] == 2
    assert snapshot.sent["Welcome"] == 4


# -- rows ------------------------------------------------------------------------------------


def test_where_tasks_stand(two):
    """Each task that has not ended counts as waiting, ready, on a worker or running."""
    two.submit(0, 20)
    two.submit(20, 5, options=m.TaskOptions(capabilities=(("gpu", 1),)))
    two.graph(30, "", "0")

    snapshot = two.snapshot()
    totals = snapshot.tasks
    assert totals.running == 2
    assert totals.waiting == 1
    assert totals.waiting + totals.ready + totals.assigned + totals.running == 27
    assert [(one.what, one.tasks) for one in snapshot.demands] == [("gpu=1", 5)]


def test_what_waits_for_any_worker(bench):
    """Tasks that wait while there is no worker are shown as a demand."""
    bench.client()
    bench.submit(0, 3)
    bench.wait(10.0)

    (demand,) = bench.snapshot().demands
    assert (demand.what, demand.tasks) == ("", 3)
    assert demand.unmet_s >= 9.0


def test_what_a_worker_does(one):
    """A worker's row has the task that it runs, since when, and how many are behind that."""
    learn(one, 0)
    one.submit(1, 5)
    one.now += 0.003
    one.done(1)
    one.now += 2.0

    (row,) = one.snapshot().workers
    assert (row.worker, row.machine, row.pid) == (W1, S1, 1)
    assert (row.session, row.task, row.function) == (1, 2, "f")
    assert row.age_s == pytest.approx(2.0)
    assert (row.tasks, row.given) == (4, 6)


def test_a_worker_has_room_for_what_it_is_given_at_most(bench):
    """A worker's room is the smaller of its cluster's limit and the scheduler's."""
    bench.client()
    bench.supervisor()
    bench.feed(b"W1", hello(m.WORKER, supervisor=b"S1", queue=3))
    bench.submit(0)
    (row,) = bench.snapshot().workers

    assert (row.tasks, row.free) == (1, 2)


def test_an_idle_worker_has_room(one):
    """The row of an idle worker shows no task, and how much it may get."""
    (row,) = one.snapshot().workers

    assert (row.tasks, row.function, row.age_s) == (0, "", 0.0)
    assert row.free > 0
    assert (row.cpu, row.rss_bytes) == (None, None)


@pytest.mark.parametrize("state", ["is_stalled", "is_leaving", "is_blocked"])
def test_a_worker_that_gets_nothing_has_no_room(one, state):
    """A worker that gets nothing shows no room, and the reason."""
    worker = one.core.table.workers[b"W1"]
    one.submit(0, 2)
    if state == "is_stalled":
        one.sleep(0.05)
    elif state == "is_leaving":
        one.feed(b"W1", m.Goodbye())
    else:
        one.feed(b"N1", m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1"))
        one.feed(b"N1", m.Blocked(is_blocked=True))

    row = next(row for row in one.snapshot().workers if row.worker == alias_of(worker.peer))
    assert getattr(row, state)
    assert row.free == 0


def test_objects_and_who_has_them(one):
    """A snapshot has totals, places and the largest objects, as many as were asked for."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, feed_objects=1))
    bench.client()
    bench.store("a", nbytes=100)
    bench.store("b", number=1, nbytes=300)

    snapshot = bench.snapshot()
    assert (snapshot.objects, snapshot.objects_bytes) == (2, 400)
    assert [(row.objects, row.nbytes) for row in snapshot.stores] == [(2, 400)]
    assert [row.nbytes for row in snapshot.largest] == [300]


def test_objects_are_counted_by_who_made_them(one):
    """What a client stored counts for it, what a task returned for its function and its client."""
    one.storage()
    one.client(b"C2")
    one.store("a", nbytes=100)
    one.store("a", peer=b"C2", nbytes=100)
    one.feed(b"C2", m.Release((segment(b"C2", 0),)))
    one.submit(0)
    one.feed(b"W1", m.Stored(1, 0, 0.1, b"r", RESULTS, (7, 2)))

    def owners():
        return [(row.session, row.function, row.objects, row.nbytes) for row in snapshot.owners]

    snapshot = one.snapshot()
    assert owners() == [(1, "", 1, 100), (1, "f", 2, 9)]
    assert [(row.session, row.function) for row in snapshot.largest] == [
        (1, ""), (1, "f"), (1, "f"),
    ]  # fmt: skip

    one.feed(b"C1", m.Release((RESULTS[0],)))
    snapshot = one.snapshot()
    assert owners() == [(1, "", 1, 100), (1, "f", 1, 2)]

    one.feed(b"C1", m.Goodbye())
    snapshot = one.snapshot()
    # The other client still needs it.
    assert owners() == [(1, "", 1, 100)]


def test_results_of_nodes_are_counted_by_their_layers(one):
    """What a node returned counts under the name under which the node is counted."""
    one.storage()
    function = m.Function(function_id("g"), b"g", name="g")
    one.feed(b"C1", function, graph_of(0, "", "0", names="load sum"))
    one.feed(b"W1", m.Stored(1, 0, 0.1, b"r", RESULTS[:1], (7,)))

    (owner,) = one.snapshot().owners
    assert (owner.function, owner.objects, owner.nbytes) == ("load", 1, 7)


def test_of_many_owners_those_with_most_are_told(one, monkeypatch):
    """The rest is counted as left out."""
    monkeypatch.setattr(snapshot_module, "OWNERS_MAX", 2)
    for number, nbytes in enumerate((5, 70, 60)):
        peer = b"C%d" % (number + 7)
        one.client(peer)
        one.store(str(number), peer=peer, nbytes=nbytes)

    snapshot = one.snapshot()
    assert [row.nbytes for row in snapshot.owners] == [70, 60]
    assert snapshot.left_out == {"owners": 1}


# -- machines --------------------------------------------------------------------------------


def test_machines_are_asked_only_while_somebody_watches(two):
    """Machines are asked each interval how they are, while a watcher listens and no longer."""
    quiet = two.wait(5.0)
    two.watch(SNAPSHOT)
    asked = two.wait(2.5)
    two.watch()
    after = two.wait(5.0)

    assert "S1" not in quiet
    assert asked["S1"].count("Examine") == 3
    assert "S1" not in after


def test_a_snapshot_follows_the_answers(two):
    """The snapshot follows as soon as all machines have said how they are."""
    two.watch(SNAPSHOT)
    two.wait(0.0)
    two.published.clear()
    asked_at = two.now
    two.now += 0.01
    told = {"memory_limit_bytes": 900, "restarts": 3}
    two.feed(b"S1", vitals(asked_at, [b"W1", b"W2"], held_s=0.004, **told))

    (snapshot,) = two.published
    (machine,) = snapshot.machines
    assert (machine.cpus, machine.cpu, machine.memory_bytes, machine.free_bytes) == (
        4, 1.5, 1000, 400,
    )  # fmt: skip
    assert (machine.agent_cpu, machine.agent_rss_bytes) == (0.01, 50)
    assert machine.lag_s == pytest.approx(0.003)
    assert machine.restarts == 3
    assert [(row.cpu, row.rss_bytes) for row in snapshot.workers] == [(0.99, 70)] * 2
    assert [row.memory_limit_bytes for row in snapshot.workers] == [900] * 2


def test_a_limit_that_nobody_set_is_none(two):
    """A memory limit that nobody set, or that is not told yet, is shown as none."""
    before = two.snapshot()
    two.feed(b"S1", vitals(two.now, [b"W1"]))

    for snapshot in before, two.snapshot():
        assert [row.memory_limit_bytes for row in snapshot.workers] == [None, None]


def test_it_is_told_how_long_a_worker_is_there(one):
    """A worker's row tells how long ago the worker came, whatever it did."""
    one.wait(5.0)
    one.worker(b"W2")

    assert [row.up_s for row in one.snapshot().workers] == [5.0, 0.0]


def test_a_machine_that_is_silent_is_not_waited_for(two):
    """After PATIENCE_S the snapshot is made without the machines that have not answered."""
    two.supervisor(b"S2")
    two.watch(SNAPSHOT)
    two.wait(0.0)
    two.published.clear()
    two.feed(b"S1", vitals(two.now))
    early = list(two.published)
    two.wait(PATIENCE_S)

    assert early == []
    assert [row.cpus for row in two.published[0].machines] == [4, 0]


def test_a_machine_that_leaves_is_not_waited_for(two):
    """A machine that has left is not waited for any more."""
    two.supervisor(b"S2")
    two.watch(SNAPSHOT)
    two.wait(0.0)
    two.published.clear()
    two.feed(b"S1", vitals(two.now))
    two.lose(b"S2")

    assert len(two.published) == 1


def test_what_was_measured_long_ago_is_not_told(two):
    """A new watcher is not shown what machines told another watcher before."""
    two.watch(SNAPSHOT)
    two.feed(b"S1", vitals(two.now, [b"W1"]))
    two.watch()

    snapshot = two.snapshot()
    assert snapshot.machines[0].cpu is None
    assert snapshot.workers[0].cpu is None


@pytest.mark.parametrize(
    "message",
    [
        vitals(1.0, [b"W1"], worker_cpu_milli=()),
        vitals(1.0, [b"W1"], worker_rss_bytes=(1, 2)),
    ],
)
def test_vitals_that_do_not_fit_are_refused(two, message):
    """Vitals are refused whose columns have more or fewer rows than they name workers."""
    with pytest.raises(RemoteProtocolError, match="more workers or fewer than it names"):
        two.feed(b"S1", message)


def test_only_a_supervisor_has_vitals(two):
    """Vitals from a peer that is no supervisor are refused."""
    with pytest.raises(RemoteProtocolError, match="only a supervisor says this"):
        two.feed(b"C1", vitals(1.0))


def test_how_late_the_scheduler_was(two):
    """A snapshot has the scheduler's largest lag since the snapshot before."""
    two.watch(SNAPSHOT)
    two.wait(0.6)
    two.published.clear()
    two.sleep(3.0)
    two.wait(4.0)

    lags = [one.scheduler.lag_s for one in two.published]
    assert max(lags) > 2.0
    assert lags[-1] < 0.1


# -- events ----------------------------------------------------------------------------------


def test_contiguous_tasks_are_one_event(watched):
    """Contiguous tasks that are assigned or reported together make one event."""
    learn(watched, 0)
    watched.submit(1, 1000)
    given = watched.core.table.workers[b"W1"].count
    watched.done(1, given)

    assigned, done, *_ = watched.events()
    at = assigned.at
    assert given > 100
    assert assigned == f.Assigned(at, W1, 1, 1, given, "f")
    assert done == f.Done(at, W1, 1, 1, given, "f", pytest.approx(given * 0.001), 1)


def test_a_failure_says_why(watched):
    """A Failed event has the exception's type and text, and the end of its traceback."""
    watched.submit(0)
    detail = {"type": "KeyError", "message": "m" * 1000, "traceback": "t" * 9000 + "end"}
    watched.feed(b"W1", m.Erred(1, 0, 0.5, m.FAILED_EXCEPTION, b"", detail))

    _, failed = watched.events()
    assert (failed.worker, failed.first, failed.count, failed.busy_s) == (W1, 0, 1, 0.5)
    assert (failed.reason, failed.error) == ("exception", "KeyError")
    assert len(failed.message) < 1000
    assert failed.traceback.endswith("end")
    assert len(failed.traceback) < 9000


def test_details_that_are_no_text_are_left_out(watched):
    """An event leaves out details of the wrong type, which a peer may send."""
    watched.submit(0)
    watched.feed(b"W1", m.Erred(1, 0, 0.5, m.FAILED_EXCEPTION, b"", {"type": 7, "message": None}))

    failed = watched.events()[-1]
    assert (failed.error, failed.message) == ("", "")


def test_a_retry_is_told_with_its_attempt(watched):
    """The event of a retry names the attempt that failed, and Done the one that did not."""
    watched.submit(0, options=m.TaskOptions(retries=1))
    watched.erred(0)
    watched.done(0)

    events = watched.events()
    assert [one.kind for one in events] == ["assigned", "retried", "assigned", "done"]
    assert events[1].attempt == 1
    assert events[3].attempt == 2


def test_what_moves_is_told(watched):
    """A Moved event names the worker that gives back, and what it gave back."""
    learn(watched, 0)
    watched.submit(1, 10)
    watched.wait(0.1)
    watched.feed(b"W1", m.Revoked(1, 2, 9, 0))

    moved = next(event for event in watched.events() if isinstance(event, f.Moved))
    assert moved == f.Moved(moved.at, W1, 1, 2, 9, "f")
    assert watched.snapshot().tasks.moved == 9


def test_cancelled_tasks_are_told_once(watched):
    """Cancelled tasks are told when they are cancelled, not again when they have stopped."""
    watched.submit(0)
    watched.feed(b"C1", m.Cancel(0, 1))
    watched.feed(b"C1", m.Cancel(0, 1))
    watched.feed(b"W1", m.Aborted(1, 0, 1))

    cancelled = [event for event in watched.events() if isinstance(event, f.Cancelled)]
    assert [(one.worker, one.first, one.count) for one in cancelled] == [(W1, 0, 1)]


def test_what_is_cancelled_tells_how_long_it_ran(watched):
    """A Cancelled event tells how long the running task ran, and none of those behind it."""
    watched.submit(0)
    watched.submit(1)
    watched.wait(3.0)
    watched.feed(b"C1", m.Cancel(0, 2))

    told = [one for one in watched.events() if isinstance(one, f.Cancelled)]
    assert [one.first for one in told] == [0, 1]
    assert [one.busy_s for one in told] == pytest.approx([3.0, 0.0])


def test_what_dies_with_its_worker_tells_how_long_it_ran(watched):
    """An event tells how long a task ran before its worker died, even if it runs again."""
    watched.submit(0, options=m.TaskOptions(retries=1))
    watched.wait(2.0)
    watched.died(0)
    watched.worker(b"W2")
    watched.wait(4.0)
    watched.died(0, worker=b"W2")

    told = [one for one in watched.events() if isinstance(one, f.Retried | f.Failed)]
    assert [(one.kind, one.attempt) for one in told] == [("retried", 1), ("failed", 2)]
    assert [one.busy_s for one in told] == pytest.approx([2.0, 4.0])


def test_a_death_is_told_with_its_diagnosis(watched):
    """A WorkerDied event tells the process, how it ended, and what it ran."""
    watched.submit(0)
    death = {
        "exit_code": None, "signal": 11, "peak_rss_bytes": 5, "out_of_memory": False,
        "reason": "", "stderr_tail": "Segmentation fault",
    }  # fmt: skip
    watched.feed(b"S1", m.WorkerLost(b"W1", 1, 0, death))

    _, died, failed = watched.events()
    assert died == f.WorkerDied(
        died.at, W1, S1, "host", 1, "", 1, 0, "f", None, 11, 5, False, "",
        "Segmentation fault",
    )  # fmt: skip
    assert (failed.reason, failed.worker) == ("worker_died", W1)


@pytest.mark.parametrize("tries", [0, 1])
def test_a_task_whose_worker_died_fails_with_the_diagnosis(watched, tries):
    """Watchers read what the client reads: how the worker died, its peak of memory, its limit."""
    watched.submit(0, options=m.TaskOptions(retries=tries))
    death = {
        "pid": 77, "host": "node-1", "exit_code": None, "signal": 9, "peak_rss_bytes": 226_000_000,
        "out_of_memory": True, "stderr_tail": "Killed",
        "reason": "its memory of 215 MB exceeded the limit of 200 MB per worker",
    }  # fmt: skip
    watched.feed(b"S1", m.WorkerLost(b"W1", 1, 0, death))

    (told,) = [one for one in watched.events() if isinstance(one, f.Failed | f.Retried)]
    assert told.message == (
        "the worker process 77 on node-1 was killed by signal 9 (its memory of 215 MB exceeded the "
        "limit of 200 MB per worker) while it ran this task; peak memory 226 MB"
    )


def test_a_death_of_which_nothing_is_known_has_no_made_up_figures(watched):
    """A supervisor may say anything of a death: what is no number is not told as one."""
    watched.submit(0, options=m.TaskOptions(retries=0))
    death = {"exit_code": 3, "peak_rss_bytes": "much", "reason": ["x"], "message": "m" * 5000}
    watched.feed(b"S1", m.WorkerLost(b"W1", 1, 0, death))

    failed = watched.events()[-1]
    assert failed.message.startswith(
        "the worker process exited with code 3 while it ran this task; mmm"
    )
    assert len(failed.message) == 500


def test_a_death_is_told_with_the_task_of_its_session(watched):
    """A WorkerDied event names the task of the session that is charged, not its namesake."""
    watched.client(b"C2")
    watched.submit(0)
    watched.submit(0, peer=b"C2", function="g")
    watched.died(0, session=2)

    (died,) = [one for one in watched.events() if isinstance(one, f.WorkerDied)]
    assert (died.session, died.task, died.function) == (2, 0, "g")


def test_a_worker_that_retires_did_not_die(watched):
    """A worker that retires is told as left, not as dead."""
    watched.feed(b"W1", m.Goodbye())
    watched.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {"exit_code": 0, "signal": None, "reason": ""}))

    assert [one.kind for one in watched.events()] == ["worker_left"]


def test_deaths_are_counted_though_nobody_watches(one):
    """Deaths count without a watcher too; workers that retired are not among them."""
    for worker, exit_code in (b"W1", 0), (b"W2", 1), (b"W3", None):
        if worker != b"W1":
            one.worker(worker)
        death = {"exit_code": exit_code, "signal": None if exit_code is not None else 9}
        one.feed(b"S1", m.WorkerLost(worker, 0, 0, death))
    one.worker(b"W4")
    one.lose(b"S1")

    one.watch(SNAPSHOT)
    assert one.snapshot().worker_deaths == 3


def test_a_machine_takes_its_workers_along(watched):
    """The workers of a lost machine are told as dead, with what they had."""
    watched.submit(0)
    watched.lose(b"S1")

    kinds = [one.kind for one in watched.events()]
    assert kinds == ["assigned", "worker_died", "retried", "machine_left"]


def test_a_machine_that_leaves_in_order_has_no_deaths(watched):
    """The workers of a machine that says goodbye are not told as dead."""
    watched.submit(0)
    watched.feed(b"S1", m.Goodbye())

    kinds = [one.kind for one in watched.events()]
    assert kinds == ["assigned", "worker_left", "retried", "machine_left"]
    assert watched.snapshot().worker_deaths == 0


def test_who_comes_and_leaves(bench):
    """Machines, workers, clients and graphs are told of when they come and when they go."""
    bench.watch(EVENTS)
    bench.supervisor()
    bench.worker()
    bench.client()
    bench.graph(0, "")
    bench.done(0)
    bench.feed(b"C1", m.Goodbye())

    events = bench.events()
    assert [one.kind for one in events] == [
        "machine_joined", "worker_joined", "client_joined", "graph_begun", "assigned",
        "graph_over", "done", "client_left",
    ]  # fmt: skip
    assert events[1] == f.WorkerJoined(bench.now - 0.2, W1, S1, "host", 1, "", False)
    over = events[5]
    assert (over.nodes, over.done, over.failed, over.cancelled) == (1, 1, 0, 0)


# -- too much --------------------------------------------------------------------------------


def test_too_many_events_are_sampled_and_counted(watched):
    """A batch holds BATCH_MAX of a kind; how many more there were is told, and counted exactly."""
    limit = BATCH_MAX[f.Failed]
    options = m.TaskOptions(priority=1)
    for task in range(3 * limit):
        watched.submit(task, options=options)
        holder = next(p for p, one in watched.core.table.workers.items() if one.count)
        watched.erred(task, peer=holder)
    watched.core.feed.watch((EVENTS, SNAPSHOT), watched.now)
    watched.wait(1.5)

    batch = next(one for one in watched.published if isinstance(one, f.Events))
    failed = [one for one in batch.events if isinstance(one, f.Failed)]
    assert len(failed) == limit
    assert batch.skipped["failed"] == 2 * limit
    snapshot = watched.published[-1]
    assert snapshot.skipped["failed"] == 2 * limit
    assert snapshot.tasks.failed == 3 * limit


@given(st.lists(st.integers(0, 500), max_size=30), st.integers(1, 50))
def test_samples_are_bounded_and_add_up(batches, limit):
    """A batch never holds more than its limit, and every event left out is counted."""
    sampler = Sampler(limit)
    for count in batches:
        kept = sum(sampler.take() for _ in range(count))
        assert kept <= limit
        assert sampler.close() == count - kept


def test_a_steady_stream_is_sampled_evenly():
    """After the first batch the events that are told are spread evenly over the next ones."""
    sampler = Sampler(10)
    for _ in range(2):
        sampler.close()
        kept = [number for number in range(100) if sampler.take()]

    assert kept == list(range(9, 100, 10))


def test_what_tasks_took_is_summed_by_worker(one):
    """A snapshot has what tasks of a worker took that ended, also those that no event told."""
    one.submit(0)
    one.done(0, each_s=9.0)
    one.watch(*BOTH)
    count = 2 * BATCH_MAX[f.Done]
    for task in range(1, count + 1):
        one.submit(task)
        one.done(task, each_s=0.001)
    one.submit(count + 1)
    one.feed(b"W1", m.Erred(1, count + 1, 0.5, m.FAILED_EXCEPTION, b"", {}))
    one.published.clear()
    snapshot = one.snapshot()

    assert snapshot.skipped["done"] >= BATCH_MAX[f.Done]
    assert snapshot.workers[0].busy_s == pytest.approx(count * 0.001 + 0.5)
