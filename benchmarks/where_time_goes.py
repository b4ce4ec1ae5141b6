"""Says where the time goes in the workloads of Dask, on our engine.

``python -m benchmarks.where_time_goes [group_few ...] [--scale TIMES] [--chunk-scale TIMES]`` runs
each workload once more than it takes to warm up, on a cluster whose workers note what they do. Of
the seconds that it took:

- ``before``: until a worker began with the first node: what Dask and the client do.
- ``after``: since a worker ended the last node, until the client had the value.
- in between, of a mean worker: ``call`` of the functions of nodes, ``unpickle`` and ``pickle``,
  ``write`` and ``map`` of segments, ``wait`` for work, and ``rest``: messages and the task loop.

Memory that is mapped becomes present where it is read: that is a part of ``call``. To note all this
costs about two microseconds per node.
"""

from __future__ import annotations

import argparse
import mmap
import os
import threading
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.peer import WORKERS
from benchmarks.peers import Ours
from benchmarks.processes import PeakMemory, in_child
from benchmarks.scenario import Run, Size
from benchmarks.scenarios.dask_workloads import WORKLOADS, prepare, warmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KINDS = ("call", "unpickle", "pickle", "write", "map", "wait", "rest")
WAIT, REST = KINDS.index("wait"), KINDS.index("rest")
NOW, SINCE, FIRST, LAST, WORDS = range(len(KINDS), len(KINDS) + 5)
"""Words of a worker's notes, after the seconds of each kind: what it does now and since when, and
when it began the first node and ended the last one."""


class Notes:
    """What one worker does and did, in a file that the client maps as well."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self.words = memoryview(mmap.mmap(opened.fileno(), WORDS * 8)).cast("d")

    @classmethod
    def new(cls, directory: Path) -> Notes:
        """Begin those of this process."""
        draft = directory / f"draft-{os.getpid()}"
        draft.write_bytes(bytes(WORDS * 8))
        notes = cls(draft)
        notes.words[NOW], notes.words[SINCE] = REST, perf_counter()
        draft.rename(directory / f"worker-{os.getpid()}")
        return notes

    def begin(self, kind: int) -> int:
        """Note that the worker does something else from now on; return what it did before."""
        words, now = self.words, perf_counter()
        before = int(words[NOW])
        words[before] += now - words[SINCE]
        words[SINCE], words[NOW] = now, kind
        if kind < WAIT:
            words[FIRST] = words[FIRST] or now
        if before < WAIT:
            words[LAST] = now
        return before

    def clear(self) -> None:
        """Forget what was noted, but for what the worker does now."""
        for word in (*range(len(KINDS)), FIRST, LAST):
            self.words[word] = 0
        self.words[SINCE] = perf_counter()

    def seconds(self) -> list[float]:
        """Return the seconds of each kind until now."""
        found = list(self.words[: len(KINDS)])
        found[int(self.words[NOW])] += perf_counter() - self.words[SINCE]
        return found


def watch(directory: str) -> None:
    """Let this worker, before its first task, note what it does."""
    from scaler_cluster.links.zmq_link import ZmqLink
    from scaler_cluster.objects.segments import Segments
    from scaler_cluster.objects.worker_store import WorkerStore
    from scaler_cluster.pickling.nodes import NodeLoader
    from scaler_cluster.runtime import task_run, worker

    notes = Notes.new(Path(directory))
    for owner, name, kind in (
        (worker, "call_node", "call"),
        (NodeLoader, "load", "unpickle"),
        (task_run, "c_dumps", "pickle"),
        (WorkerStore, "pickle", "pickle"),
        (Segments, "write", "write"),
        (Segments, "open", "map"),
        (ZmqLink, "wait", "wait"),
    ):
        setattr(owner, name, noted(notes, getattr(owner, name), KINDS.index(kind)))


def noted(notes: Notes, function: Callable[..., Any], kind: int) -> Callable[..., Any]:
    """Return a function that notes that it runs, unless it runs in another thread."""
    main = threading.main_thread().ident

    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != main:
            return function(*args, **kwargs)
        before = notes.begin(kind)
        try:
            return function(*args, **kwargs)
        finally:
            notes.begin(before)

    return call


class Watched(Ours):
    """Our engine, with workers that note what they do in a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.spent: dict[str, float] = {}
        """The seconds of each column, of the last computation."""

    def open(self) -> None:
        from scaler_exec import Client, SchedulerClusterCombo

        preload = f"benchmarks.where_time_goes:watch({str(self.directory)!r})"
        self.executor = SchedulerClusterCombo(WORKERS, preload=preload)
        self.client = Client(self.executor.get_address())

    def compute(self, collection: Any) -> Any:
        for notes in self._notes():
            notes.clear()
        start = perf_counter()
        value = super().compute(collection)
        self.spent = spent(self._notes(), start, perf_counter())
        return value

    def _notes(self) -> list[Notes]:
        return [Notes(file) for file in self.directory.glob("worker-*")]

    def close(self) -> None:
        self.client.disconnect()
        self.executor.shutdown()


def spent(found: Iterable[Notes], start: float, end: float) -> dict[str, float]:
    """Return the seconds of each column between these two times."""
    active = [notes for notes in found if notes.words[FIRST]]
    kinds = [notes.seconds() for notes in active]
    totals = [sum(seconds) / WORKERS for seconds in zip(*kinds, strict=True)]
    columns = {
        "all": end - start,
        "before": min(notes.words[FIRST] for notes in active) - start,
        "after": end - max(notes.words[LAST] for notes in active),
        **dict(zip(KINDS, totals, strict=True)),
    }
    # A worker also waits before and after all nodes.
    columns["wait"] = 0.0
    columns["wait"] = 2 * columns["all"] - sum(columns.values())
    return columns


def main() -> None:
    """Run what the command line says, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="names; all")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many chunks")
    parser.add_argument(
        "--chunk-scale", type=float, default=1.0, help="times as many bytes in each"
    )
    given = parser.parse_args()
    workloads = {workload.name: workload for workload in WORKLOADS}
    unknown = [name for name in given.workloads if name not in workloads]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(workloads)}")
    columns = ("all", "before", *KINDS, "after")
    print("| workload, ms | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    with TemporaryDirectory(prefix="scaler-benchmarks-") as place:
        for name in given.workloads or workloads:
            with TemporaryDirectory() as directory:
                peer = Watched(Path(directory))
                run = Run(
                    peer, full=False, place=Path(place), size=Size(given.scale, given.chunk_scale)
                )
                in_child(partial(prepare, run, workloads[name]))
                with warmed(run, workloads[name], PeakMemory()) as measure:
                    measure()
            cells = (f"{peer.spent[column] * 1e3:.0f}" for column in columns)
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
