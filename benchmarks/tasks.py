"""The functions that the workers run; importable by name in every worker process."""

from __future__ import annotations

import concurrent.futures
import os
import random
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

HELD = b"held"
"""What a held worker says to its gate."""
MIXED_MAX = (1 << 61) - 1
"""So that numbers fit into items of arrays."""


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


def reverse(content: bytes) -> bytes:
    """Return the argument from its end."""
    return content[::-1]


def run_batch(function: Any, values: Sequence[Any]) -> list[Any]:
    """Call a function for each value, where one task has many."""
    return [function(value) for value in values]


def sleep_ms(duration_ms: float) -> float:
    """Sleep, which leaves the core to others; return the argument."""
    time.sleep(duration_ms / 1000)
    return duration_ms


def sleep_in_process(duration_ms: float) -> int:
    """Sleep; return the pid of the process."""
    time.sleep(duration_ms / 1000)
    return os.getpid()


def sleep_then(call: tuple[int, float]) -> int:
    """Sleep so many milliseconds; return the number that was given with them."""
    number, duration_ms = call
    time.sleep(duration_ms / 1000)
    return number


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


def fibonacci(client: Any, n: int) -> int:
    """Return the n-th number; each call is a task that submits two more and waits for them."""
    if n < 2:
        return n
    a = client.submit(fibonacci, client, n - 1)
    b = client.submit(fibonacci, client, n - 2)
    return int(a.result() + b.result())


def tree(client: Any, seed: int, depth: int) -> int:
    """Run a tree of tasks of random shape, waited for in a random way; return its size."""
    how, nap_s, seeds = _grow(seed, depth)
    time.sleep(nap_s)
    branches = [(client, one, depth - 1) for one in seeds]
    if how == 0:
        return 1 + sum(client.starmap(tree, branches))
    if how == 1:
        graph: dict[Any, Any] = {("branch", n): (tree, *one) for n, one in enumerate(branches)}
        graph["size"] = (add_all, 1, *graph)
        return int(client.get(graph, ["size"])["size"])
    futures = [client.submit(tree, *branch) for branch in branches]
    if how == 2:
        return int(client.submit(add_all, 1, *futures).result())
    if how == 3:
        return 1 + sum(future.result() for future in concurrent.futures.as_completed(futures))
    if how == 4:
        concurrent.futures.wait(futures)
    return 1 + sum(future.result() for future in reversed(futures))


def plain_tree(seed: int, depth: int) -> int:
    """Return what :func:`tree` does, without tasks."""
    _, _, seeds = _grow(seed, depth)
    return 1 + sum(plain_tree(one, depth - 1) for one in seeds)


def _grow(seed: int, depth: int) -> tuple[int, float, list[int]]:
    """Return how to wait, how long to sleep, and the seeds of the branches."""
    dice = random.Random(seed)
    how, nap_s = dice.randrange(6), dice.choice((0, 0, 0, 0.002, 0.01))
    branches = dice.randint(0, 3) if depth else 0
    return how, nap_s, [dice.randrange(1 << 30) for _ in range(branches)]


def mixed(how: tuple[int, float, str, int], *values: Any) -> Any:
    """Return a number made of the arguments, as often as asked for, or raise ValueError."""
    name, nap_s, form, words = how
    if nap_s:
        time.sleep(nap_s)
    if form == "raises":
        raise ValueError(name)
    number = mix(name, values)
    if form == "bytes":
        return number.to_bytes(8, "big") * words
    if form == "array":
        import numpy as np

        return np.full(words, number)
    return number


def mix(name: int, values: Sequence[Any]) -> int:
    """Return a number that tells the order and the values of all of these."""
    for value in values:
        name = (31 * name + as_number(value)) % MIXED_MAX
    return name


def as_number(value: Any) -> int:
    """Return the number that a value holds, once, again and again, or in lists."""
    if isinstance(value, int):
        return value
    if isinstance(value, list):
        return mix(len(value), value)
    if isinstance(value, bytes):
        number = int.from_bytes(value[:8], "big")
        return number if value == value[:8] * (len(value) // 8) else -1
    return int(value[0]) if (value == value[0]).all() else -1


def own_fibonacci(n: int) -> int:
    """As :func:`fibonacci`, with a client of its own; each further task is passed that one."""
    from scaler_exec import Client

    return fibonacci(Client(), n)


def dask_fibonacci(n: int) -> int:
    """As :func:`fibonacci`, as Dask's documents say."""
    from distributed import worker_client

    if n < 2:
        return n
    with worker_client() as client:
        a = client.submit(dask_fibonacci, n - 1, pure=False)
        b = client.submit(dask_fibonacci, n - 2, pure=False)
        return int(a.result() + b.result())


def ray_fibonacci(n: int) -> int:
    """As :func:`fibonacci`, with Ray's own tasks."""
    import ray

    if n < 2:
        return n
    submit = ray.remote(ray_fibonacci).remote
    return int(sum(ray.get([submit(n - 1), submit(n - 2)])))
