"""Tells when processes end that are no children of this one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class ProcessWatch:
    """Watches processes in this one's pid namespace; ``on_over`` gets the peers whose has ended.

    Peers that are not ``known`` any more are forgotten.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_over: Callable[[bytes], None],
        known: Callable[[bytes], bool],
    ) -> None:
        self._loop = loop
        self._on_over = on_over
        self._known = known
        self._peers: dict[int, list[bytes]] = {}
        """Who is in each process that is watched: several clients may be."""
        self._fds: dict[int, int] = {}
        """Descriptors that become readable when a process ends, by its pid."""

    def watch(self, peer: bytes, pid: int) -> None:
        """Watch the process of a peer."""
        peers = [*filter(self._known, self._peers.get(pid, ())), peer]
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._forget(pid)
            for one in peers:
                self._on_over(one)
        except OSError:
            # Not every kernel and sandbox can: then the peer is missed by its silence, and those
            # that were in the process before are watched on.
            return
        else:
            self._forget(pid)
            self._fds[pid] = fd
            self._peers[pid] = peers
            self._loop.add_reader(fd, self._on_readable, pid)

    def close(self) -> None:
        """Watch none any more."""
        for pid in list(self._fds):
            self._forget(pid)

    def _on_readable(self, pid: int) -> None:
        peers = self._peers[pid]
        self._forget(pid)
        for peer in peers:
            self._on_over(peer)

    def _forget(self, pid: int) -> None:
        self._peers.pop(pid, None)
        fd = self._fds.pop(pid, -1)
        if fd >= 0:
            self._loop.remove_reader(fd)
            os.close(fd)
