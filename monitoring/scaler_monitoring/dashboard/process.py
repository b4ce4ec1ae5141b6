"""The dashboard of an embedded cluster, or of a stack, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ConfigError, ScalerError
from scaler_cluster.runtime.process import (
    LIFELINE_FD,
    READY_FD_VARIABLE,
    log_as_told,
    read_settings,
    say_ready,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NICENESS = 5
"""It is to slow down nobody."""
NOISY = {"bokeh": logging.ERROR, "tornado.access": logging.CRITICAL}
"""They warn of every tab that is closed, every link that is old, every request that comes too late;
from which level on they are heard."""

log = logging.getLogger("scaler.dashboard")


def serve(settings: dict[str, Any], lifeline: int, tell: Callable[..., None]) -> None:
    """Serve a dashboard until the lifeline comes to its end; ``tell`` its link once it answers.

    ``settings`` are those of
    :func:`scaler_cluster.runtime.process_config.dashboard_process_config`. Raises ConfigError if
    Bokeh is not there, a setting cannot work, or, later on, there is no room left for what is
    recorded.
    """
    try:
        import bokeh as _  # noqa: F401
    except ImportError:
        raise ConfigError(
            "bokeh is not installed, which draws the dashboard: pip install 'scaler-exec[monitor]'"
        ) from None
    for name, level in NOISY.items():
        logging.getLogger(name).setLevel(level)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    asyncio.run(_serve(settings, lifeline, tell))


async def _serve(settings: dict[str, Any], lifeline: int, tell: Callable[..., None]) -> None:
    from scaler_monitoring.dashboard.guard import Guard
    from scaler_monitoring.dashboard.server import Dashboard
    from scaler_monitoring.dashboard.watch import LiveWatch, Replay

    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()
    listener = socket.socket(fileno=settings["fd"])
    listener.setblocking(False)
    watch = (
        Replay(settings["replay"])
        if settings["replay"]
        else LiveWatch(settings["monitor_address"], settings["record"])
    )
    with contextlib.closing(watch):
        guard = Guard(
            settings["token"], listener.getsockname()[1], settings["prefix"], settings["hosts"]
        )
        dashboard = Dashboard(
            watch,
            listener,
            guard,
            settings["prefix"],
            interval_s=settings["interval_s"],
            rows_max=settings["rows_max"],
        )

        def look() -> None:
            # A signal sends a byte, the end of the lifeline an empty one.
            if not os.read(lifeline, 4096) and not end.done():
                end.set_result(None)

        loop.add_reader(lifeline, look)
        watch.listen(end)
        tell(link=settings["link"])
        try:
            await end
        finally:
            loop.remove_reader(lifeline)
            await dashboard.close()


def main() -> None:
    """Be told what to do, do it until whoever started this is gone."""
    settings = read_settings()
    log_as_told(settings)
    try:
        serve(settings, LIFELINE_FD, say_ready)
    except ScalerError as error:
        if READY_FD_VARIABLE in os.environ:
            say_ready(error=str(error))
        else:
            # Nobody waits for a word of it any more.
            log.error("the dashboard ends: %s", error)  # noqa: TRY400
        sys.exit(1)


if __name__ == "__main__":
    main()
