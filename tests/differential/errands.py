"""What functions do that do something else than compute; of a module that can be imported."""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.showing import show


def describe(*values):
    """Show what is given."""
    return show(values)


class Wrong(Exception):
    """Made from two arguments, and has an attribute."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Ended(BaseException):
    """No Exception."""


def _noted() -> BaseException:
    error = ValueError("with a note")
    error.note = "note"  # type: ignore[attr-defined]
    return error


FAILURES: dict[str, Callable[[], Any]] = {
    "ValueError": lambda: ValueError("x", 1),
    "KeyError": lambda: KeyError("k"),
    "OSError": lambda: OSError(2, "no", "file"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "StopIteration": lambda: StopIteration(3),
    "StopAsyncIteration": lambda: StopAsyncIteration(3),
    "GeneratorExit": lambda: GeneratorExit(1),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(1),
    "SystemExit": lambda: SystemExit(3),
    "MemoryError": lambda: MemoryError("m"),
    "RecursionError": lambda: RecursionError("r"),
    "AssertionError": AssertionError,
    "TimeoutError": lambda: TimeoutError("t"),
    "CancelledError": lambda: concurrent.futures.CancelledError("c"),
    "Wrong": lambda: Wrong(1, "two"),
    "Ended": lambda: Ended(1),
    "attribute": _noted,
    "no exception": lambda: 5,
}


def fails(kind):
    """Raise it."""
    raise FAILURES[kind]()  # noqa: RSE102 - it is a function


def sometimes_fails(n):
    """Raise for one of four."""
    if n % 4 == 3:
        raise ValueError(n)
    return n


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


RESULTS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "huge": lambda: -(10**5000),
    "nan": lambda: (float("nan"), float("-inf"), -0.0),
    "nested": lambda: _nested(20),
    "exception": lambda: [ValueError("v"), Wrong(1, "two")],
    "large bytes": lambda: bytes(200_000),
    "large bytearray": lambda: bytearray(200_000),
    "large text": lambda: "x" * 200_000,
    "surrogate": lambda: "\ud800",
    "class": lambda: (int, Wrong, NotImplemented, Ellipsis),
    "function": lambda: (describe, len, "a".upper),
    "set": lambda: ({1, "a"}, frozenset({()})),
}


def gives(kind):
    """Return something odd."""
    return RESULTS[kind]()


def exits(code):
    """Leave, as a program does."""
    sys.exit(code)


def prints(text):
    """Write to both streams."""
    print(text)
    print(text, file=sys.stderr)
    os.write(1, b"raw\n")
    return len(text)


def logs(text):
    """Write to a log."""
    logging.getLogger("errands").info(text)
    return len(text)


def forks(code):
    """Have a child do something."""
    child = os.fork()
    if child == 0:
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def threads(count):
    """Have threads do something."""
    done: list[int] = []
    running = [threading.Thread(target=done.append, args=(n,)) for n in range(count)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return sorted(done)


def runs(text):
    """Have another program do something."""
    return subprocess.check_output(["/bin/sh", "-c", f"echo {text}"], text=True)


class Holder:
    """Knows an object."""

    def __init__(self, held: object) -> None:
        self._held = held

    def holds(self, value):
        """Say whether this is the object."""
        return value is self._held


class Odd(Exception):
    """Made from something else than its args."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


def fails_oddly():
    """Raise it."""
    raise Odd(1, "two")


def same(value):
    """Return it."""
    return value


def hold_same(one, other):
    """Say whether what they hold is one."""
    return one[0] is other[0]


def sort(array):
    """Write to an array."""
    array.sort()


def total(array):
    """Add up."""
    return float(array.sum())


def draw():
    """Draw a number."""
    return float(np.random.random())  # noqa: NPY002 - the state that all share


def whose_program(file):
    """Say whose process this is."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    return main == file, sys.argv[:1] == [file], multiprocessing.parent_process() is not None


ALL = (fails, sometimes_fails, gives, exits, prints, logs, forks, threads, runs)
