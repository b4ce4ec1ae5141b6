"""Says what one task costs that travels alone, over all processes, by process and thread.

``python -m benchmarks.lone_tasks [--workers 32] [--task-ms 100] [--seconds 5] [--rounds 3]
[--peers ours,ppe,dask] [--how map]`` has so many workers run tasks that sleep, long enough that few
of them end or begin together. It prints for each peer, as medians of the rounds:

- ``CPU us``: the CPU time of all processes per task, and the part of each role; of our roles by
  thread as well: ``main``, ``io`` (libzmq's) and ``more`` (all others).
- ``switches``: how often threads went to sleep per task.
- ``% of ideal``: the time that the tasks would take without any engine / the time that they took.

With ``--how submit`` the client submits the next task when one ends, as long as there are any;
with ``--how spin`` the tasks use the CPU. The peers take turns within each round, each in a process
of its own. Figures are from ``/proc/PID/task/*/schedstat`` and ``status``, so this runs on Linux.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, wait
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.peers import PEERS
from benchmarks.processes import children
from benchmarks.scenario import check
from benchmarks.tasks import sleep_in_process, sleep_ms, spin_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WARM_UP_MS = 50.0
WARM_UPS_MAX = 100
"""All workers have run a task before the measurement, if that many rounds of such tasks do."""
ROLES = ("client", "scheduler", "workers", "others")


def role_of(process: psutil.Process, client: int) -> str:
    """Return which role of a cluster a process has, or of a pool's processes."""
    if process.pid == client:
        return "client"
    command = " ".join(process.cmdline())
    if "scaler" not in command:
        # A fork of this program, or what a library runs its workers in.
        return "workers"
    if ".scheduler" in command:
        return "scheduler"
    return "workers" if _is_forked(process) else "others"


def _is_forked(process: psutil.Process) -> bool:
    """Return True for a child of a process that runs the same program: the fork server's."""
    parent = process.parent()
    return parent is not None and parent.cmdline() == process.cmdline()


def spent() -> Counter[str]:
    """Return nanoseconds on a CPU and voluntary switches so far, by role and thread."""
    here = psutil.Process()
    found: Counter[str] = Counter()
    for process in [here, *children()]:
        role = role_of(process, here.pid)
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            name = "main" if thread.name == str(process.pid) else "more"
            if (thread / "comm").read_text().startswith("ZMQbg/"):
                name = "io"
            nanoseconds = int((thread / "schedstat").read_text().split()[0])
            status = (thread / "status").read_text()
            switches = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
            found[f"ns {role} {name}"] += nanoseconds
            found[f"switches {role} {name}"] += switches
    return found


def submitted(peer: Any, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Run tasks by submits: the next one whenever one has ended."""
    left = iter(items)
    pending = {peer.submit(function, item) for item in islice(left, peer.workers)}
    results = []
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        results += [one.result() for one in done]
        pending |= {peer.submit(function, item) for item in islice(left, len(done))}
    return results


def measure(name: str, how: str, workers: int, task_ms: float, seconds: float) -> dict[str, float]:
    """Return the figures of one peer: per task, and the share of the ideal."""
    peer = PEERS[name]()
    peer.workers = workers
    peer.load()
    peer.open()
    function = spin_ms if how == "spin" else sleep_ms

    def run(function: Callable[[Any], Any], items: list[float]) -> list[Any]:
        if how == "submit":
            return submitted(peer, function, items)
        return list(peer.map(function, items))

    present: set[int] = set()
    for _ in range(WARM_UPS_MAX):
        present.update(run(sleep_in_process, [WARM_UP_MS] * workers))
        if len(present) == workers:
            break
    run(function, [task_ms] * workers)
    lanes = min(workers, psutil.cpu_count() or 1) if how == "spin" else workers
    items = [task_ms] * int(lanes * seconds * 1000 / task_ms)
    before, start = spent(), time.perf_counter()
    results = run(function, items)
    took_s, after = time.perf_counter() - start, spent()
    check(results, items)
    peer.close()
    figures: dict[str, float] = {
        what: value / len(items) for what, value in (after - before).items()
    }
    figures["ideal"] = len(items) * task_ms / 1000 / lanes / took_s * 100
    return figures


def rows(figures: list[dict[str, float]]) -> list[list[str]]:
    """Return the cells of a peer's table, from the figures of its rounds."""
    names = sorted({what for one in figures for what in one if what.startswith("ns ")})
    cells = []

    def of(prefix: str, what: str) -> float:
        return median(
            sum(value for key, value in one.items() if key.startswith(f"{prefix} {what}"))
            for one in figures
        )

    parts = [name.removeprefix("ns ") for name in names]
    for what in ["", *(role for role in ROLES if any(one.startswith(role) for one in parts))]:
        cells.append([what or "all", f"{of('ns', what) / 1e3:.0f}", f"{of('switches', what):.1f}"])
        cells += [
            [f"- {one.split()[1]}", f"{of('ns', one) / 1e3:.0f}", f"{of('switches', one):.1f}"]
            for one in parts
            if what and one.startswith(what)
        ]
    return cells


def main() -> None:
    """Run what the command line says, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--task-ms", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=5.0, help="that the tasks take")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="ours,ppe,dask")
    parser.add_argument("--how", choices=("map", "submit", "spin"), default="map")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        figures = measure(given.one, given.how, given.workers, given.task_ms, given.seconds)
        print("\n" + json.dumps(figures))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in given.peers.split(",")}
    for _ in range(given.rounds):
        for name, results in found.items():
            one = [sys.executable, "-m", "benchmarks.lone_tasks", "--one", name, *sys.argv[1:]]
            printed = subprocess.run(one, stdout=subprocess.PIPE, text=True, check=True).stdout
            results.append(json.loads(printed.splitlines()[-1]))
    print(f"{given.how}, {given.workers} workers, tasks of {given.task_ms:g} ms")
    for name, results in found.items():
        ideals = [one.pop("ideal") for one in results]
        print(f"\n| {name} | CPU us | switches |\n|---|---:|---:|")
        for cells in rows(results):
            print(f"| {' | '.join(cells)} |")
        print(f"\n{median(ideals):.1f} % of ideal ({min(ideals):.1f}..{max(ideals):.1f})")


if __name__ == "__main__":
    main()
