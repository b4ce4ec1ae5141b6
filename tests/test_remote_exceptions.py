"""What becomes of an exception on its way: there and back in one process."""

from __future__ import annotations

import errno
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from scaler_cluster.errors import (
    Death,
    RemoteError,
    RemoteTraceback,
    TaskInterrupted,
    WorkerDiedError,
)
from scaler_cluster.pickling.exceptions import dumps_exception, loads_exception


def sent(error: BaseException) -> Any:
    """Return what becomes of an exception that a task raised."""
    try:
        raise error
    except BaseException as raised:
        return loads_exception(*dumps_exception(raised, raised.__traceback__))


# -- whose __init__ takes something else than their args --------------------------------------------


class Coded(Exception):
    """Takes two arguments, and tells Exception of one."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Keyed(Exception):
    """Takes keywords only."""

    def __init__(self, *, code):
        super().__init__()
        self.code = code


class Shifted(Exception):
    """Can be made from its args, but becomes another one."""

    def __init__(self, code, message="unknown"):
        super().__init__(f"{message}: {code}")
        self.code = code


class Derived(Coded):
    """Takes nothing; the one it is derived from takes two."""

    def __init__(self):
        super().__init__(5, "five")


class Slotted(Exception):
    """Holds something in a slot, which its pickle leaves out."""

    __slots__ = ("code", "unset")

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class NewTakes(Exception):
    """Takes two arguments where it is made."""

    code: int

    def __new__(cls, code, message):
        self = super().__new__(cls, message)
        self.code = code
        return self

    def __init__(self, code, message):
        super().__init__(message)


class Filed(OSError):
    """Is an OSError with a parameter more."""

    def __init__(self, code, path):
        super().__init__(errno.ENOENT, "gone", path)
        self.code = code


class Looked(KeyError, AttributeError):
    """Has two builtin bases."""

    def __init__(self, code, key):
        super().__init__(key)
        self.code = code


class Stopped(StopIteration):
    """Is a StopIteration with a parameter more."""

    def __init__(self, code, value):
        super().__init__(value)
        self.code = code


class Misread(UnicodeDecodeError):
    """Is a UnicodeDecodeError with a parameter more."""

    def __init__(self, code):
        super().__init__("utf-8", b"abc", 1, 2, "bad")
        self.code = code


class Misspelt(SyntaxError):
    """Is a SyntaxError with a parameter more."""

    def __init__(self, code, message):
        super().__init__(message, ("file", 3, 4, "text"))
        self.code = code


class Unimported(ImportError):
    """Is an ImportError with a parameter more."""

    def __init__(self, code, name):
        super().__init__("not there", name=name)
        self.code = code


class Left(SystemExit):
    """Is a SystemExit with a parameter more."""

    def __init__(self, code, why):
        super().__init__(code)
        self.why = why


class LikeSql(sqlite3.OperationalError):
    """Is an exception of an extension module with a parameter more."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Frozen(Exception):
    """Refuses to have attributes set."""

    code: int
    message: str = "m"


@pytest.mark.parametrize(
    "error",
    [
        Coded(5, "text"),
        Keyed(code=5),
        Shifted(5),
        Derived(),
        NewTakes(5, "text"),
        Filed(5, "path"),
        Looked(5, "key"),
        Stopped(5, "value"),
        Misread(5),
        Misspelt(5, "text"),
        Unimported(5, "module"),
        LikeSql(5, "text"),
        Frozen(5),
        Slotted(5, "text"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_comes_back_as_itself(error):
    """An exception comes back with type, args, text and attributes, whatever __init__ takes."""
    got = sent(error)

    assert type(got) is type(error)
    assert (got.args, str(got), repr(got), got.code) == (error.args, str(error), repr(error), 5)
    assert vars(got) == vars(error)
    assert isinstance(got.__cause__, RemoteTraceback)


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (Filed(5, "path"), ("errno", "strerror", "filename")),
        (Stopped(5, "value"), ("value",)),
        (Misread(5), ("encoding", "object", "start", "end", "reason")),
        (Misspelt(5, "text"), ("msg", "filename", "lineno", "offset", "text")),
        (Unimported(5, "module"), ("name", "path", "msg")),
        (Left(3, "because"), ("code", "why")),
        (OSError(errno.ENOENT, "gone", "a", None, "b"), ("errno", "filename", "filename2")),
        (UnicodeDecodeError("utf-8", b"abc", 1, 2, "bad"), ("object", "start", "reason")),
        (StopIteration(3), ("value",)),
        (SystemExit(3), ("code",)),
        (ImportError("a", name="b", path="c"), ("name", "path")),
        (AttributeError("a", name="b"), ("name",)),
        (NameError("a", name="b"), ("name",)),
        (KeyError("a"), ()),
        (WorkerDiedError("a", Death(3)), ("death",)),
        (subprocess.CalledProcessError(3, ["a"], output=b"o", stderr=b"e"), ("cmd", "stderr")),
        (subprocess.TimeoutExpired(["a"], 3.0), ("cmd", "timeout")),
        (json.JSONDecodeError("a", "bcd", 2), ("doc", "pos", "lineno")),
        (np.exceptions.AxisError(3, 2), ("axis", "ndim")),
        (ValueError(), ()),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, BaseException) else "",
)
def test_what_it_holds_outside_of_its_dict_comes_along(error, fields):
    """Values in slots and in fields of C types come along."""
    got = sent(error)

    assert type(got) is type(error)
    assert (got.args, str(got)) == (error.args, str(error))
    assert [getattr(got, name) for name in fields] == [getattr(error, name) for name in fields]


def test_slots_that_are_not_set_stay_so():
    """A slot that is not set stays so."""
    got = sent(Slotted(5, "text"))

    assert got.code == 5
    assert not hasattr(got, "unset")


def test_notes_come_along():
    """The notes of an exception come along."""
    error: Any = Coded(5, "text")
    error.__notes__ = ["a note"]

    assert sent(error).__notes__ == ["a note"]


def test_exceptions_inside_of_others_come_back():
    """Exceptions in arguments and attributes of others come back, also in a circle."""
    error: Any = Coded(5, Coded(6, "inner"))
    error.others = [Slotted(7, "other"), error]
    got = sent(error)

    assert (type(got.args[0]), got.args[0].code) == (Coded, 6)
    assert (type(got.others[0]), got.others[0].code) == (Slotted, 7)
    assert got.others[1] is got


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no groups of exceptions before")
def test_groups_come_back():
    """Nested groups come back, with exceptions of whatever class."""

    class Group(ExceptionGroup):  # type: ignore[name-defined,misc]  # noqa: F821
        def __new__(cls, errors, code):
            self = super().__new__(cls, "many", errors)
            self.code = code
            return self

    members = [Coded(5, "text"), KeyError("k")]
    inner = ExceptionGroup("inner", members)  # type: ignore[name-defined]  # noqa: F821
    got = sent(Group([inner, Keyed(code=6)], 7))

    assert (type(got), got.message, got.code) == (Group, "many", 7)
    assert [type(one) for one in got.exceptions] == [type(inner), Keyed]
    assert [type(one) for one in got.exceptions[0].exceptions] == [Coded, KeyError]
    assert got.exceptions[0].exceptions[0].code == 5
    assert got.split(Coded)[0].exceptions[0].exceptions[0].args == ("text",)


# -- who say themselves how they are pickled --------------------------------------------------------


class Says(Exception):
    """Comes back as its __reduce__ says."""

    def __init__(self, made):
        super().__init__("text")
        self.made = made

    def __reduce__(self):
        return self.made


def test_its_own_reduce_is_believed():
    """An exception whose __reduce__ names another one comes back as that."""
    assert type(sent(Says((KeyError, ("key",))))) is KeyError


def test_who_refuses_to_be_pickled_is_replaced():
    """An exception whose __reduce__ raises is replaced, and the text says so."""

    class Stays(Exception):
        def __reduce__(self):
            raise TypeError("stays here")

    got = sent(Stays("text"))

    assert type(got) is RemoteError
    assert "Stays: text" in str(got)
    assert "whose pickling raises TypeError: stays here" in str(got)


@pytest.mark.parametrize("made", [(int, ("no",)), (int, (3,)), 5, (os._exit,)])
def test_a_reduce_that_does_not_work_is_not_used(made):
    """An exception comes back by other means where its __reduce__ does not work."""
    got = sent(Says(made))

    assert (type(got), got.args) == (Says, ("text",))


# -- what cannot be pickled -------------------------------------------------------------------------


def test_what_cannot_be_pickled_of_it_is_left_out():
    """Attributes that cannot be pickled are left out, and a note names them."""
    error: Any = Coded(5, "text")
    error.lock = threading.Lock()
    error.__notes__ = ["a note"]
    got = sent(error)

    assert (type(got), got.code, got.args) == (Coded, 5, ("text",))
    assert not hasattr(got, "lock")
    assert got.__notes__[0] == "a note"
    assert (
        "The attribute lock of this exception did not come: it is a _thread.lock"
        in (got.__notes__[1])
    )


def test_what_remains_of_exceptions_in_others_is_found_once():
    """Long chains and circles of exceptions that hold locks are searched once."""
    error: Any = Coded(5, "innermost")
    error.lock = threading.Lock()
    for _ in range(30):
        outer: Any = Coded(5, error)
        outer.inner = [error]
        outer.lock = error.lock
        error.outer = [outer]
        error = outer
    got = sent(error)
    depth = 0
    while isinstance(got.args[0], Coded):
        got = got.args[0]
        depth += 1

    assert (depth, got.args, hasattr(got, "lock")) == (30, ("innermost",), False)


def test_an_argument_that_cannot_be_pickled_becomes_a_text():
    """An argument that cannot be pickled becomes a text; the others come as they are."""
    got: Any = sent(ValueError(1, threading.Lock()))

    assert (type(got), got.args[0]) == (ValueError, 1)
    assert "_thread.lock" in got.args[1]
    assert "Argument 1 of this exception came as a text" in got.__notes__[0]


def test_what_cannot_be_unpickled_of_it_is_left_out():
    """Attributes that fail only when they are unpickled are left out as well."""
    error: Any = Coded(5, "text")
    error.bad = BadToMake()
    got = sent(error)

    assert (type(got), got.code) == (Coded, 5)
    assert "The attribute bad" in got.__notes__[0]


class BadToMake:
    """Cannot be unpickled."""

    def __reduce__(self):
        return int, ("no",)


def test_a_class_that_cannot_be_pickled_is_replaced():
    """RemoteError has the type, text, reason and a hint of a class that cannot travel."""
    lock = threading.Lock()

    class Local(Exception):
        def held(self):
            return lock

    got = sent(Local("text"))

    assert type(got) is RemoteError
    assert "Local: text" in str(got)
    assert "its closure variable lock is a _thread.lock" in str(got)
    assert "__reduce__" in str(got)


def test_what_does_not_unpickle_here_is_replaced(monkeypatch):
    """RemoteError names the module that is missing here."""
    data, detail = dumps_exception(Coded(5, "text"), None)
    monkeypatch.setitem(sys.modules, __name__, None)

    got = loads_exception(data, detail)

    assert type(got) is RemoteError
    assert "Coded: text" in str(got)


def test_an_interrupt_passes():
    """A task that is stopped while its exception is pickled is stopped."""

    class Stops(Exception):
        def __reduce__(self):
            raise TaskInterrupted

    with pytest.raises(TaskInterrupted):
        dumps_exception(Stops(), None)


def test_plain_exceptions_are_pickled_plainly():
    """An exception that pickle handles is left to pickle."""
    data, _ = dumps_exception(ValueError("text"), None)

    assert data == pickle.dumps(ValueError("text"), 5)


def test_what_tblib_says_of_all_exceptions_is_not_heeded() -> None:
    """It says that wherever distributed is imported, and much that exceptions hold gets lost."""
    pytest.importorskip("tblib", reason="it is there with Dask's cluster: tox run -e guests")
    program = """
from tblib import pickling_support
pickling_support.install()
from scaler_cluster.pickling.exceptions import dumps_exception, loads_exception
for error in UnicodeDecodeError("utf-8", b"abc", 1, 2, "bad"), NameError("a", name="b"):
    made = loads_exception(*dumps_exception(error, None))
    print(made, getattr(made, "name", made.args))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "'utf-8' codec can't decode byte 0x62 in position 1: bad ('utf-8', b'abc', 1, 2, 'bad')",
        "a b",
    ]
