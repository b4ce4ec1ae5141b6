"""The program of a child process that is told its settings, and works until its lifeline ends."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, TypeVar

from scaler_cluster.errors import ScalerError
from scaler_cluster.process.log_config import LogConfig, set_up_logging
from scaler_cluster.process.process import LIFELINE_FD, read_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.config.shared_settings import Logging

Settings = TypeVar("Settings", bound="Logging")


def run_child(kind: type[Settings], run: Callable[[Settings, int], None], what: str) -> int:
    """Read settings from standard input, and run with them and the lifeline; return the status.

    ``what`` says in a message to the user what has ended. Signals to the group are the parent's.
    """
    settings = read_config(kind)
    set_up_logging(LogConfig.from_settings(settings))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(settings, LIFELINE_FD)
    except ScalerError as error:
        sys.stderr.write(f"scaler_exec: {what} ends: {error}\n")
        return 1
    return 0
