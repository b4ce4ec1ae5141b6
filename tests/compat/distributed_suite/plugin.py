"""A plugin of pytest that gives distributed's own tests our client and clusters."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

import helpers  # type: ignore[import-not-found]
import pytest
from expected import (  # type: ignore[import-not-found]
    EXPECTED,
    INSIDE,
    NOT_RUN,
    OWN_WORKERS,
)
from stand_in import InsideError  # type: ignore[import-not-found]

from scaler_exec.distributed import Client, LocalCluster, default_client

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


INSIDES = frozenset(("a", "b", "s", "w", "dask_worker", "dask_scheduler"))


@pytest.fixture
def _cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    if request.node.originalname in OWN_WORKERS:
        with LocalCluster(n_workers=2, threads_per_worker=1) as made:
            yield made
    else:
        yield helpers.cluster_of(2)


@pytest.fixture(autouse=True)
def _no_default(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close what a test that failed has left: it would be the next one's default client."""
    yield
    with contextlib.suppress(ValueError):
        while True:
            default_client().close()
    if request.module.__name__ == "test_publish":
        for one in helpers.clusters.values():
            with Client(one, set_as_default=False) as client:
                client.datasets.clear()


@pytest.fixture
def client(_cluster: LocalCluster) -> Iterator[Client]:
    """Be a client of two workers."""
    with Client(_cluster) as made:
        yield made


@pytest.fixture
def c(client: Client) -> Client:
    """Be the same, by another name."""
    return client


@pytest.fixture
def s(_cluster: LocalCluster) -> dict[str, Any]:
    """Tell of the scheduler."""
    return {"address": _cluster.scheduler_address}


@pytest.fixture
def a() -> dict[str, Any]:
    """Tell of a worker."""
    return {"address": "worker-0"}


@pytest.fixture
def b() -> dict[str, Any]:
    """Tell of another one."""
    return {"address": "worker-1"}


@pytest.fixture
def loop() -> None:
    """Be what a client ignores."""


@pytest.fixture
def loop_in_thread() -> None:
    """Be what a client ignores."""


@pytest.fixture
def cleanup() -> None:
    """Leave nothing."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say of a test that looks inside that it was expected to fail."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(InsideError):
        report.outcome, report.wasxfail = "skipped", INSIDE  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run what is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(test, helpers.LIMIT_S))
    return True


def looks_inside(test: Any) -> bool:
    """Return True if a coroutine uses more of the scheduler or a worker than the address.

    It has them as arguments of their usual names. What has an underscore is no public name.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(test))))
    used = {
        (one.value.id, one.attr)
        for one in ast.walk(tree)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
    }
    named = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    return any(
        (owner in INSIDES and owner in named and attribute != "address")
        or (attribute[0] == "_" and attribute[1] != "_")
        for owner, attribute in used
    )


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark what is known to fail."""
    for item in items:
        reason = EXPECTED.get(item.module.__name__, {}).get(item.originalname)
        if inspect.iscoroutinefunction(item.function):
            item.add_marker("asynchronous")
        if item.get_closest_marker("asynchronous") and looks_inside(item.function):
            reason = INSIDE
        if reason:
            is_run = reason not in NOT_RUN
            # Before what the test itself says of that.
            mark = pytest.mark.xfail(reason=reason, strict=is_run, run=is_run)
            item.add_marker(mark, append=False)
