"""Waiting for file descriptors, with one of them switched on and off by other threads."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import sys

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
                os.read(self._always, 4096)
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


def signal_pipe() -> tuple[int, int]:
    """Return the ends of a pipe that neither blocks its reader nor its writer."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def notify(pipe: int) -> None:
    """Wake the reader of a signal pipe.

    If the pipe is full, the reader has been woken already; -1 stands for a closed pipe.
    """
    with contextlib.suppress(OSError):
        os.write(pipe, b"x")
