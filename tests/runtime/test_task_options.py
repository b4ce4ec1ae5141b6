"""The same options everywhere: views of clients, keywords, decorated functions, whole clusters."""

from __future__ import annotations

import os
import pickle
import time

import psutil
import pytest

from scaler_exec import (
    Client,
    ConfigError,
    ScalerExecutor,
    SchedulerClusterCombo,
    TaskTimeoutError,
    WorkerDiedError,
    task,
)
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S


@pytest.fixture(scope="module")
def workers(standing):
    """A cluster of two workers for all tests of this module."""
    with SchedulerClusterCombo(2) as cluster:
        standing |= {child.pid for child in psutil.Process().children()}
        yield cluster


@pytest.fixture
def client(workers):
    """A client of that cluster."""
    with Client(workers) as made:
        yield made


def fail_first(path: str, times: int) -> int:
    """Raise at the first calls; return how many calls there were."""
    with open(path, "a") as file:
        file.write("x")
    calls = os.path.getsize(path)
    if calls <= times:
        raise LookupError(calls)
    return calls


@task(retries=2)
def patient(path: str, times: int) -> int:
    """The same, with options of its own."""
    return fail_first(path, times)


@task(timeout=0.2)
def endless(_: object = None) -> None:
    """Go on for ever, if it may."""
    time.sleep(1000)


def test_every_door_takes_retries(client, tmp_path) -> None:
    """Views, keywords of submit_verbose, map, starmap and get retry what fails."""
    paths = [str(tmp_path / str(n)) for n in range(6)]
    view = client.options(retries=1)
    found = [
        view.submit(fail_first, paths[0], 1).result(BOUND_S),
        *view.map(fail_first, [paths[1]], [1]),
        client.submit_verbose(fail_first, (paths[2], 1), {}, retries=1).result(BOUND_S),
        *client.map(fail_first, [paths[3]], [1], retries=1),
        *client.starmap(fail_first, [(paths[4], 1)], retries=1),
        client.get({"p": paths[5], "a": (fail_first, "p", 1)}, ["a"], retries=1)["a"],
    ]

    assert found == [2] * 6


def test_a_marked_function_brings_its_options(client, workers, tmp_path) -> None:
    """A decorated function is retried wherever it is submitted; a call of it here is a call."""
    paths = [str(tmp_path / str(n)) for n in range(5)]
    with ScalerExecutor(address=workers.get_address()) as executor:
        found = [
            executor.submit(patient, paths[0], 2).result(BOUND_S),
            *executor.map(patient, [paths[1]], [2]),
            client.submit(patient, paths[2], 2).result(BOUND_S),
            *client.map(patient, [paths[3]], [2]),
            client.get({"p": paths[4], "a": (patient, "p", 2)}, ["a"])["a"],
        ]

    assert found == [3] * 5
    with pytest.raises(LookupError):
        patient(str(tmp_path / "here"), 1)
    assert pickle.loads(pickle.dumps(patient)) is patient


def test_what_is_said_at_the_door_counts_more(client, tmp_path) -> None:
    """Options of a view come before those of the function; what is not said stays."""
    view = client.options(retries=0)
    with pytest.raises(LookupError):
        view.submit(patient, str(tmp_path / "a"), 1).result(BOUND_S)
    view = client.options(retries=1).options(priority=3)
    assert view.submit(fail_first, str(tmp_path / "b"), 1).result(BOUND_S) == 2
    assert type(client.submit(endless).exception(BOUND_S)) is TaskTimeoutError


def test_a_marked_cache_is_used(workers, tmp_path) -> None:
    """A function's own cache comes before a client's, with or without one; a view's before both."""
    marked = tmp_path / "marked"

    @task(cache=marked)
    def kept(x: int) -> int:
        return -x

    address = workers.get_address()
    for number, default in enumerate((None, tmp_path / "default")):
        with (
            Client(workers, cache=default) as client,
            ScalerExecutor(address=address, cache=default) as executor,
        ):
            assert client.submit(kept, 4 * number).result(BOUND_S) == -4 * number
            assert executor.submit(kept, 4 * number + 1).result(BOUND_S) == -4 * number - 1
            assert list(executor.map(kept, [4 * number + 2])) == [-4 * number - 2]
            copy = pickle.loads(pickle.dumps(client))
            assert (copy.cache, executor.cache) == (client.cache, client.cache)
            copy.disconnect()
            client.options(cache=None).submit(kept, 4 * number + 3).result(BOUND_S)
            assert len(list(marked.glob("*/*.result"))) == 3 * (number + 1)
    assert not list((tmp_path / "default").glob("*/*.result"))
    with Client(workers, cache=tmp_path / "default") as client:
        client.options(cache=tmp_path / "view").submit(kept, 1).result(BOUND_S)
        client.submit(abs, -1).result(BOUND_S)
    for name in ("view", "default"):
        assert len(list((tmp_path / name).glob("*/*.result"))) == 1


def test_a_view_is_the_same_client(workers, tmp_path) -> None:
    """A view outlives the client that it was made of, and takes its options along when pickled."""
    client = Client(workers)
    view = client.options(retries=1)
    assert view.identity == client.identity
    del client
    assert view.submit(abs, -1).result(BOUND_S) == 1
    copy = pickle.loads(pickle.dumps(view))
    assert copy.submit(fail_first, str(tmp_path / "a"), 1).result(BOUND_S) == 2
    copy.disconnect()
    view.disconnect()


def test_futures_are_items_of_maps(client, workers) -> None:
    """Futures among the items of a map are replaced by their results, as in submit."""
    futures = [client.submit(abs, -n) for n in range(20)]
    with ScalerExecutor(address=workers.get_address()) as executor:
        own = [executor.submit(abs, -n) for n in range(20)]

        assert list(executor.map(tasks.square, own)) == [n * n for n in range(20)]
        assert list(executor.map(tasks.square, own, chunksize=7)) == [n * n for n in range(20)]
    assert client.map(tasks.square, futures) == [n * n for n in range(20)]


@pytest.mark.parametrize(
    ("named", "kind", "said"),
    [
        ({"retries": -1}, ConfigError, "retries must be 0 or more"),
        ({"priority": 1.5}, TypeError, "priority must be an integer"),
        ({"timeout": 0}, ConfigError, "timeout must be greater than 0"),
        ({"at_most_once": 1}, TypeError, "at_most_once"),
        ({"retries": 1, "at_most_once": True}, ConfigError, "retries must be 0 where"),
        ({"retry": 1}, TypeError, "there is no option 'retry': there are priority, timeout"),
    ],
)
def test_bad_options_are_refused_everywhere(client, named, kind, said) -> None:
    """Each door says in one sentence what is wrong."""
    doors = (
        lambda: client.options(**named),
        lambda: client.submit_verbose(abs, (1,), {}, **named),
        lambda: client.map(abs, [1], **named),
        lambda: client.starmap(abs, [(1,)], **named),
        lambda: client.get({"a": (abs, 1)}, ["a"], **named),
        lambda: task(**named),
    )
    for door in doors:
        with pytest.raises(kind, match=said):
            door()


def test_a_mark_needs_a_function_that_takes_it(client, tmp_path) -> None:
    """What takes no attributes cannot be marked; contradictions show where they meet."""
    with pytest.raises(TypeError, match=r"task\(\) needs a function of Python"):
        task(retries=1)(len)
    with pytest.raises(TypeError, match="fn must be a function"):
        task(retries=1)(3)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="retries must be 0 where at_most_once"):
        client.options(at_most_once=True).submit(patient, str(tmp_path / "a"), 0)


def prepare(name: str, text: str) -> None:
    os.environ[name] = text


def prepared_as() -> str | None:
    return os.environ.get("PREPARED")


def test_clusters_have_what_executors_have() -> None:
    """A combo replaces workers after so many tasks, and calls an initializer in each."""
    with (
        SchedulerClusterCombo(
            1, max_tasks_per_child=2, initializer=prepare, initargs=["PREPARED", "yes"]
        ) as cluster,
        Client(cluster) as client,
    ):
        pids = [client.submit(os.getpid).result(BOUND_S) for _ in range(6)]
        text = client.submit(prepared_as).result(BOUND_S)

    assert len(set(pids)) == 3
    assert text == "yes"


def hoard() -> int:
    """Take ever more memory, until somebody ends that."""
    taken: list[bytes] = []
    while len(taken) < 400:
        taken.append(b"x" * 10_000_000)
        time.sleep(0.02)
    return len(taken)


def test_a_cluster_has_a_memory_limit() -> None:
    """A worker beyond the limit is killed, and its task is told so."""
    with SchedulerClusterCombo(1, memory_limit="200MB") as cluster, Client(cluster) as client:
        error = client.submit(hoard).exception(BOUND_S)
        assert client.submit(abs, -1).result(BOUND_S) == 1

    assert type(error) is WorkerDiedError
    assert "200" in str(error)


@pytest.mark.parametrize(
    ("named", "kind", "said"),
    [
        ({"memory_limit": "1MB"}, ConfigError, "memory_limit must be 32 MiB or more"),
        ({"max_tasks_per_child": -1}, ConfigError, "max_tasks_per_child must be"),
        ({"initializer": 3}, TypeError, "initializer must be a callable"),
        ({"initargs": 3}, TypeError, "initargs must be a tuple"),
    ],
)
def test_bad_settings_of_clusters_are_refused(named, kind, said) -> None:
    """Each is refused before anything is started."""
    with pytest.raises(kind, match=said):
        SchedulerClusterCombo(1, **named)
