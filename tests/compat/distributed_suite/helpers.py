"""What the tests of ``distributed`` take from its ``utils_test`` and the like."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import io
import logging
import random
import re
import sys
import tempfile
import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dask.sizeof import sizeof  # noqa: F401
from dask.tokenize import tokenize  # noqa: F401
from dask.utils import tmpfile  # noqa: F401
from packaging.version import Version as LooseVersion  # noqa: F401

from scaler_exec.distributed import Client, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINUX = True
MACOS = WINDOWS = COMPILED = False
NO_AMM: dict[str, Any] = {}
time = clock.time
monotonic = clock.monotonic
LIMIT_S = 60.0
"""How long a coroutine may take."""


def inc(x: Any) -> Any:
    return x + 1


def dec(x: Any) -> Any:
    return x - 1


def div(x: Any, y: Any) -> Any:
    return x / y


def double(x: Any) -> Any:
    return x * 2


def throws(x: Any) -> Any:
    raise RuntimeError("hello!")


def slowinc(x: Any, delay: float = 0.02) -> Any:
    clock.sleep(delay)
    return x + 1


def slowdec(x: Any, delay: float = 0.02) -> Any:
    clock.sleep(delay)
    return x - 1


def slowadd(x: Any, y: Any, delay: float = 0.02) -> Any:
    clock.sleep(delay)
    return x + y


def slowidentity(*args: Any, delay: float = 0.02) -> Any:
    clock.sleep(delay)
    return args[0] if len(args) == 1 else args


def randominc(x: Any, scale: float = 1) -> Any:
    clock.sleep(random.random() * scale)
    return x + 1


async def asyncinc(x: Any, delay: float = 0.02) -> Any:
    await asyncio.sleep(delay)
    return x + 1


class varying:  # noqa: N801
    """Returns or raises one of these after another, whichever worker calls it."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.file = tempfile.mktemp()

    def __call__(self, *_: object, **__: object) -> Any:
        with open(self.file, "a+") as file:
            file.seek(0)
            number = len(file.read())
            file.write("x")
        item = self.items[number]
        if isinstance(item, Exception):
            raise item
        return item


def map_varying(lists: list[list[Any]]) -> tuple[Callable[..., Any], list[varying]]:
    return _call, [varying(one) for one in lists]


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def nodebug(function: Any) -> Any:
    return function


def poll_for(predicate: Callable[[], Any], timeout: float, **_: object) -> None:
    end = clock.monotonic() + timeout
    while not predicate():
        assert clock.monotonic() < end
        clock.sleep(0.01)


def wait_for(predicate: Callable[[], Any], timeout: float, **_: object) -> None:
    poll_for(predicate, timeout)


@contextlib.contextmanager
def captured_logger(logger: Any, level: int = logging.INFO, **_: object) -> Iterator[io.StringIO]:
    logger = logging.getLogger(logger) if isinstance(logger, str) else logger
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield text
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextlib.contextmanager
def tmp_text(filename: str, text: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / filename
        path.write_text(text)
        yield str(path)


@contextlib.contextmanager
def save_sys_modules() -> Iterator[None]:
    modules, path = set(sys.modules), sys.path[:]
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            del sys.modules[name]


@contextlib.contextmanager
def raises_with_cause(
    kind: Any, match: str | None, cause: Any, match_cause: str | None, *more: Any
) -> Iterator[None]:
    with pytest.raises(kind, match=match) as caught:
        yield
    error: BaseException | None = caught.value
    for wanted, text in [(cause, match_cause), *zip(more[::2], more[1::2], strict=True)]:
        error = error.__cause__ if error else None
        assert isinstance(error, wanted)
        assert re.search(text or "", str(error))


@contextlib.contextmanager
def cluster(nworkers: int = 2, nanny: object = None, **_: object) -> Iterator[Any]:
    """Start a cluster; return the addresses of the scheduler and the workers."""
    with LocalCluster(n_workers=nworkers, threads_per_worker=1) as made:
        made.wait_for_workers(nworkers)
        workers = [{"address": f"worker-{number}"} for number in range(nworkers)]
        yield {"address": made.scheduler_address}, workers


class Named:
    """A scheduler or worker, of which a test may know the address alone."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from stand_in import InsideError  # type: ignore[import-not-found]

        raise InsideError(name)


clusters: dict[int, LocalCluster] = {}
"""Clusters by their number of workers, which all coroutines share."""


def cluster_of(workers: int) -> LocalCluster:
    """Return the cluster of so many workers."""
    found = clusters.get(workers)
    if found is None:
        found = clusters[workers] = LocalCluster(n_workers=workers, threads_per_worker=1)
        found.wait_for_workers(workers)
    return found


def gen_cluster(
    nthreads: Any = (1, 2), *, client: bool = False, client_kwargs: Any = None, **_: object
) -> Callable[[Any], Any]:
    """Return what runs a coroutine with a client, the scheduler and the workers, by their names."""

    def decorate(test: Any) -> Any:
        first = client + 1 + len(nthreads)

        async def body(args: Any, kwargs: Any) -> None:
            made = cluster_of(min(len(nthreads), 2))
            here = [Named(made.scheduler_address)]
            here += [Named(f"worker-{number}") for number in range(len(nthreads))]
            if not client:
                await test(*here, *args, **kwargs)
                return
            async with Client(made, asynchronous=True, **(client_kwargs or {})) as joined:
                await test(joined, *here, *args, **kwargs)

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            asyncio.run(asyncio.wait_for(body(args, kwargs), LIMIT_S))

        parameters = list(inspect.signature(test).parameters.values())[first:]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return pytest.mark.asynchronous(run)

    return decorate


def gen_test(*_: object, **__: object) -> Callable[[Any], Any]:
    """Return what runs a coroutine."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            asyncio.run(asyncio.wait_for(test(*args, **kwargs), LIMIT_S))

        return pytest.mark.asynchronous(run)

    return decorate
