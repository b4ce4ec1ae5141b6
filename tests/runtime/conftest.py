"""Executors, flags and programs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
from tests.runtime.helpers import (
    Flags,
    Program,
    mapped_segments,
    segments,
    shut_down,
    wait_until,
)


def pytest_collection_modifyitems(items) -> None:
    """Mark every test in here as slow: each starts processes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
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
def executor(make_executor):
    """Return an executor with two workers."""
    return make_executor(2)


@pytest.fixture
def single(make_executor):
    """Return an executor with one worker, so that tasks run one after the other."""
    return make_executor(1)


@pytest.fixture
def cluster():
    """Return a cluster of two workers."""
    with SchedulerClusterCombo(2) as made:
        yield made


@pytest.fixture
def client(cluster):
    """Return a client of the cluster."""
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
