"""A plugin of pytest that gives joblib's own tests one backend more: this engine's.

Each test that is tried with "loky" is tried with "scaler" in its place, alone or beside others. The
other backends are left out: they are joblib's own affair.
"""

from __future__ import annotations

from typing import Any

import joblib.parallel
import pytest

from scaler_exec import SchedulerClusterCombo
from scaler_exec.joblib import ScalerBackend, register

OURS = "scaler"
WORKERS = 2
OWN_WORKERS = ("test_initializer",)
"""Tests that say how workers start; all others use one cluster, whose workers have the imports."""
THREADS = "it wants nested calls in threads of their worker; here they are tasks of the cluster"
MAPPED = "it wants large arrays as numpy.memmap; here they are plain arrays in shared memory"
EXPECTED: dict[str, str] = {
    "test_auto_memmap_on_arrays_from_generator": MAPPED,
    "test_error_capture": "it wants another pool after an exception; here the workers stay",
    "test_memmapping_leaks": MAPPED,
    "test_nested_backend_context_manager": THREADS,
    "test_nested_parallelism_limit": THREADS,
}
"""Tests that fail with this backend, each with the reason. One that passes is a mistake."""
cluster: SchedulerClusterCombo | None = None


class Joined(ScalerBackend):
    """The backend as if each test had said ``parallel_config(backend="scaler", address=...)``."""

    def __init__(self, **named: Any) -> None:
        assert cluster is not None
        super().__init__(**({"address": cluster} | named))


def pytest_configure(config: pytest.Config) -> None:
    """Start the cluster, before joblib's tests ask for an instance of each backend."""
    global cluster
    if not config.option.collectonly:
        cluster = SchedulerClusterCombo(WORKERS)
        joblib.parallel.register_parallel_backend(OURS, Joined)


def pytest_unconfigure() -> None:
    """End it."""
    if cluster is not None:
        cluster.shutdown()


@pytest.fixture(autouse=True)
def _workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers of its own for a test that says how they start."""
    if request.node.name.startswith(OWN_WORKERS):
        monkeypatch.setitem(joblib.parallel.BACKENDS, OURS, ScalerBackend)


def ours_of(name: str, values: Any) -> list[Any]:
    """Return what to try in place of all backends; nothing if these are none.

    Of two backends that meet in a test, one may be any.
    """
    listed = list(values)
    if "loky" not in listed and OURS not in listed:
        return []
    if "_" in name:
        return list(dict.fromkeys([*listed, OURS]))
    return [OURS, *(one for one in listed if isinstance(one, ScalerBackend))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Replace the values of a parameter that are backends."""
    for marker in metafunc.definition.own_markers:
        if marker.name == "parametrize" and "," not in str(marker.args[0]):
            ours = ours_of(*marker.args)
            if ours:
                object.__setattr__(marker, "args", (marker.args[0], ours))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Leave out what is not tried with this backend, and mark what is expected to fail."""
    others = [item for item in items if not _is_ours(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if _is_ours(item)]
    for item in items:
        if reason := EXPECTED.get(item.originalname):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _is_ours(item: pytest.Function) -> bool:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(one == OURS or isinstance(one, ScalerBackend) for one in values)


register()
