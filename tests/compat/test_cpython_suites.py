"""CPython's own executor tests, run against ScalerExecutor.

They are imported from the interpreter that runs them, so each Python is held to its own. What is
left out stands in LEFT_OUT with its reason; where CPython names its own exception types, ours
stand in ERRORS.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import sys
import unittest
from unittest import mock

import pytest

from scaler_exec import (
    DeserializeObjectError,
    PayloadError,
    ScalerExecutor,
    UnpicklableResultError,
    WorkerDiedError,
)

pytestmark = pytest.mark.slow

PACKAGE = "test.test_concurrent_futures"
pytest.importorskip("test.support", reason="this interpreter ships no test package")
pytest.importorskip(PACKAGE, reason=f"this interpreter ships no {PACKAGE}")


def _suite(name: str):
    """Return the module that holds some tests: one for all before 3.12, then a package."""
    package = importlib.import_module(PACKAGE)
    if not hasattr(package, "__path__"):
        return package
    return importlib.import_module(f"{PACKAGE}.{name}")


util = _suite("util")
deadlock = _suite("test_deadlock")
shutdown = _suite("test_shutdown")

PROCESSES = "looks into _processes or other insides of ProcessPoolExecutor"
INHERITED = "shares a multiprocessing semaphore or proxy, which only its own children can take"
PATCHED = "replaces insides of ProcessPoolExecutor"

LEFT_OUT = {
    # ProcessPoolExecutorTest
    "test_max_workers_too_large": "a limit of Windows",
    "test_killed_child": f"{PROCESSES}; a killed worker breaks its own task only, see tests/runtime",
    "test_traceback": "wants the private class _RemoteTraceback; see runtime/test_exceptions.py",
    "test_ressources_gced_in_workers": INHERITED,
    "test_saturation": INHERITED,
    "test_idle_process_reuse_one": PROCESSES,
    "test_idle_process_reuse_multiple": PROCESSES,
    "test_max_tasks_per_child": f"{PROCESSES}; see runtime/test_workers.py",
    "test_max_tasks_per_child_defaults_to_spawn_context": "workers are forked from a fork server",
    "test_python_finalization_error": PATCHED,
    "test_force_shutdown_workers": INHERITED,
    "test_force_shutdown_workers_stops_pool": PROCESSES,
    # ProcessPoolShutdownTest
    "test_processes_terminate": INHERITED,
    "test_context_manager_shutdown": "makes a ProcessPoolExecutor, whatever executor is tested",
    "test_del_shutdown": "makes a ProcessPoolExecutor, whatever executor is tested",
    "test_shutdown_no_wait": "makes a ProcessPoolExecutor, whatever executor is tested",
    # ExecutorDeadlockTest
    "test_shutdown_deadlock_pickle": f"{PROCESSES}; see runtime/test_faults.py",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": PATCHED,
}
"""Tests that are not run, and why."""

ERRORS = {
    "test_error_at_task_pickle": PayloadError,
    "test_exit_at_task_unpickle": DeserializeObjectError,
    "test_error_at_task_unpickle": DeserializeObjectError,
    "test_exit_during_result_pickle_on_worker": UnpicklableResultError,
    "test_error_during_result_pickle_on_worker": UnpicklableResultError,
    "test_error_during_result_unpickle_in_result_handler": PayloadError,
    "test_exit_during_result_unpickle_in_result_handler": PayloadError,
}
"""What our executor raises where CPython's raises PicklingError, SystemExit or BrokenProcessPool.

Wherever it is not in here, BrokenProcessPool becomes WorkerDiedError.
"""


class Executor(ScalerExecutor):
    """Shows the one inner attribute that CPython's tests of a failing initializer poll."""

    @property
    def _broken(self) -> bool:
        return self._session.connection.error is not None


Executor.__name__ = "ScalerExecutor"


class ScalerMixin(util.ExecutorMixin):
    """Puts our executor where CPython's tests take theirs from."""

    executor_type = Executor

    def setUp(self) -> None:
        if self._testMethodName in LEFT_OUT:
            self.skipTest(LEFT_OUT[self._testMethodName])
        super().setUp()

    def get_context(self):
        return multiprocessing.get_context("spawn")


class ExecutorTest(
    ScalerMixin, _suite("test_process_pool").ProcessPoolExecutorTest, util.BaseTestCase
):
    """ExecutorTest, with what its process pool variant adds."""


class WaitTest(ScalerMixin, _suite("test_wait").WaitTests, util.BaseTestCase):
    """futures.wait."""


class AsCompletedTest(ScalerMixin, _suite("test_as_completed").AsCompletedTests, util.BaseTestCase):
    """futures.as_completed."""


class InitializerTest(ScalerMixin, _suite("test_init").InitializerMixin, util.BaseTestCase):
    """An initializer that works."""


class FailingInitializerTest(
    ScalerMixin, _suite("test_init").FailingInitializerMixin, util.BaseTestCase
):
    """An initializer that raises."""

    @contextlib.contextmanager
    def _assert_logged(self, message):
        """CPython logs the initializer's traceback; with us the exception carries it."""
        yield
        with pytest.raises(Exception, match=message):
            self.executor.submit(int)


class ShutdownTest(ScalerMixin, shutdown.ProcessPoolShutdownTest, util.BaseTestCase):
    """shutdown(), and the end of the interpreter."""

    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.object(shutdown, "assert_python_ok", self._run_python)
        patch.start()
        self.addCleanup(patch.stop)

    def _run_python(self, *args: str):
        """Run one of CPython's scripts with our executor, and with our name for RuntimeError."""
        script = args[-1].replace(
            "from concurrent.futures import ScalerExecutor",
            "from scaler_exec import ScalerExecutor",
        )
        assert script != args[-1]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        options = {"__isolated": False, "PYTHONPATH": path}
        code, out, err = _assert_python_ok(*args[:-1], script, **options)
        return code, out, err.replace(b"scaler_cluster.errors.SessionClosedError", b"RuntimeError")


_assert_python_ok = shutdown.assert_python_ok


class DeadlockTest(ScalerMixin, deadlock.ExecutorDeadlockTest, util.BaseTestCase):
    """Crashes at every point of a task's way, with our exception types."""

    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.object(deadlock, "BrokenProcessPool", WorkerDiedError)
        patch.start()
        self.addCleanup(patch.stop)

    def _check_crash(self, error, function, *args, **options):
        error = ERRORS.get(self._testMethodName, error)
        super()._check_crash(error, function, *args, **options)


class LeftOutTest(unittest.TestCase):
    """The table of what is left out."""

    def test_every_name_is_a_test_of_this_python(self) -> None:
        """No name in LEFT_OUT is a test that our classes would not have had anyway."""
        classes = (ExecutorTest, ShutdownTest, DeadlockTest)
        names = {name for cls in classes for name in dir(cls) if name.startswith("test_")}
        unknown = LEFT_OUT.keys() - names

        assert sys.version_info < (3, 13) or unknown <= ADDED_LATER


ADDED_LATER = {"test_force_shutdown_workers", "test_force_shutdown_workers_stops_pool"}
"""Tests of Pythons after 3.13."""
