"""An object storage that runs by itself, for whatever scheduler connects to it.

Run as ``scaler_object_storage_server``, or by a program or a stack as ``python -m
scaler_cluster.runtime.storage_server``, with a StorageServerConfig on standard input.
"""

from __future__ import annotations

import logging
import signal
from hashlib import blake2b
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.process import (
    LIFELINE_FD,
    Ready,
    read_config,
    say_error,
    say_ready,
)
from scaler_cluster.process.process_config import StorageProcessConfig, StorageServerConfig
from scaler_cluster.runtime.storage import StorageShell
from scaler_cluster.runtime.storage_process import address_of, listen_at

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("scaler.storage")


def run(config: StorageServerConfig, lifeline: int, tell: Callable[[Ready], object]) -> None:
    """Keep objects for whatever scheduler connects, until the lifeline comes to its end.

    ``tell`` is called with the address once the storage listens. Raises ConfigError if it cannot.
    """
    listener = listen_at(config.address)
    if listener is None:
        raise ConfigError(
            f"cannot listen at {config.address}: it is in use (a scheduler that was started "
            "first keeps a storage there itself), or not of this machine"
        )
    serve = address_of(listener)
    # A storage that was killed at this address left its directories, which clients know by name.
    name = blake2b(serve.encode(), digest_size=8).hexdigest()
    dirs = ClusterDirs.named(config.memory_limit, name)
    credentials = config.credentials
    try:
        known_as = credentials.addressed(serve)
    except ConfigError:
        listener.close()
        raise
    alone = StorageProcessConfig(
        dirs=dirs,
        serve=serve,
        known_as=known_as,
        listener=listener.detach(),
        credentials=credentials,
    )
    dirs.remove_stale()
    dirs.make()
    try:
        shell = StorageShell(alone, lifeline)
        place = dirs.storage
        room = f"up to {place.memory_limit / 1e6:.0f} MB in {place.memory}, then"
        log.info("object storage at %s: %s %s", serve, room, place.disk)
        credentials.warn_if_open(log, serve)
        tell(Ready(serve))
        shell.run()
    finally:
        dirs.remove()


def main() -> None:
    """Run the storage's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = read_config(StorageServerConfig)
    set_up_logging(config.logging)
    try:
        run(config, LIFELINE_FD, say_ready)
    except ConfigError as error:
        say_error(str(error))


if __name__ == "__main__":
    main()
