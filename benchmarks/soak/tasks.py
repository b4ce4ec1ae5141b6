"""The functions that the soak's tasks run; importable by name in every worker."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

TWICE = ".twice"
"""Ends the name of the mark of a task that was started again."""


def marked(directory: str, name: int, nap_s: float) -> int:
    """Leave a mark, which only one start can; return the name."""
    try:
        os.close(os.open(f"{directory}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        Path(directory, f"{name}{TWICE}").touch()
    time.sleep(nap_s)
    return name


def at_second_try(directory: str, name: int) -> int:
    """Raise ValueError the first time, and return the name from then on."""
    mark = Path(directory, f"{name}.tried")
    if not mark.exists():
        mark.touch()
        raise ValueError(name)
    return name


def raising(name: int) -> int:
    """Raise ValueError."""
    raise ValueError(name)


def hang() -> None:
    """Run for much longer than its timeout, or than somebody waits who cancels it."""
    time.sleep(600)


def add_up(array: Any, name: int) -> tuple[int, int]:
    """Return the sum of a large argument, and the name."""
    return int(array.sum()), name


def make(words: int, name: int) -> Any:
    """Return a large result, made of the name."""
    import numpy as np

    return np.full(words, name)


def double(name: int, nap_s: float) -> int:
    """Return twice the name, after a moment."""
    time.sleep(nap_s)
    return 2 * name
