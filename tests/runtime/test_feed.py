"""What a real cluster tells those who watch it."""

from __future__ import annotations

import functools
import os
import signal
import socket
import threading
import time
from operator import add

import numpy as np
import psutil
import pytest

from scaler_cluster.core.scheduler.events import BATCH_S
from scaler_cluster.errors import ConfigError
from scaler_cluster.links import feed_link
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.process.process_config import SchedulerOptions, SupervisorOptions
from scaler_cluster.wire import feed as f
from scaler_exec import Client, ScalerExecutor, WorkerDiedError
from scaler_monitoring.feed import Feed
from scaler_monitoring.model import Model
from tests.runtime.helpers import (
    BOUND_S,
    free_port,
    scheduling,
    wait_gone,
    wait_until,
    wait_workers,
)
from tests.runtime.tasks import hold, raise_this

QUICK_S = 0.05
"""Between snapshots, so that tests need not wait for them."""


class Viewer:
    """Somebody who watches."""

    def __init__(self, address: str) -> None:
        self.feed = Feed(address)
        self.model = Model()
        self.events: list[f.Event] = []

    def hear(self, timeout_s: float = BOUND_S) -> f.Snapshot | f.Events | f.Logs | f.Samples | None:
        """Take the next message in."""
        message = self.feed.next(timeout_s)
        if message is not None:
            self.model.apply(message, time.monotonic())
            if isinstance(message, f.Events):
                self.events += message.events
        return message

    def wait(self, condition, what: str) -> f.Snapshot:
        """Watch until a condition holds; return the last snapshot."""
        deadline = time.monotonic() + BOUND_S
        while not condition(self):
            assert self.hear(max(deadline - time.monotonic(), 0.0)) is not None, what
        assert self.model.snapshot is not None
        return self.model.snapshot

    def of(self, kind: type[f.Event]) -> list:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


def knows(check):
    """Return a condition on what the last snapshot says."""
    return lambda viewer: viewer.model.snapshot is not None and check(viewer.model.snapshot)


@pytest.fixture(scope="module")
def cluster():
    """Return a cluster of two workers."""
    made = EmbeddedCluster(2, scheduling=scheduling(feed_interval_s=QUICK_S))
    wait_workers(2)
    yield made
    made.stop()


@pytest.fixture
def executor(cluster):
    with ScalerExecutor(address=cluster.address) as made:
        yield made


@pytest.fixture
def watch():
    """Return what lets somebody watch a cluster."""
    viewers: list[Viewer] = []

    def begin(cluster) -> Viewer:
        viewers.append(Viewer(cluster.monitor_address))
        return viewers[-1]

    yield begin

    for viewer in viewers:
        viewer.feed.close()


def at(address: str) -> SchedulerOptions:
    """Return the options of a scheduler that monitors reach at an address."""
    return SchedulerOptions(monitor_address=address)


def totals(tasks: f.Tasks) -> tuple[int, int, int, int]:
    return tasks.submitted, tasks.done, tasks.failed, tasks.cancelled


# -- totals ------------------------------------------------------------------------------------


def test_a_scripted_run_is_told_as_it_was(flags, watch):
    """Done, failed and cancelled tasks are counted right for early and late watchers."""
    cluster = EmbeddedCluster(2)
    try:
        early = watch(cluster)
        assert isinstance(early.hear(), f.Snapshot)
        with ScalerExecutor(address=cluster.address) as executor:
            assert sum(executor.map(add, range(200), range(200))) == 199 * 200
            failing = [executor.submit(raise_this, "KeyError", n) for n in range(7)]
            blocking = [executor.submit(hold, flags.path(one), flags.path("go")) for one in "ab"]
            for one in "ab":
                flags.wait(one)
            queued = [executor.submit(add, n, n) for n in range(5)]
            assert all(future.cancel() for future in queued)
            flags.set("go")
            assert [type(one.exception(BOUND_S)) for one in failing] == [KeyError] * 7
            assert len({one.result(BOUND_S) for one in blocking}) == 2
        expected = 214, 202, 7, 5
        early.wait(knows(lambda now: totals(now.tasks) == expected), f"not {expected}")
        early.wait(lambda _: sum(one.count for one in early.of(f.Done)) >= 202, "not all events")
        late = watch(cluster)
        first = late.hear()
        assert isinstance(first, f.Snapshot)
        assert totals(first.tasks) == expected
    finally:
        cluster.stop()
    rows = {row.name: row for row in first.functions}
    assert (rows["add"].done, rows["add"].cancelled, rows["raise_this"].failed) == (200, 5, 7)
    assert sum(one.count for one in early.of(f.Done)) == 202
    assert [one.error for one in early.of(f.Failed)] == ["KeyError"] * 7
    assert all("KeyError" in one.traceback for one in early.of(f.Failed))
    assert sum(one.count for one in early.of(f.Cancelled)) == 5
    assert early.model.missed == 0


def test_functions_have_their_names(executor, cluster, watch):
    """Functions, methods, partials, classes and nodes of graphs have their names."""

    def inner(number):
        return number

    futures = [
        executor.submit(inner, 1),
        executor.submit(functools.partial(pow, 2), 3),
        executor.submit("x".join, ["a"]),
        executor.submit(complex, 1),
        executor.submit(lambda: None),
    ]
    with Client(cluster.address) as client:
        client.get({"a": (add, 1, 2), "b": (abs, "a")}, ["b"])
    for future in futures:
        future.result(BOUND_S)

    first = watch(cluster).hear()
    assert isinstance(first, f.Snapshot)
    here = "test_functions_have_their_names.<locals>."
    names = {row.name for row in first.functions if row.done}
    assert {f"{here}inner", "pow", "str.join", "complex", f"{here}<lambda>"} <= names
    # The nodes of a chain are one node, which has the name of the last.
    assert "abs" in names
    assert not any("add" in row.name for row in first.functions)


# -- nobody watches ----------------------------------------------------------------------------


def test_what_is_stored_has_makers(watch):
    """What a client stored and what its tasks returned is told apart, as long as it is there."""

    def made(now: f.Snapshot) -> dict[str, int]:
        return {one.function: one.nbytes // 1_000_000 for one in now.owners}

    # Its storage is started for this, and ends with it.
    cluster = EmbeddedCluster(1, scheduling=scheduling(feed_interval_s=QUICK_S))
    try:
        viewer = watch(cluster)
        with Client(cluster.address) as client:
            _held = client.send_object(np.ones(3_000_000, "u1")), client.submit(np.zeros, 2_000_000)
            viewer.wait(knows(lambda now: made(now) == {"": 3, "zeros": 16}), "nobody made it")
        viewer.wait(knows(lambda now: now.owners == []), "it is still told")
    finally:
        cluster.stop()


def test_nothing_is_sent_while_nobody_listens(executor, cluster, watch):
    """Without a listener no snapshot is made, and no machine is asked how it is."""
    viewer = watch(cluster)
    before = viewer.wait(knows(lambda now: now.received.get("Vitals", 0) > 3), "no vitals")
    viewer.feed.close()
    # Twenty snapshots would have been due.
    executor.submit(time.sleep, 20 * QUICK_S).result(BOUND_S)

    after = watch(cluster).hear()
    assert isinstance(after, f.Snapshot)
    assert after.seq - before.seq < 8
    assert after.received["Vitals"] - before.received["Vitals"] < 8


# -- machines and workers ----------------------------------------------------------------------


def spin(path: str) -> int:
    """Keep a CPU busy until a flag is set."""
    while not os.path.exists(path):
        sum(range(1000))
    return os.getpid()


def test_machines_and_workers_say_how_they_are(executor, cluster, flags, watch):
    """A snapshot has CPU and memory of machines and workers, and the age of running tasks."""
    future = executor.submit(spin, flags.path("end"))
    viewer = watch(cluster)

    def is_told(now: f.Snapshot) -> bool:
        busy = [row for row in now.workers if row.function == "spin" and (row.cpu or 0) > 0.1]
        return bool(busy) and busy[0].age_s > 0.2 and now.scheduler.cpu is not None

    snapshot = viewer.wait(knows(is_told), "the worker that spins is not told of")
    flags.set("end")
    pid = future.result(BOUND_S)
    (worker,) = [row for row in snapshot.workers if row.function == "spin"]
    (machine,) = snapshot.machines
    assert (worker.pid, worker.machine, worker.tasks) == (pid, machine.machine, 1)
    assert worker.rss_bytes == pytest.approx(psutil.Process(pid).memory_info().rss, rel=0.5)
    assert machine.cpus == os.cpu_count()
    assert 0 < machine.free_bytes < machine.memory_bytes
    assert machine.agent_rss_bytes > 1_000_000
    assert 0 <= machine.lag_s < 5
    assert snapshot.scheduler.rss_bytes > 1_000_000
    assert snapshot.scheduler.pid == cluster._children["scheduler"].pid


def test_a_killed_worker_is_reported(flags, watch):
    """A killed worker is reported with its diagnosis and task, and another one comes."""
    cluster = EmbeddedCluster(1, supervising=SupervisorOptions(memory_limit_bytes=4_000_000_000))
    try:
        viewer = watch(cluster)
        with ScalerExecutor(address=cluster.address) as executor:
            future = executor.submit(hold, flags.path("begun"), flags.path("never"))
            pid = flags.wait("begun")
            viewer.wait(knows(lambda now: any(row.pid == pid for row in now.workers)), "no worker")
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerDiedError):
                future.result(BOUND_S)
        viewer.wait(lambda _: viewer.of(f.Failed), "its death was not told")
        joined = viewer.wait(
            knows(lambda now: [row for row in now.workers if row.pid != pid]), "not replaced"
        )
        told = viewer.wait(
            knows(lambda now: any(row.restarts for row in now.machines)), "nothing was restarted"
        )
    finally:
        cluster.stop()
    (died,), (failed,) = viewer.of(f.WorkerDied), viewer.of(f.Failed)
    assert (died.pid, died.signal, died.function) == (pid, signal.SIGKILL, "hold")
    assert (failed.worker, failed.reason) == (died.worker, "worker_died")
    host = socket.gethostname()
    assert f"the worker process {pid} on {host} was killed by signal 9" in failed.message
    assert f"peak memory {died.peak_rss_bytes / 1e6:.0f} MB" in failed.message
    assert [row.worker != died.worker for row in joined.workers] == [True]
    assert [row.restarts for row in told.machines] == [1]
    assert [row.memory_limit_bytes for row in told.workers] == [4_000_000_000]
    assert failed.busy_s > 0
    assert died.worker not in {one.worker for one in viewer.of(f.WorkerJoined)[1:]}


# -- listeners ---------------------------------------------------------------------------------


def test_another_scheduler_at_the_same_address_is_heard(watch):
    """A listener hears the next scheduler at its address, and knows that it is another."""
    address = f"tcp://127.0.0.1:{free_port()}"
    first = EmbeddedCluster(0, scheduling=at(address))
    viewer = watch(first)
    viewer.wait(knows(lambda _: True), "the first is not heard")
    first.stop()
    second = EmbeddedCluster(0, scheduling=at(address))
    try:
        viewer.wait(lambda _: viewer.model.restarts == 1, "the second is not heard")
        assert viewer.model.snapshot.scheduler.pid == second._children["scheduler"].pid
    finally:
        second.stop()


def test_an_address_in_use_is_an_error():
    """The error of a monitor address in use names it and a remedy, and nothing is left."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"{address}.*name another"):
            EmbeddedCluster(0, scheduling=at(address))


def test_a_listener_that_never_reads_costs_nothing(executor, cluster, watch):
    """What a listener does not read is dropped, and the others get everything."""
    idle = Feed(cluster.monitor_address)
    viewer = watch(cluster)
    try:
        first = viewer.wait(knows(lambda _: True), "nothing comes")
        scheduler = psutil.Process(first.scheduler.pid)
        before = scheduler.memory_info().rss
        for _ in range(3):
            list(executor.map(add, range(20_000), range(20_000)))
        seq = viewer.model.snapshot.seq
        viewer.wait(knows(lambda now: now.seq > seq + 5), "nothing comes any more")
        assert viewer.model.missed == 0
        assert scheduler.memory_info().rss - before < 20_000_000
    finally:
        idle.close()


def test_garbage_does_not_disturb():
    """Bytes that are no ZeroMQ, and odd subscriptions, do not disturb the monitor."""
    cluster = EmbeddedCluster(1, scheduling=at("tcp://127.0.0.1:0"))
    host, port = cluster.monitor_address.removeprefix("tcp://").split(":")
    stranger = feed_link.subscribe(cluster.monitor_address, [b"x" * 200, b"", b"snap"], 1 << 20)
    viewer = Viewer(cluster.monitor_address)
    try:
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(os.urandom(5000))
        with ScalerExecutor(address=cluster.address) as executor:
            assert executor.submit(add, 1, 2).result(BOUND_S) == 3
        viewer.wait(knows(lambda now: now.tasks.done == 1), "it does not come through")
    finally:
        stranger.close()
        viewer.feed.close()
        cluster.stop()


def test_many_listeners_come_and_go(cluster):
    """Each of many listeners gets its snapshot at once."""
    heard: list[bool] = []

    def listen() -> None:
        for _ in range(5):
            with Feed(cluster.monitor_address) as feed:
                heard.append(isinstance(feed.next(BOUND_S), f.Snapshot))

    threads = [threading.Thread(target=listen) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert heard == [True] * 20


def test_who_watches_does_not_disturb_the_end(capfd):
    """A client ends a cluster that is being watched, and no process complains."""
    cluster = EmbeddedCluster(1, scheduling=scheduling(feed_interval_s=0.01, protected=False))
    try:
        with Feed(cluster.monitor_address) as feed, Client(cluster.address) as client:
            assert isinstance(feed.next(BOUND_S), f.Snapshot)
            pid = client.submit(os.getpid).result(BOUND_S)
            # The other cluster of this module has one of its own.
            supervisor = psutil.Process(cluster._children["supervisor"].pid)
            supervisor.suspend()
            client.shutdown()
            ended_at = time.monotonic()
            # Longer than events wait for others: they are due when the machine answers at last.
            wait_until(lambda: time.monotonic() > ended_at + 5 * BATCH_S, "time stands still")
            supervisor.resume()
            wait_gone(pid)
    finally:
        cluster.stop()
    assert capfd.readouterr().err == ""
