"""What the tasks of test_truth.py do: a module that a worker imports quickly."""

from __future__ import annotations

import os
import time

NESTED = 12


def plain(number):
    return number


def fails():
    raise ValueError("as it is to")


def fails_once(path):
    """Fail, but not the second time."""
    if not os.path.exists(path):
        open(path, "x").close()
        raise ValueError("once")


def dies():
    os.kill(os.getpid(), 9)


def waits(path):
    """Wait for a flag."""
    while not os.path.exists(path):
        time.sleep(0.005)


def child(number):
    return number


def parent(client):
    return sum(one.result() for one in [client.submit(child, n) for n in range(NESTED)])
