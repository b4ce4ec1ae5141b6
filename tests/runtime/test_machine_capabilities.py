"""What the workers of a machine share: amounts, GPUs that tasks are told, and several cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.errors import (
    ConfigError,
    NoSuitableWorkerError,
    TaskTimeoutError,
    WorkerDiedError,
)
from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_cluster.process.gpus import CONTAINERS, CUDA, HIP, ROCR, gpu_variables
from scaler_cluster.process.process_config import SupervisorOptions
from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo, gpu_ids
from tests.runtime.helpers import BOUND_S, scheduling, wait_until

GPU = {"gpu": 1}


@pytest.fixture(scope="module")
def address(standing):
    """Return the address of a cluster of four workers that share the GPUs 4 and 6."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (HIP, ROCR, CONTAINERS, "OMP_NUM_THREADS"):
            patch.delenv(name, raising=False)
        patch.setenv(CUDA, "4,6")
        with SchedulerClusterCombo(4, machine_capabilities="gpu=2,linux") as cluster:
            with Client(cluster.get_address()) as client:
                client.submit_verbose(os.getpid, (), {}, cores=-1).result(BOUND_S)
            standing |= {child.pid for child in psutil.Process().children()}
            yield cluster.get_address()


@pytest.fixture
def client(address):
    """Return a client of that cluster."""
    with Client(address) as client:
        yield client


def use(started: str, release: str) -> tuple[tuple[str, ...], str, str]:
    """Use GPUs until told to let go; nobody else may use them meanwhile."""
    mine = gpu_ids()
    for one in mine:
        with open(f"{started}.{one}", "x"):
            pass
    wait_until(lambda: os.path.exists(release), "never told")
    for one in mine:
        os.remove(f"{started}.{one}")
    return mine, os.environ[CUDA], os.environ[HIP]


def pid_of(*_: object) -> int:
    """Return the process that runs this."""
    return os.getpid()


def in_use(flags) -> int:
    """Return how many GPUs are in use."""
    return sum(os.path.exists(flags.path(f"gpu.{one}")) for one in "46")


# -- GPUs ----------------------------------------------------------------------------------------


def test_as_many_run_as_there_are_gpus_and_each_has_its_own(client, flags) -> None:
    """Of six tasks, two run at once, each with a GPU of its own; other tasks go on beside them."""
    paths = flags.path("gpu"), flags.path("go")
    futures = [client.submit_verbose(use, paths, {}, GPU) for _ in range(6)]
    wait_until(lambda: in_use(flags) == 2, "never began")
    assert client.map(pid_of, range(20))
    flags.set("go")
    found = {future.result(BOUND_S) for future in futures}

    assert found == {(("4",), "4", "4"), (("6",), "6", "6")}


def test_a_worker_keeps_its_gpu(client, tmp_path) -> None:
    """A process that was told one GPU is never told another one: libraries cannot change it."""
    seen: dict[int, set[tuple[str, ...]]] = {}
    for number, count in enumerate((1, 2, 1, 2, 1)):
        place = tmp_path / str(number)
        place.mkdir()
        # As many at once as there are GPUs for.
        arguments, demanded = (str(place), 2 // count), {"gpu": count, "linux": -1}
        futures = [client.submit_verbose(with_others, arguments, {}, demanded) for _ in range(4)]
        for pid, gpus in (future.result(BOUND_S) for future in futures):
            seen.setdefault(pid, set()).add(gpus)

    assert {len(gpus) for gpus in seen.values()} == {1}
    assert set().union(*seen.values()) == {("4",), ("6",), ("4", "6")}


def pid_and_gpus() -> tuple[int, tuple[str, ...]]:
    """Return this process, and the GPUs of this task."""
    return os.getpid(), gpu_ids()


def with_others(place: str, count: int) -> tuple[int, tuple[str, ...]]:
    """Do so once so many tasks have begun."""
    Path(place, str(uuid4())).touch()
    while len(list(Path(place).iterdir())) < count:
        time.sleep(0.001)
    return pid_and_gpus()


def around() -> tuple[tuple[str, ...], str | None, str | None]:
    """Return what a task without a GPU finds."""
    return gpu_ids(), os.environ.get(CUDA), os.environ.get(HIP)


def test_other_tasks_find_what_was_there_before(client) -> None:
    """A task that demands no GPU finds the environment of its machine, also after one that did."""
    assert client.map(pid_of, range(8), capabilities=GPU)
    assert {client.submit(around).result(BOUND_S) for _ in range(8)} == {((), "4,6", None)}


def in_child() -> str | None:
    """Return what a process finds that a task starts."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(os.getenv, (CUDA,))


def test_processes_of_a_task_have_its_gpus(client) -> None:
    """A process that a task starts finds the task's GPUs."""
    assert client.submit_verbose(in_child, (), {}, GPU).result(BOUND_S) in {"4", "6"}


def meet(place: str, count: int) -> None:
    """Wait until so many tasks have come to a place."""
    Path(place, uuid4().hex).touch()
    while len(os.listdir(place)) < count:
        time.sleep(0.01)


def on_stack(client: Client, before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Run a task with a GPU inside of one that has it, while another task has the other GPU."""
    meet(before, 2)
    inner = client.submit_verbose(gpu_ids, (), {}, GPU).result()
    meet(after, 2)
    return gpu_ids(), inner


def test_what_a_task_with_a_gpu_submits_may_use_it(client, tmp_path_factory) -> None:
    """While all GPUs are held by tasks that wait, what these wait for runs on their stacks."""
    places = [str(tmp_path_factory.mktemp(name)) for name in ("before", "after")]
    futures = [client.submit_verbose(on_stack, (client, *places), {}, GPU) for _ in range(2)]

    for outer, inner in (future.result(BOUND_S) for future in futures):
        assert outer == inner != ()


def die() -> None:
    """End the worker."""
    os._exit(1)


def test_every_end_of_a_task_gives_its_gpus_back(client, address, flags) -> None:
    """Deaths, errors, timeouts and cancelled tasks give GPUs back."""
    for _ in range(3):
        with pytest.raises(WorkerDiedError):
            client.submit_verbose(die, (), {}, {"gpu": 2}).result(BOUND_S)
        with pytest.raises(ZeroDivisionError):
            client.submit_verbose(divmod, (1, 0), {}, {"gpu": 2}).result(BOUND_S)
    with ScalerExecutor(address=address) as executor:
        brief = executor.options(timeout=0.05, capabilities={"gpu": 2})
        with pytest.raises(TaskTimeoutError):
            brief.submit(time.sleep, BOUND_S).result(BOUND_S)
    future = client.submit_verbose(use, (flags.path("gpu"), flags.path("go")), {}, {"gpu": 2})
    wait_until(lambda: in_use(flags) == 2, "never began")
    assert future.cancel()

    assert client.submit_verbose(gpu_ids, (), {}, {"gpu": 2}).result(BOUND_S) == ("4", "6")


def test_graphs_have_gpus_too(client) -> None:
    """Nodes of a graph are told their GPUs, one after the other if need be."""
    graph = {f"n{n}": (pid_and_gpus,) for n in range(6)}
    found = client.get(graph, list(graph), capabilities=GPU)

    assert {gpus for _, gpus in found.values()} <= {("4",), ("6",)}


@pytest.mark.parametrize(
    ("environment", "devices", "found"),
    [
        ({}, [1, 3], {CUDA: "1,3", HIP: "1,3", CONTAINERS: "1,3"}),
        ({CUDA: "GPU-a, GPU-b"}, [1], {CUDA: "GPU-b", HIP: "GPU-b", CONTAINERS: "GPU-b"}),
        ({HIP: "5,7"}, [1], {CUDA: "1", HIP: "7", CONTAINERS: "1"}),
        ({ROCR: "2,3"}, [1], {CUDA: "1", HIP: "1", CONTAINERS: "1"}),
        ({ROCR: "2,3", CUDA: "2,3"}, [1], {CUDA: "3", HIP: "1", CONTAINERS: "3"}),
    ],
)
def test_variables_name_gpus_as_the_machine_does(environment, devices, found) -> None:
    """Each library finds the task's GPUs by the names that the machine's environment has."""
    assert gpu_variables(environment, devices) == found


@pytest.mark.parametrize("listed", ["4", "4,-1,6", ""])
def test_more_gpus_than_the_environment_names_are_refused(monkeypatch, listed) -> None:
    """A machine that offers more GPUs than its environment names does not start."""
    monkeypatch.setenv(CUDA, listed)
    with pytest.raises(ConfigError, match="has gpu=2, but CUDA_VISIBLE_DEVICES is"):
        SchedulerClusterCombo(1, machine_capabilities={"gpu": 2})


@pytest.mark.parametrize(
    ("shared", "message"),
    [
        ({"gpu": 1.5}, "a whole number of GPUs"),
        ({"gpu": 5000}, "a whole number of GPUs, 1024 at most, not gpu=5000"),
        ({"gpu": -1}, "a whole number of GPUs"),
        ({"memory": 1}, "'memory' is in per_worker_capabilities and in machine_capabilities"),
        ({"memory": -2}, "machine_capabilities must be 0 or more"),
    ],
)
def test_what_a_machine_cannot_offer_is_refused(shared, message) -> None:
    """Each wrong offer has an error that says what to give."""
    with pytest.raises(ConfigError, match=message):
        SchedulerClusterCombo(1, per_worker_capabilities={"memory": 2}, machine_capabilities=shared)


def test_what_is_never_used_up_belongs_to_each_worker() -> None:
    """A name without a number, of a machine, is the same as one of each of its workers."""
    settings = ClusterSettings.of(
        scheduler_address="tcp://127.0.0.1:1", machine_capabilities="linux,memory=3",
        per_worker_capabilities="fast",
    )  # fmt: skip
    options = SupervisorOptions.from_settings(settings)

    assert options.capabilities == (("fast", -1), ("linux", -1))
    assert options.shared == (("memory", 3),)
    assert settings.offered == (("fast", -1), ("linux", -1), ("memory", 3))


# -- cores ---------------------------------------------------------------------------------------


def threads() -> tuple[str | None, str | None]:
    """Return how many threads libraries are told to start."""
    return os.environ.get("OMP_NUM_THREADS"), os.environ.get("POLARS_MAX_THREADS")


def test_libraries_may_start_a_thread_for_each_core(client) -> None:
    """A task with several cores finds their number in the variables of numeric libraries."""
    assert client.submit_verbose(threads, (), {}, cores=3).result(BOUND_S) == ("3", "3")
    assert client.submit_verbose(threads, (), {}, cores=-1).result(BOUND_S) == ("4", "4")
    assert {client.submit(threads).result(BOUND_S) for _ in range(8)} == {("1", "1")}


def alone(folder: str, started: str) -> int:
    """Return how many others run while this does; others note that they run."""
    with open(started, "x"):
        pass
    time.sleep(0.05)
    return len(os.listdir(folder))


def beside(folder: str, number: int) -> None:
    """Run for a moment, and be seen."""
    path = os.path.join(folder, str(number))
    with open(path, "x"):
        pass
    time.sleep(0.005)
    os.remove(path)


def test_a_whole_machine_is_alone_behind_a_stream_of_others(client, tmp_path) -> None:
    """A task that needs the whole machine runs soon, and alone, while others are waiting."""
    folder = tmp_path / "running"
    folder.mkdir()
    others = [client.submit(beside, str(folder), number) for number in range(300)]
    whole = client.submit_verbose(alone, (str(folder), str(tmp_path / "began")), {}, cores=-1)

    assert whole.result(BOUND_S) == 0
    for future in others:
        future.result(BOUND_S)


def test_an_executor_has_cores_among_its_options() -> None:
    """A view of an executor may need several cores for each task; all tasks come back."""
    with ScalerExecutor(3) as executor:
        wide = executor.options(cores=2)
        assert list(wide.map(abs, range(-20, 0))) == list(range(20, 0, -1))
        assert executor.options(cores=-1).submit(threads).result(BOUND_S)[0] is not None


def test_an_executor_may_have_gpus(monkeypatch) -> None:
    """An executor's own workers share GPUs, and it says so where that cannot be."""
    for name in (CUDA, HIP, ROCR):
        monkeypatch.delenv(name, raising=False)
    with ScalerExecutor(2, machine_capabilities={"gpu": 1}) as executor:
        on_gpu = executor.options(capabilities=GPU)
        assert set(on_gpu.map(of_item, range(10))) == {("0",)}
        with pytest.raises(ConfigError, match="machine_capabilities"):
            ScalerExecutor(address=executor.address, machine_capabilities={"gpu": 1})
    with pytest.raises(ConfigError, match="a whole number of GPUs"):
        ScalerExecutor(2, machine_capabilities={"gpu": 0.5})
    with pytest.raises(TypeError, match="machine_capabilities must be"):
        ScalerExecutor(2, machine_capabilities=[])  # type: ignore[arg-type]


def of_item(_: int) -> tuple[str, ...]:
    """Return the GPUs of this task."""
    return gpu_ids()


def wide_inside(client: Client, levels: int) -> int:
    """Submit tasks that need the whole machine, from tasks that do."""
    if not levels:
        return 1
    futures = [
        client.submit_verbose(wide_inside, (client, levels - 1), {}, cores=cores)
        for cores in (-1, 4, 1)
    ]
    return sum(future.result() for future in futures)


def test_tasks_with_cores_submit_such_tasks(client) -> None:
    """Tasks that wait need no cores, so what they submit runs, however many cores that needs."""
    futures = [
        client.submit_verbose(wide_inside, (client, 2), {}, cores=cores) for cores in (1, 4, -1)
    ]
    assert [future.result(BOUND_S) for future in futures] == [9, 9, 9]


def test_more_cores_than_any_machine_has_are_told() -> None:
    """A task that needs more than any machine has fails after the time that is set."""
    cluster = EmbeddedCluster(2, scheduling=scheduling(unplaced_timeout_s=0.0))
    try:
        with Client(cluster.address) as client:
            with pytest.raises(NoSuitableWorkerError, match="3 cores of one machine"):
                client.submit_verbose(pid_of, (), {}, cores=3).result(BOUND_S)
            assert client.submit_verbose(pid_of, (), {}, cores=2).result(BOUND_S)
    finally:
        cluster.stop()


@pytest.mark.parametrize(("cores", "error"), [(0, ValueError), (-2, ValueError), ("4", TypeError)])
def test_what_is_no_number_of_cores(client, cores, error) -> None:
    """A number of cores is 1 or more, or -1."""
    with pytest.raises(error, match="cores must be"):
        client.submit_verbose(pid_of, (), {}, cores=cores)
