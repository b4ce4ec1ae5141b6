"""What a client does with collections and graphs of Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask
from dask.core import flatten

from scaler_cluster.client import dask_graph
from scaler_exec.distributed.awaiting import awaited
from scaler_exec.distributed.future import Future, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scaler_cluster.client.client import Client as EngineClient
    from scaler_cluster.client.future import ScalerFuture


class Computing:
    """The part of a client that takes collections and graphs.

    ``named`` are ``workers``, ``allow_other_workers``, ``resources``, ``retries`` and ``priority``,
    as of :meth:`Client.submit`; others are ignored, but for ``actors``: that is a
    NotImplementedError.
    """

    _engine: EngineClient
    asynchronous: bool

    def gather(self, futures: Any) -> Any:
        """Return the results of futures, see :class:`Client`."""
        raise NotImplementedError

    def compute(
        self,
        collections: Any,
        sync: bool = False,
        optimize_graph: bool = True,
        traverse: bool = True,
        **named: Any,
    ) -> Any:
        """Submit collections of Dask; return a future of the value of each.

        A list gives a list, with what is no collection as it is; a single one gives one. With
        ``sync``, it waits and returns the values. With ``traverse``, lists and dicts that have
        collections in them are taken as well.
        """
        _refuse_actors(named)
        is_single = not isinstance(collections, (list, tuple, set, frozenset))
        given = [collections] if is_single else list(collections)
        if traverse:
            containers = (list, set, tuple, dict)
            given = [dask.delayed(one) if isinstance(one, containers) else one for one in given]
        ours = [one for one in given if dask.is_dask_collection(one)]
        made: dict[Any, Any] = {}
        if ours:
            options = dask_graph.merge_options(self._engine._asked.task, named)
            runner = self._engine._graphs
            made = dask_graph.compute(runner, ours, options, optimize=optimize_graph)
        session = self._engine._session
        owner: Any = self
        ends: Iterator[Future[Any]] = iter(
            [Future(Task(key, session, one, []), owner) for key, one in made.items()]
        )
        found = [next(ends) if dask.is_dask_collection(one) else one for one in given]
        wanted = found[0] if is_single else found
        return self._values(wanted, list(made.values())) if sync else wanted

    @awaited
    def _values(self, wanted: Any, made: list[ScalerFuture[Any]]) -> Any:
        try:
            return self.gather(wanted)
        except BaseException:
            # Also an interrupt: its traceback keeps the futures for a while.
            self._engine._session.cancel(made)
            raise

    def persist(self, collections: Any, optimize_graph: bool = True, **named: Any) -> Any:
        """Return collections like these, with their values on the cluster or on their way there.

        A list gives a list, a single one gives one.
        """
        _refuse_actors(named)
        is_several = isinstance(collections, (list, tuple, set, frozenset))
        given = list(collections) if is_several else collections
        return self._engine.persist(given, optimize_graph=optimize_graph, **named)

    def get(self, dsk: Any, keys: Any, sync: bool = True, **named: Any) -> Any:
        """Run a graph of Dask; return the value of a key, or a list for a list, however deep.

        Without ``sync``, it returns futures in place of the values, at once.
        """
        _refuse_actors(named)
        if sync:
            return self._got(dsk, keys, named)
        options = dask_graph.merge_options(self._engine._asked.task, named)
        wanted = list(flatten([keys]))
        made = dask_graph.start(self._engine._graphs, dsk, wanted, options)
        given = {id(one) for one in dask_graph.futures_given(dsk)}
        owner: Any = self
        tasks: dict[int, Task] = {}
        for key, one in made.items():
            # One task, if a key stands for another.
            if id(one) not in tasks:
                is_kept = id(one) in given
                tasks[id(one)] = Task(key, one._session, one, [], is_kept=is_kept)
        return _packed(keys, {key: Future(tasks[id(one)], owner) for key, one in made.items()})

    @awaited
    def _got(self, dsk: Any, keys: Any, named: dict[str, Any]) -> Any:
        return _listed(keys, self._engine.dask_get(dsk, keys, **named))


def _refuse_actors(named: Mapping[str, Any]) -> None:
    actors = named.get("actors")
    # Collections, which stand for keys, are neither true nor false.
    if actors is not None and actors is not False:
        raise NotImplementedError(
            "a node of a graph cannot be an actor: make it by submit(cls, actor=True), and give it "
            "to the nodes"
        )


def _listed(keys: Any, values: Any) -> Any:
    """Return lists in place of the tuples that Dask's ``get`` makes of lists of keys."""
    if type(keys) is list:
        return [_listed(key, one) for key, one in zip(keys, values, strict=True)]
    return values


def _packed(keys: Any, values: Mapping[Any, Any]) -> Any:
    if type(keys) is list:
        return [_packed(one, values) for one in keys]
    return values[keys]
