"""The functions that the workers run; importable by name in every worker process."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

HELD = b"held"
"""What a held worker says to its gate."""


def noop(value: int) -> int:
    """Return the argument: the least that a task can do and still be checked."""
    return value


def increase(value: float) -> float:
    """Return one more."""
    return value + 1


def add_all(*values: float) -> float:
    """Return the sum of the arguments."""
    return sum(values)


def pick(array: Any, index: int) -> float:
    """Return one item of an array."""
    return float(array[index])


def make_array(nbytes: int) -> Any:
    """Return a new array of so many bytes."""
    import numpy as np

    return np.ones(nbytes // 8)


def echo(value: Any) -> Any:
    """Return the argument."""
    return value


def sleep_ms(duration_ms: float) -> float:
    """Sleep, which leaves the core to others; return the argument."""
    time.sleep(duration_ms / 1000)
    return duration_ms


def spin_ms(duration_ms: float) -> float:
    """Use CPU time of this thread, which a busy neighbour makes take longer."""
    end = time.thread_time() + duration_ms / 1000
    while time.thread_time() < end:
        pass
    return duration_ms


def hold(address: tuple[str, int]) -> int:
    """Keep this worker busy, without using CPU, until the gate at ``address`` lets it go."""
    with socket.create_connection(address) as connection:
        connection.sendall(HELD)
        connection.recv(1)
    return os.getpid()


def short_task(index: int, duration_ms: float) -> int:
    """Sleep a little and return the index, which says whose result this is."""
    time.sleep(duration_ms / 1000)
    return index
