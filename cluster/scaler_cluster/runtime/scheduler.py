"""The scheduler process: an asyncio loop around the scheduler's shell and core.

Run as ``python -m scaler_cluster.runtime.scheduler``, with a SchedulerProcessConfig on standard
input.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.core.scheduler.scheduler import SchedulerCore
from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import TOPICS
from scaler_cluster.links import feed_link, open_link
from scaler_cluster.links.curve import AllowList
from scaler_cluster.links.link import split_key
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.process import (
    LIFELINE_FD,
    Ready,
    address_after,
    allow_many_files,
    pid_space,
    read_config,
    say_error,
    say_ready,
)
from scaler_cluster.process.process_config import SchedulerProcessConfig
from scaler_cluster.runtime.full_house import RESERVED_FILES, FullHouse
from scaler_cluster.runtime.key_watch import KeyWatch
from scaler_cluster.runtime.roster_file import RosterFile
from scaler_cluster.runtime.scheduler_shell import SchedulerShell
from scaler_cluster.runtime.storage_process import (
    StorageProcess,
    address_of,
    listen_at,
    listen_beside,
)
from scaler_cluster.runtime.storages import Storages
from scaler_cluster.security.credentials import FEED_DOOR, TASKS_DOOR

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.links.open_link import Hub
    from scaler_cluster.security.credentials import Credentials

log = logging.getLogger("scaler.scheduler")

EPOCH_BITS = 28
"""With these, the numbers of sessions are numbers in JavaScript, too."""


async def serve(config: SchedulerProcessConfig) -> None:
    """Bind, tell where, and schedule until the lifeline ends or until SIGTERM comes.

    A second SIGTERM ends the process at once.

    Raises ConfigError if it cannot bind, or finds no object storage where there must be one.
    """
    options, dirs = config.options, config.dirs
    # What a command has read may have changed since then.
    credentials = options.credentials.resolved(config.address).reread()
    listener = listen_at(options.storages[0]) if len(options.storages) == 1 else None
    storages = None
    if options.storages and listener is None:
        name = Path(dirs.directory).name
        storages = Storages(options.storages, credentials, options.known_as, name)
        dirs = replace(dirs, storage=StorageDirs())
    allowed = AllowList({})
    link = None
    try:
        guard = credentials.guard(config.address, TASKS_DOOR, allowed)
        if config.dirs_are_there:
            dirs.hold()
        else:
            dirs.make()
        link = open_link.bind(config.address, guard, options.io_threads)
        if storages is None and listener is None:
            listener = listen_beside(link.address, config.beside)
        publisher = _publish(link, config, credentials, allowed)
    except ConfigError:
        if link is not None:
            link.close(linger_ms=0)
        if storages is not None:
            storages.close()
        dirs.let_go()
        raise
    storage = None
    if storages is not None:
        homes = storages.homes
    else:
        where = options.known_as[0] if options.known_as else address_of(listener)
        homes = (dirs.storage.served_at(where),)
        storage = StorageProcess(link.address, dirs, listener, credentials, known_as=where)
    roster_file = RosterFile(dirs.directory)
    core_config = replace(
        _core_config(config, credentials, link.address, is_open=guard is None),
        homes=homes,
        homes_are_elsewhere=storages is not None,
        predecessor=roster_file.read(),
        adopts=config.dirs_are_there if storages is None else storages.are_stored,
        monitor=publisher.address,
    )
    core = SchedulerCore(core_config, clock(), partial(_user_of, link, storages))
    core.let_in(allowed.users)
    sockets = link, core, storage, storages, publisher
    watch = KeyWatch(credentials, allowed)
    shell = SchedulerShell(*sockets, roster_file, watch, check=options.check)
    loop = asyncio.get_running_loop()
    full_house = FullHouse(loop, link.address, () if listener is None else (listener.fileno(),))
    _end_by_signal(loop, shell.over)
    loop.add_reader(LIFELINE_FD, _on_lifeline, shell.over, config.is_kept)
    _log_beginning(config, link.address, core_config, credentials)
    say_ready(Ready(link.address, publisher.address, address_of(listener)))
    dirs.remove_stale()
    # The imported modules stay: the garbage collector need not look at them again.
    gc.freeze()
    await shell.over.wait()
    loop.remove_reader(LIFELINE_FD)
    full_house.close()
    shell.close()
    dirs.let_go(is_last=True)


def _user_of(link: Hub, storages: Storages | None, peer: bytes) -> str:
    """Return whose key a peer has; a storage that this process connects to has shown its own."""
    return "" if storages is not None and peer in storages else link.user_of(peer)


def _core_config(
    config: SchedulerProcessConfig, credentials: Credentials, address: str, *, is_open: bool
) -> SchedulerConfig:
    """Return the settings of the core, without what is found out at the start."""
    core = config.options.core
    return replace(
        core,
        # Where anybody may come in, nobody of them may end the cluster.
        protected=core.protected or (is_open and address.startswith("tcp://")),
        secret=credentials.secret_at(config.address),
        epoch=config.epoch if config.epoch is not None else secrets.randbits(EPOCH_BITS),
        pid_space=pid_space(),
        dashboard=config.dashboard,
    )


def _end_by_signal(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    """Let the first SIGTERM set an event; a second one has its default effect."""

    def on_signal() -> None:
        over.set()
        loop.remove_signal_handler(signal.SIGTERM)

    loop.add_signal_handler(signal.SIGTERM, on_signal)


def _log_beginning(
    told: SchedulerProcessConfig, address: str, config: SchedulerConfig, credentials: Credentials
) -> None:
    if told.follows:
        # The command has the same log files, but only one process may rotate them.
        log.warning("%s: another one takes its place", told.follows)
    log.info("Scheduler: listen to scheduler address %s", address)
    for home in config.homes:
        where = split_key(home.address)[0] or home.disk
        log.info("Scheduler: connect to object storage server %s", where)
    log.info("Scheduler: listen to scheduler monitor address %s", config.monitor)
    credentials.warn_if_open(log, address)


def _on_lifeline(over: asyncio.Event, is_kept: bool) -> None:
    if not os.read(LIFELINE_FD, 4096):
        if is_kept:
            # To its clients it is as if it had been killed itself.
            os.kill(os.getpid(), signal.SIGKILL)
        over.set()


def _publish(
    link: Hub,
    config: SchedulerProcessConfig,
    credentials: Credentials,
    allowed: AllowList,
) -> feed_link.Publisher:
    """Return the publisher of the feed, by default two ports after the scheduler's."""
    address = config.options.monitor_address or address_after(config.address, 2, "_monitor")
    try:
        guard = credentials.guard(address, FEED_DOOR, allowed)
        return feed_link.publish(link, address, TOPICS, guard)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; that is for monitors: name another address with --monitor-address"
        ) from error


def run(config: SchedulerProcessConfig) -> None:
    """Run a scheduler in this process; see :func:`serve`."""
    event_loop = config.options.event_loop
    log.info("use event loop: %s", event_loop)
    allow_many_files(RESERVED_FILES)
    if event_loop == "uvloop":
        try:
            import uvloop
        except ImportError:
            raise ConfigError(
                "event_loop: uvloop is not installed: pip install 'scaler-exec[uvloop]'"
            ) from None
        uvloop.run(serve(config))
    else:
        asyncio.run(serve(config))


def main() -> None:
    """Run the scheduler process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = read_config(SchedulerProcessConfig)
    set_up_logging(config.options.logging)
    try:
        run(config)
    except ConfigError as error:
        say_error(str(error))


if __name__ == "__main__":
    main()
