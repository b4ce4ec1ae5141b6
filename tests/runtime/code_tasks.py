"""What the tests of code on workers have workers call: cheap to import."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from scaler_exec import actors


def value_of(module: str):
    """Return what a module says, where this runs."""
    return importlib.import_module(module).VALUE


def make_of(module: str, name: str, *args):
    """Return an object of a class of a module, where this runs."""
    return getattr(importlib.import_module(module), name)(*args)


def call_actor(handle, method: str):
    """Return what a method of an actor returns."""
    return actors.call(handle, method).result()


def cannot_import(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return True
    return False


def fail_in(name: str, where: dict[int, str]) -> str:
    if where[os.getpid()] == name:
        raise LookupError(name)
    return name


def append(path: str, line: str) -> None:
    """Write a line to a file, as others do at the same time."""
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


class Noting:
    """Writes down where it was set up and torn down."""

    def __init__(self, path: str, word: str = "") -> None:
        self.path, self.word = path, word

    def setup(self, worker) -> None:
        assert worker.pid == os.getpid()
        append(self.path, f"+{self.word}{worker.name}")

    def teardown(self, worker) -> None:
        append(self.path, f"-{self.word}{worker.name}")


class Failing:
    def setup(self, worker) -> None:
        if worker.name == "right":
            raise OSError("no licence here")
