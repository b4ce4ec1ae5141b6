"""Says where the microseconds of a task go.

``python -m benchmarks.profile_hot_path [--tasks 200000] [--functions]`` prints three things:

1. What the building blocks cost on this machine now: pickle, msgpack, queues, futures, sockets.
2. The CPU time per task of client, scheduler, workers and the rest of the cluster, in a map of
   no-ops and in submit-and-collect, from the CPU clock of each process.
3. With ``--functions``, and py-spy installed: in which functions of which process that time is
   spent, sampled during maps of the same kind, as a share of the process's samples and as
   microseconds per task.
"""

from __future__ import annotations

import argparse
import os
import pickle
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from collections import Counter, deque
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import msgpack
import zmq

from benchmarks.processes import cpu_s
from benchmarks.roles import roles
from benchmarks.scenario import check
from benchmarks.tasks import noop
from scaler_exec import ScalerExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP_TASKS = 5_000
BLOCK_S = 0.05
"""Time spent on each building block; the best of three is printed."""
SAMPLE_RATE = 500
SAMPLE_S = 5
TOP = 12
WAITS = frozenset({"acquire", "poll", "select", "wait"})


# -- building blocks ---------------------------------------------------------------------------


def pass_through_socket(socket: zmq.Socket[bytes], other: zmq.Socket[bytes]) -> None:
    """Send and receive one frame."""
    socket.send(b"x")
    other.recv()


def settled_future() -> int:
    """Make, settle and read one future of the standard library."""
    future: Future[int] = Future()
    future.set_result(1)
    return future.result()


def building_blocks() -> dict[str, Callable[[], object]]:
    """Return what a task is made of, each piece as a call."""
    arguments, record = (12345,), [12345, 1, b"x" * 20, 0, None, 1.5]
    pickled, packed = pickle.dumps(arguments, 5), msgpack.packb(record)
    batch = [[task, b"x" * 20] for task in range(1000)]
    packed_batch = msgpack.packb(batch)
    line: deque[int] = deque()
    simple: queue.SimpleQueue[int] = queue.SimpleQueue()
    lock = threading.Lock()
    table: dict[int, object] = {}
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    one.bind("inproc://blocks")
    other.connect("inproc://blocks")

    def through_dict() -> None:
        table[1] = None
        del table[1]

    def through_deque() -> int:
        line.append(1)
        return line.popleft()

    def through_queue() -> int:
        simple.put(1)
        return simple.get()

    def through_lock() -> None:
        with lock:
            pass

    return {
        "call of a no-op": lambda: noop(1),
        "pickle.dumps of (int,)": lambda: pickle.dumps(arguments, 5),
        "pickle.loads of it": lambda: pickle.loads(pickled),
        "cloudpickle.dumps of (int,)": lambda: cloudpickle.dumps(arguments),
        "msgpack.packb of 6 fields": lambda: msgpack.packb(record),
        "msgpack.unpackb of it": lambda: msgpack.unpackb(packed),
        "msgpack.packb of [id, payload], 1,000": lambda: msgpack.packb(batch),
        "msgpack.unpackb of them": lambda: msgpack.unpackb(packed_batch),
        "dict insert and delete": through_dict,
        "deque append and popleft": through_deque,
        "SimpleQueue put and get": through_queue,
        "lock acquired and released": through_lock,
        "Future made, set and read": settled_future,
        "inproc socket send and recv": lambda: pass_through_socket(one, other),
    }


def block_us(block: Callable[[], object]) -> float:
    """Return the microseconds of one call, the best of three."""
    timer = timeit.Timer(block)
    once = max(timer.timeit(10) / 10, 1e-8)
    number = max(int(BLOCK_S / once), 1)
    return min(timer.repeat(3, number)) / number * 1e6


# -- CPU time per process ----------------------------------------------------------------------


def by_map(executor: ScalerExecutor, count: int) -> None:
    """Map no-ops and check the results."""
    check(list(executor.map(noop, range(count))), range(count))


def by_submit(executor: ScalerExecutor, count: int) -> None:
    """Submit no-ops, then collect and check."""
    futures = [executor.submit(noop, item) for item in range(count)]
    check([future.result() for future in futures], range(count))


def cpu_by_role(executor: ScalerExecutor) -> dict[str, float]:
    """Return the CPU seconds that each role has used."""
    used = {"client": time.process_time()}
    for role, pids in roles(executor).items():
        used[role] = sum(map(cpu_s, pids))
    return used


def profile_cpu(
    name: str, work: Callable[[ScalerExecutor, int], None], executor: ScalerExecutor, count: int
) -> dict[str, float]:
    """Print and return the microseconds per task of each role."""
    work(executor, WARM_UP_TASKS)
    before = cpu_by_role(executor)
    start = time.perf_counter()
    work(executor, count)
    seconds = time.perf_counter() - start
    after = cpu_by_role(executor)
    per_task = {role: (after[role] - before[role]) / count * 1e6 for role in before}
    columns = " | ".join(f"{us:.2f}" for us in per_task.values())
    total = sum(per_task.values())
    print(f"| {name}, {count:,} | {count / seconds:,.0f} | {columns} | {total:.2f} |")
    return per_task


# -- functions ---------------------------------------------------------------------------------


def sample(pid: int, file: Path) -> subprocess.Popen[bytes]:
    """Start py-spy on a process; it writes collapsed stacks after SAMPLE_S."""
    command = ["py-spy", "record", "--pid", str(pid), "--rate", str(SAMPLE_RATE)]
    command += ["--duration", str(SAMPLE_S), "--format", "raw", "--output", str(file)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def hot_functions(stacks: str) -> Counter[str]:
    """Return the samples of each innermost line in py-spy's collapsed stacks, waits left out.

    py-spy takes most waits for work, where they happen in C; here they are known by name.
    """
    hot: Counter[str] = Counter()
    for stack in stacks.splitlines():
        frames, _, count = stack.rpartition(" ")
        innermost = frames.rpartition(";")[2]
        function = innermost.partition(" ")[0].rpartition(".")[2]
        if function not in WAITS:
            hot[innermost.replace(f"{Path.cwd()}/", "")] += int(count)
    return hot


def profile_functions(executor: ScalerExecutor, count: int, per_task: dict[str, float]) -> None:
    """Sample client, scheduler and one worker while maps run, and print the hottest lines."""
    found = roles(executor)
    pids = {
        "client": os.getpid(),
        "scheduler": found["scheduler"][0],
        "workers": found["workers"][0],
    }
    with tempfile.TemporaryDirectory() as directory:
        files = {role: Path(directory) / role for role in pids}
        samplers = [sample(pid, files[role]) for role, pid in pids.items()]
        while any(sampler.poll() is None for sampler in samplers):
            by_map(executor, count)
        for role, file in files.items():
            if not file.exists():
                print(f"\n{role}: py-spy could not sample it (it needs the right to ptrace)")
                continue
            hot = hot_functions(file.read_text())
            samples = sum(hot.values())
            print(f"\n{role}: {samples} samples of work, {per_task[role]:.2f} us per task\n")
            print("| share % | us per task | where |\n|---|---|---|")
            for place, number in hot.most_common(TOP):
                share = number / samples
                print(f"| {share * 100:.1f} | {share * per_task[role]:.3f} | {place} |")


def main() -> None:
    """Print all parts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_hot_path")
    parser.add_argument("--tasks", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--functions", action="store_true", help="sample with py-spy, too")
    options: Any = parser.parse_args()
    print("| building block | us |\n|---|---|")
    for name, block in building_blocks().items():
        print(f"| {name} | {block_us(block):.2f} |")
    with ScalerExecutor(max_workers=options.workers) as executor:
        print("\nCPU us per task:\n")
        print("| | tasks/s | client | scheduler | workers | others | all |")
        print("|---|---|---|---|---|---|---|")
        per_task = profile_cpu("map", by_map, executor, options.tasks)
        profile_cpu("submit and collect", by_submit, executor, options.tasks // 10)
        if options.functions:
            if shutil.which("py-spy") is None:
                sys.exit("\n--functions needs py-spy: pip install py-spy")
            profile_functions(executor, options.tasks, per_task)


if __name__ == "__main__":
    main()
