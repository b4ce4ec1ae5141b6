"""The program of a child process that is told its settings, and works until its lifeline ends."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, TypeVar

from scaler_cluster.errors import ScalerError
from scaler_cluster.process.log_config import set_up_logging
from scaler_cluster.process.process import LIFELINE_FD, read_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.process.log_config import LogConfig

Config = TypeVar("Config")


def run_child(
    kind: type[Config],
    logging_of: Callable[[Config], LogConfig | None],
    run: Callable[[Config, int], None],
    what: str,
    level: str = "WARNING",
) -> int:
    """Read a record from standard input, and run with it and the lifeline; return the status.

    ``what`` says in a message to the user what has ended. Without a LogConfig it is logged to
    stderr from ``level`` on. Signals to the group are the parent's.
    """
    config = read_config(kind)
    set_up_logging(logging_of(config), level)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(config, LIFELINE_FD)
    except ScalerError as error:
        sys.stderr.write(f"scaler_exec: {what} ends: {error}\n")
        return 1
    return 0
