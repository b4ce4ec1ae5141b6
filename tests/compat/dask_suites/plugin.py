"""A plugin of pytest that lets Dask's own tests run on this engine, or on Dask's processes.

Every scheduler that a test names, or has by default, is replaced: ``assert_eq`` of Dask names
"sync" where nobody else says anything, so hardly anything would come here otherwise. What a test
imports and calls by itself, as ``dask.get``, stays what it is.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import dask.multiprocessing
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKERS = 2
OUTCOMES = ("passed", "failed", "skipped", "xfailed")

IDENTITY = "it wants the very object back that it passed"
HERE = "it wants to see here what a task changed: an array, a lock or a counter"
WARNS = "it wants a warning here that a task gives"
EXPECTED = {
    "dask.array.tests.test_array_core": {
        "test_binary_operator_delegation": "it needs pytest-mock",
        "test_from_array_getitem[False-True]": HERE,
        "test_from_array_getitem[True-True]": HERE,
        "test_from_array_with_lock[False]": HERE,
        "test_from_array_with_lock[True]": HERE,
        "test_memmap": HERE,
        "test_store": HERE,
        "test_store_compute_false": HERE,
        "test_store_delayed_target": HERE,
        "test_store_locks_count_calls[False]": HERE,
        "test_store_locks_count_calls[True]": HERE,
        "test_store_locks_dont_assume_threadsafe": HERE,
        "test_store_locks_failure_lock_released": HERE,
        "test_store_locks_no_lock": HERE,
        "test_store_locks_one_lock_two_stores": HERE,
        "test_store_regions": HERE,
        "test_store_sources_unoptimized_nocompute": HERE,
    },
    "dask.bag.tests.test_bag": {
        "test_bag_with_single_callable": IDENTITY,
        "test_reductions_are_lazy": "it passes a generator, which cannot be pickled",
        "test_repartition_partition_size_complex_dtypes": IDENTITY,
        "test_take_npartitions_warn": WARNS,
        "test_to_delayed_optimize_graph": HERE,
    },
    "dask.dataframe.dask_expr.tests.test_collection": {"test_head": WARNS},
    "dask.tests.test_delayed": {"test_traverse_false": IDENTITY},
}
"""Of the modules that CI runs: tests that fail on Dask's processes, too. One that passes is a mistake."""
BY_CHANCE = {
    ("dask.bag.tests.test_bag", "test_temporary_directory"): (
        "it looks for a directory that the value of a node removes at its end, and that ends with the"
        " last task that needs it"
    ),
}
"""Tests that pass if they are faster than the worker that they look at."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take what is to be tested, and where the outcomes go."""
    parser.addoption("--get", choices=("scaler", "processes"), default="scaler")
    parser.addoption("--outcomes", type=Path)
    parser.addoption("--cases", type=int, default=0, help="of each test, at most so many; 0: all")


@pytest.fixture(scope="session")
def scheduler(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Be Dask's only named scheduler, on one cluster or pool for the whole run."""
    with ExitStack() as stack:
        if request.config.getoption("--get") == "scaler":
            from scaler_exec import Client, SchedulerClusterCombo

            cluster = stack.enter_context(SchedulerClusterCombo(WORKERS))
            get = stack.enter_context(Client(cluster.get_address())).dask_get
        else:
            os.environ["PYTHONHASHSEED"] = "6640"
            context = get_context(dask.config.get("multiprocessing.context", "spawn"))
            pool = stack.enter_context(ProcessPoolExecutor(WORKERS, context))
            stack.enter_context(dask.config.set(pool=pool))
            get = dask.multiprocessing.get
        named = dask.base.named_schedulers
        with pytest.MonkeyPatch.context() as patch:
            for name in named:
                if name not in ("dask.distributed", "distributed"):
                    patch.setitem(named, name, get)
            yield get


@pytest.fixture(autouse=True)
def _default(scheduler: Callable[..., Any]) -> Iterator[None]:
    """Be the default of each test, whatever the one before left."""
    with dask.config.set(scheduler=scheduler):
        yield


def name_of(item: pytest.Item) -> str:
    """Return the name of a test, wherever Dask is installed."""
    assert isinstance(item, pytest.Function)
    return f"{item.module.__name__}::{item.nodeid.split('::', 1)[1]}"


def chosen(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return at most so many cases of each test, from its first to its last."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[name_of(item).partition("[")[0]].append(item)
    steps = {name: max(len(found) / most, 1.0) for name, found in cases.items()}
    return [
        found[int(n * steps[name])]
        for name, found in cases.items()
        for n in range(min(len(found), most))
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose tests, name them for the table, and mark those that are expected to fail."""
    if most := config.getoption("--cases"):
        items[:] = chosen(items, most)
    for item in items:
        name = name_of(item)
        item.user_properties.append(("name", name))
        module, test = name.split("::", 1)
        if reason := EXPECTED.get(module, {}).get(test):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        if reason := BY_CHANCE.get((module, test)):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


class Outcomes:
    """What became of the tests; in the process that tells it."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path | None = config.getoption("--outcomes")
        self._of: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the worst that a test came to."""
        name = str(dict(report.user_properties)["name"])
        outcome: str = report.outcome
        if hasattr(report, "wasxfail") and outcome == "skipped":
            outcome = "xfailed"
        if report.when == "call" or outcome != "passed":
            self._of[name] = outcome

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show how many of each module came to what."""
        modules: dict[str, Counter[str]] = defaultdict(Counter)
        for name, outcome in self._of.items():
            modules[name.split("::")[0]][outcome] += 1
        modules["all"] = sum(modules.values(), Counter())
        width = max(map(len, modules))
        terminalreporter.line("")
        terminalreporter.line(" ".join([" " * width, *(f"{one:>9}" for one in OUTCOMES)]))
        for module, counts in modules.items():
            numbers = [f"{counts[one]:9}" for one in OUTCOMES]
            terminalreporter.line(" ".join([module.ljust(width), *numbers]))
        if self._path is not None:
            self._path.write_text(json.dumps(self._of))


def pytest_configure(config: pytest.Config) -> None:
    """Let one process tell the outcomes."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(config))
