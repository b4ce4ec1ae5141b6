"""Helpers that programs for the Scaler system use, and the engine itself has no need of."""

from __future__ import annotations

import logging
import socket
from datetime import timedelta
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.client import worker_context
from scaler_cluster.client.graph import Arrangement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

log = logging.getLogger("scaler")


class TimedLogger:
    """Logs when something begins, and how long it took when it ends."""

    def __init__(self, message: str, logging_level: int = logging.INFO) -> None:
        self._message = message
        self._level = logging_level
        self._start = clock()

    def begin(self) -> None:
        """It begins now."""
        log.log(self._level, "beginning %s", self._message)
        self._start = clock()

    def end(self) -> None:
        """It has ended."""
        took = timedelta(seconds=clock() - self._start)
        log.log(self._level, "completed %s in %s", self._message, took)


class ScopedLogger:
    """A context that logs when it begins, and how long it took."""

    def __init__(self, message: str, logging_level: int = logging.INFO) -> None:
        self.timer = TimedLogger(message, logging_level)

    def __enter__(self) -> None:
        """Begin."""
        self.timer.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self.timer.end()


def get_logger_info(logger: logging.Logger) -> tuple[str, str, tuple[str, ...]]:
    """Return how a logger formats, from which level it logs, and into which files."""
    first = next((one.formatter for one in logger.handlers if one.formatter), None)
    paths = (getattr(one, "baseFilename", None) for one in logger.handlers)
    return (
        "" if first is None else str(first._fmt),
        logging.getLevelName(logger.getEffectiveLevel()),
        tuple(filter(None, paths)),
    )


class Processor:
    """The process that runs tasks; its tasks can ask whether they are in one."""

    @staticmethod
    def get_current_processor() -> Processor | None:
        """Return what stands for this process if it is a worker, None elsewhere."""
        return _here if worker_context.is_worker() else None


_here = Processor()


def get_available_tcp_port(hostname: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as one:
        one.bind((hostname, 0))
        return int(one.getsockname()[1])


def cull_graph(graph: Mapping[Any, Any], keys: Iterable[Any]) -> dict[Any, Any]:
    """Return what of a graph ``keys`` need, in its order; see :meth:`Client.get` for its form.

    Raises KeyError, CycleError.
    """
    needed = Arrangement(graph, keys).numbers
    return {key: value for key, value in graph.items() if key in needed}
