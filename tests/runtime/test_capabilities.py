"""Tasks that demand what only some workers offer."""

from __future__ import annotations

import os

import psutil
import pytest

from scaler_cluster.errors import NoSuitableWorkerError
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, scheduling, wait_until, wait_workers
from tests.runtime.machines import workers_of

GPU = {"gpu": 1}


@pytest.fixture(scope="module")
def address(standing):
    """Return the address of a cluster: two workers without anything, one with a GPU."""
    with SchedulerClusterCombo(2) as cluster:
        has = (("gpu", 1), ("linux", -1))
        gpu = workers_of(cluster.get_address(), 1, capabilities=has, worker_names=("G",))
        with gpu, Client(cluster.get_address()) as client:
            wait_workers(3, supervisors=2)
            client.submit_verbose(os.getpid, (), {}, capabilities=GPU).result(BOUND_S)
            # A worker that took the place of a waiting one stays for a while.
            standing |= {child.pid for child in psutil.Process().children()}
            yield cluster.get_address()


@pytest.fixture
def client(address):
    """Return a client of that cluster."""
    with Client(address) as client:
        yield client


@pytest.fixture
def gpu(client) -> int:
    """Return the process id of the worker that has the GPU."""
    return client.submit_verbose(os.getpid, (), {}, capabilities=GPU).result(BOUND_S)


def pid_of(*_: object) -> int:
    """Return the process that runs this."""
    return os.getpid()


# -- where tasks run -----------------------------------------------------------------------------


def test_every_way_to_ask_takes_a_demand(client, gpu) -> None:
    """Single tasks, maps and graphs take capabilities."""
    assert client.map(pid_of, range(20), capabilities=GPU) == [gpu] * 20
    assert client.starmap(pid_of, [(n,) for n in range(20)], capabilities=GPU) == [gpu] * 20
    graph = {"a": (pid_of,), "b": (pid_of, "a")}
    assert client.get(graph, ["a", "b"], capabilities=GPU) == {"a": gpu, "b": gpu}


def test_an_executor_has_them_among_its_options(address, gpu) -> None:
    """Each view of an executor has capabilities of its own."""
    with ScalerExecutor(address=address) as executor:
        on_gpu = executor.options(capabilities={"linux": -1})
        assert set(on_gpu.map(pid_of, range(20))) == {gpu}
        assert set(executor.map(pid_of, range(200))) - {gpu}


def hold_gpu(started: str, release: str) -> int:
    """Use the GPU until told to let go."""
    with open(started, "x"):
        pass
    wait_until(lambda: os.path.exists(release), "never told")
    os.remove(started)
    return os.getpid()


def test_an_amount_is_never_exceeded(client, flags) -> None:
    """Two tasks that use the one GPU run one after the other: the second would find the flag."""
    flags.set("go")
    paths = flags.path("in use"), flags.path("go")
    futures = [client.submit_verbose(hold_gpu, paths, {}, capabilities=GPU) for _ in range(4)]

    assert len({future.result(BOUND_S) for future in futures}) == 1


def test_what_is_offered_without_an_amount_is_never_used_up() -> None:
    """A capability without an amount is never used up."""
    combo = SchedulerClusterCombo(1, per_worker_capabilities={"linux": -1})
    with combo as cluster, Client(cluster.get_address()) as client:
        assert client.submit_verbose(pid_of, (), {}, {"linux": 5}).result(BOUND_S)


# -- inside of tasks -----------------------------------------------------------------------------


def ask_for_gpu(client: Client) -> tuple[int, int]:
    """Run a task where there is a GPU, and wait for it."""
    return os.getpid(), client.submit_verbose(pid_of, (), {}, GPU).result()


def test_a_task_that_waits_runs_only_what_it_has_the_means_for(client, gpu) -> None:
    """A waiting task runs on its stack only what its own worker has the capabilities for."""
    for _ in range(5):
        assert client.submit(ask_for_gpu, client).result(BOUND_S)[1] == gpu
    assert client.submit_verbose(ask_for_gpu, (client,), {}, GPU).result(BOUND_S) == (gpu, gpu)


# -- what nobody can run -------------------------------------------------------------------------


def test_what_nobody_can_run_waits_and_is_told(client, address, caplog) -> None:
    """A task that no worker can run waits, and is told of, until such a worker comes."""
    future = client.submit_verbose(pid_of, (), {}, {"quantum computer": 1})
    wait_until(lambda: "quantum computer=1" in caplog.text, "nobody was told")
    assert not future.done()
    assert client.submit(pid_of).result(BOUND_S)

    with workers_of(address, 1, capabilities=(("quantum computer", 2),)):
        assert future.result(BOUND_S)


def test_it_fails_after_a_time_if_that_is_set() -> None:
    """A task that no worker can run fails after the time that is set, and says what it lacked."""
    cluster = EmbeddedCluster(1, scheduling=scheduling(unplaced_timeout_s=0.0))
    try:
        with Client(cluster.address) as client:
            with pytest.raises(NoSuitableWorkerError, match="gpu=1"):
                client.submit_verbose(pid_of, (), {}, GPU).result(BOUND_S)
            with pytest.raises(NoSuitableWorkerError, match="gpu=1"):
                client.get({"a": (pid_of,), "b": (pid_of, "a")}, ["b"], capabilities=GPU)
            assert client.submit(pid_of).result(BOUND_S)
    finally:
        cluster.stop()


# -- Dask ----------------------------------------------------------------------------------------


def test_annotations_of_dask_are_those_of_its_tasks(client, gpu) -> None:
    """Each task of Dask has its own ``resources``, ``workers`` and ``priority``."""
    dask = pytest.importorskip("dask")
    with dask.annotate(resources={"gpu": 1}):
        on_gpu = dask.delayed(pid_of, pure=False)(0)
    with dask.annotate(workers=["G"], priority=5):
        named = dask.delayed(pid_of, pure=False)(1)
    with dask.annotate(workers="nobody", allow_other_workers=True, retries=1):
        anywhere = dask.delayed(pid_of, pure=False)(2)

    found = dask.compute(on_gpu, named, anywhere, scheduler=client.dask_get)
    assert found[:2] == (gpu, gpu)
    everywhere = dask.delayed(pid_of, pure=False)(3)
    assert dask.compute(everywhere, scheduler=client, resources={"gpu": 1}) == (gpu,)
    assert dask.compute(everywhere, scheduler=client, workers=["G"]) == (gpu,)
    assert dask.persist(on_gpu, scheduler=client)[0].compute(scheduler=client) == gpu
