"""The object storage of a machine, as a child of its scheduler or supervisor."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from time import perf_counter as clock
from time import sleep
from types import MappingProxyType
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.process.process import make_peer_id, write_config
from scaler_cluster.process.process_config import StorageProcessConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.process.directories import ClusterDirs
    from scaler_cluster.process.process_config import SupervisorProcessConfig
    from scaler_cluster.security.credentials import Credentials
    from scaler_cluster.wire.messages import StorageEndpoint

LOOK_S = 1.0
"""How often the parent looks whether the storage runs."""
PREDECESSOR_S = 5.0
"""The storage of the scheduler before this one, which was killed, listens no longer than this."""
PREDECESSOR_LOOK_S = 0.01
BACKLOG = 128
STOP_S = 2.0
"""A storage that has not ended by itself after this is killed."""


class StorageProcess:
    """Starts the storage that has these directories, again if it died, and ends it.

    ``listener`` is the socket at which other machines reach it, if there are any: this process
    keeps it open, so that the next storage has the same address, and a peer that connects meanwhile
    waits. For the other arguments see :class:`StorageProcessConfig`.
    """

    def __init__(
        self,
        scheduler: str,
        dirs: ClusterDirs,
        listener: socket.socket | None,
        credentials: Credentials,
        *,
        supervisor: bytes = b"",
        known_as: str = "",
        detours: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.look_at = 0.0
        """When :meth:`look_after` is next due."""
        self.listener = listener
        self._config = StorageProcessConfig(
            scheduler=scheduler,
            dirs=dirs,
            serve=address_of(listener),
            known_as=known_as,
            listener=listener.fileno() if listener is not None else -1,
            supervisor=supervisor,
            detours=dict(detours),
            credentials=credentials,
        )
        self._child: subprocess.Popen[bytes] | None = None
        self.peer = b""
        """Peer id of the storage that was started last: nobody else knows it before it speaks."""

    def begin_with(self, credentials: Credentials) -> None:
        """Give the next storage that is started other keys."""
        self._config = replace(self._config, credentials=credentials)

    def look_after(self, now: float) -> bool:
        """Start the storage unless it runs; return True if it had died."""
        self.look_at = now + LOOK_S
        if self._child is not None and self._child.poll() is None:
            return False
        had_died = self._child is not None
        self.peer = make_peer_id("O")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "scaler_cluster.runtime.storage"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(self.listener.fileno(),) if self.listener is not None else (),
        )
        assert self._child.stdin is not None
        write_config(self._child.stdin, replace(self._config, peer=self.peer))
        return had_died

    def stop(self) -> None:
        """End the storage."""
        if self.listener is not None:
            self.listener.close()
        if self._child is not None:
            assert self._child.stdin is not None
            self._child.stdin.close()
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


def storage_of_machine(
    config: SupervisorProcessConfig, supervisor: bytes, homes: Sequence[StorageEndpoint]
) -> tuple[StorageProcess, str]:
    """Return the storage of a machine that has none of the ``homes``, and how others reach it.

    Raises ConfigError if there is a tunnel that does not fit.
    """
    address, dirs, keys = config.address, config.dirs, config.options.credentials
    tunnel, detours = config.tunnel, dict[str, str]()
    if tunnel is None:
        listener: socket.socket | None = listen_towards(address)
        served_at = keys.addressed(address_of(listener))
    else:
        if len(homes) != len(tunnel.storages):
            raise ConfigError(
                f"the cluster has {len(homes)} object storages, and the tunnel leads to "
                f"{len(tunnel.storages)}: name all with --object-storage-address of the manager"
            )
        detours = tunnel.detours([home.address for home in homes])
        listener = listen_at(tunnel.listens)
        if listener is None:
            raise ConfigError(f"{tunnel.listens} is in use on this machine")
        served_at = keys.addressed(tunnel.listens, tunnel.known_as)
    # Nobody else does on a machine without a scheduler, whose memory they would fill.
    dirs.remove_stale()
    dirs.make()
    storage = StorageProcess(
        address,
        dirs,
        listener,
        keys,
        supervisor=supervisor,
        known_as=served_at,
        detours=detours,
    )
    return storage, served_at


def listen_beside(scheduler: str, address: str = "") -> socket.socket | None:
    """Return the socket of the storage beside a scheduler: at an address, or at any free port.

    Without an address, None if the scheduler listens at a file: then all its peers see the
    storage's files, too. Raises ConfigError if the address is no address of TCP, or stays in use.
    """
    if address:
        return _listen_after_predecessor(address)
    if not scheduler.startswith("tcp://"):
        return None
    return _listen(scheduler.rpartition(":")[0].removeprefix("tcp://").strip("[]"))


def _listen_after_predecessor(address: str) -> socket.socket:
    end = clock() + PREDECESSOR_S
    while True:
        listener = listen_at(address)
        if listener is not None:
            return listener
        if clock() > end:
            raise ConfigError(
                f"cannot listen at {address}, for the object storage: it is in use; name another "
                "address with --object-storage-address"
            )
        sleep(PREDECESSOR_LOOK_S)


def listen_at(address: str) -> socket.socket | None:
    """Return a socket that listens at an address; None if it is in use, or not of this machine.

    Raises ConfigError if it is no address of TCP.
    """
    host, port = check_address(address)
    try:
        return _listen(host, port)
    except OSError:
        return None


def check_address(address: str) -> tuple[str, int]:
    """Return host and port of a storage's address; raises ConfigError if there are none in it."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not address.startswith("tcp://") or not host or not port.isdecimal():
        raise ConfigError(f"an object storage's address is tcp://host:port, not {address!r}")
    return host.strip("[]"), int(port)


def listen_towards(scheduler: str) -> socket.socket:
    """Return the socket of a storage, at an address that the scheduler's machine can reach."""
    if not scheduler.startswith("tcp://"):
        # At a Unix socket: the scheduler is on this machine, and its storage has just died.
        return _listen("127.0.0.1")
    host, _, port = scheduler.removeprefix("tcp://").rpartition(":")
    with socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
        # This sends nothing: it only makes the system choose the route, and with it the address.
        probe.connect((host.strip("[]"), int(port)))
        return _listen(probe.getsockname()[0])


def address_of(listener: socket.socket | None) -> str:
    """Return the address of a listener; empty without one."""
    if listener is None:
        return ""
    host, port = listener.getsockname()[:2]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _listen(host: str, port: int = 0) -> socket.socket:
    listener = socket.socket(_family(host))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
