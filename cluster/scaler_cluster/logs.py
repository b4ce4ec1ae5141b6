"""Where the engine's log goes. Only the logger ``scaler`` is ever touched."""

from __future__ import annotations

import contextlib
import logging
import logging.config
import logging.handlers
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

LOGGER = logging.getLogger("scaler")
TIME = "%Y-%m-%d %H:%M:%S%z"
SHORT = "[%(levelname)s]%(asctime)s: %(message)s"
LONG = "[%(levelname)s]%(asctime)s:%(module)s:%(funcName)s:%(lineno)d: %(message)s"
"""In files, which are read later, by somebody else."""
STREAMS = {"-": "stdout", "/dev/stdout": "stdout", "/dev/stderr": "stderr"}


class _LogFile(logging.handlers.TimedRotatingFileHandler):
    """A file that may lie on a full disk: that is one line on stderr, until there is room again."""

    _is_full = False
    _was_full = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; see :meth:`handleError`."""
        self._is_full, self._was_full = False, self._is_full
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of logging
        """Say once that records are lost. Other errors are bugs, of which logging tells all."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._is_full = True
        if not self._was_full and sys.stderr is not None:
            with contextlib.suppress(OSError):
                reason = f"{error.strerror}; lines are lost"
                sys.stderr.write(f"cannot write the log {self.baseFilename}: {reason}\n")
                sys.stderr.flush()


def setup_logger(
    log_paths: Sequence[str] = ("/dev/stdout",),
    logging_config_file: str | None = None,
    logging_level: str = "INFO",
    *,
    suffix: str = "",
) -> None:
    """Let the engine's log go to these paths, or where a file for ``fileConfig`` says.

    Files begin anew at midnight; ``suffix`` is added to their names. Raises ConfigError.
    """
    if logging_config_file is not None:
        _use_file(logging_config_file)
        return
    handlers: list[logging.Handler] = []
    for path in log_paths:
        stream = STREAMS.get(path)
        handler: logging.Handler
        if stream is not None:
            handler = logging.StreamHandler(getattr(sys, stream))
        else:
            handler = _to_file(path + suffix, delay=bool(suffix))
        handler.setFormatter(logging.Formatter(SHORT if stream else LONG, TIME))
        handlers.append(handler)
    for old in LOGGER.handlers:
        # In a worker its file is closed already, as all that its parent had open.
        with contextlib.suppress(OSError):
            old.close()
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(logging_level.upper())
    LOGGER.propagate = False
    if not suffix:
        LOGGER.info("logging to %s", tuple(log_paths))


def _use_file(path: str) -> None:
    try:
        logging.config.fileConfig(path, disable_existing_loggers=False)
    except Exception as error:
        raise ConfigError(f"logging_config_file: cannot use {path}: {error}") from None
    LOGGER.info("use logging config file: %s", path)


def _to_file(path: str, *, delay: bool) -> logging.Handler:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return _LogFile(path, when="midnight", delay=delay)
    except OSError as error:
        raise ConfigError(f"logging_paths: cannot write {path}: {error.strerror}") from None
