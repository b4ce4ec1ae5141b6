"""Makes a process look like one of Windows or macOS, as far as its client can see.

A program calls :func:`become` before it imports the engine. What the engine stands on is imported
first: it has its own ways on each system. Then go the modules and names that the other system lacks,
and what is waited for must be what that system can wait for.
"""

from __future__ import annotations

import importlib
import os
import select
import selectors
import signal
import socket
import stat
import sys

STANDARD = (
    "asyncio", "concurrent.futures.process", "ctypes", "logging.config", "logging.handlers",
    "multiprocessing.connection", "subprocess", "tempfile", "urllib.request",
)  # fmt: skip
OTHERS = (
    "blake3", "cloudpickle", "msgpack", "numpy", "psutil", "sortedcontainers", "toolz", "xxhash",
    "zmq", "zmq.auth",
)  # fmt: skip
for name in (*STANDARD, *OTHERS):
    importlib.import_module(name)

LACKS_EPOLL = {
    os: ["eventfd", "memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity",
         "sched_setaffinity", "copy_file_range", "splice"],
    select: ["epoll", "EPOLLIN", "EPOLLOUT", "EPOLLET", "EPOLLHUP", "EPOLLERR", "EPOLLONESHOT"],
    signal: ["pidfd_send_signal", "SIGPWR", "SIGRTMIN", "SIGRTMAX", "sigtimedwait"],
    socket: ["SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED", "SO_PASSCRED"],
}  # fmt: skip
LACKS_POSIX = {
    os: ["O_CLOEXEC", "O_NOFOLLOW", "O_NOCTTY", "O_DIRECTORY", "O_NONBLOCK", "O_SYNC", "fork",
         "forkpty", "register_at_fork", "getuid", "geteuid", "getgid", "getegid", "getpgid",
         "getpgrp", "setsid", "killpg", "pread", "pwrite", "statvfs", "mkfifo", "fchmod",
         "chown", "wait4", "waitid", "getrusage", "getloadavg", "nice", "uname", "sysconf",
         "posix_spawn", "writev", "readv", "set_blocking", "get_blocking"],
    select: ["poll"],
    signal: ["SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
             "SIGALRM", "SIGPIPE", "SIGQUIT", "alarm", "setitimer", "pthread_kill",
             "pthread_sigmask", "sigwait", "siginterrupt"],
    socket: ["AF_UNIX", "SOCK_SEQPACKET", "MSG_DONTWAIT", "send_fds", "recv_fds", "SCM_RIGHTS"],
}  # fmt: skip
MODULES = ["fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"]


def become(system: str) -> None:
    """Let this process be one of ``win32`` or ``darwin``."""
    _remove(LACKS_EPOLL)
    selectors.__dict__["DefaultSelector"] = selectors.SelectSelector
    if system == "win32":
        _remove(LACKS_POSIX)
        for name in MODULES:
            sys.modules[name] = None  # type: ignore[assignment]
        _select_sockets_only()
        socket.socketpair = _loopback_pair  # type: ignore[assignment]
    sys.platform = system


def _remove(names) -> None:
    for module, attributes in names.items():
        for name in attributes:
            if hasattr(module, name):
                delattr(module, name)


def _loopback_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


def _select_sockets_only() -> None:
    """Refuse to wait for a pipe or a file, as Windows does."""
    posix_select = select.select

    def checked(reads, writes, others, timeout=None):
        for one in (*reads, *writes):
            number = one if isinstance(one, int) else one.fileno()
            mode = os.fstat(number).st_mode
            # libzmq's own descriptor is a socket there, and here one of the kernel's.
            if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISCHR(mode):
                raise OSError(10038, "an operation was attempted on something that is not a socket")
        return posix_select(reads, writes, others, timeout)

    select.select = checked
    # It is bound in the class, and on Windows it wraps a select of three lists.
    selectors.SelectSelector._select = staticmethod(checked)  # type: ignore[attr-defined]
