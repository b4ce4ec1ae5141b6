"""Objects between two machines: copied once to each, fetched by who is elsewhere, freed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import psutil
import pytest

from scaler_cluster.objects import remote_store
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_exec import Client, ScalerExecutor, StorageUnreachableError
from tests.runtime.helpers import (
    BOUND_S,
    cluster_process,
    free_port,
    wait_delivered,
    wait_gone,
    wait_until,
)
from tests.runtime.machines import Machine, can_make_machines, find_storage, wait_storage
from tests.runtime.shell import Shell

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_make_machines(), reason="making network namespaces needs root"),
]
MB = 1_000_000
KEYS = os.environ["SCALER_KEYS"]


@pytest.fixture
def machine():
    """Return another machine."""
    machine = Machine()
    yield machine
    machine.stop()


@pytest.fixture
def cluster(machine):
    """Return a cluster with one worker here and two on the other machine."""
    cluster = EmbeddedCluster(1, f"tcp://{machine.here}:0")
    machine.start_supervisor(cluster.address, 2)
    yield cluster
    cluster.stop()


@pytest.fixture
def executor(cluster):
    """Return an executor whose three workers are all there."""
    with ScalerExecutor(address=cluster.address) as executor:
        on_all_workers(executor, lambda: None)
        yield executor


def machine_id() -> str:
    """Return what tells machines apart."""
    return os.readlink("/proc/self/ns/net")


def meet(executor, function, *args):
    """Run a function on three workers at once; return the futures of where, and what it returned."""
    directory = os.path.join(os.environ["MEETING"], str(time.monotonic_ns()))
    os.mkdir(directory)
    return [executor.submit(_meet, directory, function, *args) for _ in range(3)]


def on_all_workers(executor, function, *args):
    """Run a function on three workers at once; return what it returned, by machine."""
    found: dict[str, list] = {}
    for future in meet(executor, function, *args):
        where, result = future.result(BOUND_S)
        found.setdefault(where, []).append(result)
    return found


def _meet(directory, function, *args):
    with open(os.path.join(directory, str(os.getpid())), "w"):
        pass
    while len(os.listdir(directory)) < 3:
        time.sleep(0.005)
    return machine_id(), function(*args)


@pytest.fixture(autouse=True)
def _meeting(tmp_path, monkeypatch):
    monkeypatch.setenv("MEETING", str(tmp_path))


def describe(value):
    return int(value.sum()), value.flags.writeable


def test_commands_on_two_machines(machine, tmp_path) -> None:
    """A scheduler and workers on two machines run tasks, and move data between them."""
    shell = Shell(tmp_path)
    try:
        port = free_port(3)
        scheduler = shell.start(f"scaler_scheduler tcp://*:{port}")
        cluster = machine.start(
            sys.executable,
            str(shell.script("scaler_cluster")),
            "-n",
            "1",
            f"tcp://{machine.here}:{port}",
            stdout=subprocess.DEVNULL,
        )
        with ScalerExecutor(address=f"tcp://127.0.0.1:{port}", keys=KEYS) as executor:
            assert executor.submit(machine_id).result(BOUND_S) != machine_id()
            assert executor.submit(describe, np.ones(MB)).result(BOUND_S) == (MB, False)
            assert int(executor.submit(np.ones, MB).result(BOUND_S).sum()) == MB
            before = executor.submit(os.getpid).result(BOUND_S)

        # The machine serves the next scheduler, too, with the same worker.
        scheduler.process.kill()
        scheduler.end()
        shell.start(f"scaler_scheduler tcp://*:{port}").wait_for("monitor address")
        with ScalerExecutor(address=f"tcp://127.0.0.1:{port}", keys=KEYS) as executor:
            assert executor.submit(os.getpid).result(BOUND_S) == before
            assert executor.submit(describe, np.ones(MB)).result(BOUND_S) == (MB, False)
            assert len(machine.segments()) == 1
        cluster.send_signal(signal.SIGTERM)
        assert cluster.wait(BOUND_S) == 0
    finally:
        shell.close()


def test_one_transfer_to_each_machine(executor, machine) -> None:
    """An object is sent to each machine once, however many workers and tasks are there."""
    value = np.ones(4 * MB)
    before = machine.nbytes_sent_to

    for _ in range(4):
        found = on_all_workers(executor, describe, value)
        assert sorted(map(len, found.values())) == [1, 2]
        assert all(one == (4 * MB, False) for results in found.values() for one in results)
    assert value.nbytes < machine.nbytes_sent_to - before < 1.2 * value.nbytes
    assert len(machine.segments()) == 1

    del value
    wait_until(lambda: not machine.segments(), "the copy was not freed")


def test_results_come_from_where_they_are(executor, machine) -> None:
    """A large result stays where it was made until it is asked for, and then is freed."""
    found = on_all_workers(executor, np.ones, MB)

    assert [int(value.sum()) for values in found.values() for value in values] == [MB] * 3
    wait_until(lambda: not machine.segments(), "the results were not freed")


def make_here(directory, number):
    """Return a large value and where it was made, once all three workers make one."""
    return np.full(MB, number, "u1"), _meet(directory, int)[0]


def first_byte(value, other):
    return int(value[0][0]), value[1], int(other[0][0]), other[1], machine_id()


def test_nodes_take_what_was_made_elsewhere(cluster, executor) -> None:
    """A node waits until large results that it needs have come from other machines."""
    directory = os.path.join(os.environ["MEETING"], "made")
    os.mkdir(directory)
    make = partial(make_here, directory)
    graph: dict = {("made", n): (make, n) for n in range(24)}
    pairs = [(n, (n + step) % 24) for step in (1, 7, 12) for n in range(24)]
    looks = {("look", *two): (first_byte, ("made", two[0]), ("made", two[1])) for two in pairs}
    with Client(cluster.address) as client:
        found = list(client.get(graph | looks, list(looks)).values())

    assert [(one[0], one[2]) for one in found] == pairs
    # So in the ring of all that was made some neighbours are on different machines: whoever looked
    # at both has fetched one of them.
    assert len({where for _, one, _, other, _ in found for where in (one, other)}) == 2


CLIENT = """
import sys
import numpy
from scaler_exec import ScalerExecutor

with ScalerExecutor(address=sys.argv[1]) as executor:
    value = numpy.ones(10**6)
    first = list(executor.map(numpy.add, [value] * 6, range(6)))
    futures = [executor.submit(numpy.add, value, n) for n in range(6)]
    for results in (first, [future.result() for future in futures]):
        print([int(result[5]) for result in results])
"""


def test_a_client_may_be_elsewhere(cluster, machine) -> None:
    """A client on another machine sends large arguments and fetches results by the network."""
    program = machine.start(sys.executable, "-c", CLIENT, cluster.address, stdout=subprocess.PIPE)

    assert program.communicate(timeout=2 * BOUND_S)[0] == b"[1, 2, 3, 4, 5, 6]\n" * 2


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_storage_may_die_during_a_transfer(executor, machine, where) -> None:
    """Another storage takes over, and goes on with a transfer where that was."""

    def find():
        return (
            find_storage(cluster_process("scheduler").pid) if where == "here" else machine.storage()
        )

    on_all_workers(executor, describe, np.ones(MB))
    storage = wait_storage(find)
    storage.send_signal(signal.SIGSTOP)
    value = np.ones(4 * MB)
    futures = meet(executor, describe, value)
    wait_delivered(executor)
    storage.send_signal(signal.SIGKILL)

    assert [future.result(BOUND_S)[1] for future in futures] == [(4 * MB, False)] * 3


def test_a_cut_cable_delays_a_transfer(executor, machine) -> None:
    """A transfer that was under way when the network failed goes on when it is back."""
    machine.cut()
    value = np.ones(4 * MB)
    futures = meet(executor, describe, value)
    wait_delivered(executor)
    machine.mend()

    assert [future.result(BOUND_S)[1] for future in futures] == [(4 * MB, False)] * 3


def test_a_silent_network_is_noticed(executor, machine) -> None:
    """Connections to a machine that does not answer are given up, so that new ones follow soon."""
    scheduler = psutil.Process(cluster_process("scheduler").pid)
    assert there(scheduler, machine)

    machine.mute()
    wait_until(lambda: not there(scheduler, machine), "the scheduler waits for an answer")
    machine.unmute()

    assert len(on_all_workers(executor, describe, np.ones(MB))) == 2


def there(process, machine) -> list:
    """Return the connections that a process has to a machine."""
    return [
        one
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_ESTABLISHED and one.raddr.ip == machine.there
    ]


def test_results_of_a_machine_that_is_gone(executor, machine, monkeypatch) -> None:
    """Results of a lost machine raise StorageUnreachable in time; the others are there."""
    monkeypatch.setattr(remote_store, "SILENCE_S", 1.0)
    futures = meet(executor, np.ones, MB)
    wait_until(lambda: all(future.done() for future in futures), "the tasks do not end")
    machine.cut()
    errors = [error for error in map(error_of, futures) if error is not None]

    assert len(errors) == 2
    assert all("has not answered" in str(error) for error in errors)


def error_of(future) -> StorageUnreachableError | None:
    """Return why a result cannot be had."""
    try:
        assert len(future.result(BOUND_S)[1]) == MB
    except StorageUnreachableError as error:
        return error
    return None


def test_a_cluster_removes_what_a_killed_one_has_left(cluster, executor, machine) -> None:
    """Shared memory of a machine is not lost when all that looked after it was killed."""
    on_all_workers(executor, describe, np.ones(MB))
    storage, (supervisor, *_) = wait_storage(machine.storage), machine._started
    left = directories(machine)
    assert len(left) == 2

    supervisor.send_signal(signal.SIGSTOP)
    storage.kill()
    supervisor.kill()
    wait_gone(storage.pid, supervisor.pid)
    assert directories(machine) == left
    machine.start_supervisor(cluster.address, 2)

    wait_until(lambda: not left & directories(machine), "the directories are still there")


def directories(machine) -> set[str]:
    """Return the directories of clusters on a machine, in memory and on disk."""
    places = [machine.root / place.lstrip("/") for place in machine.hidden]
    return {str(path) for place in places for path in place.glob("scaler-*")}
