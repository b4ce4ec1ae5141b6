"""Thousands of different demands: what a turn of the scheduler looks at does not explode."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records import placement
from scaler_cluster.core.records.placement import is_named
from scaler_cluster.core.scheduler.machines import Machines
from scaler_cluster.core.scheduler.pools import WorkerPools
from scaler_cluster.core.scheduler.queue import ReadyQueue
from scaler_cluster.testing.bench import function_id, hello, payloads_of
from scaler_cluster.wire import messages as m

DEMANDS = 200


class Looks:
    """Counts how often a queue is peeked into, and a demand compared with what is offered."""

    def __init__(self, monkeypatch):
        self.count = 0
        monkeypatch.setattr(ReadyQueue, "peek", self._counting(ReadyQueue.peek))
        monkeypatch.setattr(WorkerPools, "takers", self._counting(WorkerPools.takers))
        has_all = self._counting(placement.has_all)
        monkeypatch.setattr("scaler_cluster.core.records.placement.has_all", has_all)

    def _counting(self, function):
        def counting(*args):
            self.count += 1
            return function(*args)

        return counting


@pytest.fixture
def looks(monkeypatch):
    """A counter of looks."""
    return Looks(monkeypatch)


def by_capability(number):
    """A capability that no worker has."""
    return m.TaskOptions(capabilities=((f"c{number}", 1),))


def by_name(number):
    """A worker's name that none has."""
    return m.TaskOptions(workers=(f"w{number}",))


def runnable(number):
    """A demand that the one worker with a GPU meets."""
    return m.TaskOptions(capabilities=(("gpu", number / DEMANDS),))


def submit_each(bench, demand):
    """Let C1 submit a task with each of many demands, in one turn."""
    batch = [
        m.Submit(n, function_id("f"), m.CALL_ARGS, demand(n), payloads_of(n, 1), ())
        for n in range(DEMANDS)
    ]
    return bench.feed(b"C1", m.Function(function_id("f"), b"f", name="f"), *batch)


@pytest.mark.parametrize("demand", [by_capability, by_name])
def test_what_nobody_can_run_costs_a_turn_nothing(one, looks, demand):
    """Demands that no worker meets are not looked at in a turn."""
    submit_each(one, demand)
    looks.count = 0
    one.core.take_actions(one.now)
    assert looks.count <= 5

    one.client(b"C2")
    looks.count = 0
    one.core.receive(b"C2", [m.Function(function_id("f"), b"f", name="f")], one.now)
    one.core.receive(
        b"C2",
        [m.Submit(0, function_id("f"), 0, m.DEFAULT_OPTIONS, payloads_of(0, 1), ())],
        one.now,
    )
    assert b"W1" in one.core.take_actions(one.now)
    assert looks.count <= 10


def test_a_busy_worker_costs_a_turn_one_look_for_each_demand(one, looks):
    """Demands whose workers are busy are looked at once, and not compared with each other."""
    one.worker(b"W2", capabilities=(("gpu", 1),))
    submit_each(one, runnable)
    looks.count = 0
    one.core.take_actions(one.now)
    assert looks.count <= DEMANDS + 5


def test_a_free_worker_costs_a_few_looks_for_each_demand(one, looks):
    """When a worker is free, the most urgent of many demands is found without comparing all."""
    one.worker(b"W2", capabilities=(("gpu", 1),))
    submit_each(one, runnable)
    urgent = m.TaskOptions(priority=5, capabilities=(("gpu", 0.5),))
    one.submit(1000, options=urgent)
    first = one.core.table.workers[b"W2"].runs[0].first
    looks.count = 0
    given = one.done(first, peer=b"W2")
    assert given["W2"][-1].startswith("Assign 1:1000")
    # The invariants, which the bench checks, look as well.
    assert looks.count <= 8 * DEMANDS


@pytest.mark.parametrize(
    ("demand", "fields"),
    [(by_capability, {"capabilities": (("c7", 1),)}), (by_name, {"name": "w7"})],
)
def test_a_worker_that_comes_gets_what_only_it_can_run(one, demand, fields):
    """What waited for a worker like this one is found when it comes, and waits again without it."""
    submit_each(one, demand)
    given = one.worker(b"W2", **fields)
    assert [line for line in given["W2"] if line.startswith("Assign")] == ["Assign 1:7 f"]

    one.died(worker=b"W2")
    given = one.worker(b"W3", **fields)
    assert [line for line in given["W3"] if line.startswith("Assign")] == ["Assign 1:7 f"]


def test_demands_that_are_taken_back_are_forgotten(one):
    """A client that submits and cancels with ever new demands fills no memory."""
    submit_each(one, by_capability)
    one.feed(b"C1", m.Cancel(0, DEMANDS))
    one.wait(1.0)
    assert len(one.core.table.backlog.queues()) == 1


def test_a_client_hears_once_that_nothing_waits_any_more(one):
    """However many demands were met or taken back, the client is told so in one message."""
    submit_each(one, by_capability)
    told = one.wait(1.0)["C1"]
    assert len(told) == DEMANDS

    one.feed(b"C1", m.Cancel(0, DEMANDS))
    assert one.wait(1.0)["C1"] == ["Unplaced"]


# -- many workers ------------------------------------------------------------------------------


@pytest.fixture
def crowd(one):
    """A bench with a client, and a machine with two thousand idle workers."""
    one.supervisor(b"S9", workers=2000)
    for number in range(2000):
        one.core.receive(
            b"V%d" % number, [hello(m.WORKER, supervisor=b"S9", name=f"v{number}")], one.now
        )
    one.act()
    return one


def test_a_named_worker_is_found_among_thousands(crowd, monkeypatch):
    """A task that names its worker costs no look at all others, be it idle or busy."""
    names = []

    def noting(options, called):
        names.append(called)
        return is_named(options, called)

    monkeypatch.setattr("scaler_cluster.core.scheduler.pools.is_named", noting)
    options = m.TaskOptions(workers=("v7",))
    for task in range(4):
        crowd.submit(task, options=options)
    assert crowd.core.table.workers[b"V7"].count
    assert len(names) < 10


def test_workers_of_a_name_get_their_turn(crowd):
    """Workers that share a name get tasks in turn, as those of a pool do."""
    for number in range(4):
        crowd.worker(b"N%d" % number, b"S9", name="n")
    options = m.TaskOptions(workers=("n",))
    told = [crowd.submit(task, options=options) for task in range(8)]
    given = [peer for lines in told for peer in lines if peer.startswith("N")]
    assert sorted(given[:4]) == ["N0", "N1", "N2", "N3"]
    assert sorted(given[4:]) == ["N0", "N1", "N2", "N3"]


def test_a_tick_does_not_look_at_all_peers(crowd, monkeypatch):
    """However often a tick is due, it is looked twice a second who is silent."""
    looks: list[float] = []
    core = crowd.core
    monkeypatch.setattr(core, "_give_up_silent_peers", looks.append)
    monkeypatch.setattr(core._unplaced, "tick", looks.append)
    for _ in range(1000):
        crowd.now += 0.002
        core.tick(crowd.now)
    assert 2 * 3 <= len(looks) <= 2 * 4
    assert core.deadline <= crowd.now + 0.5


def test_a_busy_machine_costs_no_look_at_all_others(one, monkeypatch):
    """While tasks wait for GPUs, a task that ends has its machine looked at, not hundreds."""
    for number in range(300):
        machine = b"S%d" % (number + 10)
        one.supervisor(machine, 1, ((m.GPU, 1),))
        one.core.receive(b"G%d" % number, [hello(m.WORKER, supervisor=machine)], one.now)
    options = m.TaskOptions(capabilities=((m.GPU, 1),))
    batch = m.Submit(0, function_id("f"), m.CALL_ARGS, options, payloads_of(0, 400), ())
    one.feed(b"C1", m.Function(function_id("f"), b"f", name="f"), batch)
    one.act()
    looks = []
    lack = Machines.lack

    def noting(self, queue, at):
        looks.append(at)
        return lack(self, queue, at)

    monkeypatch.setattr(Machines, "lack", noting)
    monkeypatch.setattr("scaler_cluster.testing.bench.invariants.check", lambda core: None)
    for number in range(20):
        worker = one.core.table.workers[b"G%d" % (10 * number)]
        one.done(worker.runs[0].first, peer=worker.peer)
        assert worker.count == 1
    assert len(looks) < 20 * 10


def test_machines_that_come_and_go_while_tasks_wait_are_not_kept_in_mind(one):
    """What is known of machines for a queue has as many as there are."""
    options = m.TaskOptions(capabilities=((m.GPU, 1),))
    for number in range(200):
        machine, worker = b"S%d" % (number + 10), b"G%d" % number
        one.supervisor(machine, 1, ((m.GPU, 1),))
        one.worker(worker, machine)
        one.submit(number, options=options)
        assert one.core.table.workers[worker].runs
        one.feed(machine, m.Goodbye(""))
    changes = one.core._pools.machine_changes
    assert len(changes.since(0)) < 200
    (known,) = one.core._machines._known.values()
    assert len(known._heap) < 200


class CountingDict(dict):
    """Counts what its users look at."""

    looks = 0

    def values(self):
        """Count all that is seen."""
        self.looks += len(self)
        return super().values()


def test_workers_that_come_wait_or_leave_cost_no_look_at_all_of_their_machine(crowd, monkeypatch):
    """A machine may have thousands of workers: what happens to one does not concern all."""
    monkeypatch.setattr("scaler_cluster.testing.bench.invariants.check", lambda core: None)
    supervisor = crowd.core.table.supervisors[b"S9"]
    supervisor.workers = workers = CountingDict(supervisor.workers)
    crowd.worker(b"V", b"S9")
    crowd.submit(0, options=m.TaskOptions(workers=("v7",)))
    crowd.feed(b"C7", hello(m.CLIENT, worker=b"V7"), m.Blocked(is_blocked=True))
    assert crowd.core.table.workers[b"V7"].blocked
    crowd.feed(b"C7", m.Blocked(is_blocked=False))
    crowd.died(0, worker=b"V7", supervisor=b"S9")
    assert b"V7" not in workers
    assert workers.looks == 0


def test_many_clients_that_wait_for_gpus_are_not_all_looked_at(one, monkeypatch):
    """A task that ends lets the next client have its GPU, without a look at all that wait."""
    one.supervisor(b"S9", 1, ((m.GPU, 1),))
    one.worker(b"G1", b"S9")
    options = m.TaskOptions(capabilities=((m.GPU, 1),))
    for number in range(300):
        client = b"X%d" % number
        one.core.receive(client, [hello(m.CLIENT)], one.now)
        one.core.receive(client, [m.Function(function_id("f"), b"f", name="f")], one.now)
        submit = m.Submit(0, function_id("f"), m.CALL_ARGS, options, payloads_of(0, 1), ())
        one.core.receive(client, [submit], one.now)
    one.act()
    looks = []
    first_of = ReadyQueue._first_of

    def noting(self, entries):
        looks.append(entries)
        return first_of(self, entries)

    monkeypatch.setattr(ReadyQueue, "_first_of", noting)
    monkeypatch.setattr("scaler_cluster.testing.bench.invariants.check", lambda core: None)
    worker = one.core.table.workers[b"G1"]
    for _ in range(10):
        one.done(0, peer=b"G1", session=worker.runs[0].session)
        assert worker.count == 1
    assert len(looks) < 10 * 60
