"""Executors, flags and programs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
from tests.runtime.helpers import (
    Flags,
    Program,
    mapped_segments,
    process_of,
    segments,
    shut_down,
    standing_cluster,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items) -> None:
    """Mark every test in here as slow: each starts processes."""
    # As text: these are all items of the session, and a Path takes its time.
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def make_executor():
    """Return what makes executors; at the end of the test each is shut down, which must not hang."""
    executors: list[ScalerExecutor] = []

    def make(*args, **options) -> ScalerExecutor:
        executors.append(ScalerExecutor(*args, **options))
        return executors[-1]

    yield make

    ended = [shut_down(executor) for executor in reversed(executors)]
    assert all(ended), "shutdown() waits for something that never ends"


@pytest.fixture
def own(make_executor):
    """Return an executor of the test's own with two workers, which it may end, kill or fill."""
    return make_executor(2)


@pytest.fixture
def own_single(make_executor):
    """Return an executor of the test's own with one worker."""
    return make_executor(1)


@contextlib.contextmanager
def of_module(workers: int, standing: set[int]) -> Iterator[ScalerExecutor]:
    """Keep an executor for all tests of a module."""
    made = ScalerExecutor(workers)
    try:
        standing |= {process_of(made, name).pid for name in ("scheduler", "supervisor")}
        yield made
    finally:
        assert shut_down(made), "shutdown() waits for something that never ends"


def left_as_found(executor: ScalerExecutor) -> None:
    """Fail if what the next tests of the module use as well is not of use any more."""
    session = executor._session
    assert session.is_open, "the executor of the module was ended: take `own`"
    wait_until(lambda: not session.connection._core.busy, "tasks were left in the executor")


@pytest.fixture(scope="module")
def executor_of_module(standing, private_directories):
    """Return an executor with two workers for all tests of a module."""
    with of_module(2, standing) as made:
        yield made


@pytest.fixture(scope="module")
def single_of_module(standing, private_directories):
    """Return an executor with one worker for all tests of a module."""
    with of_module(1, standing) as made:
        yield made


@pytest.fixture
def executor(executor_of_module):
    """Return an executor with two workers, which is the same for all tests of a module."""
    yield executor_of_module
    left_as_found(executor_of_module)


@pytest.fixture
def single(single_of_module):
    """Return an executor of the module with one worker: tasks run one after the other."""
    yield single_of_module
    left_as_found(single_of_module)


@pytest.fixture(scope="module")
def cluster(standing, private_directories):
    """Return a cluster of two workers for all tests of a module."""
    with standing_cluster(2, standing) as made:
        yield made


@pytest.fixture(scope="module")
def single_cluster(standing, private_directories):
    """Return a cluster of one worker for all tests of a module."""
    with standing_cluster(1, standing) as made:
        yield made


@pytest.fixture
def own_cluster():
    """Return a cluster of two workers of the test's own, which it may end, kill or fill."""
    with SchedulerClusterCombo(2) as made:
        yield made


@pytest.fixture
def client(cluster):
    """Return a client of the module's cluster."""
    with Client(cluster.get_address()) as made:
        yield made


@pytest.fixture
def flags(tmp_path):
    """Return a fresh directory of flags."""
    return Flags(tmp_path)


@pytest.fixture
def start_program():
    """Return what starts programs; those that still run at the end of the test are killed."""
    programs: list[Program] = []

    def start(source: str) -> Program:
        programs.append(Program(source))
        return programs[-1]

    yield start

    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()


@pytest.fixture
def baseline():
    """Check at the end of a test that nothing piled up, before its executor is shut down."""
    yield
    wait_until(lambda: not segments(), "objects were left in the storage")
    wait_until(lambda: not mapped_segments(), "workers kept objects in their memory")


@pytest.fixture(scope="module")
def browser(standing):
    """Return a Chromium for all tests of a module."""
    # Here: not every environment that comes by has Playwright.
    from tests.runtime.browser import chromium

    with chromium(standing) as made:
        yield made


@pytest.fixture
def open_window(browser):
    """Return what opens windows; at the end of the test, none may have anything to complain of.

    A window has the size of a desktop, or another (``browser.PHONE``).
    """
    from tests.runtime.browser import watched

    with contextlib.ExitStack() as opened:
        yield lambda *size: opened.enter_context(watched(browser, *size))
