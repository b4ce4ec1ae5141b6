"""What plays a call: the model, the standard library's executor, and our engines."""

from __future__ import annotations

import contextlib
import copy
import functools
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
from tests.differential.showing import show

Answer = list[str]


def outcome(get: Callable[[], Any]) -> Answer:
    """Return what this returned or raised, and whether its class is the one that is known here."""
    try:
        value = get()
    except BaseException as error:
        return ["raised", show(error), *_strangers(error)]
    return ["returned", show(value), *_strangers(value)]


def _strangers(value: Any) -> list[str]:
    """Return what has a class with the name of one of the script, and is not of that class."""
    known = vars(sys.modules["__main__"])
    kinds = map(type, (value, *value) if isinstance(value, tuple) else (value,))
    return [f"stranger {one}" for one in kinds if known.get(one.__name__, one) is not one]


class Model:
    """Says what is right: what comes of a deep copy, taken at the call."""

    def program(self) -> contextlib.AbstractContextManager[None]:
        """Have nothing to prepare."""
        return contextlib.nullcontext()

    def submit(self, function, args) -> Callable[[], Answer]:
        function, args = copy.deepcopy((function, args))
        answer = outcome(lambda: function(*args))
        return lambda: answer

    def map(self, function, items: Iterator[Any], **options) -> Answer:
        def call(item):
            called, given = copy.deepcopy((function, item))
            return called(given)

        return outcome(lambda: list(call(item) for item in items))  # noqa: C400 - a generator


class Pools:
    """ProcessPoolExecutor, patiently: it pickles at some time after the call."""

    def __init__(self, method: str) -> None:
        self._context = multiprocessing.get_context(method)
        self._is_fork = method == "fork"

    def make(self, workers: Any, **options: Any) -> Any:
        """Return an executor with so many workers."""
        return ProcessPoolExecutor(workers, **{"mp_context": self._context, **options})

    @contextlib.contextmanager
    def program(self) -> Iterator[None]:
        """Have a fresh pool."""
        with self.make(1) as self._pool:
            yield

    @contextlib.contextmanager
    def _fresh(self) -> Iterator[ProcessPoolExecutor]:
        """Return a pool that knows what was changed: forked processes are made anew."""
        if not self._is_fork:
            yield self._pool
            return
        with self.make(1) as pool:
            yield pool

    def submit(self, function, args) -> Callable[[], Answer]:
        with self._fresh() as pool:
            answer = outcome(lambda: pool.submit(function, *args).result())
        return lambda: answer

    def map(self, function, items: Iterator[Any], *, chunksize=1, buffersize=None) -> Answer:
        with self._fresh() as pool:
            return outcome(lambda: list(pool.map(function, items, chunksize=chunksize)))


class Ours:
    """ScalerExecutor, and Client, hastily: nothing is waited for."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def make(self, workers: Any, **options: Any) -> Any:
        """Return an executor with so many workers."""
        return ScalerExecutor(workers, **options)

    def program(self) -> contextlib.AbstractContextManager[None]:
        """Use the same engine for all programs."""
        return contextlib.nullcontext()

    def submit(self, function, args) -> Callable[[], Answer]:
        future = self._engine.submit(function, *args)
        return functools.partial(outcome, future.result)

    def map(self, function, items: Iterator[Any], **options) -> Answer:
        if isinstance(self._engine, Client):
            options = {}
        return outcome(lambda: list(self._engine.map(function, items, **options)))


@contextlib.contextmanager
def engine_of(name: str) -> Iterator[Any]:
    """Start an engine."""
    if name == "model":
        yield Model()
    elif name in {"fork", "spawn"}:
        yield Pools(name)
    elif name == "executor":
        with ScalerExecutor(2) as executor:
            yield Ours(executor)
    else:
        with SchedulerClusterCombo(2) as cluster, Client(cluster) as client:
            yield Ours(client)
