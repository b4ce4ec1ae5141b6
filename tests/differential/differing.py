"""Where we differ from ProcessPoolExecutor on purpose: each difference, shown.

The names are those of the rows in docs/executor.md, "What differs from ProcessPoolExecutor".
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from tests.differential import errands, scenes
from tests.differential.scenes import Gate, Make, double, kind, wait_for


class Difference(NamedTuple):
    """A difference: what shows it, and what it shows on either side."""

    name: str
    show: Callable[[Make], Any]
    standard: str
    """Of ProcessPoolExecutor, with the start method ``fork``."""
    ours: str


DIFFERENCES: dict[str, Difference] = {}


def difference(name: str, standard: str, ours: str) -> Callable[..., Any]:
    """Enter what a function shows into the table."""

    def enter(show: Callable[[Make], Any]) -> Callable[[Make], Any]:
        DIFFERENCES[show.__name__] = Difference(name, show, standard, ours)
        return show

    return enter


def script() -> Any:
    """Return the module of the script."""
    return sys.modules["__main__"]


def tried(make: Make, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a task returns, or the name of the error that it fails with."""
    with make(1) as executor:
        try:
            return executor.submit(function, *args).result()
        except Exception as error:
            return type(error).__name__


# -- what arguments and functions are --------------------------------------------------------------


@difference("an argument that you change after the call", "list(int 1, int 2)", "list(int 1)")
def changed_argument(make: Make) -> Any:
    """The standard library pickles it in a thread, once there is room in the queue."""
    with Gate() as gate, make(1) as executor:
        for _ in range(5):
            executor.submit(wait_for, gate.path)
        words = [1]
        future = executor.submit(errands.same, words)
        words.append(2)
        gate.open()
        return future.result()


@difference("a global of the program that you change", "list(int 1, int 1)", "list(int 1, int 2)")
def changed_global(make: Make) -> Any:
    """A forked process has what was there when it was forked."""
    with make(1) as executor:
        answers = []
        for script().NUMBER in (1, 2):
            answers.append(executor.submit(script().inner).result()[0])
        return answers


@difference("a global of a module that you change", "int 1", "NoneType None")
def changed_module(make: Make) -> Any:
    """Functions of modules travel by name: a worker has its own module."""
    scenes.setting("changed_here", 1)
    with make(1) as executor:
        return executor.submit(scenes.attribute, "changed_here").result()


@difference(
    "a global of the program that a task changes", "list(int 1, int 1)", "list(int 1, int 0)"
)
def changed_by_task(make: Make) -> Any:
    """Each function of the program has globals of its own."""
    script().COUNT = 0
    with make(1) as executor:
        return [
            executor.submit(script().counts).result(),
            executor.submit(script().counted).result(),
        ]


@difference("`importlib.reload` while workers run", "list(int 1, int 1)", "list(int 1, int 2)")
def reloaded(make: Make) -> Any:
    """Our workers reload the module, too."""
    with tempfile.TemporaryDirectory() as directory:
        sys.path.insert(0, directory)
        try:
            file = Path(directory) / "reloaded_here.py"
            file.write_text("def version(): return 1")
            module = importlib.import_module("reloaded_here")
            with make(1) as executor:
                before = executor.submit(module.version).result()
                file.write_text("def version(): return 1 + 1")
                importlib.reload(module)
                return [before, executor.submit(module.version).result()]
        finally:
            sys.path.remove(directory)
            sys.modules.pop("reloaded_here", None)


@difference("writing to a large array in a task", "NoneType None", "str 'ValueError'")
def written_array(make: Make) -> Any:
    """All tasks see the same memory."""
    return tried(make, errands.sort, np.arange(20_000.0))


@difference("a read-only array that you change all the same", "list(float 5.0)", "list(float 0.0)")
def changed_read_only(make: Make) -> Any:
    """An array that is read-only, and whose owners are, is taken at its word."""
    array = np.zeros(20_000)
    view = array[:]
    array.flags.writeable = False
    with make(1) as executor:
        executor.submit(errands.total, array).result()
        view[0] = 5
        return [executor.submit(errands.total, array).result()]


@difference("one object inside two large arguments", "bool True", "bool False")
def shared_inside(make: Make) -> Any:
    """Each large argument is pickled by itself."""
    words = list(range(50_000))
    with make(1) as executor:
        return executor.submit(errands.hold_same, [words], [words]).result()


@difference("one object in the function and in an argument", "bool True", "bool False")
def shared_with_function(make: Make) -> Any:
    """Function and arguments are pickled separately."""
    words = [1]
    with make(1) as executor:
        return executor.submit(errands.Holder(words).holds, words).result()


@difference("lambdas, closures, functions of a notebook", "bool False", "bool True")
def local_function(make: Make) -> Any:
    """They travel by value."""
    return tried(make, lambda: 5) == 5


@difference(
    "a name of the program that a task looks up, as `globals()`, `eval` or `pickle` of its classes do",
    "bool True",
    "str 'KeyError'",
)
def looked_up(make: Make) -> Any:
    """Only what the code of a function names travels with it."""
    return tried(make, script().looks_up_text)


@difference(
    "a function of the program that uses a lock, a context variable or the like",
    "int 5",
    "str 'PayloadError'",
)
def function_with_lock(make: Make) -> Any:
    """What travels by value takes its globals along."""
    return tried(make, script().locks)


@difference(
    "what pickle refuses and cloudpickle takes",
    "str 'TypeError'",
    """str "tuple(bytes b'abc')\"""",
)
def only_cloudpickle(make: Make) -> Any:
    """Memory views arrive as bytes, open files as their text."""
    return tried(make, errands.describe, memoryview(b"abc"))


@difference("what cannot be pickled", "str 'TypeError'", "str 'PayloadError'")
def unpicklable(make: Make) -> Any:
    """The error has another type, and names what it is about."""
    return tried(make, errands.describe, threading.Lock())


@difference("what cannot be called", "str 'future'", "str 'call'")
def uncallable(make: Make) -> Any:
    """It is refused at the call."""
    with make(1) as executor:
        nothing: Any = None
        try:
            future = executor.submit(nothing)
        except TypeError:
            return "call"
        return "future" if type(future.exception()) is TypeError else "not at all"


@difference("a future as an argument", "str 'TypeError'", "int 4")
def future_argument(make: Make) -> Any:
    """It becomes its result."""
    with make(1) as executor:
        try:
            return executor.submit(double, executor.submit(double, 1)).result()
        except TypeError as error:
            return type(error).__name__


# -- what becomes of tasks -------------------------------------------------------------------------


@difference(
    "a worker that dies",
    "list(str 'BrokenProcessPool', str 'BrokenProcessPool')",
    "list(str 'BrokenExecutor', str '4')",
)
def dead_worker(make: Make) -> Any:
    """Only the task that it ran fails."""
    with make(1) as executor:
        return [
            kind(lambda: executor.submit(os._exit, 3).result()),
            kind(lambda: executor.submit(double, 2).result()),
        ]


@difference(
    "an exception whose `__init__` takes something else than its `args`",
    "str 'BrokenProcessPool'",
    "str 'Odd'",
)
def odd_exception(make: Make) -> Any:
    """It comes back as itself."""
    return tried(make, errands.fails_oddly)


@difference("`cancel()` of a running task", "bool False", "bool True")
def cancelled_running(make: Make) -> Any:
    """It is stopped."""
    with Gate() as gate, make(1) as executor:
        started = f"{gate.path}.started"
        future = executor.submit(scenes.wait_started, gate.path, started)
        wait_for(started)
        is_cancelled = future.cancel()
        gate.open()
        return is_cancelled


# -- what a worker is ------------------------------------------------------------------------------


@difference("when processes start", "bool False", "bool True")
def started(make: Make) -> Any:
    """With the executor, not with the first task."""
    before = len(psutil.Process().children())
    with make(1):
        return len(psutil.Process().children()) > before


@difference(
    "a lock or a queue of `multiprocessing` in `initargs`", "str 'passed'", "str 'PayloadError'"
)
def forked_lock(make: Make) -> Any:
    """Our workers are no forks of the program: they take those of spawn and forkserver."""
    lock = multiprocessing.get_context("fork").Lock()
    try:
        with make(1, initializer=errands.same, initargs=(lock,)) as executor:
            executor.submit(double, 1).result()
    except Exception as error:
        return type(error).__name__
    return "passed"


@difference("`mp_context`, start methods", "int 5", "int 9")
def start_method(make: Make) -> Any:
    """It has no effect: the script is not imported again, and needs no guard."""
    script().NUMBER = 9
    with make(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(script().inner).result()[0]


@difference(
    "`__main__`, `sys.argv` and the names of processes in a task",
    "tuple(bool True, bool True, bool True)",
    "tuple(bool False, bool False, bool False)",
)
def main_module(make: Make) -> Any:
    """A worker is a program of its own."""
    with make(1) as executor:
        return executor.submit(errands.whose_program, script().__file__).result()


@difference("`os.environ` and the working directory", "str 'late'", "NoneType None")
def environment(make: Make) -> Any:
    """They are those of the moment when the executor was made."""
    with make(1) as executor:
        os.environ["SET_HERE"] = "late"
        try:
            return executor.submit(os.getenv, "SET_HERE").result()
        finally:
            del os.environ["SET_HERE"]


@difference("`numpy.random` in tasks", "bool True", "bool False")
def random_numbers(make: Make) -> Any:
    """Forked processes all begin with the numbers that their parent draws next."""
    with make(1) as executor:
        return executor.submit(errands.draw).result() == errands.draw()


@difference("`hash()` of a text, the order of a set", "bool True", "bool False")
def hashes(make: Make) -> Any:
    """Python chooses anew in each program, unless PYTHONHASHSEED is set."""
    with make(1) as executor:
        return executor.submit(hash, "text").result() == hash("text")


@difference("threads of numeric libraries", "NoneType None", "str '1'")
def numeric_threads(make: Make) -> Any:
    """One in each worker: there is a worker for each CPU."""
    with make(1) as executor:
        return executor.submit(os.getenv, "OMP_NUM_THREADS").result()


@difference("the threads of a worker", "int 1", "int 2")
def threads(make: Make) -> Any:
    """One more than the task's own: Python warns of it where a task forks."""
    with make(1) as executor:
        return executor.submit(threading.active_count).result()
