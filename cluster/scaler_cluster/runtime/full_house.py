"""What a scheduler does when it has no descriptor left for another peer.

ZeroMQ would try to accept the next peer again and again, and keep a CPU busy with that: its thread
sleeps in epoll, which wakes it as long as somebody waits at the door. So this thread takes that
door out of what the other one waits for, and puts it back when there is room. Meanwhile peers wait
in the queue of the kernel. Linux tells in ``/proc/self/fdinfo`` what is waited for; elsewhere it is
only said that descriptors are out.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import platform
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Container, Iterator

log = logging.getLogger("scaler.scheduler")

LOOK_S = 1.0
"""How long ZeroMQ may try in vain before that is noticed; also the least time between two lines."""
TRY_S = 0.02
"""How long it may try where there was no room a moment ago."""
RESERVED_FILES = 32
"""Enough to start a storage when there is no room for peers."""
FDINFO = Path("/proc/self/fdinfo")
WAITED_FOR = re.compile(r"^tfd:\s*(\d+) events:\s*([0-9a-f]+) data:\s*([0-9a-f]+)", re.MULTILINE)
EPOLL_CTL_MOD = 3


class _Event(ctypes.Structure):
    """The struct of epoll_ctl(2)."""

    _pack_ = 1 if platform.machine() in ("x86_64", "AMD64") else 8
    _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))


@dataclass(frozen=True)
class Door:
    """A socket that listens, and what ZeroMQ waits for at it."""

    epoll: int
    fd: int
    events: int
    data: int

    def let(self, *, wait: bool) -> None:
        """Let ZeroMQ wait for peers at this door, or not."""
        event = _Event(self.events if wait else 0, self.data)
        ctypes.CDLL(None).epoll_ctl(self.epoll, EPOLL_CTL_MOD, self.fd, ctypes.byref(event))


class FullHouse:
    """Looks once a second whether a descriptor is left, and closes the doors while none is.

    Doors that are ``spared`` are not ZeroMQ's.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, address: str, spared: Container[int]
    ) -> None:
        self._loop = loop
        self._address = address
        self._doors = list(_doors(spared))
        self._is_full = False
        self._timer = loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Stop; the doors stay what they are."""
        self._timer.cancel()

    def _look(self) -> None:
        if _has_room():
            if not self._is_full:
                self._timer = self._loop.call_later(LOOK_S, self._look)
                return
            # Perhaps there is room for only one.
            self._let(wait=True)
            self._timer = self._loop.call_later(TRY_S, self._look_again)
            return
        if not self._is_full:
            self._is_full = True
            log.warning(
                "no file descriptor is left: nobody else can connect to %s before somebody leaves; "
                "the limit is set by ulimit -Hn, or LimitNOFILE= of systemd",
                self._address,
            )
        self._let(wait=False)
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look_again(self) -> None:
        if _has_room():
            self._is_full = False
            log.warning("there are file descriptors again: others can connect to %s", self._address)
        else:
            self._let(wait=False)
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _let(self, *, wait: bool) -> None:
        for door in self._doors:
            door.let(wait=wait)


def _has_room() -> bool:
    try:
        os.close(os.dup(0))
    except OSError as error:
        # Standard input may be closed.
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def _doors(spared: Container[int]) -> Iterator[Door]:
    """Yield the sockets of this process that listen, wherever one waits for peers."""
    with contextlib.suppress(OSError):
        for path in FDINFO.iterdir():
            # Descriptors of other threads may be closed meanwhile.
            with contextlib.suppress(OSError):
                for fd, events, data in WAITED_FOR.findall(path.read_text()):
                    if int(fd) not in spared and _listens(int(fd)):
                        yield Door(int(path.name), int(fd), int(events, 16), int(data, 16))


def _listens(fd: int) -> bool:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    with socket.socket(fileno=os.dup(fd)) as one:
        return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
