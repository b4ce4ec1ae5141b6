"""Waiting for file descriptors, with one of them switched on and off by other threads."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PORTABLE_TICK_S = 0.05
"""Outside of Linux a waiting thread does not notice a switch, so it looks again after this."""


class Readiness:
    """Waits for ``always`` and, while it is switched on, for ``sometimes``.

    :meth:`switch` may be called while another thread waits, and takes effect at once on Linux;
    elsewhere after PORTABLE_TICK_S.
    """

    def __init__(self, always: int, sometimes: int) -> None:
        self._always = always
        self._sometimes = sometimes
        self._on = True
        self._epoll: select.epoll | None = None
        if sys.platform == "linux":
            self._epoll = select.epoll()
            self._epoll.register(always, select.EPOLLIN)
            self._epoll.register(sometimes, select.EPOLLIN)

    def switch(self, *, on: bool) -> None:
        """Let ``sometimes`` count or not."""
        self._on = on
        if self._epoll is not None:
            self._epoll.modify(self._sometimes, select.EPOLLIN if on else 0)

    def wait(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s``; empty ``always``. Return True if ``sometimes`` is ready."""
        if self._epoll is not None:
            ready = [fd for fd, _ in self._epoll.poll(timeout_s)]
        else:
            ready = self._wait_portably(timeout_s)
        if self._always in ready:
            with contextlib.suppress(BlockingIOError):
                _read(self._always, 4096)
        return self._sometimes in ready

    def _wait_portably(self, timeout_s: float) -> list[int]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._always, selectors.EVENT_READ)
            if self._on:
                selector.register(self._sometimes, selectors.EVENT_READ)
            return [key.fd for key, _ in selector.select(min(timeout_s, PORTABLE_TICK_S))]

    def close(self) -> None:
        """Close the descriptor that was needed to wait."""
        if self._epoll is not None:
            self._epoll.close()


if sys.platform == "win32":
    # What is waited for must be a socket there, and the calls for files take none.

    def signal_pipe() -> tuple[int, int]:
        """Return the ends of a pipe that neither blocks its reader nor its writer."""
        read, write = socket.socketpair()
        read.setblocking(False)
        write.setblocking(False)
        return read.detach(), write.detach()

    def _with_socket(fd: int, do: Callable[[socket.socket], object]) -> None:
        one = socket.socket(fileno=fd)
        try:
            do(one)
        finally:
            one.detach()

    def _read(fd: int, nbytes: int) -> None:
        _with_socket(fd, lambda one: one.recv(nbytes))

    def _write(fd: int, data: bytes) -> None:
        _with_socket(fd, lambda one: one.send(data))

    def close_pipe(fd: int) -> None:
        """Close an end of a signal pipe."""
        socket.socket(fileno=fd).close()

else:
    _read, _write, close_pipe = os.read, os.write, os.close

    def signal_pipe() -> tuple[int, int]:
        """Return the ends of a pipe that neither blocks its reader nor its writer."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        return read, write


def notify(pipe: int) -> None:
    """Wake the reader of a signal pipe.

    If the pipe is full, the reader has been woken already; -1 stands for a closed pipe, which a
    socket refuses with a ValueError.
    """
    with contextlib.suppress(OSError, ValueError):
        _write(pipe, b"x")
