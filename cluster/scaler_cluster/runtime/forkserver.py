"""The fork server: starts workers from an interpreter that has the engine imported.

A child of the supervisor, forked before that has threads or sockets. One thread; it forks on
command, reaps, and reports. When the supervisor is gone it kills the workers and ends; when it is
itself gone, the kernel kills them.

Requests and reports are lines of JSON over a socket pair; a new worker's stderr comes along as a
file descriptor. A report may wait until the supervisor reads it, or is gone. The supervisor must
never wait for the fork server: were both to wait, neither would see the other's end. So it has at
most ``STARTS_MAX`` requests under way, and the socket has room for many more.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler_cluster.runtime.process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

END_TIMEOUT_S = 5.0
"""A fork server that has not ended after this, as one that is stopped, is killed."""


SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
"""Where Linux keeps semaphores that have names."""
_SEMAPHORES = f"mp-{os.urandom(4).hex()}"


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
    worker_main: Callable[[dict[str, Any]], int], environment: Mapping[str, str]
) -> tuple[int, socket.socket]:
    """Fork the server; return its pid and the supervisor's end of the socket pair.

    ``environment`` is added to that of the workers.
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
        # The kernel does not end this one with its parent: what tasks started has to be killed
        # first. The end of the socket pair tells of the parent's death as surely.
        _serve(theirs, worker_main)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def end(pid: int, channel: socket.socket) -> None:
    """End the server with its workers, and wait for that."""
    channel.settimeout(END_TIMEOUT_S)
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_WR)
        # It may still report; its end comes after that.
        while channel.recv(65536):
            continue
    channel.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _serve(channel: socket.socket, worker_main: Callable[[dict[str, Any]], int]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        # Ctrl-C reaches this process as well, where its supervisor was started in a terminal.
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
                    elif not _obey(channel, worker_main, children):
                        return
                _reap(channel, children)
    except ConnectionError:
        # The supervisor died with words of ours unread.
        return
    finally:
        for pid in children:
            kill_group(pid)
            _remove_semaphores(pid)


def name_semaphores() -> None:
    """Let semaphores that tasks make be known as this worker's; children make theirs the same."""
    prefix = f"/{_SEMAPHORES}-{os.getpid()}"
    multiprocessing.current_process()._config["semprefix"] = prefix  # type: ignore[attr-defined]


def _remove_semaphores(pid: int) -> None:
    """Remove what pools of a worker left: what would have done so was killed with them."""
    for path in SHARED_MEMORY.glob(f"sem.{_SEMAPHORES}-{pid}-*"):
        path.unlink(missing_ok=True)


def _obey(
    channel: socket.socket,
    worker_main: Callable[[dict[str, Any]], int],
    children: dict[int, int],
) -> bool:
    """Start a worker as the supervisor asks; return False if that is gone."""
    request = channel.recv(65536)
    if not request:
        return False
    order = json.loads(request)
    pid, errors_fd = _fork_worker(order, worker_main)
    children[pid] = order["slot"]
    report = json.dumps({"slot": order["slot"], "pid": pid}).encode()
    socket.send_fds(channel, [report], [errors_fd])
    os.close(errors_fd)
    return True


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
        # What the task started must not outlive its worker.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _remove_semaphores(pid)
        report: dict[str, Any] = {
            "slot": slot,
            "pid": pid,
            "peak_rss_bytes": usage.ru_maxrss * 1024,
        }
        if os.WIFSIGNALED(status):
            report["signal"] = os.WTERMSIG(status)
        else:
            report["exit_code"] = os.WEXITSTATUS(status)
        channel.send(json.dumps(report).encode())


def _fork_worker(
    order: dict[str, Any], worker_main: Callable[[dict[str, Any]], int]
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
        # Nothing of the fork server's stays open in user code but the three standard streams, and
        # what the initializer inherits.
        begin = 3
        for fd in [*sorted(order["inherited"]), 4096]:
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
