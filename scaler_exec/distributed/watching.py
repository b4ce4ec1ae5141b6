"""What shows how tasks go."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scaler_exec.distributed.awaiting import AsyncEntered
from scaler_exec.distributed.current import default_client
from scaler_exec.distributed.futures_of import futures_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import TracebackType


class performance_report(AsyncEntered):  # noqa: N801 - its name where programs have it from
    """Writes a page about what the cluster of the default client does in the body of ``with``.

    Also of ``async with``. Raises ConfigError as ``scaler_exec.Client.performance_report`` does.
    """

    def __init__(
        self, filename: str | os.PathLike[str] = "dask-report.html", **ignored: object
    ) -> None:
        self._filename = filename

    def __enter__(self) -> None:
        """Begin."""
        self._report = default_client()._engine.performance_report(self._filename)
        self._report.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the page."""
        self._report.__exit__(kind, error, trace)


def progress(*futures: Any, **ignored: object) -> None:
    """Show a bar of how many of these futures are done, until all are.

    Futures may stand in lists and dicts, and in collections that were persisted. Raises
    ConfigError if tqdm is not installed.
    """
    from scaler_cluster.client.progress import watch

    watch([one.future for one in futures_of(futures)], None)


@contextlib.contextmanager
def span(*tags: str) -> Iterator[str]:
    """Yield an id. Spans show nowhere: the monitors tell of functions and graphs."""
    yield uuid4().hex
