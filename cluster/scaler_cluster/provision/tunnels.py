"""Tunnels of ssh, for machines that cannot reach the scheduler, or that nobody can reach.

Whatever a machine connects to has a port of its own there, which leads through the ssh (``-R``):
the scheduler, its object storages, and the storages of the other machines. The way back is a port
of the manager's machine for the storage of each machine (``-L``). All of them but that are ports of
loopback addresses, and behind each is something that asks for keys.
"""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_cluster.process.process import address_after
from scaler_cluster.process.tunnel import Tunnel

if TYPE_CHECKING:
    from scaler_cluster.config.ssh_settings import SSHSettings

LOOPBACK = "127.0.0.1"
PORTS = range(10_000, 32_768)
"""Those that systems give to nobody who asks for any."""
TRIES = 100


@dataclass(frozen=True)
class Opening:
    """A tunnel to a machine."""

    flags: tuple[str, ...]
    """Those of ssh."""
    scheduler: str
    """Where the machine reaches the scheduler."""
    tunnel: Tunnel
    """What else it is told."""


class Tunnels:
    """Chooses the ports of tunnels to the machines of a manager."""

    def __init__(self, settings: SSHSettings) -> None:
        self._scheduler = settings.scheduler_address
        self._storages = settings.object_storage_address or (address_after(self._scheduler, 1),)
        host = _host_towards(self._scheduler)
        taken: set[int] = set()
        for _ in settings.machines:
            taken.add(_free_port(host, taken))
        self._doors = tuple(f"tcp://{_bracketed(host)}:{port}" for port in sorted(taken))
        """Where others reach the storage of each machine."""

    def open(self, place: int) -> Opening:
        """Return a tunnel to one of the machines, by its number."""
        known_as = self._doors[place]
        others = [door for door in self._doors if door != known_as]
        led_to = [self._scheduler, *self._storages, *others]
        # One that is in use there is told by ssh, and the next tunnel has other ones.
        ports = secrets.SystemRandom().sample(PORTS, len(led_to) + 1)
        here = [f"{LOOPBACK}:{port}" for port in ports]
        flags = ["-o", "ExitOnForwardFailure=yes"]
        for end, address in zip(here, led_to, strict=False):
            flags += ["-R", f"{end}:{address.removeprefix('tcp://')}"]
        flags += ["-L", f"{known_as.removeprefix('tcp://')}:{here[-1]}"]
        scheduler, *ends = (f"tcp://{end}" for end in here)
        count = len(self._storages)
        machines = dict(zip(others, ends[count:], strict=False))
        return Opening(
            tuple(flags), scheduler, Tunnel(tuple(ends[:count]), machines, ends[-1], known_as)
        )


def _host_towards(address: str) -> str:
    """Return by which address of this machine the machine at another one reaches it."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    (family, *_), *_ = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        # This sends nothing: it only makes the system choose the route, and with it the address.
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])


def _free_port(host: str, taken: set[int]) -> int:
    """Return a port at which nobody listens here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(TRIES):
        port = secrets.choice(PORTS)
        with socket.socket(family) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        if port not in taken:
            return port
    raise OSError(f"no port of {host} is free")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
