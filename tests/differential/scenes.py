"""What programs of steps cannot say: threads that wait, ends of executors, misuse.

Each scene takes ``make``, which makes an executor with so many workers, and returns an answer. It
waits for nothing but what it can see.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from tests.differential import errands
from tests.runtime.helpers import wait_until

Make = Callable[..., Any]


def wait_for(path):
    """Wait until a file is there."""
    while not os.path.exists(path):
        time.sleep(0.002)
    return path


def touch(path):
    """Make a file."""
    Path(path).touch()


def double(n):
    """Double a number."""
    return 2 * n


def kind(call: Callable[[], Any]) -> str:
    """Return what this returns, or which error of the standard library it raises."""
    try:
        return repr(call())
    except BaseException as error:
        known = (one for one in type(error).__mro__ if one.__module__ in STANDARD)
        return next(known).__name__


STANDARD = ("builtins", "concurrent.futures._base", "concurrent.futures.process")


class Gate:
    """What tasks wait for."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.path = str(Path(self._directory.name) / "open")

    def __enter__(self) -> Gate:
        return self

    def open(self) -> None:
        """Let the tasks go on."""
        touch(self.path)

    def __exit__(self, *_: object) -> None:
        self.open()
        self._directory.cleanup()


def cancelling(make: Make) -> Any:
    """The last of many queued calls is cancelled, the others are not."""
    with Gate() as gate, make(1) as executor:
        running = executor.submit(wait_for, gate.path)
        queued = [executor.submit(double, n) for n in range(6)]
        cancelled = queued[-1].cancel(), queued[-1].cancel(), queued[-1].cancelled()
        gate.open()
        return [
            cancelled,
            kind(queued[-1].result),
            kind(queued[-1].exception),
            running.result() == gate.path,
            running.cancel(),
            [future.result() for future in queued[:-1]],
        ]


def callbacks(make: Make) -> Any:
    """Callbacks get their future, in order, once; one that raises stops nobody."""
    seen: list[Any] = []
    done = threading.Event()
    with Gate() as gate, make(1) as executor:
        future = executor.submit(wait_for, gate.path)
        future.add_done_callback(lambda one: seen.append(("first", one is future, one.done())))
        future.add_done_callback(lambda one: 1 / 0)
        future.add_done_callback(lambda one: done.set())
        gate.open()
        future.result()
        done.wait(30)
        future.add_done_callback(lambda one: seen.append("at once"))
    return seen


def timeouts(make: Make) -> Any:
    """A timeout of result(), exception(), map() and wait() ends the waiting and nothing else."""
    with Gate() as gate, make(1) as executor:
        future = executor.submit(wait_for, gate.path)
        results = executor.map(wait_for, [gate.path], timeout=0.02)
        waited = concurrent.futures.wait([future], 0.01)
        answers = [
            kind(lambda: future.result(0.01)),
            kind(lambda: future.exception(0)),
            kind(lambda: next(results)),
            len(waited.not_done),
            future.done(),
        ]
        gate.open()
        return [*answers, future.result() == gate.path, future.exception()]


def waiting(make: Make) -> Any:
    """wait() and as_completed() see what is done."""
    with Gate() as gate, make(2) as executor:
        held = executor.submit(wait_for, gate.path)
        failing = executor.submit(errands.fails, "ValueError")
        first = concurrent.futures.wait([held, failing], 30, concurrent.futures.FIRST_EXCEPTION)
        answers = [first.done == {failing}, first.not_done == {held}]
        one = next(concurrent.futures.as_completed([held, failing]))
        gate.open()
        both = set(concurrent.futures.as_completed([held, failing], 30))
        return [*answers, one is failing, both == {held, failing}]


def ending(make: Make) -> Any:
    """An executor that was shut down finishes what it has, and takes nothing more."""
    executor = make(1)
    with Gate() as gate:
        held = executor.submit(wait_for, gate.path)
        results = executor.map(double, range(5))
        executor.shutdown(wait=False)
        executor.shutdown(wait=False)
        refused = [
            kind(lambda: executor.submit(double, 1)),
            kind(lambda: executor.map(double, [1])),
        ]
        gate.open()
        executor.shutdown()
        return [refused, held.result() == gate.path, list(results)]


def ending_at_once(make: Make) -> Any:
    """cancel_futures cancels what is queued; what runs goes on."""
    executor = make(1)
    with Gate() as gate:
        running = executor.submit(wait_started, gate.path, gate.path + ".started")
        wait_for(gate.path + ".started")
        queued = [executor.submit(double, n) for n in range(8)]
        ending = threading.Thread(target=executor.shutdown, kwargs={"cancel_futures": True})
        ending.start()
        wait_until(queued[-1].cancelled, "what is queued is not cancelled")
        gate.open()
        ending.join()
        return [running.result(), all(one.done() for one in queued)]


def wait_started(path, started):
    """Say that it runs, and wait."""
    touch(started)
    wait_for(path)
    return "done"


def unused(make: Make) -> Any:
    """An executor that is never used ends."""
    with make(1):
        pass
    make(1).shutdown()


def kept_iterator(make: Make) -> Any:
    """A map runs also if nobody keeps its iterator."""
    with tempfile.TemporaryDirectory() as directory:
        with make(2) as executor:
            executor.map(touch, [str(Path(directory) / str(n)) for n in range(20)])
        return len(os.listdir(directory))


def failing_iterable(make: Make) -> Any:
    """What an iterable raises, map() raises, and the executor goes on."""

    def items() -> Any:
        yield 1
        yield 2
        raise LookupError("no more")

    with make(1) as executor:
        return [
            kind(lambda: executor.map(double, items())),
            kind(lambda: executor.map(double, 5)),
            executor.submit(double, 4).result(),
        ]


def maps(make: Make) -> Any:
    """Shapes of maps."""
    with make(2) as executor:
        return [
            list(executor.map(pow, [2, 3, 4], itertools.count(), (100, 100))),
            list(executor.map(double, [])),
            list(executor.map(double)),
            list(executor.map(double, range(10), chunksize=3)),
            kind(lambda: executor.map(double, [1], chunksize=0)),
            kind(lambda: list(executor.map(errands.sometimes_fails, range(10), chunksize=3))),
            _taken(executor.map(errands.sometimes_fails, range(10))),
            executor.submit(double, n=4).result(),
            executor.submit(dict, fn=1, self=2).result(),
            kind(executor.submit(double).result),
            kind(executor.submit(double, 1, m=2).result),
            kind(executor.submit),
        ]


def _taken(results: Any) -> list[Any]:
    taken = []
    try:
        taken.extend(iter(results))
    except ValueError as error:
        taken.append(str(error))
    return taken


def many_threads(make: Make) -> Any:
    """Several threads use one executor at once."""
    with make(2) as executor:
        answers: list[list[int]] = [[] for _ in range(4)]

        def use(n: int) -> None:
            answers[n] = list(executor.map(double, range(n, n + 20)))
            answers[n].append(executor.submit(double, n).result())

        threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


def setting(name, value):
    """Set an attribute of this module, as an initializer may."""
    setattr(sys.modules[__name__], name, value)


def attribute(name):
    """Return an attribute of this module."""
    return getattr(sys.modules[__name__], name, None)


def initialized(make: Make) -> Any:
    """An initializer runs in every worker before its first task."""
    with make(2, initializer=setting, initargs=("here", 7)) as executor:
        return list(executor.map(attribute, ["here"] * 10))


def broken_initializer(make: Make) -> Any:
    """An initializer that raises breaks the executor."""
    try:
        with make(1, initializer=errands.fails, initargs=("ValueError",)) as executor:
            executor.submit(double, 1).result()
    except concurrent.futures.BrokenExecutor:
        return "broken"
    return "not broken"


def left_state(make: Make) -> Any:
    """What tasks do to their process stays there for the next ones."""
    with make(1) as executor:
        executor.submit(setting, "left", 1).result()
        executor.submit(os.putenv, "LEFT", "2").result()
        executor.submit(os.chdir, "/").result()
        return [
            executor.submit(attribute, "left").result(),
            executor.submit(errands.runs, "$LEFT").result(),
            executor.submit(os.getcwd).result(),
            attribute("left"),
        ]


def wrong_settings(make: Make) -> Any:
    """Settings that cannot work are refused."""
    return [
        kind(lambda: make(0)),
        kind(lambda: make(-1)),
        kind(lambda: make(1, initializer=5)),
        kind(lambda: make("4")),
    ]


def futures(make: Make) -> Any:
    """Futures are those of the standard library, which know their state."""
    with make(1) as executor:
        future = executor.submit(double, 1)
        future.result()
        return [
            isinstance(executor, Executor),
            isinstance(future, Future),
            future.done(),
            future.running(),
            future.cancelled(),
            future.cancel(),
            future.exception(),
        ]


def children(make: Make) -> Any:
    """Tasks may fork, start threads and programs; their own workers are other processes."""
    with make(1) as executor:
        return [
            executor.submit(errands.forks, 5).result(),
            executor.submit(errands.threads, 5).result(),
            executor.submit(errands.runs, "text").result(),
            executor.submit(os.getpid).result() != os.getpid(),
            executor.submit(os.getpid).result() == executor.submit(os.getpid).result(),
        ]


ALL = (cancelling, callbacks, timeouts, waiting, ending, ending_at_once, unused, kept_iterator,
       failing_iterable, maps, many_threads, initialized, broken_initializer, left_state,
       wrong_settings, futures, children)  # fmt: skip
