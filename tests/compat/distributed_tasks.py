"""Tasks of the tests of distributed's client."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path


def inc(x):
    return x + 1


def fail(x):
    raise ZeroDivisionError(f"of {x}")


def count_up(path, value=None):
    """Return a value, and note in a file that this was run."""
    with open(path, "a") as file:
        file.write("x")
    return value


def hold(path):
    """Return once a file is there."""
    Path(path + ".began").touch()
    while not Path(path).exists():
        time.sleep(0.005)
    return 7


def fail_at_first(path):
    if not Path(path).exists():
        Path(path).touch()
        raise ValueError("the first time")
    return 5


async def slowly(x):
    await asyncio.sleep(0)
    return x + 1


def nested(n):
    from scaler_exec import distributed as ours

    with ours.worker_client() as client:
        futures = client.map(inc, range(n))
        total = client.submit(sum, futures)
        came = [future.result() for future in ours.as_completed(futures)]
        inner = ours.get_client().submit(inc, n).result()
        ours.secede()
        ours.rejoin()
        with ours.local_client() as other:
            return total.result(), sorted(came), inner, other.gather(other.submit(inc, 1))


def count_in_metadata(who):
    """Count this task in the metadata of the cluster."""
    from scaler_exec import distributed as ours

    client = ours.get_client()
    with ours.Lock("metadata of tests"):
        runs = client.get_metadata(["tests", "runs"], default=0)
        client.set_metadata(["tests", "runs"], runs + 1)
    client.set_metadata(["tests", "who", who], None)


def visit():
    """Return what a task knows of its worker, and how often it was called there."""
    from scaler_exec import distributed as ours

    worker = ours.get_worker()
    if not hasattr(worker, "visits"):
        worker.visits = 0
    worker.visits += 1
    return worker.name, worker.address, worker.scheduler.address, worker.visits
