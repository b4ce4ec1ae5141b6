"""Long silences: stops whatever a cluster consists of for longer than its timeouts, and cuts it.

``python -m benchmarks.silences [NAME ...]``. The client, the scheduler and two workers run here,
two more workers on another machine, made of namespaces. The cluster was started by our commands,
with the default timeouts of 60 s. The client keeps tasks of 50 ms under way while one part says
nothing for a while. Printed is how long nothing came back, how soon something did once the part was
well again, and what became of the tasks, each of which leaves a mark when it starts. The exit
status is 1 if a task was lost, or came back wrong. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from benchmarks.own_keys import use_own_keys
from benchmarks.soak.site import await_true, send
from scaler_cluster.objects.storage_dirs import SHARED_MEMORY_VARIABLE
from scaler_exec import ScalerExecutor
from tests.runtime.helpers import environment
from tests.runtime.machines import Machine, can_make_machines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

TASK_S = 0.05
AT_ONCE = 20
"""Tasks under way: five for each worker."""
BEFORE_S, AFTER_S = 5.0, 10.0
STOP_S = 70.0
"""Longer than the timeouts."""
CUT_S = 30.0
BACK_S = 60.0
PORT = 8516
VISIBLE = "/var/tmp"
"""Seen by both machines."""
COMMAND = "import sys; from scaler_cluster.cli.{name} import main; sys.exit(main())"


# -- the client, in a process of its own -----------------------------------------------------------


def machine_of(process: str) -> str:
    """Return what tells the machine of a process from others."""
    return str(Path(f"/proc/{process}/ns/net").readlink())


def note(marks: str, number: int) -> tuple[int, str]:
    """Leave a mark in a file; take a moment."""
    with Path(marks, str(number)).open("a") as file:
        file.write("x")
    time.sleep(TASK_S)
    return number, machine_of("self")


def client(address: str, marks: str) -> None:
    """Keep tasks under way until standard input ends; say where each ran, and what all came to."""
    over, room = threading.Event(), threading.Semaphore(AT_ONCE)
    outcomes: Counter[str] = Counter()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    def back(number: int, future: Future[tuple[int, str]]) -> None:
        error = future.exception()
        if error is not None:
            outcomes[type(error).__name__] += 1
        else:
            result, where = future.result()
            outcomes["right" if result == number else "wrong"] += 1
            print(where, flush=True)
        room.release()

    threading.Thread(target=listen, daemon=True).start()

    number = 0
    with ScalerExecutor(address=address, timeout=BACK_S) as executor:
        while not over.is_set():
            room.acquire()
            future = executor.submit(note, marks, number)
            future.add_done_callback(partial(back, number))
            number += 1
    print(json.dumps({"tasks": number, **outcomes}), flush=True)


class Client:
    """Reads what the client says."""

    def __init__(self, address: str, marks: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.silences", "--client", address, str(marks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        self.times: list[tuple[float, str]] = []
        """When tasks came back, and from which machine."""
        self.outcomes: dict[str, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self.outcomes = json.loads(line)
            else:
                self.times.append((time.monotonic(), line.decode().strip()))

    def first(self, since: float, where: str = "") -> float:
        """Return when the first task came back since then, from a machine or from any; 0: none."""
        found = (when for when, its in self.times if when > since and where in ("", its))
        return next(found, 0.0)

    def end(self) -> None:
        """Let it end once everything has come back."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(BACK_S)
        self._reader.join()


# -- the cluster -----------------------------------------------------------------------------------


class Cluster:
    """A scheduler here with some workers, and two workers on another machine."""

    def __init__(self, stack: ExitStack, workers: int) -> None:
        self.far = Machine()
        stack.callback(self.far.stop)
        self.address = f"tcp://{self.far.here}:{PORT}"
        self._stack = stack
        self.scheduler = self._start(None, "scheduler", self.address)
        if workers:
            self._start(None, "cluster", "-n", str(workers), self.address)
        self.supervisor = self._start(self.far, "cluster", "-n", "2", self.address)

    def _start(self, machine: Machine | None, name: str, *arguments: str) -> psutil.Process:
        command = sys.executable, "-c", COMMAND.format(name=name), *arguments
        nothing = subprocess.DEVNULL
        if machine is not None:
            started = machine.start(*command, stdin=nothing, stdout=nothing)
        else:
            started = subprocess.Popen(command, env=environment(), stdin=nothing, stdout=nothing)
        self._stack.callback(started.wait, BACK_S)
        self._stack.callback(started.terminate)
        return psutil.Process(started.pid)


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Let a process do nothing."""
    send(process, signal.SIGSTOP)
    try:
        yield
    finally:
        send(process, signal.SIGCONT)


@contextmanager
def mute(machine: Machine) -> Iterator[None]:
    """Lose all that is sent over a cable."""
    machine.mute()
    try:
        yield
    finally:
        machine.unmute()


def kept(scheduler: psutil.Process) -> psutil.Process:
    """Return the process that a command keeps."""
    found = scheduler.children(recursive=True)
    return next(one for one in found if "scaler_cluster.runtime.scheduler" in one.cmdline())


FAULTS: dict[str, tuple[float, Callable[[Cluster, Client], Any]]] = {
    "scheduler": (STOP_S, lambda cluster, _: stopped(kept(cluster.scheduler))),
    "client": (STOP_S, lambda _, client: stopped(psutil.Process(client.process.pid))),
    "supervisor": (STOP_S, lambda cluster, _: stopped(cluster.supervisor)),
    "cable": (CUT_S, lambda cluster, _: mute(cluster.far)),
}


# -- the runs --------------------------------------------------------------------------------------


def silence(name: str) -> bool:
    """Let one part be silent under load; return whether everything came back right."""
    lasts_s, fault = FAULTS[name]
    with ExitStack() as stack:
        marks = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        cluster = Cluster(stack, workers=2)
        far = machine_of(str(cluster.supervisor.pid))
        client = Client(cluster.address, marks)
        stack.callback(client.process.kill)
        await_true(lambda: client.first(0.0, far), "no task comes back", BACK_S)
        time.sleep(BEFORE_S)
        with fault(cluster, client):
            time.sleep(lasts_s)
            healed = time.monotonic()
        await_true(lambda: client.first(healed, far), "nothing comes back", BACK_S)
        time.sleep(AFTER_S)
        client.end()
        times = [when for when, _ in client.times]
        gap_s = max(after - before for before, after in pairwise(times))
        twice = sum(path.stat().st_size > 1 for path in marks.iterdir())
    outcomes = client.outcomes
    told = ", ".join(f"{count} {what}" for what, count in outcomes.items())
    print(
        f"{name} silent for {lasts_s:.0f} s: nothing came back for {gap_s:.1f} s; something did "
        f"{client.first(healed) - healed:.2f} s after its end, from the other machine "
        f"{client.first(healed, far) - healed:.2f} s; {told}; {twice} started twice",
        flush=True,
    )
    return outcomes.get("right") == outcomes.get("tasks")


def slow() -> bool:
    """Send 4 MB to a worker over a cable of 1 Mbit/s."""
    value = np.frombuffer(os.urandom(4_000_000), "u1")
    with ExitStack() as stack:
        cluster = Cluster(stack, workers=0)
        executor = stack.enter_context(ScalerExecutor(address=cluster.address, timeout=BACK_S))
        assert executor.submit(np.sum, np.ones(100_000)).result(BACK_S) == 100_000
        cluster.far.slow(1000)
        before, began = cluster.far.nbytes_sent_to, time.monotonic()
        is_right = executor.submit(np.sum, value).result(10 * BACK_S) == value.sum()
        took_s, sent = time.monotonic() - began, cluster.far.nbytes_sent_to - before
        cluster.far.hasten()
    print(f"4 MB at 1 Mbit/s: {took_s:.1f} s, {sent / 1e6:.2f} MB sent, right: {is_right}")
    return bool(is_right)


def main() -> int:
    """Run what is named, or all."""
    if sys.argv[1:2] == ["--client"]:
        client(*sys.argv[2:])
        return 0
    names = [*FAULTS, "slow"]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.silences")
    parser.add_argument("names", nargs="*", choices=[[], *names], metavar="NAME", help=str(names))
    wanted = parser.parse_args().names or names
    if not can_make_machines():
        parser.error("making network namespaces needs root, unshare, nsenter and ip")
    # The other machine has a directory of its own where temporary ones are.
    with tempfile.TemporaryDirectory() as shared, tempfile.TemporaryDirectory(dir=VISIBLE) as keys:
        os.environ[SHARED_MEMORY_VARIABLE] = shared
        use_own_keys(Path(keys) / "keys")
        is_right = [slow() if name == "slow" else silence(name) for name in wanted]
    return 0 if all(is_right) else 1


if __name__ == "__main__":
    sys.exit(main())
