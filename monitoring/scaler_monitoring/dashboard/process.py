"""The dashboard of an embedded cluster, or of a stack, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError, ScalerError
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.monitor_config import DashboardProcessConfig
from scaler_cluster.process.process import (
    LIFELINE_FD,
    READY_FD_VARIABLE,
    Ready,
    read_config,
    say_error,
    say_ready,
)
from scaler_cluster.process.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Callable

NICENESS = 5
"""It is to slow down nobody."""
HEARD_S = 10.0
"""How long a dashboard that is started with its cluster waits for the scheduler's first word: it
shows what happens from then on."""
NOISY = {"bokeh": logging.ERROR, "tornado.access": logging.CRITICAL}
"""They warn of every tab that is closed, every link that is old, every request that comes too late;
from which level on they are heard."""

log = logging.getLogger("scaler.dashboard")


def serve(
    config: DashboardProcessConfig,
    lifeline: int,
    tell: Callable[[Ready], None],
    heard_within_s: float = 0.0,
) -> None:
    """Serve a dashboard until the lifeline comes to its end; ``tell`` its link once it answers.

    Before it tells that, it waits so long at most until the scheduler has been heard.

    Raises ConfigError if Bokeh is not there, a setting cannot work, or, later on, there is no room
    left for the recording.
    """
    try:
        import bokeh as _  # noqa: F401
    except ImportError:
        raise ConfigError(
            "the dashboard needs bokeh, which is not installed: pip install 'scaler-exec[monitor]'"
        ) from None
    for name, level in NOISY.items():
        logging.getLogger(name).setLevel(level)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    asyncio.run(_serve(config, lifeline, tell, heard_within_s))


async def _serve(
    config: DashboardProcessConfig,
    lifeline: int,
    tell: Callable[[Ready], None],
    heard_within_s: float,
) -> None:
    from scaler_monitoring.dashboard.acting import Acting
    from scaler_monitoring.dashboard.guard import Guard
    from scaler_monitoring.dashboard.server import Dashboard
    from scaler_monitoring.dashboard.watch import LiveWatch, Replay
    from scaler_monitoring.history import History

    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()
    listener = socket.socket(fileno=config.fd)
    listener.setblocking(False)
    with contextlib.ExitStack() as stack:
        watch: LiveWatch | Replay
        if config.replay is not None:
            watch = Replay.of(config.replay)
        else:
            assert config.monitor_address is not None
            history: History | None = None
            if config.history is not None:
                history = stack.enter_context(contextlib.closing(History(*config.history)))
            watch = LiveWatch(config.monitor_address, config.credentials, config.record, history)
        stack.callback(watch.close)
        port, acts = listener.getsockname()[1], config.acting
        acting = Acting(watch, acts.keys) if acts is not None else None
        acting_token = acts.token if acts is not None else None
        guard = Guard(config.token, port, config.prefix, config.hosts, acting_token)
        dashboard = Dashboard(
            watch,
            listener,
            guard,
            config.prefix,
            interval_s=config.interval_s,
            rows_max=config.rows_max,
            tls=tls_context(config.tls) if config.tls is not None else None,
            acting=acting,
        )

        def look() -> None:
            # A signal sends a byte, the end of the lifeline an empty one.
            if not os.read(lifeline, 4096) and not end.done():
                end.set_result(None)

        loop.add_reader(lifeline, look)
        watch.listen(end)
        await watch.hear(end, heard_within_s)
        tell(Ready(config.link))
        try:
            await end
        finally:
            loop.remove_reader(lifeline)
            await dashboard.close()
            if acting is not None:
                acting.close()


def main() -> None:
    """Be told what to do, do it until whoever started this is gone."""
    config = read_config(DashboardProcessConfig)
    set_up_logging(config.logging)
    try:
        serve(config, LIFELINE_FD, say_ready, HEARD_S)
    except ScalerError as error:
        if READY_FD_VARIABLE in os.environ:
            say_error(str(error))
        else:
            # Nobody waits for a word of it any more.
            log.error("the dashboard ends: %s", error)  # noqa: TRY400
        sys.exit(1)


if __name__ == "__main__":
    main()
