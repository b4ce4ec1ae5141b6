"""Flags, programs and processes: what the tests of real processes have in common."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from scaler_cluster.combo import SchedulerClusterCombo
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.ids import HUB
from scaler_cluster.process.process import PYTHON_VERSION
from scaler_cluster.process.process_config import SchedulerOptions
from scaler_cluster.security.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import zmq

    from scaler_exec import ScalerExecutor

BOUND_S = 30.0
"""What must end ends within this, however busy the machine is."""
HOOK = Path(__file__).parents[1] / "hook" / "sitecustomize.py"
"""What runs first in every Python that the tests start."""


class Flags:
    """Files by which a test and its tasks tell each other how far they are."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, name: str) -> str:
        """Return what to give to a task."""
        return str(self.directory / name)

    def set(self, name: str) -> None:
        """Let a task that waits for this go on."""
        (self.directory / name).touch()

    def seen(self, name: str) -> bool:
        """Return True if a task got so far."""
        return (self.directory / name).exists()

    def wait(self, name: str) -> int:
        """Wait until a task got so far; return the number in its file."""
        wait_until(lambda: self.seen(name), f"no task came to {name!r}")
        return int((self.directory / name).read_text() or 0)


def plant(directory: Path, source: str) -> None:
    """Let every Python that finds this directory run this first as well."""
    (directory / HOOK.name).write_text(f"{HOOK.read_text()}\n{source}")


def nobody_unpickled(reports: Path) -> None:
    """Raise AssertionError with what processes reported that unpickled and must not; remove it."""
    found = sorted(reports.iterdir())
    texts = [path.read_text() for path in found]
    for path in found:
        path.unlink()
    assert not texts, "\n".join(["only clients and workers may unpickle:", *texts])


def segments() -> list[str]:
    """Return the segments of all clusters of this test, in memory and on disk."""
    shared = os.environ["SCALER_SHARED_MEMORY"]
    found = [
        *Path(shared).glob("scaler-*/**/*"),
        *Path(os.environ["TMPDIR"]).glob("scaler-*/objects/*"),
    ]
    return [path.name for path in found if path.is_file() and path.name != "usage"]


def mapped_segments() -> list[str]:
    """Return the segments that workers of this test have in their memory, deleted or not."""
    shared = os.environ["SCALER_SHARED_MEMORY"]
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [one.path for one in process.memory_maps() if one.path.startswith(shared)]
    return [path for path in found if not path.endswith("usage")]


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], timeout: float = BOUND_S
) -> None:
    """Wait until ``condition()`` holds; raise AssertionError with ``what`` if it does not in time.

    ``what`` is a text, or a function that returns it once the time is over.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(what if isinstance(what, str) else what())
        time.sleep(0.005)


def free_port(run: int = 1) -> int:
    """Return a port that nobody listens on, nor on those that follow it, as many as ``run`` says.

    It is none of those that the kernel gives to whoever asks for any.
    """
    for _ in range(1000):
        port = random.randrange(10_000, 30_000)
        with contextlib.ExitStack() as held:
            try:
                for step in range(run):
                    one = held.enter_context(socket.socket())
                    # At no address: some tests listen at others than the loopback address.
                    one.bind(("", port + step))
            except OSError:
                continue
        return port
    raise AssertionError("all ports are taken")


TYPED = ("commands.md", "configuration.md", "quickstart.md", "tutorial.md")
"""Pages that show what is typed into a shell: test_pages.py does that, block by block."""
PORT = re.compile(r"127\.0\.0\.1:(\d+)")


def with_free_ports(text: str) -> str:
    """Return a page whose ports are others: these may be in use here.

    A scheduler keeps the two that follow its own, which the page need not name.
    """
    ports = sorted(set(map(int, PORT.findall(text))))
    steps = [min(after - before, 3) for before, after in pairwise(ports)]
    places = dict(zip(ports, accumulate(steps, initial=0), strict=False))
    first = free_port(max(places.values(), default=0) + 3)
    return PORT.sub(lambda found: f"127.0.0.1:{first + places[int(found[1])]}", text)


def wait_delivered(executor) -> None:
    """Wait until the scheduler has taken in what was asked for so far.

    It travels by another way than what workers report: who lets a task end then can count on it.
    """
    connection = executor._session.connection

    def is_delivered() -> bool:
        with connection._lock:
            return not (connection.has_unsent or connection._exchange.backlog(HUB))

    wait_until(is_delivered, "the scheduler does not acknowledge")


def shut_down(executor) -> bool:
    """Shut an executor down, by force if it does not end by itself; return True if it did."""
    thread = threading.Thread(target=executor.shutdown, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    if thread.is_alive():
        executor.kill_workers()
        return False
    return True


def is_gone(pid: int) -> bool:
    """Return True if there is no such process any more, or only its remains."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_gone(*pids: int) -> None:
    """Wait until these processes have ended."""
    for pid in pids:
        wait_until(partial(is_gone, pid), f"process {pid} lives on")


def process_of(executor: ScalerExecutor, name: str) -> psutil.Process:
    """Return the scheduler or supervisor process that an executor started for itself."""
    cluster = executor._session.cluster
    assert cluster is not None
    return psutil.Process(cluster._children[name].pid)


def cluster_process(name: str, parent: int | None = None) -> psutil.Process:
    """Return the scheduler or supervisor process of the only embedded cluster."""
    found = find_process(name, parent)
    assert found is not None
    return found


def find_process(name: str, parent: int | None = None) -> psutil.Process | None:
    """Return that process; None if it has ended and no other one has started."""
    found = []
    for child in psutil.Process(parent).children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if f"scaler_cluster.runtime.{name}" in child.cmdline():
                found.append(child)
    assert len(found) <= 1, found
    return found[0] if found else None


@contextlib.contextmanager
def standing_cluster(
    workers: int, standing: set[int], **options: Any
) -> Iterator[SchedulerClusterCombo]:
    """Keep a cluster for all tests of a module, whose fixture ``standing`` this is given."""
    with SchedulerClusterCombo(workers, **options) as made:
        standing |= {child.pid for child in made._cluster._children.values()}
        yield made


def wait_workers(count: int, supervisors: int = 1) -> None:
    """Wait until so many workers have been started; what fixtures of a whole module start has to.

    Whatever starts during a test is expected to end with it.
    """

    def has_started() -> bool:
        below = psutil.Process().children(recursive=True)
        found = [one for one in below if "scaler_cluster.runtime.supervisor" in one.cmdline()]
        # Each supervisor has a fork server, which looks like it.
        return len(found) >= count + 2 * supervisors

    wait_until(has_started, f"{count} workers are not started")


def scheduling(**limits) -> SchedulerOptions:
    """Return the options of a scheduler whose core has these limits."""
    return SchedulerOptions(core=SchedulerConfig(PYTHON_VERSION, **limits))


def show_keys(socket: zmq.Socket[bytes], address: str, role: str = "client") -> None:
    """Let a socket of a test show the keys that this user has for an address."""
    passport = Credentials.of(role).passport(address)
    if passport is not None:
        socket.curve_serverkey = passport.server.encode()
        socket.curve_publickey = passport.pair.public.encode()
        socket.curve_secretkey = passport.pair.secret.encode()


def environment() -> dict[str, str]:
    """Return the environment in which a program finds what this process finds."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": ""}


def certificate(directory: Path, name: str) -> tuple[str, str]:
    """Return the files of a new certificate for 127.0.0.1, and of its key."""
    files = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", files[0], "-keyout", files[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    files[1].chmod(0o600)
    return str(files[0]), str(files[1])


def run_program(source: str, *, stdin: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, from a command line or from standard input."""
    command = [sys.executable, "-"] if stdin else [sys.executable, "-c", source]
    return subprocess.run(
        command,
        input=source if stdin else None,
        stdin=None if stdin else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * BOUND_S,
        env=environment(),
        check=False,
    )


def run_module(name: str, *arguments: str, source: str = "") -> subprocess.CompletedProcess[str]:
    """Run a module to its end, or a program instead of it, out of a terminal."""
    command = ["-c", source] if source else ["-m", name]
    return subprocess.run(
        [sys.executable, *command, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * BOUND_S,
        env=environment(),
        check=False,
    )


class Program:
    """A program under way, whose output is read line by line."""

    def __init__(self, source: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        self.pid = self.process.pid

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def children(self) -> list[int]:
        """Return the ids of all processes below it."""
        return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return its status and the rest of what it printed."""
        out, err = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, out, err
