"""What becomes of worker processes: deaths, limits, forks, replacements."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading

import psutil
import pytest

from scaler_exec import ClusterBrokenError, ScalerExecutor, WorkerDiedError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, process_of, run_program, wait_gone, wait_until

MEGABYTE = 1_000_000


def worker_pids(executor) -> list[int]:
    """Return the ids of its worker processes: children of the supervisor's fork server."""
    servers = process_of(executor, "supervisor").children()
    return [worker.pid for server in servers for worker in server.children()]


# -- the diagnosis -------------------------------------------------------------------------------


def test_a_death_by_exit_is_told(single) -> None:
    """WorkerDiedError holds exit code, pid, machine, peak memory and the last lines of stderr."""
    pid = single.submit(os.getpid).result(BOUND_S)
    error = single.submit(tasks.write_and_die, "last words\n").exception(BOUND_S)

    assert type(error) is WorkerDiedError
    death = error.death
    assert (death.exit_code, death.signal, death.pid) == (tasks.EXIT_CODE, None, pid)
    assert death.host == os.uname().nodename
    assert death.peak_rss_bytes > MEGABYTE
    assert not death.out_of_memory
    assert death.stderr_tail.endswith("last words\n")
    assert death.reason == ""
    for part in (f"process {pid}", "exited with code 7", "last words"):
        assert part in str(error)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_death_by_signal_is_told(single, flags, number) -> None:
    """WorkerDiedError holds the number of the signal that killed the process."""
    future = single.submit(tasks.sleep, flags.path("started"))
    pid = flags.wait("started")
    os.kill(pid, number)
    error = future.exception(BOUND_S)

    assert type(error) is WorkerDiedError
    assert (error.death.signal, error.death.exit_code, error.death.pid) == (number, None, pid)


def test_a_segfault_shows_where_it_was(single) -> None:
    """The end of stderr holds the Python frames in which the process crashed."""
    error = single.submit(tasks.fail, "segfault").exception(BOUND_S)

    assert isinstance(error, WorkerDiedError)
    assert "Segmentation fault" in error.death.stderr_tail
    assert "in fail" in error.death.stderr_tail


def test_the_end_of_a_long_stderr_is_kept(single) -> None:
    """A death has the last lines of megabytes of stderr."""
    error = single.submit(tasks.write_and_die, "x" * 3 * MEGABYTE + "\nthe end").exception(BOUND_S)

    assert isinstance(error, WorkerDiedError)
    assert error.death.stderr_tail.endswith("\nthe end")
    assert len(error.death.stderr_tail) < 100_000


def test_a_killed_workers_queue_moves_on(single, flags) -> None:
    """Tasks that were queued behind the one whose worker died are run, and not charged."""
    doomed = single.submit(tasks.sleep, flags.path("started"))
    others = [single.submit(tasks.square, n) for n in range(100)]
    os.kill(flags.wait("started"), signal.SIGKILL)

    assert type(doomed.exception(BOUND_S)) is WorkerDiedError
    assert [future.result(BOUND_S) for future in others] == [n * n for n in range(100)]


def test_an_idle_worker_that_dies_is_replaced(own) -> None:
    """An idle worker that dies is replaced, and nothing fails."""
    assert own.submit(tasks.square, 3).result(BOUND_S) == 9
    for pid in worker_pids(own):
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)

    assert list(own.map(tasks.square, range(50))) == [n * n for n in range(50)]


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
def test_a_worker_is_replaced_after_its_tasks(make_executor, limit) -> None:
    """With max_tasks_per_child=n each process runs n tasks."""
    executor = make_executor(1, max_tasks_per_child=limit)
    pids = [executor.submit(os.getpid).result(BOUND_S) for _ in range(3 * limit)]

    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [limit] * 3


def test_a_map_goes_on_over_replaced_workers(make_executor) -> None:
    """A map over workers that are replaced again and again is complete and in order."""
    executor = make_executor(2, max_tasks_per_child=7)
    pairs = list(executor.map(_pid_and, range(100)))

    assert [number for _, number in pairs] == list(range(100))
    assert all(count <= 7 for count in _counts(pid for pid, _ in pairs).values())


def _pid_and(number):
    return os.getpid(), number


def _counts(items) -> dict[int, int]:
    counts: dict[int, int] = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts


def test_a_task_that_takes_too_much_memory_is_killed(make_executor, flags) -> None:
    """A worker beyond memory_limit is killed; WorkerDiedError says out_of_memory, and why."""
    executor = make_executor(1, memory_limit=150 * MEGABYTE)
    greedy = executor.submit(tasks.allocate, 300 * MEGABYTE, flags.path("never"))
    error = greedy.exception(BOUND_S)

    assert type(error) is WorkerDiedError
    assert error.death.out_of_memory
    assert "limit of 150 MB" in error.death.reason
    # The kernel counts pages in batches, so not to the byte.
    assert error.death.peak_rss_bytes > 148 * MEGABYTE
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_workers_that_load_too_much_break_the_executor(make_executor) -> None:
    """An initializer that alone exceeds the memory limit breaks the executor."""
    executor = make_executor(1, memory_limit="64 MiB", initializer=tasks.load_much)
    error = executor.submit(tasks.square, 3).exception(BOUND_S)

    assert type(error) is ClusterBrokenError
    assert "exceeded the limit of 67 MB per worker" in str(error)


def test_a_task_within_its_memory_is_left_alone(make_executor) -> None:
    """A memory limit that is not exceeded changes nothing."""
    executor = make_executor(1, memory_limit=2_000 * MEGABYTE)

    assert list(executor.map(tasks.square, range(10))) == [n * n for n in range(10)]


# -- under fire ----------------------------------------------------------------------------------


def test_kills_under_load_lose_nothing(make_executor) -> None:
    """Each task comes back once, done or as WorkerDiedError, while workers are killed 50 times."""
    executor = make_executor(2)
    chance = random.Random(1)
    total, killed = 4000, 0
    futures = [executor.submit(tasks.nap, n) for n in range(total)]
    calls: list[int] = []
    for n, future in enumerate(futures):
        future.add_done_callback(lambda _, n=n: calls.append(n))
    map_results = executor.options(retries=60).map(tasks.nap, range(2000))
    while killed < 50:
        pids = worker_pids(executor)
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)
                killed += 1
        futures[min(killed * 70, total - 1)].exception(BOUND_S)

    outcomes = [future.exception(BOUND_S) for future in futures]
    died = [error for error in outcomes if error is not None]

    assert {type(error) for error in died} == {WorkerDiedError}
    assert len(died) <= killed
    assert [future.result() for future, error in zip(futures, outcomes) if error is None] == [
        n for n, error in enumerate(outcomes) if error is None
    ]
    assert list(map_results) == list(range(2000))
    wait_until(lambda: len(calls) == total, "callbacks are missing")
    assert sorted(calls) == list(range(total))


def test_a_stopped_worker_holds_up_no_more_than_it_was_given(executor, flags) -> None:
    """While a worker is stopped the other one does the work; once it goes on, all is done."""
    held = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    pid = flags.wait("held")
    os.kill(pid, signal.SIGSTOP)
    futures = [executor.submit(tasks.square, n) for n in range(200)]
    try:
        # What waits behind the held task cannot be given back by a process that is stopped.
        wait_until(lambda: sum(future.done() for future in futures) >= 195, "the rest hangs")
        flags.set("go")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert [future.result(BOUND_S) for future in futures] == [n * n for n in range(200)]
    assert held.result(BOUND_S) == pid


def test_a_stopped_worker_can_be_cancelled_away(single, flags) -> None:
    """Cancelling the task of a stopped worker kills it, and another takes its place."""
    future = single.submit(tasks.sleep, flags.path("started"))
    pid = flags.wait("started")
    os.kill(pid, signal.SIGSTOP)
    future.cancel()

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9
    wait_gone(pid)


# -- tasks that fork or start processes ----------------------------------------------------------


def test_a_task_that_forks_comes_back_once(single) -> None:
    """The forked child of a worker that returns from the task ends there."""
    futures = [single.submit(tasks.fork_and_return) for _ in range(5)]

    assert [future.result(BOUND_S) for future in futures] == ["worker"] * 5
    assert single.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_map_of_tasks_that_fork_is_complete(single) -> None:
    """A forked child runs none of the tasks that were queued behind its own."""
    results = list(single.map(_fork_first, range(200)))

    assert results == [("worker", n) for n in range(200)]


def _fork_first(number):
    if number % 50 == 0:
        return tasks.fork_and_return(), number
    return "worker", number


def test_a_forked_child_that_raises_is_not_heard_of(single) -> None:
    """An exception in the forked child of a task does not become the task's."""
    assert single.submit(_fork_and_raise).result(BOUND_S) == "worker"


def _fork_and_raise() -> str:
    pid = os.fork()
    if pid == 0:
        raise KeyError
    os.waitpid(pid, 0)
    return "worker"


@pytest.mark.parametrize("stream_output", [False, True])
def test_a_task_may_use_multiprocessing(make_executor, stream_output) -> None:
    """A pool of the standard library works inside a task, whose children may print as well."""
    single = make_executor(1, stream_output=stream_output)

    assert single.submit(tasks.use_multiprocessing, [-1, -2, 3]).result(BOUND_S) == [1, 2, 3]


def test_what_a_task_left_behind_dies_with_the_executor() -> None:
    """A child process that a finished task let go is killed when its worker ends."""
    with ScalerExecutor(1) as executor:
        child = executor.submit(tasks.leave_child).result(BOUND_S)
        assert psutil.pid_exists(child)

    wait_gone(child)


def test_a_death_is_told_though_a_daemon_holds_stderr(single, tmp_path) -> None:
    """A process that left the worker's group keeps nobody waiting for the end of stderr."""
    future = single.submit(tasks.die_leaving_daemon, str(tmp_path / "pid"))
    try:
        error = future.exception(BOUND_S)
        assert single.submit(tasks.square, 3).result(BOUND_S) == 9
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    assert type(error) is WorkerDiedError


def test_a_task_may_start_threads_that_outlive_it(single) -> None:
    """Daemon threads of a task do not keep the worker from the next task, or from its end."""
    single.submit(_start_thread).result(BOUND_S)

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9


def _start_thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=False).start()


def test_a_worker_has_no_stdin(single) -> None:
    """A task that reads standard input finds it empty, and takes nothing of the engine's."""
    assert single.submit(_read_stdin).result(BOUND_S) == ""


def _read_stdin() -> str:
    import sys

    return sys.stdin.read()


def test_a_task_may_close_every_file_descriptor_it_knows(single) -> None:
    """A task that closes the standard streams kills nobody."""
    single.submit(_close_streams).result(BOUND_S)

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9


def _close_streams() -> None:
    for fd in (0, 1, 2):
        os.close(fd)


# -- ending them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["terminate_workers", "kill_workers"])
def test_the_workers_can_be_ended(make_executor, flags, method) -> None:
    """terminate_workers and kill_workers break what is pending and leave no process."""
    executor = make_executor(2)
    done = executor.submit(tasks.square, 3)
    assert done.result(BOUND_S) == 9
    running = executor.submit(tasks.refuse_to_stop, flags.path("started"))
    pid = flags.wait("started")
    queued = [executor.submit(tasks.sleep, flags.path(f"q{n}")) for n in range(10)]

    getattr(executor, method)()

    for future in (running, *queued):
        assert type(future.exception(BOUND_S)) is ClusterBrokenError
    assert done.result() == 9
    wait_gone(pid)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(tasks.square, 3)


def test_workers_of_another_cluster_cannot_be_ended(executor) -> None:
    """kill_workers() on an executor that joined a running cluster is refused."""
    with ScalerExecutor(address=executor.address) as other:
        with pytest.raises(RuntimeError, match="not this executor's"):
            other.kill_workers()

        assert other.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_worker_inherits_no_descriptor_but_the_standard_streams() -> None:
    """What the client had open is not open in its workers."""
    ended = run_program(
        "import os\n"
        "from scaler_exec import ScalerExecutor\n"
        "from tests.runtime.tasks import open_files\n"
        "read, write = os.pipe()\n"
        "os.set_inheritable(write, True)\n"
        "inode = os.fstat(write).st_ino\n"
        "with ScalerExecutor(1) as executor:\n"
        "    print(inode in executor.submit(open_files).result())\n"
    )

    assert (ended.stdout, ended.stderr, ended.returncode) == ("False\n", "", 0)
