"""How a client submits calls: equal ones share a task."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from functools import partial
from queue import Queue
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from dask.base import tokenize
from dask.utils import funcname

from scaler_cluster.client import worker_context
from scaler_cluster.client.actors import make
from scaler_cluster.client.dask_graph import merge_options
from scaler_cluster.client.graph import itself
from scaler_exec.distributed.acting import find
from scaler_exec.distributed.awaiting import awaited
from scaler_exec.distributed.future import Future, Task, futures_in, replaced

if TYPE_CHECKING:
    import threading
    import weakref
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from scaler_cluster.client.client import Client as EngineClient
    from scaler_cluster.wire.messages import TaskOptions

T = TypeVar("T")


class Submitting:
    """The part of a client that submits calls."""

    _engine: EngineClient
    _lock: threading.RLock
    _tasks: weakref.WeakValueDictionary[Hashable, Task]

    def submit(
        self,
        func: Callable[..., T],
        *args: Any,
        key: Hashable | None = None,
        workers: str | Iterable[str] | None = None,
        resources: Mapping[str, float] | None = None,
        retries: int | None = None,
        priority: int = 0,
        fifo_timeout: object = None,
        allow_other_workers: bool = False,
        actor: bool = False,
        actors: bool = False,
        pure: bool = True,
        **kwargs: Any,
    ) -> Future[T]:
        """Submit ``func(*args, **kwargs)``; return a future at once.

        Args:
            func: The function; one of coroutines is run to its end.
            *args: What it takes. A future stands for its result, also in lists, tuples and dicts.
            key: What the task is known by. If there is a task of this key, the future is of that.
            workers: Names of workers or machines that may run it; a text is one.
            resources: What the task uses of what its worker offers, as ``{"GPU": 1}``.
            retries: How often it is run again after it raised or its worker died.
            priority: Tasks with a higher one run first; a whole number.
            fifo_timeout: Ignored.
            allow_other_workers: Whether ``workers`` are a wish, which makes no difference here.
            actor: Make an actor: an object in a worker of its own. The future has an
                :class:`Actor`, which lives until it is destroyed or the client is closed.
            actors: See ``actor``.
            pure: Whether calls with equal arguments share a task; else each call is its own.
            **kwargs: What the function takes by name.

        Raises:
            TypeError: ``func`` cannot be called, or an argument has the wrong type.
            NotImplementedError: An actor is to have workers, retries or a priority.
            SessionClosedError: The client was closed; it is a ``RuntimeError``.

        """
        if actor or actors:
            _refuse_for_actors(workers, retries, priority)
            return self._actor_of(key, func, args, kwargs, resources)
        options = self._options_of(func, workers, resources, retries, priority, allow_other_workers)
        if key is None:
            token = tokenize(tokenize(func, kwargs), args) if pure else uuid4().hex
            key = f"{funcname(func)}-{token}"
        return self._submit(key, plain(func), args, kwargs, options)

    def map(
        self,
        func: Callable[..., T],
        *iterables: Iterable[Any],
        key: str | list[Any] | None = None,
        workers: str | Iterable[str] | None = None,
        retries: int | None = None,
        resources: Mapping[str, float] | None = None,
        priority: int = 0,
        allow_other_workers: bool = False,
        fifo_timeout: object = None,
        actor: bool = False,
        actors: bool = False,
        pure: bool = True,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[Future[T]]:
        """Submit ``func`` for the items of iterables, which may be futures; return the futures.

        Args:
            func: The function.
            *iterables: Lists or the like; the shortest one ends it.
            key: The beginning of the keys, or a list of them.
            batch_size: Ignored: tasks go to the cluster while others are submitted.
            workers: See :meth:`submit`, as for the others.
            retries: See :meth:`submit`.
            resources: See :meth:`submit`.
            priority: See :meth:`submit`.
            allow_other_workers: See :meth:`submit`.
            fifo_timeout: Ignored.
            actor: See :meth:`submit`.
            actors: See :meth:`submit`.
            pure: See :meth:`submit`.
            **kwargs: What every call takes by name.

        Raises:
            TypeError: ``func`` cannot be called, or all iterables are iterators or queues.
            ValueError: There are not as many keys as calls.

        """
        options = self._options_of(func, workers, resources, retries, priority, allow_other_workers)
        if all(isinstance(one, (Iterator, Queue)) for one in iterables):
            raise TypeError("map takes lists: for an iterator or a queue, submit in a loop")
        rows = list(zip(*iterables, strict=False))
        if isinstance(key, list):
            keys = key
            if len(keys) != len(rows):
                raise ValueError(f"there are {len(keys)} keys for {len(rows)} calls")
        else:
            name = key or funcname(func)
            # The function once: it takes longer than most arguments.
            token = tokenize(func, kwargs) if pure else uuid4().hex
            keys = [
                f"{name}-{tokenize(token, row) if pure else f'{token}-{number}'}"
                for number, row in enumerate(rows)
            ]
        if actor or actors:
            _refuse_for_actors(workers, retries, priority)
            making = zip(keys, rows, strict=True)
            return [
                self.submit(func, *row, key=one, resources=resources, actor=True, **kwargs)
                for one, row in making
            ]
        function = plain(func)
        return [
            self._submit(one, function, row, kwargs, options)
            for one, row in zip(keys, rows, strict=True)
        ]

    def _actor_of(
        self,
        key: Hashable | None,
        cls: Callable[..., Any],
        args: Iterable[Any],
        kwargs: Mapping[str, Any],
        resources: Mapping[str, float] | None,
    ) -> Future[Any]:
        """Return a future of an actor, which is made unless there is one of this key."""
        key = f"{funcname(cls)}-{uuid4().hex}" if key is None else key
        engine = self._engine.options(capabilities=resources) if resources else self._engine
        if key not in self._tasks:
            # Not under the lock: futures are waited for.
            given = list(args), dict(kwargs)
            args, kwargs = replaced(given, {id(one): one.result() for one in futures_in(given)})
        with self._lock:
            task = self._tasks.get(key)
            if task is None:
                handle, made = make(engine, cls, tuple(args), dict(kwargs))
                if worker_context.is_worker():
                    # What a task has submitted ends with it.
                    made.exception()
                return self._submit(key, find, (handle, made), {}, self._engine._asked.task)
        owner: Any = self
        return Future(task, owner)

    def _options_of(
        self,
        func: object,
        workers: str | Iterable[str] | None,
        resources: Mapping[str, float] | None,
        retries: int | None,
        priority: int,
        allow_other_workers: bool,
    ) -> TaskOptions:
        if not callable(func):
            raise TypeError(f"the first argument must be a function, not {func!r}")
        options = self._engine._asked.of(func).task
        if workers is None and resources is None and retries is None and not priority:
            return options
        named = {
            "workers": workers,
            "resources": resources,
            "retries": retries,
            "priority": priority,
            "allow_other_workers": allow_other_workers,
        }
        return merge_options(options, named)

    def _submit(
        self,
        key: Hashable,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: TaskOptions,
    ) -> Future[Any]:
        with self._lock:
            task = self._tasks.get(key)
            if task is None:
                session = self._engine._session
                task = Task.of_call(key, session, function, args, kwargs, options)
                self._tasks[key] = task
        owner: Any = self
        return Future(task, owner)

    def task_of(self, key: Hashable) -> Task:
        """Return the task of a key that somebody has a future of here; raises KeyError."""
        task = self._tasks.get(key)
        if task is None:
            raise KeyError(f"no task of this client has the key {key!r}, and a future here")
        return task

    @awaited
    def scatter(
        self,
        data: Any,
        workers: str | Iterable[str] | None = None,
        broadcast: bool = False,
        direct: object = None,
        hash: bool = True,  # noqa: A002 - distributed's name
        timeout: object = None,
    ) -> Any:
        """Bring values to the cluster; return futures of them.

        A list, tuple, set or dict gives one of futures; another value gives one future. Each
        machine gets one copy of a value when a task there first takes it.

        Args:
            data: The values.
            workers: See :meth:`submit`.
            broadcast: Ignored, as ``direct`` and ``timeout``.
            direct: Ignored.
            hash: Whether equal values share a key.
            timeout: Ignored.

        """
        if isinstance(data, (range, Iterator)):
            data = list(data)
        kind = type(data)
        if kind is dict:
            return {name: self._scatter(one, name, workers) for name, one in data.items()}
        is_named = isinstance(data, tuple) and hasattr(data, "_make")
        if kind not in {list, tuple, set, frozenset} and not is_named:
            return self._scatter(data, _name_of(data, hash), workers)
        made = [self._scatter(one, _name_of(one, hash), workers) for one in data]
        return kind._make(made) if is_named else kind(made)

    def _scatter(
        self, value: Any, key: Hashable, workers: str | Iterable[str] | None
    ) -> Future[Any]:
        options = self._options_of(itself, workers, None, None, 0, False)
        return self._submit(key, itself, (value,), {}, options)


def _refuse_for_actors(workers: object, retries: object, priority: object) -> None:
    if workers or retries or priority:
        raise NotImplementedError(
            "an actor takes resources alone: it is made once, in any worker that offers them"
        )


def _name_of(value: object, is_hashed: bool) -> str:
    return f"{type(value).__name__}-{tokenize(value) if is_hashed else uuid4().hex}"


def plain(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that a worker can call: one of coroutines is run to its end."""
    return partial(_run_coroutine, func) if inspect.iscoroutinefunction(func) else func


def _run_coroutine(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(func(*args, **kwargs))
