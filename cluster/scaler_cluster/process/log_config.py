"""Where a process of the engine logs."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_cluster.config.shared_settings import Logging

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Of warnings on stderr."""


@dataclass(frozen=True)
class LogConfig:
    """Where a process logs; without one it logs warnings to stderr."""

    paths: tuple[str, ...]
    level: str
    config_file: str | None
    """For ``logging.config.fileConfig``, in place of the other two."""

    @classmethod
    def from_settings(cls, settings: Logging) -> LogConfig | None:
        """Return where a process logs; None if the settings name no place."""
        paths, file = settings.logging_paths, settings.logging_config_file
        return cls(paths, settings.logging_level, file) if paths or file is not None else None


def set_up_logging(config: LogConfig | None, level: str = "WARNING", *, suffix: str = "") -> None:
    """Let the engine's log go where ``config`` says; without one, to stderr from a level on.

    The root logger is left alone: in a worker it belongs to the tasks. ``suffix`` is added to the
    names of log files, so that each process has its own.
    """
    if config is not None:
        from scaler_cluster.logs import setup_logger  # embedded clusters log nothing

        setup_logger(config.paths, config.config_file, config.level, suffix=suffix)
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("scaler")
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
