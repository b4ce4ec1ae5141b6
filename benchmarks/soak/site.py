"""Three machines, what runs on them by our commands, and which process of it is what.

The first machine has the scheduler, its object storage and a cluster of one worker; the others
have clusters of two. Clients are on a fourth one, the soak's own, which is also the router.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.runtime.machines import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

COMMAND = "import sys; from {module} import main; sys.exit(main())"
MODULES = {
    "scaler_scheduler": "scaler_cluster.cli.scheduler",
    "scaler_cluster": "scaler_cluster.cli.cluster",
    "scaler_object_storage_server": "scaler_cluster.cli.storage",
}
PORT = 8516
WORKERS = (1, 2, 2)
SUPERVISOR_TIMEOUT_S = 6
CLIENT_TIMEOUT_S = 15
"""So short that the soak stops and cuts for longer as well."""
MAY_END = {("scheduler", 2), ("storage", 2)}
"""Kinds of parts, and the exit statuses with which they may end by themselves. Today a storage
server takes a scheduler that was killed for one that is silent, and refuses the next one for 30 s.
And a scheduler that finds no storage server keeps a storage at its address itself.
"""
END_S = 30.0
SEGMENTS = "scaler-*/**/*-*"


@dataclass
class Part:
    """A command that runs, and is started again if the soak has killed it."""

    name: str
    """Such as "scheduler", or "supervisor 1"."""
    machine: Machine
    command: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)
    starts: int = 0

    def start(self) -> None:
        """Start it, for the first time or again."""
        program = COMMAND.format(module=MODULES[self.command[0]])
        with self.log.open("ab") as log:
            self.process = self.machine.start(
                sys.executable,
                "-c",
                program,
                *self.command[1:],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.starts += 1

    def await_line(self, text: str) -> None:
        """Wait until it has logged this."""
        await_true(lambda: text in self.log.read_text(), f"{self.name} does not log {text!r}")

    def tree(self) -> list[psutil.Process]:
        """Return its processes, itself first; none if it has ended."""
        if self.process.poll() is not None:
            return []
        try:
            top = psutil.Process(self.process.pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> str:
        """End it as an administrator does; return what was wrong with that."""
        if (self.name.split()[0], self.process.poll()) in MAY_END:
            return ""
        self.process.terminate()
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return f"{self.name} (pid {self.process.pid}) does not end after SIGTERM"
        return "" if status == 0 else f"{self.name} ended with status {status}"


class Site:
    """The machines, and all that was started on them."""

    def __init__(self, directory: Path, *, stand_alone: bool) -> None:
        self.directory = directory
        self.machines: list[Machine] = []
        self.parts: dict[str, Part] = {}
        self.stand_alone = stand_alone
        """Whether objects are in a server of their own, or in the scheduler's own storage."""

    def __enter__(self) -> Self:
        try:
            # In the network of the soak alone: it passes on what machines send each other.
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            for _ in WORKERS:
                self.machines.append(Machine())
                self.machines[-1].reach_others()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for part in self.parts.values():
            for process in part.tree():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            part.process.wait()
        for machine in self.machines:
            machine.stop()

    @property
    def address(self) -> str:
        """Return where the scheduler is."""
        return f"tcp://{self.machines[0].there}:{PORT}"

    def _start(self) -> None:
        head = self.machines[0]
        beside = f"tcp://{head.there}:{PORT + 1}"
        if self.stand_alone:
            self._add("storage server", head, "scaler_object_storage_server", beside)
            self.parts["storage server"].await_line("object storage at")
        limits = f"-wt {SUPERVISOR_TIMEOUT_S} -ct {CLIENT_TIMEOUT_S} -ot 2 -osa {beside}".split()
        self._add("scheduler", head, "scaler_scheduler", self.address, *limits)
        self.parts["scheduler"].await_line("monitor address")
        for number, (machine, workers) in enumerate(zip(self.machines, WORKERS, strict=True)):
            command = "scaler_cluster", "-n", str(workers), "-dts", "60", self.address
            self._add(f"supervisor {number}", machine, *command)

    def _add(self, name: str, machine: Machine, *command: str) -> None:
        log = self.directory / f"{name.replace(' ', '-')}.log"
        self.parts[name] = Part(name, machine, command, log)
        self.parts[name].start()

    def roles(self) -> dict[str, list[psutil.Process]]:
        """Return the processes that live now, by what they are."""
        found: dict[str, list[psutil.Process]] = {
            "scheduler": [], "supervisor": [], "fork server": [], "worker": [], "storage": []
        }  # fmt: skip
        for part in self.parts.values():
            top, *below = part.tree() or [None]
            if top is None:
                continue
            if part.name == "storage server":
                found["storage"].append(top)
                continue
            found[part.name.split()[0]].append(top)
            servers = set()
            for process in below:
                with contextlib.suppress(psutil.Error):
                    if "scaler_cluster.runtime.storage" in process.cmdline():
                        found["storage"].append(process)
                    elif process.ppid() == top.pid:
                        servers.add(process.pid)
                        found["fork server"].append(process)
                    elif process.ppid() in servers:
                        found["worker"].append(process)
        return found

    def segments(self) -> Iterator[str]:
        """Yield the names of all segments, on each machine and where the clients are."""
        for machine in self.machines:
            yield from machine.segments()
        for place in (os.environ["SCALER_SHARED_MEMORY"], os.environ["TMPDIR"]):
            yield from (path.name for path in Path(place).glob(SEGMENTS))

    def leftovers(self) -> list[str]:
        """Return the directories of clusters that are there, on each machine."""
        places = os.environ["SCALER_SHARED_MEMORY"], os.environ["TMPDIR"]
        roots = [*(machine.root for machine in self.machines), Path("/")]
        return [
            str(path)
            for root in roots
            for place in places
            for path in (root / place.lstrip("/")).glob("scaler-*")
        ]

    def end(self) -> list[str]:
        """End everything in order; return what was wrong with that."""
        order = sorted(self.parts, key=lambda name: ("supervisor" not in name, name))
        return [wrong for name in order if (wrong := self.parts[name].end())]


def await_true(condition: Callable[[], object], what: str, timeout_s: float = END_S) -> None:
    """Wait until something holds; raise TimeoutError if it does not in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


def send(process: psutil.Process, number: signal.Signals) -> bool:
    """Send a signal; return False if the process has ended."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def dump(processes: Sequence[psutil.Process], spy: str | None) -> Iterator[str]:
    """Yield where processes are: by py-spy, or in their own log, by aborting them."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            yield f"--- pid {process.pid}, {process.status()}: {' '.join(process.cmdline())[-150:]}"
        if spy is None:
            # PYTHONFAULTHANDLER is set: each thread's stack goes to stderr, which is the log.
            send(process, signal.SIGABRT)
            continue
        command = [spy, "dump", "--nonblocking", "--pid", str(process.pid)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            yield subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=10
            ).stdout
