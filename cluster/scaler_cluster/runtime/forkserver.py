"""The fork server: starts workers from an interpreter that has the engine imported.

It is a child of the supervisor, forked before the supervisor has threads or sockets. In its one
thread it forks on command, reaps, and reports. When the supervisor is gone, the fork server kills
the workers and ends; when it is itself gone, the kernel kills them.

Orders and reports are records over a socket pair: orders are pickled, reports are JSON, as a
supervisor unpickles nothing. The stderr of a new worker comes with the report of its start, as a
file descriptor. A report may wait until the supervisor reads it, or is
gone. The supervisor must never wait for the fork server: if both waited, neither would see the
other's end. So the supervisor has at most ``STARTS_MAX`` orders under way, and the socket has room
for many more.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import pickle
import selectors
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.process.process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.objects.storage_dirs import StorageDirs

END_TIMEOUT_S = 5.0
"""A fork server that has not ended after this, because it is stopped, is killed."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
"""Where Linux keeps semaphores that have names."""
_SEMAPHORES = f"mp-{os.urandom(4).hex()}"


@dataclass(frozen=True)
class MachineStorage:
    """Where objects lie on this machine."""

    dirs: StorageDirs
    address: str = ""
    """By which address other machines reach the storage that serves them; empty: by none."""
    is_home: bool = False
    """True if the scheduler keeps its objects there as well."""


@dataclass(frozen=True)
class WorkerOrder:
    """What the supervisor asks for: a worker in this slot."""

    slot: int
    peer: bytes
    storage: MachineStorage
    workers: int
    """How many workers the machine is to have at the time."""


@dataclass(frozen=True)
class WorkerStarted:
    """The worker of a slot runs; its stderr comes along."""

    slot: int
    pid: int


@dataclass(frozen=True)
class WorkerEnded:
    """The worker of a slot has ended."""

    slot: int
    pid: int
    exit_code: int | None
    signal: int | None
    peak_rss_bytes: int


def read_report(data: bytes) -> WorkerStarted | WorkerEnded:
    """Return what the fork server has written."""
    fields = json.loads(data)
    return WorkerEnded(**fields) if "exit_code" in fields else WorkerStarted(**fields)


class WorkerMain(Protocol):
    """What a worker calls after its fork; :class:`WorkerProcess` is one."""

    def __call__(self, order: WorkerOrder) -> int:
        """Return the exit code."""


def kill_group(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a worker and every process its tasks started."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        # The group is there only once the child has made it.
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


def start(
    worker_main: WorkerMain, environment: Mapping[str, str], inherited: Sequence[int] = ()
) -> tuple[int, socket.socket]:
    """Fork the server; return its pid and the supervisor's end of the socket pair.

    ``environment`` is added to that of the workers, ``inherited`` are the descriptors that stay
    open in them.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()
    pid = os.fork()
    if pid:
        theirs.close()
        gc.unfreeze()
        return pid, ours
    try:
        ours.close()
        os.environ.update(environment)
        # The kernel does not kill the fork server with its parent: it has to kill first what tasks
        # have started. The end of the socket pair tells it of the parent's death as surely.
        _serve(theirs, worker_main, sorted(inherited))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def end(pid: int, channel: socket.socket) -> list[int]:
    """End the server with its workers, and wait for that.

    Return the stderr of workers whose start was not read of before: they may have run tasks.
    """
    channel.settimeout(END_TIMEOUT_S)
    errors: list[int] = []
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_WR)
        while True:
            report, fds, _, _ = socket.recv_fds(channel, 65536, 1)
            errors += fds
            if not report:
                break
    channel.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return errors


def _serve(channel: socket.socket, worker_main: WorkerMain, inherited: list[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        # Ctrl-C reaches this process as well if its supervisor was started in a terminal.
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    os.set_blocking(wake_read, False)
    children: dict[int, int] = {}
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(channel, selectors.EVENT_READ)
            selector.register(wake_read, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is not channel:
                        _drain(wake_read)
                    elif not _obey(channel, worker_main, inherited, children):
                        return
                _reap(channel, children)
    except ConnectionError:
        # The supervisor died before it read our reports.
        return
    finally:
        for pid in children:
            kill_group(pid)
            _remove_semaphores(pid)


def name_semaphores() -> None:
    """Give the semaphores that tasks make names of this worker; children inherit the names."""
    prefix = f"/{_SEMAPHORES}-{os.getpid()}"
    # Any: its configuration is private.
    process: Any = multiprocessing.current_process()
    process._config["semprefix"] = prefix


def _remove_semaphores(pid: int) -> None:
    """Remove the semaphores that a killed worker left, with the processes of its tasks."""
    for path in SHARED_MEMORY.glob(f"sem.{_SEMAPHORES}-{pid}-*"):
        path.unlink(missing_ok=True)


def _obey(
    channel: socket.socket,
    worker_main: WorkerMain,
    inherited: list[int],
    children: dict[int, int],
) -> bool:
    """Start a worker as the supervisor asks; return False if the supervisor is gone."""
    request = channel.recv(65536)
    if not request:
        return False
    order: WorkerOrder = pickle.loads(request)
    pid, errors_fd = _fork_worker(order, worker_main, inherited)
    children[pid] = order.slot
    socket.send_fds(channel, [_written(WorkerStarted(order.slot, pid))], [errors_fd])
    os.close(errors_fd)
    return True


def _written(report: WorkerStarted | WorkerEnded) -> bytes:
    return json.dumps(asdict(report)).encode()


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            continue
    except BlockingIOError:
        return


def _reap(channel: socket.socket, children: dict[int, int]) -> None:
    while children:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        slot = children.pop(pid, None)
        if slot is None:
            continue
        # The processes that its tasks started must not outlive a worker.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _remove_semaphores(pid)
        was_killed = os.WIFSIGNALED(status)
        exit_code = None if was_killed else os.WEXITSTATUS(status)
        number = os.WTERMSIG(status) if was_killed else None
        report = WorkerEnded(slot, pid, exit_code, number, usage.ru_maxrss * 1024)
        channel.send(_written(report))


def _fork_worker(
    order: WorkerOrder, worker_main: WorkerMain, inherited: list[int]
) -> tuple[int, int]:
    errors_read, errors_write = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if pid:
        os.close(errors_write)
        return pid, errors_read
    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(server)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(errors_write, 2)
        # In user code only the three standard streams stay open, and the descriptors that the
        # initializer inherits.
        begin = 3
        for fd in [*inherited, 4096]:
            os.closerange(begin, fd)
            begin = fd + 1
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        code = worker_main(order)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
