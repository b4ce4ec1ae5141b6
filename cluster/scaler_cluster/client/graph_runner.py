"""Runs whole graphs for a client: its own, and Dask's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.client.graph import Arrangement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.serializer import Serialization
    from scaler_cluster.client.session import Session
    from scaler_cluster.wire.messages import TaskOptions


class GraphRunner:
    """Submits the nodes of graphs through a session, with the client's way to serialize values."""

    def __init__(self, session: Session, serialization: Serialization | None) -> None:
        self.session = session
        self._serialization = serialization

    def start(
        self,
        graph: Mapping[Any, Any],
        keys: list[Any],
        options: TaskOptions,
        own_options: Mapping[Any, TaskOptions] | None = None,
        *,
        again: bool = False,
        kind: type[Arrangement] = Arrangement,
        share: bool = False,
    ) -> dict[Any, ScalerFuture[Any]]:
        """Submit a graph; return the futures of these keys.

        ``own_options`` are those of single nodes; with ``again`` also large values are looked at
        that nobody may write to. The ``kind`` of arrangement knows how the graph is written. With
        ``share``, nodes on one worker get the very objects that other nodes returned.
        """
        return self.session.graphs.get(
            graph, keys, options, self._serialization,
            own_options=own_options, again=again, kind=kind, share=share,
        )  # fmt: skip

    def run(
        self,
        graph: Mapping[Any, Any],
        keys: list[Any],
        options: TaskOptions,
        own_options: Mapping[Any, TaskOptions] | None = None,
        *,
        again: bool = False,
        kind: type[Arrangement] = Arrangement,
        share: bool = False,
    ) -> dict[Any, Any]:
        """Submit a graph and return the values of these keys; parameters as :meth:`start`."""
        how: dict[str, Any] = {"again": again, "kind": kind, "share": share}
        futures = self.start(graph, keys, options, own_options, **how)
        try:
            return {key: future.result() for key, future in futures.items()}
        except BaseException:
            self.cancel_made(kind.futures_of(graph), futures.values())
            raise

    def cancel_made(
        self, given: Iterable[ScalerFuture[Any]], futures: Iterable[ScalerFuture[Any]]
    ) -> None:
        """Cancel the futures of a graph, but for those that it was given."""
        self.session.cancel(_made(given, futures))


class CancellableRunner(GraphRunner):
    """Runs graphs in one thread until another gives them up."""

    def __init__(self, session: Session, serialization: Serialization | None) -> None:
        super().__init__(session, serialization)
        self._made: list[ScalerFuture[Any]] = []
        self._is_given_up = False

    def start(
        self,
        graph: Mapping[Any, Any],
        *args: Any,
        kind: type[Arrangement] = Arrangement,
        **how: Any,
    ) -> dict[Any, ScalerFuture[Any]]:
        """Submit a graph as others do; its futures are cancelled if it was given up meanwhile."""
        futures = super().start(graph, *args, kind=kind, **how)
        self._made += _made(kind.futures_of(graph), futures.values())
        # Afterwards: who gives them up says so before it cancels those that it finds.
        if self._is_given_up:
            self.give_up()
        return futures

    def give_up(self) -> None:
        """Cancel what was started, and what will be."""
        self._is_given_up = True
        self.session.cancel(list(self._made))


def _made(
    given: Iterable[ScalerFuture[Any]], futures: Iterable[ScalerFuture[Any]]
) -> list[ScalerFuture[Any]]:
    """Return the futures of a graph that it was not given."""
    kept = set(map(id, given))
    return [future for future in futures if id(future) not in kept]
