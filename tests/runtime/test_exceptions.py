"""How the exceptions of tasks come back."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from types import ModuleType

import pytest

from scaler_exec import (
    DeserializeObjectError,
    PayloadError,
    RemoteError,
    ScalerExecutor,
    UnpicklableResultError,
)
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, run_program


def failure(executor, *call) -> BaseException:
    """Return what a task raised."""
    error = executor.submit(*call).exception(BOUND_S)
    assert error is not None
    return error


def test_an_exception_comes_back_as_itself(executor) -> None:
    """A task's exception has its own type and arguments."""
    error = failure(executor, tasks.raise_this, "KeyError", "key", 3)

    assert type(error) is KeyError
    assert error.args == ("key", 3)


def test_the_remote_traceback_is_the_cause(executor) -> None:
    """The cause of a task's exception shows the worker's traceback, down to the line."""
    error = failure(executor, tasks.raise_this, "ValueError", "text")

    assert "in raise_this" in str(error.__cause__)
    assert "raise kind(*args)" in str(error.__cause__)
    assert "ValueError: text" in "".join(traceback.format_exception(error))


def test_the_remote_traceback_shows_the_users_frames_only(executor) -> None:
    """The engine's own frames do not stand in a remote traceback."""
    error = failure(executor, tasks.raise_this, "ValueError", "text")

    assert "scaler_cluster" not in str(error.__cause__)


def test_the_remote_cause_is_shown(executor) -> None:
    """The text of the remote traceback holds the exception's own cause."""
    error = failure(executor, tasks.raise_chained)

    assert "KeyError: 'the cause'" in str(error.__cause__)
    assert "direct cause" in str(error.__cause__)


def test_map_raises_with_the_remote_traceback(executor) -> None:
    """An exception out of a map carries the remote traceback too."""
    with pytest.raises(ZeroDivisionError) as caught:
        list(executor.map(divmod, [1, 1], [1, 0]))

    assert "ZeroDivisionError" in str(caught.value.__cause__)


def test_map_of_chunks_raises_the_tasks_exception(executor) -> None:
    """An exception in a chunk is raised as it is."""
    with pytest.raises(ZeroDivisionError):
        list(executor.map(divmod, [1, 1], [1, 0], chunksize=2))


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit", "GeneratorExit"])
def test_exceptions_that_end_a_program_end_only_the_task(single, name) -> None:
    """BaseExceptions come back like any other, and the worker lives."""
    pid = single.submit(os.getpid).result(BOUND_S)

    assert type(failure(single, tasks.raise_this, name)).__name__ == name
    assert single.submit(os.getpid).result(BOUND_S) == pid


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (("TwoArguments", 1, 2), tasks.TwoArguments, "^1 and 2"),
        (("Locked",), tasks.Locked, "^locked"),
    ],
)
def test_an_exception_that_pickle_cannot_bring_back_comes_all_the_same(executor, call, kind, text):
    """An exception comes back though pickle fails on its __init__ or on what it holds."""
    with pytest.raises(kind, match=text) as caught:
        executor.submit(tasks.raise_this, *call).result(BOUND_S)
    with pytest.raises(kind, match=text):
        list(executor.map(tasks.raise_this, *([one] for one in call)))

    assert type(caught.value) is kind
    assert "in raise_this" in str(caught.value.__cause__)


def test_an_exception_of_two_arguments_is_whole(executor) -> None:
    """An exception of two arguments comes back with its args, text and attributes."""
    error = failure(executor, tasks.raise_this, "TwoArguments", 1, 2)

    assert (error.args, str(error), vars(error)) == (("1 and 2",), "1 and 2", {"second": 2})


def test_what_of_an_exception_cannot_be_pickled_is_told(executor) -> None:
    """What of an exception cannot be pickled is named in a note, and the rest comes."""
    error = failure(executor, tasks.raise_this, "Locked")

    assert (str(error), hasattr(error, "lock")) == ("locked", False)
    assert (
        "The attribute lock of this exception did not come: it is a _thread.lock"
        in (vars(error)["__notes__"][0])
    )


def test_an_exception_that_cannot_be_shown_is_replaced(executor) -> None:
    """RemoteError names the type, and shows the remote traceback."""
    error = failure(executor, tasks.raise_this, "Unspeakable")

    assert type(error) is RemoteError
    assert "Unspeakable" in str(error)
    assert "in raise_this" in str(error.__cause__)


def test_an_exception_that_cannot_travel_is_replaced(executor) -> None:
    """RemoteError stands in for it: type name, text, reason, a hint and remote traceback."""
    error = failure(executor, tasks.raise_local, "some text")

    assert type(error) is RemoteError
    assert "Local: some text" in str(error)
    assert "its closure variable lock is a _thread.lock, which cannot be pickled" in str(error)
    assert "__reduce__" in str(error)
    assert "in raise_local" in str(error.__cause__)


def test_a_script_catches_its_own_exception() -> None:
    """An exception of a class of __main__ is caught as that class, also with two arguments."""
    done = run_program(
        """
from scaler_exec import ScalerExecutor

class MyError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code

def fail(code):
    raise MyError(code, "text")

if __name__ == "__main__":
    with ScalerExecutor(1) as executor:
        for call in (executor.submit(fail, 5).result, lambda: list(executor.map(fail, [5]))):
            try:
                call()
            except MyError as error:
                print(error, error.code, error.args)
"""
    )

    assert done.stdout == "text 5 ('text',)\n" * 2, done


def test_an_exception_that_does_not_unpickle_here_is_replaced(executor) -> None:
    """RemoteError also stands in for what only this process cannot unpickle."""
    error = failure(executor, tasks.raise_this, "UnpicklesOnlyIn", os.getpid())

    assert type(error) is RemoteError
    assert "UnpicklesOnlyIn" in str(error)


@pytest.mark.parametrize(
    "call",
    [(tasks.square, tasks.RaisesUnspeakable()), (tasks.RaisesUnspeakable(),)],
    ids=["argument", "function"],
)
def test_an_error_that_cannot_be_shown_still_arrives(single, call) -> None:
    """An unpickling that fails with an unshowable error fails its future, and the worker lives."""
    pid = single.submit(os.getpid).result(BOUND_S)

    assert type(failure(single, *call)) is DeserializeObjectError
    assert single.submit(os.getpid).result(BOUND_S) == pid


def test_text_that_utf_8_cannot_hold_comes_back(single) -> None:
    """Lone surrogates, as in names of files, survive in the exception, and the worker too."""
    pid = single.submit(os.getpid).result(BOUND_S)
    error = failure(single, tasks.raise_this, "ValueError", "file \udc80")

    assert error.args == ("file \udc80",)
    assert "file \\udc80" in str(error.__cause__)
    assert single.submit(os.getpid).result(BOUND_S) == pid


def test_an_exception_that_refuses_attributes_comes_back(executor) -> None:
    """An exception that is a frozen dataclass has its remote traceback as well."""
    error = failure(executor, tasks.raise_this, "Frozen", 3)

    assert error == tasks.Frozen(3)
    assert "in raise_this" in str(error.__cause__)


def test_an_endless_recursion_comes_back(executor) -> None:
    """A RecursionError arrives, its long traceback included."""
    error = failure(executor, tasks.recurse_for_ever)

    assert type(error) is RecursionError
    assert "recurse_for_ever" in str(error.__cause__)


def test_a_huge_message_comes_back(executor) -> None:
    """An exception with megabytes of text arrives whole."""
    error = failure(executor, tasks.raise_this, "ValueError", "x" * 3_000_000)

    assert type(error) is ValueError
    assert len(error.args[0]) == 3_000_000


def test_an_unpicklable_result_says_what_it_is(executor) -> None:
    """UnpicklableResultError names the type and carries the remote traceback."""
    error = failure(executor, tasks.make_unpicklable, "raise")

    assert type(error) is UnpicklableResultError
    assert "FailsAtPickle" in str(error)
    assert "raised on purpose" in str(error.__cause__)


def test_an_unimportable_function_says_so(executor, monkeypatch) -> None:
    """A function of a module that the worker cannot import fails with DeserializeObjectError."""
    module = ModuleType("only_here")
    exec("def function(): return 1", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)

    error = failure(executor, module.function)

    assert type(error) is DeserializeObjectError
    assert isinstance(error, PayloadError)
    assert "The module only_here is missing in the worker process " in str(error)
    assert f" on {platform.node()} (Python {platform.python_version()}, {sys.executable})" in (
        str(error)
    )
    assert "PYTHONPATH of scaler_cluster" in str(error)
    assert "register_pickle_by_value(only_here)" in str(error)


def test_a_module_that_an_argument_needs_is_named(executor, monkeypatch) -> None:
    """The error names the module that an argument, item or node needs and a worker lacks."""
    module = ModuleType("only_here")
    exec("class Model: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    bad = module.Model()

    with pytest.raises(DeserializeObjectError, match="argument 1: .*The module only_here is miss"):
        executor.submit(pow, 1, bad).result(BOUND_S)
    with pytest.raises(DeserializeObjectError, match="The module only_here is missing"):
        list(executor.map(tasks.square, [bad]))
    with pytest.raises(DeserializeObjectError, match="The module only_here is missing"):
        executor.submit(pow, executor.submit(tasks.square, 2), bad).result(BOUND_S)


def test_another_version_of_a_module_is_named(executor, monkeypatch) -> None:
    """The error of an older module says what it lacks, where it is, and what to do."""
    names = {"__name__": tasks.__name__}
    exec("def only_here(): return 1", names)
    monkeypatch.setattr(tasks, "only_here", names["only_here"], raising=False)

    error = failure(executor, names["only_here"])

    assert type(error) is DeserializeObjectError
    assert "Can't get attribute 'only_here' on <module 'tests.runtime.tasks'" in str(error)
    assert "another version in the worker process " in str(error)
    assert "restart the workers" in str(error)


def test_every_call_of_result_raises_the_same_exception(executor) -> None:
    """result() and exception() return one and the same exception object."""
    future = executor.submit(tasks.raise_this, "ValueError")
    error = future.exception(BOUND_S)

    with pytest.raises(ValueError) as caught:
        future.result()

    assert caught.value is error


def test_leaving_a_with_block_by_an_exception_waits_for_the_tasks(tmp_path) -> None:
    """An executor's __exit__ waits for its tasks, and lets the exception pass."""
    path = tmp_path / "lines"
    with pytest.raises(KeyError), ScalerExecutor(1) as executor:
        executor.submit(tasks.append_line, str(path), "done")
        raise KeyError

    assert path.read_text() == "done\n"
