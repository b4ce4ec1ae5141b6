# PYTHON_ARGCOMPLETE_OK
"""``scaler_logs``: what the tasks of a running cluster print and log, in a terminal."""

from __future__ import annotations

import logging
import os
import re
import sys
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.config.load import load
from scaler_cluster.config.sections import LogsSettings
from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.ids import LOGS
from scaler_cluster.wire import feed
from scaler_monitoring.feed import Feed, keys_of
from scaler_monitoring.last_lines import LastLines
from scaler_monitoring.log_view import LogFilter, as_text
from scaler_monitoring.recording import read

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "scaler_logs"
ABOUT = (
    "Show what tasks print and log from now on: the workers keep nothing of it before somebody "
    "asks. All conditions that are given must hold of a line."
)
LOOK_S = 1.0
"""So long it waits for the next message, before it looks at the time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Show lines until the time is over, or until Ctrl-C; return the exit status."""
    return guard(PROGRAM, lambda: _run(load(LogsSettings, PROGRAM, ABOUT, arguments)))


def _run(settings: LogsSettings) -> None:
    screen = _Screen(_filter_of(settings))
    try:
        if settings.replay is not None:
            for _, message in read(settings.replay):
                screen.apply(message)
        else:
            _listen(settings, screen)
    except BrokenPipeError:
        # Whoever reads it has seen enough; nothing is to be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _filter_of(settings: LogsSettings) -> LogFilter:
    """Return which lines are wanted; raises ConfigError."""
    try:
        pattern = re.compile(settings.grep) if settings.grep else None
    except re.error as error:
        raise ConfigError(f"grep is no regular expression: {error}") from None
    level: int = getattr(logging, settings.level) if settings.level else 0
    return LogFilter(
        settings.worker or "", settings.function or "", settings.task or "", level, pattern
    )


class _Screen:
    """Writes the lines that are wanted."""

    def __init__(self, wanted: LogFilter) -> None:
        self._wanted = wanted
        self._tail = LastLines()
        self.is_heard = False

    def apply(self, message: object) -> None:
        """Write the lines of a message; raises ConfigError if there are never any."""
        if not isinstance(message, feed.Logs):
            return
        self.is_heard = True
        tail, before = self._tail, self._tail.added
        tail.apply(message)
        if tail.reason:
            raise ConfigError(tail.reason)
        for line in tail.since(before):
            if self._wanted.takes(line):
                sys.stdout.write(as_text(line) + "\n")
        sys.stdout.flush()


def _listen(settings: LogsSettings, screen: _Screen) -> None:
    assert settings.monitor_address is not None
    with Feed(settings.monitor_address, (LOGS,), keys_of(settings)) as listener:
        end = clock() + settings.seconds
        while settings.follow or clock() < end:
            left_s = LOOK_S if settings.follow else min(end - clock(), LOOK_S)
            message = listener.next(max(left_s, 0.0))
            if message is not None:
                screen.apply(message)
            elif listener.refusal:
                break
        if not screen.is_heard:
            why = listener.refusal or "is the scheduler running, and is that its monitor address?"
            raise ClusterUnreachableError(f"nothing was heard from {listener.address}: {why}")


if __name__ == "__main__":
    raise SystemExit(main())
