"""A plugin of pytest that gives distributed's own tests our client and clusters."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from expected import (  # type: ignore[import-not-found]
    EXPECTED,
    NOT_RUN,
    OWN_WORKERS,
)

from scaler_exec.distributed import Client, LocalCluster, default_client

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def _standing() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1) as made:
        made.wait_for_workers(2)
        yield made


@pytest.fixture
def _cluster(request: pytest.FixtureRequest, _standing: LocalCluster) -> Iterator[LocalCluster]:
    if request.node.originalname in OWN_WORKERS:
        with LocalCluster(n_workers=2, threads_per_worker=1) as made:
            yield made
    else:
        yield _standing


@pytest.fixture(autouse=True)
def _no_default() -> Iterator[None]:
    """Close what a test that failed has left: it would be the next one's default client."""
    yield
    with contextlib.suppress(ValueError):
        while True:
            default_client().close()


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


def _is_asynchronous(item: pytest.Function) -> bool:
    return inspect.iscoroutinefunction(item.function) or any(item.iter_markers("asynchronous"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Leave out what runs in an event loop of distributed's, and mark what is known to fail."""
    others = [item for item in items if _is_asynchronous(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if not _is_asynchronous(item)]
    for item in items:
        if reason := EXPECTED.get(item.module.__name__, {}).get(item.originalname):
            is_run = reason not in NOT_RUN
            item.add_marker(pytest.mark.xfail(reason=reason, strict=is_run, run=is_run))
