"""What a client does with its cluster: executors, logs, and new workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaler_cluster import arguments
from scaler_cluster.client.dask_graph import merge_options
from scaler_exec.distributed.awaiting import awaited
from scaler_exec.distributed.futures_of import futures_of
from scaler_exec.distributed.timing import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.client.client import Client as EngineClient
    from scaler_cluster.wire.feed import Snapshot
    from scaler_exec.distributed.cluster import LocalCluster
    from scaler_exec.distributed.future import Future
    from scaler_exec.executor import ScalerExecutor

EXECUTOR_KEYWORDS = frozenset(
    ("allow_other_workers", "priority", "pure", "resources", "retries", "workers")
)
"""What :meth:`Client.get_executor` takes; ``pure`` makes no difference."""


class Managing:
    """The part of a client that changes its cluster, or what comes from there."""

    _engine: EngineClient
    asynchronous: bool
    wait_for_workers: Callable[..., Any]
    """See :class:`Observing`."""
    cluster: LocalCluster | None

    def _cancel_all(self) -> None:
        """Cancel all tasks of the client, see :class:`Client`."""
        raise NotImplementedError

    def _await_snapshot(
        self, is_wanted: Callable[[Snapshot], bool], timeout_s: float | None = None
    ) -> Snapshot:
        """Return what the scheduler publishes, see :class:`Observing`."""
        raise NotImplementedError

    def get_executor(self, **named: Any) -> ScalerExecutor:
        """Return a :class:`concurrent.futures.Executor` on the same cluster.

        ``named`` are ``workers``, ``resources``, ``retries`` and ``priority`` of its tasks, each of
        which is its own. It is a connection of its own: shut it down.
        """
        from scaler_exec.executor import ScalerExecutor

        engine = self._engine
        # Before it connects: a keyword may be wrong.
        unknown = named.keys() - EXECUTOR_KEYWORDS
        if unknown:
            raise TypeError(f"unsupported arguments to ClientExecutor: {sorted(unknown)}")
        merge_options(engine._asked.own, named)
        executor = ScalerExecutor(address=engine._session.address, keys=engine._settings.keys)
        asked = executor._asked
        executor._take_options(replace(asked, own=merge_options(asked.own, named)))
        return executor

    def forward_logging(self, logger_name: str | None = None, level: int | str = 1) -> None:
        """Pass what tasks log from now on to the loggers of the same names here.

        Of the tasks that are submitted from now on, from a level on. Raises NotImplementedError
        for one logger alone.
        """
        if logger_name:
            raise NotImplementedError(
                "forward_logging passes on what all loggers log: filter it at the logger here"
            )
        self._forward(arguments.log_level(level or 1))

    def unforward_logging(self, logger_name: str | None = None) -> None:
        """Pass on nothing of tasks that are submitted from now on."""
        self._forward(0)

    def _forward(self, level: int) -> None:
        asked = self._engine._asked
        self._engine._take_options(replace(asked, own=replace(asked.own, log_level=level)))

    @awaited
    def replicate(self, futures: Any, n: int | None = None, *_: object, **__: object) -> None:
        """Wait for futures, and change nothing: each machine gets its copy when a task needs it.

        Raises ValueError if there are to be no copies. All else is ignored.
        """
        if n is not None:
            arguments.whole("n", n, 1)
        _wait_for(futures_of(futures, self))

    @awaited
    def rebalance(self, futures: Any = None, *_: object, **__: object) -> None:
        """Wait for futures, and change nothing: no result lies in one worker's memory.

        All else is ignored.
        """
        _wait_for(futures_of(futures, self))

    @awaited
    def restart(self, timeout: float | str | None = None, wait_for_workers: bool = True) -> None:
        """Cancel all tasks of this client, and replace all workers of its LocalCluster.

        Raises NotImplementedError if the cluster is another one, TimeoutError.
        """
        if self.cluster is None:
            raise NotImplementedError(
                "restart() replaces the workers of a LocalCluster; those of another cluster belong "
                "to other clients as well"
            )
        timeout_s = seconds_of("timeout", timeout)
        self._cancel_all()
        workers = self.cluster.resize(0)
        try:
            self._await_snapshot(lambda now: not now.workers, timeout_s)
        finally:
            self.cluster.resize(workers)
        if wait_for_workers:
            self.wait_for_workers(workers, timeout_s)


def _wait_for(futures: list[Future[Any]]) -> None:
    for one in futures:
        task = one.task
        task.wait(task.future, None)
