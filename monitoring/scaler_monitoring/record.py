# PYTHON_ARGCOMPLETE_OK
"""``scaler_record``: what happens in a running cluster, to a file."""

from __future__ import annotations

import sys
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.config.load import load
from scaler_cluster.config.sections import RecordSettings
from scaler_cluster.ids import EVENTS, LOGS, PROFILE, SNAPSHOT
from scaler_monitoring.feed import Feed, keys_of
from scaler_monitoring.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "scaler_record"
ABOUT = (
    "Write everything that a scheduler publishes to a file, until Ctrl-C. It may start before the "
    "scheduler, and goes on if another scheduler takes its place."
)
LOOK_S = 10.0
"""How long it waits for the next message, before it waits again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record a cluster until Ctrl-C; return the exit status."""
    return guard(PROGRAM, lambda: _run(load(RecordSettings, PROGRAM, ABOUT, arguments)))


def _run(settings: RecordSettings) -> None:
    wanted = {LOGS: settings.logs, PROFILE: settings.profile}
    topics = SNAPSHOT, EVENTS, *(topic for topic, is_wanted in wanted.items() if is_wanted)
    with (
        Feed(settings.monitor_address, topics, keys_of(settings)) as feed,
        Recorder(settings.file) as recorder,
    ):
        _say(f"listening to {feed.address}")
        is_first = True
        while True:
            message = feed.next(LOOK_S)
            if message is None:
                continue
            recorder.apply(message, clock())
            if is_first:
                _say(f"recording to {settings.file}")
                is_first = False


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
