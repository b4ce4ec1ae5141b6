"""Workers on demand: how soon they come, and whether anything is lost when everything dies.

``python -m benchmarks.managers start`` compares a cluster that begins with no worker with one that
has as many as may be. ``python -m benchmarks.managers chaos --seconds 300 --seed 7`` runs tasks
while it kills units, the manager and the scheduler at random; it ends with status 1 if a task is
lost, if there were more workers than may be, or if anything is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil

from scaler_exec import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WORKERS = 4
END_S = 60.0
"""Everything has ended this long after it was told to."""
SPARE_S = 15.0
"""A scheduler lives so long at least before it is killed."""
START = "import sys; from {module} import {function}; sys.exit({function}(sys.argv[1:]))"


def free_port(count: int = 1) -> int:
    """Return the first of so many ports at which nobody listens."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
        with contextlib.suppress(OSError):
            for offset in range(count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port + offset))
            return port


@contextlib.contextmanager
def command(module: str, function: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the engine; it ends by SIGTERM."""
    source = START.format(module=f"scaler_cluster.cli.{module}", function=function)
    quiet = ["--logging-level", "ERROR"]
    process = subprocess.Popen([sys.executable, "-c", source, *arguments, *quiet])
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(END_S)


# -- start -------------------------------------------------------------------------------------


def start() -> int:
    """Print how long maps take from zero, and with workers that are there."""
    address = f"tcp://127.0.0.1:{free_port(4)}"
    manager = "baremetal_native", address, "-mtc", str(MAX_WORKERS)
    with command("scheduler", "main", address), Client(address) as client:
        with command("manager", "main", *manager, "--mode", "fixed"):
            client.map(time.sleep, [0.01] * 4 * MAX_WORKERS)
            static_s = timed(client, 1000, 0.05)
        with command("manager", "main", *manager, "-sdc", "2") as process:
            zero_s = timed(client, 1000, 0.05)
            since = time.perf_counter()
            while len(workers_of(process)):
                time.sleep(0.05)
            back_s = time.perf_counter() - since
        print(f"1,000 tasks of 50 ms, static: {static_s:.2f} s")
        print(f"from zero: {zero_s:.2f} s, ratio {zero_s / static_s:.3f}")
        print(f"back at zero after {back_s:.1f} s (cooldown 2 s)")
        ten = "baremetal_native", address, "-mtc", "10"
        with command("manager", "main", *ten):
            print(f"15 tasks of 6 s, ten workers allowed: {timed(client, 15, 6.0):.2f} s")
    return 0


def timed(client: Client, count: int, each_s: float) -> float:
    """Return how long so many tasks take that sleep."""
    since = time.perf_counter()
    client.map(time.sleep, [each_s] * count)
    return time.perf_counter() - since


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the workers below a command that is a supervisor."""
    with contextlib.suppress(psutil.Error):
        servers = psutil.Process(process.pid).children()
        return [worker for one in servers for worker in one.children()]
    return []


# -- chaos -------------------------------------------------------------------------------------


class Chaos:
    """A scheduler, an adapter and a manager of its units, of which one after another is killed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.killed = {"units": 0, "managers": 0, "schedulers": 0}
        self.most = 0
        self.tasks = 0
        self._may_kill_at = 0.0
        """When a scheduler may be killed again: more than five a minute are not replaced."""

    def run(self, duration_s: float) -> int:
        """Run to the end; return how many faults were found."""
        port = free_port(6)
        address, url = f"tcp://127.0.0.1:{port}", f"http://127.0.0.1:{port + 5}"
        adapter = address, "--host", "127.0.0.1", "--port", str(port + 5)
        units = str(MAX_WORKERS)
        manage = "webhook", url, address, "-mw", units, "-sdc", "1", "-his", "0.5", "-wmi", "chaos"
        with (
            command("scheduler", "main", address) as scheduler,
            command("adapter", "native", *adapter, "-mw", units) as adapting,
            contextlib.ExitStack() as stack,
        ):
            manager = stack.enter_context(command("manager", "main", *manage))
            with Client(address) as client:
                until = time.monotonic() + duration_s
                while time.monotonic() < until:
                    count = self.dice.choice((1, 10, 60))
                    futures = [
                        client.submit(square, one, self.dice.random() / 10) for one in range(count)
                    ]
                    for _ in range(self.dice.randrange(4)):
                        time.sleep(self.dice.random())
                        self.most = max(self.most, len(units_of(adapting)))
                        what = self.dice.choices(("units", "managers", "schedulers"), (8, 2, 1))[0]
                        if what == "units" and (found := units_of(adapting)):
                            self.dice.choice(found).kill()
                        elif what == "managers":
                            manager.kill()
                            manager.wait()
                            manager = stack.enter_context(command("manager", "main", *manage))
                        elif what == "schedulers" and time.monotonic() >= self._may_kill_at:
                            self._may_kill_at = time.monotonic() + SPARE_S
                            psutil.Process(scheduler.pid).children()[0].kill()
                        else:
                            continue
                        self.killed[what] += 1
                    got = [future.result(120) for future in futures]
                    assert got == [one * one for one in range(count)], "a result is wrong"
                    self.tasks += count
                    if self.dice.random() < 0.3:
                        time.sleep(3.0)
            os.kill(manager.pid, signal.SIGTERM)
            manager.wait(END_S)
            left = len(units_of(adapting))
        lines = (one.info["cmdline"] or () for one in psutil.process_iter(["cmdline"]))
        alive = [line for line in lines if address in line]
        print(
            f"{self.tasks} tasks came back; killed {self.killed}; most units {self.most}; "
            f"left {left} units, {len(alive)} processes"
        )
        return (self.most > MAX_WORKERS) + bool(left) + bool(alive)


def square(number: int, pause_s: float) -> int:
    """Sleep for a while, and return the square."""
    time.sleep(pause_s)
    return number * number


def units_of(adapting: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the supervisors that an adapter has started."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(adapting.pid).children()
    return []


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("start", "chaos"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return start() if given.what == "start" else Chaos(given.seed).run(given.seconds)


if __name__ == "__main__":
    raise SystemExit(main())
