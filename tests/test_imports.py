"""What importing the package costs, in what it imports."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

import scaler_exec

HEAVY = {
    "asyncio",
    "blake3",
    "cloudpickle",
    "ctypes",
    "json",
    "logging.config",
    "msgpack",
    "multiprocessing",
    "psutil",
    "scaler_cluster.client.graph",
    "scaler_cluster.client.map",
    "scaler_cluster.client.session",
    "scaler_cluster.combo",
    "scaler_cluster.config.sections",
    "scaler_cluster.process.embedded_cluster",
    "scaler_cluster.process.process_config",
    "scaler_cluster.wire.codec",
    "scaler_cluster.wire.messages",
    "socket",
    "sortedcontainers",
    "subprocess",
    "toolz",
    "xxhash",
    "zmq",
}
"""What takes its time to import, and is not needed before there is a session. The messages alone
are a fifth of it: a class for each."""


def imported_by(source: str) -> list[Any]:
    """Return what a new interpreter says as JSON that runs a source."""
    # Isolated: without what the tests have every process import.
    ran = subprocess.run(
        [sys.executable, "-I", "-c", source],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    said: list[Any] = json.loads(ran.stdout)
    return said


def test_heavy_modules_are_imported_by_those_who_use_them():
    """Importing scaler_exec, Client and ScalerExecutor with it, imports nothing of HEAVY."""
    source = (
        "import sys; before = set(sys.modules); import scaler_exec; "
        "new = set(sys.modules) - before; import json; "
        "print(json.dumps(sorted(new)))"
    )

    new = imported_by(source)

    assert "scaler_exec.executor" in new
    assert "scaler_cluster.client.client" in new
    assert set() == HEAVY.intersection(map(str, new))


@pytest.mark.parametrize("name", sorted(HEAVY))
def test_each_heavy_module_is_one(name):
    """None is misspelt, or gone: then it would never be found."""
    assert importlib.util.find_spec(name) is not None


def test_every_name_is_there():
    """Each name of ``__all__`` is there, imported or not, and is listed by ``dir``."""
    source = (
        "import json, scaler_exec; listed = dir(scaler_exec); "
        "print(json.dumps([[n, n in listed, getattr(scaler_exec, n).__class__.__name__] "
        "for n in scaler_exec.__all__]))"
    )

    said = imported_by(source)

    assert sorted(scaler_exec.__all__) == [one[0] for one in said]
    assert all(one[1] for one in said)


def test_asyncio_is_imported_by_those_who_use_it():
    """AsyncClient is there, and brings asyncio when it is asked for."""
    source = (
        "import json, sys, scaler_exec; before = 'asyncio' in sys.modules; "
        "name = scaler_exec.AsyncClient.__name__; "
        "print(json.dumps([before, name, 'asyncio' in sys.modules]))"
    )
    assert imported_by(source) == [False, "AsyncClient", True]


def test_all_names_come_with_a_star():
    """``from scaler_exec import *`` brings every name of ``__all__``."""
    names: dict[str, object] = {}
    exec("from scaler_exec import *", names)
    assert set(scaler_exec.__all__) <= names.keys()
