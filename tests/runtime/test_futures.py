"""Futures: waiting, callbacks, threads, asyncio, forks."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import weakref
from concurrent import futures

import pytest

from scaler_exec import ScalerExecutor, SessionForkedError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_until


def test_an_executor_is_one_of_the_standard_library(executor) -> None:
    """ScalerExecutor is an Executor, its futures are Futures."""
    assert isinstance(executor, futures.Executor)
    assert isinstance(executor.submit(tasks.square, 2), futures.Future)


def test_as_completed_over_thousands(executor) -> None:
    """as_completed yields each of thousands of futures once."""
    submitted = {executor.submit(tasks.square, n): n for n in range(5000)}
    seen = {}
    for future in futures.as_completed(submitted, timeout=BOUND_S):
        seen[submitted[future]] = future.result()

    assert seen == {n: n * n for n in range(5000)}


def test_wait_returns_when_the_first_is_done(executor, flags) -> None:
    """wait(FIRST_COMPLETED) does not wait for the rest."""
    slow = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    quick = executor.submit(tasks.square, 3)

    done, pending = futures.wait([slow, quick], BOUND_S, futures.FIRST_COMPLETED)
    flags.set("go")

    assert (done, pending) == ({quick}, {slow})


def test_result_gives_up_after_its_timeout(executor, flags) -> None:
    """result(timeout) raises TimeoutError, and the task goes on."""
    future = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    with pytest.raises(futures.TimeoutError):
        future.result(0.05)
    assert not future.done()
    flags.set("go")

    assert future.result(BOUND_S) > 0


def test_a_callback_is_called_once_with_the_future(executor) -> None:
    """A callback gets the future, whether it is added before the end or after it."""
    seen: list[object] = []
    future = executor.submit(tasks.square, 3)
    future.add_done_callback(seen.append)
    future.result(BOUND_S)
    wait_until(lambda: len(seen) == 1, "the callback was not called")
    future.add_done_callback(seen.append)

    assert seen == [future, future]


def test_a_callback_may_submit(executor) -> None:
    """Callbacks that submit and add callbacks make a chain as long as they like."""
    finished = threading.Event()
    values: list[int] = []

    def next_one(future: futures.Future[int]) -> None:
        values.append(future.result())
        if len(values) < 50:
            executor.submit(tasks.square, len(values)).add_done_callback(next_one)
        else:
            finished.set()

    executor.submit(tasks.square, 0).add_done_callback(next_one)

    assert finished.wait(BOUND_S)
    assert values == [n * n for n in range(50)]


def test_a_callback_may_wait_for_another_task(executor) -> None:
    """A callback may submit and wait for the result; nothing locks up."""
    got: list[int] = []

    def ask_more(future: futures.Future[int]) -> None:
        got.append(executor.submit(tasks.square, future.result()).result(BOUND_S))
        got.extend(executor.map(tasks.square, range(3)))

    executor.submit(tasks.square, 3).add_done_callback(ask_more)

    wait_until(lambda: len(got) == 4, "the callback hangs")
    assert got == [81, 0, 1, 4]


def test_a_callback_that_raises_hurts_nobody(executor, flags, capsys, caplog) -> None:
    """An exception in a callback is shown, and the next callbacks are called."""
    seen: list[object] = []
    future = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(seen.append)
    flags.set("go")

    wait_until(lambda: bool(seen), "the second callback was not called")
    assert "ZeroDivisionError" in capsys.readouterr().err + caplog.text


def test_a_callback_may_shut_the_executor_down(own) -> None:
    """shutdown() in a callback does not wait for itself."""
    own.submit(tasks.square, 3).add_done_callback(lambda _: own.shutdown())

    wait_until(lambda: _is_closed(own), "the executor is still open")


def _is_closed(executor) -> bool:
    try:
        executor.submit(tasks.square, 1)
    except RuntimeError:
        return True
    return False


def test_many_threads_submit_at_once(executor) -> None:
    """Threads that submit, wait and map at the same time all get their own results."""
    problems: list[object] = []

    def work(seed: int) -> None:
        try:
            for n in range(seed, seed + 40):
                assert executor.submit(tasks.square, n).result(BOUND_S) == n * n
            batch = [executor.submit(tasks.square, n) for n in range(seed, seed + 200)]
            assert [future.result(BOUND_S) for future in batch] == [
                n * n for n in range(seed, seed + 200)
            ]
            assert list(executor.map(tasks.square, range(300))) == [n * n for n in range(300)]
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * BOUND_S)

    assert not problems
    assert not any(thread.is_alive() for thread in threads)


def test_many_threads_wait_for_one_future(executor, flags) -> None:
    """Each of several threads that wait for a future gets its result."""
    future = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(future.result(BOUND_S))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    flags.wait("held")
    flags.set("go")
    for thread in threads:
        thread.join(BOUND_S)

    assert results == [future.result()] * 8


def test_a_future_can_be_awaited(executor) -> None:
    """``await future`` and asyncio.wrap_future give the result."""

    async def main() -> list[int]:
        wrapped = asyncio.wrap_future(executor.submit(tasks.square, 3))
        gathered = await asyncio.gather(*[executor.submit(tasks.square, n) for n in range(100)])
        return [await executor.submit(tasks.square, 2), await wrapped, *gathered]

    assert asyncio.run(main()) == [4, 9, *[n * n for n in range(100)]]


def test_an_awaited_exception_is_raised(executor) -> None:
    """``await future`` raises what the task raised."""

    async def main() -> None:
        await executor.submit(tasks.fail, "raise")

    with pytest.raises(ValueError, match="on purpose"):
        asyncio.run(main())


def test_run_in_executor_works(executor) -> None:
    """An event loop may use a ScalerExecutor as its executor."""

    async def main() -> int:
        return await asyncio.get_running_loop().run_in_executor(executor, tasks.square, 7)

    assert asyncio.run(main()) == 49


def test_cancelling_an_awaiting_task_cancels_the_work(single, flags) -> None:
    """A timeout of asyncio stops the task that was awaited."""

    async def main() -> None:
        future = single.submit(tasks.sleep, flags.path("started"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(future), 0.05)
        assert await single.submit(tasks.square, 3) == 9

    asyncio.run(main())


def test_the_repr_tells_the_state(executor, flags) -> None:
    """repr() of a future is as the standard library's, with the number of the task."""
    future = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    assert "state=pending" in repr(future)
    assert repr(future).endswith(f" task={future.task_id}>")
    flags.set("go")
    future.result(BOUND_S)

    assert "state=finished returned int" in repr(future)
    failed = executor.submit(tasks.fail, "raise")
    failed.exception(BOUND_S)
    assert "state=finished raised ValueError" in repr(failed)


def test_a_future_that_nobody_keeps_still_runs(executor, tmp_path) -> None:
    """Dropping a future does not cancel its task."""
    path = tmp_path / "lines"
    executor.submit(tasks.append_line, str(path), "done")

    wait_until(lambda: path.exists() and path.read_text() == "done\n", "the task did not run")


def test_an_executor_that_nobody_keeps_finishes_its_work(tmp_path) -> None:
    """A deleted executor runs what was submitted, and leaves no process."""
    path = tmp_path / "lines"
    executor = ScalerExecutor(1)
    executor.submit(tasks.append_line, str(path), "done")
    future = executor.submit(tasks.square, 3)
    results = executor.map(tasks.square, range(10))
    del executor
    gc.collect()

    assert future.result(BOUND_S) == 9
    assert list(results) == [n * n for n in range(10)]
    assert path.read_text() == "done\n"


def test_an_argument_is_kept_no_longer_than_needed(executor) -> None:
    """Once a task came back, the client holds neither its arguments nor its function."""

    class Thing:
        def __call__(self, other: object) -> int:
            return 3

    function, argument = Thing(), Thing()
    references = weakref.ref(function), weakref.ref(argument)
    future = executor.submit(function, argument)
    del function, argument

    assert future.result(BOUND_S) == 3
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_an_executor_cannot_be_pickled(executor) -> None:
    """Pickling an executor is a TypeError that says what to do instead."""
    with pytest.raises(TypeError, match="address="):
        pickle.dumps(executor)


def test_an_executor_as_an_argument_fails_its_own_future(executor) -> None:
    """A task that is given an executor fails alone, with a hint to address=."""
    with pytest.raises(Exception, match="address=.* instead"):
        executor.submit(tasks.square, executor).result(BOUND_S)

    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_future_cannot_be_pickled(executor) -> None:
    """Pickling a future is a TypeError: its result is what can travel."""
    with pytest.raises(TypeError, match="future"):
        pickle.dumps(executor.submit(tasks.square, 2))


# -- forks ---------------------------------------------------------------------------------------


def in_fork(function) -> str:
    """Return what a function returns, or the error it raises, in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(function())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("use", ["submit", "map", "result", "wait"])
def test_an_executor_in_a_forked_child_says_so(executor, flags, use) -> None:
    """Using the parent's executor, or a pending future, in a fork is SessionForkedError at once."""
    pending = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    uses = {
        "submit": lambda: executor.submit(tasks.square, 2),
        "map": lambda: list(executor.map(tasks.square, [1])),
        "result": lambda: pending.result(BOUND_S),
        "wait": lambda: pending.exception(),
    }

    said = in_fork(uses[use])
    flags.set("go")

    assert said.startswith("SessionForkedError")
    assert pending.result(BOUND_S) > 0
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_shutdown_in_a_forked_child_does_nothing(own) -> None:
    """shutdown() in a fork, or the fork's own end, leaves the parent's workers alone."""
    assert in_fork(own.shutdown) == "None"
    assert own.submit(tasks.square, 3).result(BOUND_S) == 9


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_may_make_its_own(executor) -> None:
    """A new executor in a fork works, beside the parent's."""

    def use_own() -> int:
        with ScalerExecutor(1) as own:
            return own.submit(tasks.square, 5).result(BOUND_S)

    assert in_fork(use_own) == "25"
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_the_error_of_a_fork_is_a_runtime_error() -> None:
    """SessionForkedError is caught by ``except RuntimeError``."""
    assert issubclass(SessionForkedError, RuntimeError)
