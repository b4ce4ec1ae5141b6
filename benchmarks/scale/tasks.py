"""How many tasks a second of each kind go through one scheduler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.processes import cpu_s
from benchmarks.roles import roles
from benchmarks.scale.crowd import PER_MACHINE, crowd
from benchmarks.scale.figures import begin, row
from benchmarks.scale.workers import WINDOW, lone
from benchmarks.scenarios.graphs import fan, flat, tree
from benchmarks.tasks import noop, own_fibonacci
from scaler_exec import Client, ScalerExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.scenarios.graphs import Graph

WARM_UP = 2_000
FIBONACCI = 16
FIBONACCI_TASKS = 3193
RATES = (100.0, 1000.0, 2500.0, 5000.0, 10_000.0, 0.0)
LONE_WORKERS = 1008
LONE_CLIENTS = 100


def measure_tasks(scale: float) -> None:
    """Print the rates of kinds that a client submits, with two real workers."""
    begin(
        "Tasks by kind, two real workers",
        "tasks",
        "kind", "tasks/s", "client CPU µs each", "scheduler CPU µs each", "workers CPU µs each",
    )  # fmt: skip
    with ScalerExecutor(max_workers=2) as executor, Client(executor.address) as client:
        for name, count, run in _kinds(executor, client, scale):
            run(WARM_UP if count > WARM_UP else 0)
            before = _used(executor)
            start = time.perf_counter()
            run(count)
            took_s = time.perf_counter() - start
            used = [
                (now - then) / count * 1e6
                for now, then in zip(_used(executor), before, strict=True)
            ]
            row(name, count / took_s, *used)


def _used(executor: ScalerExecutor) -> tuple[float, float, float]:
    """Return the CPU seconds of client, scheduler and workers."""
    found = roles(executor)
    spent = [sum(map(cpu_s, found[role])) for role in ("scheduler", "workers")]
    return time.process_time(), spent[0], spent[1]


def _kinds(
    executor: ScalerExecutor, client: Client, scale: float
) -> Sequence[tuple[str, int, Callable[[int], object]]]:
    def get(count: int, shape: Callable[[int], Graph]) -> None:
        graph, keys, _ = shape(max(count, 4))
        client.get(graph, keys)

    def submit(count: int) -> None:
        for future in [executor.submit(noop, one) for one in range(count)]:
            future.result()

    def one_by_one(count: int) -> None:
        for one in range(count):
            executor.submit(noop, one).result()

    thousands = int(1000 * scale)
    return (
        (
            "map, chunksize 100",
            500 * thousands,
            lambda n: list(executor.map(noop, range(n), chunksize=100)),
        ),
        ("map", 200 * thousands, lambda n: list(executor.map(noop, range(n)))),
        ("submit, then all results", 40 * thousands, submit),
        ("submit, each after the result before", 5 * thousands, one_by_one),
        ("nodes of a graph, all wanted", 20 * thousands, lambda n: get(n, flat)),
        ("nodes of a graph, a fan", 20 * thousands, lambda n: get(n, fan)),
        ("nodes of a graph, a sum by pairs", 20 * thousands, lambda n: get(n // 2, tree)),
        (
            "nested, each waits for two more",
            FIBONACCI_TASKS,
            lambda n: executor.submit(own_fibonacci, FIBONACCI if n else 2).result(),
        ),
    )


def measure_lone(rates: Sequence[float] = RATES) -> None:
    """Print what tasks cost that each travel alone, by how many of them there are a second."""
    begin(
        f"Lone tasks of {LONE_CLIENTS} clients on {LONE_WORKERS:,} stand-ins of workers",
        "lone",
        "tasks/s asked for", "tasks/s", "scheduler CPU µs each", "scheduler CPU %", "median ms",
        "99 % ms", "a whole core would do, tasks/s", "stand-ins CPU µs each",
    )  # fmt: skip
    with crowd() as one:
        one.join(LONE_WORKERS // PER_MACHINE, PER_MACHINE)
        one.add_clients(LONE_CLIENTS)
        lone(one, 0.0, WINDOW)
        for rate in rates:
            got, each_us, median, high, share, stands = lone(one, rate, WINDOW)
            row(
                int(rate) or f"as many as can be, {WINDOW} under way",
                got,
                each_us,
                share,
                median,
                high,
                1e6 / each_us,
                stands,
            )
