"""What tasks share with the program by ``multiprocessing``."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import multiprocessing.sharedctypes
import os
import queue
from typing import Any

import pytest

from scaler_cluster.errors import DeserializeObjectError, PayloadError
from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, run_program
from tests.runtime.shell import Shell

# -- managers ------------------------------------------------------------------------------------


def _put(shared: Any, n: int) -> int:
    shared.put(n)
    return int(shared.qsize())


def test_what_a_manager_made_is_an_argument_of_tasks() -> None:
    """A manager's objects are arguments of tasks, also if the manager was started later."""
    with (
        ScalerExecutor(1) as executor,
        SchedulerClusterCombo(1) as cluster,
        Client(cluster.get_address()) as client,
        multiprocessing.Manager() as manager,
    ):
        shared = manager.Queue()
        sizes = [one.submit(_put, shared, 7).result(BOUND_S) for one in (executor, client)]
        event = manager.Event()
        executor.submit(event.set).result(BOUND_S)
        found = event.is_set(), [shared.get(), shared.get()]

    assert sizes == [1, 2]
    assert found == (True, [7, 7])


def test_the_key_of_a_program_is_in_nobodys_command_line() -> None:
    """A program's authentication key reaches its own workers by a pipe, not by arguments."""
    source = """
import multiprocessing, psutil
from scaler_exec import ScalerExecutor
with ScalerExecutor(1) as executor:
    executor.submit(int).result()
    key = bytes(multiprocessing.current_process().authkey).hex()
    found = psutil.Process().children(recursive=True)
    for one in found:
        assert key not in " ".join(one.cmdline()), one
        assert key not in " ".join(one.environ().values()), one
    print(len(found) >= 4)
"""
    done = run_program(source)

    assert done.stdout == "True\n", done.stderr


def test_a_worker_that_cannot_reach_a_manager_says_what_to_do(tmp_path) -> None:
    """A worker of a foreign cluster cannot reach a manager, and says what to do."""
    shell = Shell(tmp_path)
    try:
        scheduler = shell.start("scaler_scheduler tcp://127.0.0.1:0")
        address = scheduler.address("Scheduler: listen to scheduler address")
        shell.start(f"scaler_cluster -n 1 {address}").wait_for("Worker[0] started")
        with Client(address) as client, multiprocessing.Manager() as manager:
            error = client.submit(_put, manager.Queue(), 1).exception(BOUND_S)
    finally:
        shell.close()

    assert isinstance(error, DeserializeObjectError)
    assert "AuthenticationError" in str(error)
    assert "current_process().authkey" in str(error)


# -- what initializers inherit -------------------------------------------------------------------


def _keep(*shared: Any) -> None:
    tasks.shared = shared  # type: ignore[attr-defined]


def _use(n: int) -> int:
    lock, out, event, value, array, pipe = tasks.shared  # type: ignore[attr-defined]
    event.wait(BOUND_S)
    with lock:
        value.value += n
        array[0] += 1
        pipe.send(n)
    out.put(n)
    return os.getpid()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_initializer_inherits_what_pools_share(method: str) -> None:
    """Every worker's initializer gets locks, queues, events, values, arrays and pipes."""
    context: Any = multiprocessing.get_context(method)
    reader, writer = context.Pipe(duplex=False)
    array = multiprocessing.sharedctypes.RawArray("i", 3)
    shared = context.Lock(), context.Queue(), context.Event(), context.Value("i", 0), array, writer
    _, out, event, value, _, _ = shared
    with ScalerExecutor(2, initializer=_keep, initargs=shared, max_tasks_per_child=5) as executor:
        futures = [executor.submit(_use, n) for n in range(20)]
        assert not futures[0].done()
        event.set()
        pids = {future.result(BOUND_S) for future in futures}
    sent = sorted(reader.recv() for _ in range(20))
    came = sorted(out.get(timeout=BOUND_S) for _ in range(20))
    for one in (reader, writer, out):
        one.close()

    assert len(pids) >= 4
    assert value.value == sum(range(20))
    assert list(array) == [20, 0, 0]
    assert sent == came == list(range(20))


def _fill(count: int) -> None:
    for n in range(count):
        tasks.shared[0].put(n)  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{}, {"max_tasks_per_child": 1}], ids=["stays", "is replaced"])
def test_what_tasks_put_into_a_queue_is_not_lost_at_the_end(options: dict[str, int]) -> None:
    """A worker that ends lets its queue's writing threads finish."""
    context = multiprocessing.get_context("spawn")
    for _ in range(5):
        out: Any = context.Queue()
        with ScalerExecutor(1, initializer=_keep, initargs=(out,), **options) as executor:
            executor.submit(_fill, 300).result(BOUND_S)
        came: list[int] = []
        with contextlib.suppress(queue.Empty):
            while len(came) < 300:
                came.append(out.get(timeout=5.0))
        out.close()
        assert came == list(range(300))


def test_a_queue_that_nobody_reads_does_not_hold_up_the_end() -> None:
    """A worker gives up after a while what finds no room in its queue's pipe."""
    out: Any = multiprocessing.get_context("spawn").Queue()
    with ScalerExecutor(1, initializer=_keep, initargs=(out,)) as executor:
        executor.submit(_fill, 100_000).result(BOUND_S)
    out.close()


FORKED = multiprocessing.get_context("fork")


@pytest.mark.parametrize("make", [FORKED.Lock, FORKED.Queue, FORKED.Condition, FORKED.Value])
def test_what_only_forked_children_inherit_is_refused_by_name(make: Any) -> None:
    """An object of a fork context is refused with a remedy before anything is started."""
    shared = make("i") if make == FORKED.Value else make()
    with pytest.raises(PayloadError, match=r"argument 1 of _keep: .*get_context\('spawn'\)"):
        ScalerExecutor(1, initializer=_keep, initargs=(1, shared))


def test_what_cannot_be_pickled_at_all_is_named_too() -> None:
    """The initializer or its argument that cannot be pickled is named."""
    with pytest.raises(PayloadError, match=r"argument 2 of _keep: cannot pickle TextIO"):
        ScalerExecutor(1, initializer=_keep, initargs=(1, 2, io.TextIOWrapper(io.BytesIO())))


# -- globals of __main__ -------------------------------------------------------------------------


def test_tasks_see_what_the_initializer_has_set() -> None:
    """Tasks see globals of ``__main__`` that the initializer has set or changed."""
    source = """
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from scaler_exec import Client, ScalerExecutor
from threading import Lock
from types import SimpleNamespace

level = None
step = 1
kept = {}
options = SimpleNamespace(name="none")

class Settings:
    size = 0

def set_more():
    global more
    more = 3
    kept["n"] = 7
    options.name = "some"
    Settings.size += 10

def set_up(n):
    global lock, level
    lock, level = Lock(), n
    set_more()

def read(n):
    with lock:
        return level + more + step + n

def read_kept():
    return kept, options.name, Settings.size, Settings().size

def call(function, *args):
    return function(*args)

def nest(n):
    return ScalerExecutor().submit(call, read, n).result()

if __name__ == "__main__":
    for make in ProcessPoolExecutor, ScalerExecutor:
        with make(1, initializer=partial(set_up, 100)) as executor:
            print(executor.submit(read, 1).result(), executor.submit(call, read, 2).result())
            print(list(executor.map(read, range(3))))
            print(executor.submit(read_kept).result(), executor.submit(call, read_kept).result())
    with ScalerExecutor(1, initializer=set_up, initargs=(100,)) as executor:
        print(executor.submit(read, 1).result())
        step = 2
        def read(n):
            return level + step + n
        print(executor.submit(read, 1).result())
        print(executor.submit(nest, 1).result())
"""
    done = run_program(source)

    assert done.returncode == 0, done.stderr
    kept = "({'n': 7}, 'some', 10, 10)"
    found = ["105 106", "[104, 105, 106]", f"{kept} {kept}"]
    assert done.stdout.splitlines() == [*found, *found, "105", "103", "103"]
