"""Listens to a scheduler until whoever started this lets go of it, then writes a report."""

from __future__ import annotations

import json
import os
import select
import sys
from contextlib import ExitStack, suppress
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError, ScalerError
from scaler_cluster.ids import EVENTS, PROFILE, SNAPSHOT
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.monitor_config import ReportProcessConfig
from scaler_cluster.process.process import LIFELINE_FD, Ready, read_config, say_error, say_ready
from scaler_cluster.wire import feed
from scaler_monitoring.feed import Feed
from scaler_monitoring.period import Period

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.wire.feed_codec import Message

FIRST_S = 15.0
"""A scheduler that is not heard by then cannot be reached from here."""
LAST_S = 5.0
"""One that is not heard by then has gone away."""
LAST_EVENTS_S = 0.5
"""What had happened before the last snapshot is told by then: events wait for others a while."""
LOOK_S = 1.0
"""A feed that is silent is asked this often: it may have to connect again."""
TOPICS = (EVENTS, SNAPSHOT)
"""In this order: by the time of the first snapshot, events are told as well."""


def main() -> None:
    """Be told what to do, and do it."""
    config = read_config(ReportProcessConfig)
    set_up_logging(None)
    with ExitStack() as held:
        try:
            _try(config.path)
            topics = (*TOPICS, PROFILE) if config.has_profile else TOPICS
            listener = held.enter_context(Feed(config.monitor_address, topics, config.credentials))
            period = _begin(listener)
        except ScalerError as error:
            say_error(str(error))
            sys.exit(1)
        say_ready(Ready())
        _tell(config.fd, _report(listener, period, config.path))


def _report(listener: Feed, period: Period, path: str) -> str:
    """Listen to the end and write the page; return why it could not be, or nothing."""
    from scaler_monitoring.report import write

    try:
        _listen(listener, period)
        period.is_cut_off = not _end(listener, period)
        write(path, period)
    except ScalerError as error:
        return str(error)
    return ""


def _try(path: str) -> None:
    """Raise ConfigError if there can be no report; what is imported is so before it begins."""
    try:
        import bokeh as _  # noqa: F401
    except ImportError:
        raise ConfigError(
            "reports need bokeh, which is not installed: pip install 'scaler-exec[monitor]'"
        ) from None
    from scaler_monitoring.report import try_path

    try_path(path)


def _begin(listener: Feed) -> Period:
    """Wait for the first snapshot."""
    period = Period()
    for message in _messages(listener, FIRST_S):
        period.apply(message, clock())
        if period.first is not None:
            return period
    raise ConfigError(
        f"no scheduler is heard at {listener.address}, where it is to be watched: can it be "
        "reached from here?"
    )


def _listen(listener: Feed, period: Period) -> None:
    """Take in what happens until the lifeline comes to its end."""
    is_over = False
    while not is_over:
        ready = select.select([listener.fd, LIFELINE_FD], [], [], LOOK_S)[0]
        is_over = LIFELINE_FD in ready and not os.read(LIFELINE_FD, 4096)
        while (message := listener.next()) is not None:
            period.apply(message, clock())


def _end(listener: Feed, period: Period) -> bool:
    """Take in what had happened by now; return False if the scheduler does not say it.

    Whoever begins to listen is sent a snapshot, and so is everybody else.
    """
    with Feed(listener.address, (SNAPSHOT,), listener.credentials) as newcomer:
        fresh = newcomer.next(LAST_S)
    assert fresh is None or isinstance(fresh, feed.Snapshot)
    if fresh is None:
        return False
    for message in _messages(listener, LAST_S):
        period.apply(message, clock())
        last = period.last
        if last is not None and (last.run != fresh.run or last.seq >= fresh.seq):
            break
    else:
        return False
    told = period.last.events if period.last is not None else 0
    for message in _messages(listener, LAST_EVENTS_S):
        if isinstance(message, feed.Events):
            period.apply(message, clock())
            if message.seq > told:
                break
    return True


def _messages(listener: Feed, timeout_s: float) -> Iterator[Message]:
    """Yield what arrives, until so much time has passed."""
    deadline = clock() + timeout_s
    while (left_s := deadline - clock()) > 0:
        message = listener.next(left_s)
        if message is not None:
            yield message


def _tell(fd: int, error: str) -> None:
    """Say that it is done, to whom may be gone."""
    with suppress(BrokenPipeError), os.fdopen(fd, "wb") as pipe:
        pipe.write(json.dumps({"error": error}).encode() + b"\n")


if __name__ == "__main__":
    main()
