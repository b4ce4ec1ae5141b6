"""What a peer is: a library that is compared, behind one small face."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

WORKERS = 2


class Peer(ABC):
    """One library; opened and closed once or several times by a scenario."""

    name: ClassVar[str]
    module: ClassVar[str]
    distribution: ClassVar[str] = ""
    scale: ClassVar[int] = 1
    """Scenarios of many tasks divide their number by this, so that slow peers end at all."""
    depth_max: ClassVar[int] = 100_000
    """Deepest queue that is worth the wait."""
    copies: ClassVar[bool] = False
    """Whether :meth:`share` sends the value with each task."""
    is_whole: ClassVar[bool] = False
    """Whether its results come all at once, by one call, or not at all."""
    workers: int = WORKERS
    """Worker processes that :meth:`open` starts, or threads."""

    def load(self) -> None:
        """Import the library; raises ImportError. Its cost is no part of any figure."""
        importlib.import_module(self.module)

    def version(self) -> str:
        """Return the version of the library; call after :meth:`load`."""
        if not self.distribution:
            return platform.python_version()
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return "source tree"

    @abstractmethod
    def open(self) -> None:
        """Start the workers, or begin to."""

    @abstractmethod
    def close(self) -> None:
        """End the workers and wait for that."""

    @abstractmethod
    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        """Submit a call per item at once; iterating gives the results, in order."""

    @abstractmethod
    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        """Submit one call; return the library's own handle."""

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        """Return the results of what was submitted."""
        return [handle.result() for handle in handles]

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        """Return ``function(value, item)`` for each item, as is best where the value is large."""
        raise NotImplementedError

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        """Return what keys of a graph are, in order."""
        raise NotImplementedError

    def compute(self, collection: Any) -> Any:
        """Return the value of a collection of Dask."""
        raise NotImplementedError


class ExecutorPeer(Peer):
    """A library whose face is :class:`concurrent.futures.Executor`."""

    copies = True

    def __init__(self) -> None:
        self.executor: Any = None

    @abstractmethod
    def make(self) -> Any:
        """Return a new executor."""

    def open(self) -> None:
        self.executor = self.make()

    def close(self) -> None:
        self.executor.shutdown(wait=True)

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], chunksize: int = 1
    ) -> Iterable[Any]:
        results: Iterable[Any] = self.executor.map(function, items, chunksize=chunksize)
        return results

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        return self.executor.submit(function, item)

    def share(
        self, function: Callable[[Any, Any], Any], value: Any, items: Sequence[Any]
    ) -> Sequence[Any]:
        return self.collect([self.executor.submit(function, value, item) for item in items])
