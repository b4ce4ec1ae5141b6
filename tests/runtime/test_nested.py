"""Tasks that submit tasks, on real processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pickle
import random
import signal
from concurrent.futures import CancelledError
from typing import Any

import psutil
import pytest

from scaler_cluster.core.client.liveness import CONNECT_TIMEOUT_S
from scaler_exec import (
    Client,
    ConfigError,
    ScalerExecutor,
    TaskTimeoutError,
    WorkerDiedError,
    secede,
)
from tests.runtime import nested_tasks, tasks
from tests.runtime.helpers import BOUND_S, process_of, wait_gone, wait_until

MB = 1_000_000


@pytest.fixture(params=["single_cluster", "cluster"], ids=["one worker", "two workers"])
def client(request, single_cluster, cluster):
    """A client of a cluster with one worker, or with two."""
    with Client(request.getfixturevalue(request.param)) as client:
        yield client


@pytest.fixture
def single_client(single_cluster):
    """A client of a cluster with one worker."""
    with Client(single_cluster) as client:
        yield client


@pytest.fixture
def pair(cluster):
    """A client of a cluster with two workers."""
    with Client(cluster) as client:
        yield client


def test_recursion(client) -> None:
    """A tree of tasks that wait for each other ends, whatever the number of workers."""
    assert client.submit(nested_tasks.fibonacci, client, 14).result(BOUND_S) == 377


def test_a_large_tree_on_one_worker(single_client) -> None:
    """fibonacci(20), of some 20,000 tasks, runs on one worker."""
    future = single_client.submit(nested_tasks.fibonacci, single_client, 20)

    assert future.result(2 * BOUND_S) == 6765


def test_mutual_recursion(client) -> None:
    """Two functions may submit each other in turn."""
    assert client.submit(nested_tasks.is_even, client, 40).result(BOUND_S) is True
    assert client.submit(nested_tasks.is_even, client, 41).result(BOUND_S) is False


def test_deep_recursion(single_client) -> None:
    """Some hundred tasks may stand on the stack of one worker, each with room for its own calls."""
    future = single_client.submit(nested_tasks.descend, single_client, 300)

    assert future.result(BOUND_S) == 300


def test_endless_recursion_is_an_error(single_client) -> None:
    """Tasks without end raise RecursionError instead of ending the process."""
    future = single_client.submit(nested_tasks.descend, single_client, 100_000)

    with pytest.raises(RecursionError, match="wait for each other on the stack of one worker"):
        future.result(BOUND_S)

    assert single_client.submit(tasks.square, 3).result(BOUND_S) == 9


@pytest.mark.parametrize(
    "fibonacci", [nested_tasks.fibonacci_of_graphs, nested_tasks.fibonacci_of_futures]
)
def test_recursion_through_graphs(client, fibonacci) -> None:
    """Tasks may wait for graphs of tasks that do, and for tasks that take futures of such."""
    assert client.submit(fibonacci, client, 9).result(BOUND_S) == 34


def test_graphs_inside_of_a_task(client, baseline) -> None:
    """Graphs inside of a task have the same results, also where that task runs their nodes."""
    expected = {
        "length": 4 * MB,
        "listed": 3,
        "made": MB,
        "chain": 3.5,
        "failed": ("UnicodeDecodeError", True),
        "many": sum(n + 1.5 for n in range(500)),
        "futures": MB,
        "kept": MB,
    }

    assert client.submit(nested_tasks.graph_ways, client, MB).result(BOUND_S) == expected


def test_a_future_that_is_waited_for_is_an_argument_as_well(client) -> None:
    """A future may be waited for and be an argument, held here or sent away."""
    for nap_s in (0, 0.003, 0.03):
        assert client.submit(nested_tasks.ask_twice, client, nap_s).result(BOUND_S) == (9, 81)


def test_a_chain_of_futures_inside_of_a_task(client) -> None:
    """Each task of a chain inside of a task takes the result of the one before it."""
    assert client.submit(nested_tasks.chain_of_futures, client, 200).result(BOUND_S) == 200


def test_options_of_tasks_that_take_futures(client, tmp_path) -> None:
    """Options hold inside of a task for tasks that take futures."""
    future = client.submit(nested_tasks.node_with_options, str(tmp_path), 0.2)

    assert future.result(BOUND_S) == ("TaskTimeoutError", 3)


def test_children_run_on_all_workers(pair) -> None:
    """200 children of one task run on more than one worker."""
    pids, _ = pair.submit(nested_tasks.pids_of_children, pair, 200, 0.005).result(BOUND_S)

    assert len(pids) == 200
    assert len(set(pids)) >= 2


def test_every_way_to_ask(client) -> None:
    """submit, map, starmap, send_object, wait and as_completed work inside of tasks."""
    expected = {
        "submit": 3,
        "exception": None,
        "map": [n * n for n in range(300)],
        "starmap": [8, 9],
        "object": [100_000, 100_000],
        "large": 200_000,
        "large argument": 200_000,
        "wait": [n * n for n in range(20)],
        "as_completed": {n * n for n in range(9)},
    }

    assert client.submit(nested_tasks.many_ways, client).result(BOUND_S) == expected
    assert client.submit(nested_tasks.many_ways_of_its_own).result(BOUND_S) == expected


def test_an_executor_inside_of_a_task(client) -> None:
    """ScalerExecutor() inside of a task uses the cluster that runs the task."""
    futures, squares, chunks, _ = client.submit(nested_tasks.executor_ways).result(BOUND_S)

    assert futures == [n * n for n in range(10)]
    assert squares == chunks == [n * n for n in range(100)]


def test_a_client_outside_of_a_task_needs_an_address() -> None:
    """Client() where no task runs says so, and so does secede()."""
    with pytest.raises(ConfigError, match="address"):
        Client()
    with pytest.raises(ConfigError, match="task"):
        secede()


def test_a_childs_exception(client) -> None:
    """A child's exception is raised in its parent, with the remote traceback as its cause."""
    with pytest.raises(ValueError, match="raised on purpose"):
        client.submit(nested_tasks.failing_child, client, "raise").result(BOUND_S)

    kind, text, cause = client.submit(nested_tasks.catches, client).result(BOUND_S)
    assert (kind, text) == ("ValueError", "raised on purpose")
    assert "in fail" in cause


def test_a_child_gets_copies(client) -> None:
    """What a child does to its arguments is not seen by its parent."""
    future = client.submit(nested_tasks.mutable_argument, client)

    assert future.result(BOUND_S) == ([1], [1, 2])


@pytest.mark.parametrize("ask", [nested_tasks.failing_child, nested_tasks.failing_far_child])
def test_a_child_that_kills_its_worker(client, ask) -> None:
    """A parent whose child kills its worker fails with WorkerDiedError."""
    with pytest.raises(WorkerDiedError):
        client.submit(ask, client, "kill").result(BOUND_S)

    assert client.submit(nested_tasks.fibonacci, client, 5).result(BOUND_S) == 5


@pytest.mark.parametrize(
    ("leave", "error"),
    [(nested_tasks.leave_children, "None"), (nested_tasks.leave_and_raise, "left them")],
)
def test_a_parent_that_ends_ends_its_children(pair, tmp_path, leave, error) -> None:
    """Children that are unfinished when their parent returns or raises are cancelled."""
    future = pair.submit(leave, pair, str(tmp_path), 5)

    assert str(future.exception(BOUND_S)) == error
    # Both workers are free again: two tasks that wait for each other can only run at once.
    first = pair.submit(nested_tasks.wait_for_flag, str(tmp_path / "flag"))
    pair.submit(nested_tasks.set_flag, str(tmp_path / "flag")).result(BOUND_S)
    first.result(BOUND_S)


def _child_elsewhere(directory, parent: int) -> int:
    """Return the process of a child that does not run on its parent's stack."""
    found: list[int] = []

    def look() -> bool:
        pids = [int(path.read_text()) for path in directory.glob("child-?")]
        found[:] = [pid for pid in pids if pid != parent]
        return bool(found)

    wait_until(look, "no child runs elsewhere")
    return found[0]


def _parent(directory) -> int:
    path = directory / "parent"
    wait_until(lambda: path.exists() and path.read_text(), "the parent never ran")
    return int(path.read_text())


def test_cancelling_a_parent_cancels_its_children(pair, tmp_path) -> None:
    """Both the child on its stack and those elsewhere end, and the workers are free again."""
    future = pair.submit(nested_tasks.hold_children, pair, str(tmp_path), 3)
    _child_elsewhere(tmp_path, _parent(tmp_path))

    assert future.cancel()

    with pytest.raises(CancelledError):
        future.result(BOUND_S)
    assert pair.submit(nested_tasks.fibonacci, pair, 5).result(BOUND_S) == 5
    first = pair.submit(nested_tasks.wait_for_flag, str(tmp_path / "flag"))
    pair.submit(nested_tasks.set_flag, str(tmp_path / "flag")).result(BOUND_S)
    first.result(BOUND_S)


def test_killing_a_parent_cancels_its_children(pair, tmp_path) -> None:
    """A killed parent fails with WorkerDiedError, and its children elsewhere are stopped."""
    future = pair.submit(nested_tasks.hold_children, pair, str(tmp_path), 3)
    parent = _parent(tmp_path)
    _child_elsewhere(tmp_path, parent)

    os.kill(parent, signal.SIGKILL)

    with pytest.raises(WorkerDiedError):
        future.result(BOUND_S)
    wait_gone(parent)
    first = pair.submit(nested_tasks.wait_for_flag, str(tmp_path / "flag"))
    pair.submit(nested_tasks.set_flag, str(tmp_path / "flag")).result(BOUND_S)
    first.result(BOUND_S)


def test_threads_of_a_task(client) -> None:
    """Threads that a task starts submit and wait as the task does."""
    results = client.submit(nested_tasks.from_threads, client, 10).result(BOUND_S)

    assert results == {n: nested_tasks_fibonacci(n) for n in range(10)}
    assert client.submit(nested_tasks.client_in_thread).result(BOUND_S) == [25]


def nested_tasks_fibonacci(n: int) -> int:
    """Return the n-th number, without tasks."""
    return n if n < 2 else nested_tasks_fibonacci(n - 1) + nested_tasks_fibonacci(n - 2)


def test_secede_gives_the_place_away(single_client, tmp_path) -> None:
    """While a task has seceded, another process runs what else there is."""
    path = str(tmp_path / "flag")
    first = single_client.submit(nested_tasks.seceded, path)
    second = single_client.submit(nested_tasks.set_flag, path)

    assert first.result(BOUND_S) != second.result(BOUND_S)


def test_a_blocked_worker_gives_its_place_away(single_client, tmp_path) -> None:
    """Two children of which one waits for the other need two processes; there is one worker."""
    future = single_client.submit(nested_tasks.blocked_on_two, single_client, str(tmp_path / "f"))

    assert future.result(2 * BOUND_S) == 2


def test_waiting_with_a_timeout(pair, tmp_path) -> None:
    """result(timeout) raises TimeoutError in time, and the child is cancelled with its parent."""
    future = pair.submit(nested_tasks.times_out, pair, str(tmp_path / "runs"), 0.5)

    assert future.result(BOUND_S) == "timed out"


def test_many_levels_that_wait_with_a_timeout(single_client) -> None:
    """Waiting tasks run others where there are more levels than spare workers."""
    future = single_client.submit(nested_tasks.ask_for, single_client, 12, 60)

    assert future.result(2 * BOUND_S) == 12


def test_random_trees(client) -> None:
    """Trees of random shape that are waited for in random ways have the right size."""
    futures = [client.submit(nested_tasks.tree, client, seed, 5) for seed in range(60)]

    sizes = [future.result(2 * BOUND_S) for future in futures]

    assert sizes == [nested_tasks.plain_tree(seed, 5) for seed in range(60)]


WORKER_THREADS = 4
"""Those of a worker that has come up: main, control, and two of ZeroMQ."""


def _live_workers(executor) -> list[int]:
    """Return the workers of its cluster that have come up, below their fork server.

    Those that start have fewer threads; if too many of them die in a row the cluster is broken.
    """
    found = []
    for server in process_of(executor, "supervisor").children():
        for worker in server.children():
            with contextlib.suppress(psutil.Error):
                if worker.num_threads() >= WORKER_THREADS:
                    found.append(worker.pid)
    return found


def test_random_trees_while_workers_are_killed(own) -> None:
    """Each tree ends right or with WorkerDiedError, and no more of them than workers were killed."""
    with Client(own.address) as client:
        dice = random.Random(1)
        futures: dict[Any, int] = {
            client.submit(nested_tasks.tree, client, seed, 5): seed for seed in range(150)
        }
        kills = deaths = 0

        for future in concurrent.futures.as_completed(futures, 4 * BOUND_S):
            if isinstance(future.exception(), WorkerDiedError):
                deaths += 1
            else:
                assert future.result() == nested_tasks.plain_tree(futures[future], 5)
            if workers := _live_workers(own):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(dice.choice(workers), signal.SIGKILL)
                    kills += 1

        assert deaths <= kills
        assert client.submit(nested_tasks.fibonacci, client, 5).result(BOUND_S) == 5


def test_objects_end_with_their_task(client, baseline) -> None:
    """What a task sent, and large results of its children, are freed when it has ended."""
    assert client.submit(nested_tasks.send_and_leave, client, MB).result(BOUND_S) == (5 * MB, MB)


def test_objects_end_with_their_worker(pair, tmp_path, baseline) -> None:
    """The objects of a task are freed when its worker is killed, and its children stopped."""
    future = pair.submit(nested_tasks.send_and_hold, pair, str(tmp_path), MB)
    parent = _parent(tmp_path)
    _child_elsewhere(tmp_path, parent)

    os.kill(parent, signal.SIGKILL)

    with pytest.raises(WorkerDiedError):
        future.result(BOUND_S)


def test_a_client_that_is_unpickled_elsewhere_connects(pair) -> None:
    """A client that is unpickled outside of tasks connects to the same cluster."""
    other = pickle.loads(pickle.dumps(pair))

    with other:
        assert other.submit(tasks.square, 5).result(BOUND_S) == 25
    assert pair.submit(tasks.square, 6).result(BOUND_S) == 36


def test_a_closure_may_hold_a_client(client) -> None:
    """A client comes along in a function as well as in its arguments."""
    assert client.submit(lambda: nested_tasks.is_client_usable(client)).result(BOUND_S) == 49
    assert client.map(lambda n: client.submit(pow, n, 2).result(), range(20)) == [
        n * n for n in range(20)
    ]


def test_a_childs_own_timeout(client) -> None:
    """A child with a timeout is stopped in time, whatever the number of workers."""
    assert client.submit(nested_tasks.with_options, 0.2).result(BOUND_S) == "TaskTimeoutError"


def test_a_childs_retries(client, tmp_path) -> None:
    """A child is run again as often as its retries say, also on its parent's stack."""
    assert client.submit(nested_tasks.retried, str(tmp_path)).result(BOUND_S) == 3


def test_a_parents_timeout(pair, tmp_path) -> None:
    """A parent that runs out of time takes its children along."""
    address = pair._session.address
    with ScalerExecutor(address=address) as executor:
        limited = executor.options(timeout=1.0)
        future = limited.submit(nested_tasks.hold_children, pair, str(tmp_path), 3)
        with pytest.raises(TaskTimeoutError):
            future.result(BOUND_S)

    first = pair.submit(nested_tasks.wait_for_flag, str(tmp_path / "flag"))
    pair.submit(nested_tasks.set_flag, str(tmp_path / "flag")).result(BOUND_S)
    first.result(BOUND_S)


def test_cancelling_a_child(pair, tmp_path) -> None:
    """A task may cancel what it submitted."""
    future = pair.submit(nested_tasks.cancels_child, pair, str(tmp_path))

    assert future.result(BOUND_S) == (True, 4)


def test_awaiting_children(client) -> None:
    """An event loop inside of a task may await the task's children."""
    future = client.submit(nested_tasks.gather_in_asyncio, client, 20)

    assert future.result(BOUND_S) == [n * n for n in range(20)]


def test_a_child_that_forks(single_client, tmp_path) -> None:
    """A forked process that returns from a task ends, and does not go on as the parent."""
    path = tmp_path / "lines"

    single_client.submit(nested_tasks.fork_below, single_client, str(path)).result(BOUND_S)

    assert path.read_text().splitlines() == ["went on"]


def test_waiting_in_a_callback(client) -> None:
    """A callback inside of a task may submit and wait."""
    future = client.submit(nested_tasks.many_waiters_in_callbacks, client)

    assert future.result(BOUND_S) == [81]


def test_a_task_waits_for_a_scheduler_that_is_stopped(make_executor, flags) -> None:
    """A task's first client is as patient as one that is open: the scheduler will come back."""
    executor = make_executor(1)
    future = executor.submit(nested_tasks.first_client_after, flags.path("ready"), flags.path("go"))
    flags.wait("ready")
    scheduler = process_of(executor, "scheduler")
    scheduler.send_signal(signal.SIGSTOP)
    try:
        flags.set("go")
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(CONNECT_TIMEOUT_S + 2)
    finally:
        scheduler.send_signal(signal.SIGCONT)

    assert future.result(BOUND_S) == 4
