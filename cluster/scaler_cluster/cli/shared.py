"""What all commands do: read settings, log, end by a signal, say in one line what is wrong."""

from __future__ import annotations

import os
import select
import signal
import sys
from logging import StreamHandler
from typing import TYPE_CHECKING, TypeVar

from scaler_cluster.config.load import load
from scaler_cluster.errors import ConfigError, ScalerError
from scaler_cluster.logs import LOGGER, setup_logger
from scaler_cluster.process.kept_scheduler import KeptScheduler
from scaler_cluster.process.process import lifeline_of_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.config.shared_settings import Logging
    from scaler_cluster.process.child import ChildProcess

    L = TypeVar("L", bound=Logging)

ENDED, FAILED, WRONG = 0, 1, 2
"""Exit statuses: ended as it was asked to, ended for another reason, a setting is wrong."""


def run_command(
    kind: type[L],
    program: str,
    about: str,
    run: Callable[[L], int | None],
    arguments: Sequence[str] | None,
) -> int:
    """Run a command to its end; return the exit status."""

    def load_and_run() -> int | None:
        settings = load(kind, program, about, arguments)
        file, level = settings.logging_config_file, settings.logging_level
        setup_logger(settings.logging_paths, file, level)
        return run(settings)

    return guard(program, load_and_run)


def guard(program: str, run: Callable[[], int | None]) -> int:
    """Return the exit status of a command that ends by returning, by a signal, or by an error."""
    # Until the command has handlers of its own, which let it end in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run() or ENDED
    except KeyboardInterrupt:
        return ENDED
    except ScalerError as error:
        sys.stderr.write(f"{program}: {error}\n")
        if LOGGER.handlers and not any(type(one) is StreamHandler for one in LOGGER.handlers):
            # A user who logs to a terminal has just read it there.
            LOGGER.error("%s", error)
        return WRONG if isinstance(error, ConfigError) else FAILED


def wait_for(parts: Sequence[ChildProcess | KeptScheduler]) -> int:
    """Wait until a process ends, and return its status, or until a signal comes."""
    lifeline = lifeline_of_signals()
    # A signal that has a handler sends a byte to the lifeline, which wakes the loop below.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        for child in parts:
            status = child.poll()
            if status is not None:
                return 128 - status if status < ENDED else status
        due = [one.look_after_s for one in parts if isinstance(one, KeptScheduler)]
        timeout = min((each for each in due if each is not None), default=None)
        if select.select([lifeline], (), (), timeout)[0] and not os.read(lifeline, 4096):
            return ENDED
