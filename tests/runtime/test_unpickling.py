"""Only clients and workers can unpickle: whatever else the tests start is watched, and reports it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scaler_cluster.process.process import LENGTH_BYTES
from tests.runtime.helpers import BOUND_S, HOOK, environment, nobody_unpickled
from tests.runtime.shell import SCRIPTS

REFUSED = "RuntimeError: this process must not unpickle"
DATA = pickle.dumps([1])
WAYS = (
    f"import pickle; pickle.loads({DATA!r})",
    f"import io, pickle; pickle.load(io.BytesIO({DATA!r}))",
    f"import io, pickle; pickle.Unpickler(io.BytesIO({DATA!r}))",
    f"import pickle; pickle._loads({DATA!r})",
    f"from _pickle import loads; loads({DATA!r})",
    f"import cloudpickle; cloudpickle.loads({DATA!r})",
    f"from multiprocessing.reduction import ForkingPickler; ForkingPickler.loads({DATA!r})",
)
TOLD = """
import io, os, sys
os.dup2(os.memfd_create("told"), 0)
from scaler_cluster.process.process import read_config, write_config
for _ in range(2):
    os.truncate(0, 0)
    os.lseek(0, 0, 0)
    write_config(os.fdopen(os.dup(0), "wb"), [1])
    os.lseek(0, 0, 0)
    print(read_config(list), flush=True)
"""
FORKED = f"""
import os, pickle
from pickle import loads
pid = os.fork()
if not pid:
    assert pickle.loads({DATA!r}) == loads({DATA!r}) == [1]
    assert type(pickle.loads) is type(len)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


class Unpickles:
    """Its unpickling unpickles something else."""

    def __reduce__(self):
        return pickle.loads, (DATA,)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return what runs Python to its end; what is reported goes to a directory of the test."""
    reports = tmp_path / "reports"
    reports.mkdir()
    monkeypatch.setenv("SCALER_TEST_UNPICKLED", str(reports))

    def run(*words: str, told: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, *words],
            input=told, capture_output=True, timeout=BOUND_S, env=environment(), check=False,
        )  # fmt: skip

    yield run

    nobody_unpickled(reports)


def reported(match: str) -> None:
    """Check that the test would have failed, for this."""
    with pytest.raises(AssertionError, match=match):
        nobody_unpickled(Path(os.environ["SCALER_TEST_UNPICKLED"]))


@pytest.mark.parametrize(
    "module",
    [
        "scaler_cluster.runtime.scheduler",
        "scaler_cluster.runtime.storage",
        "scaler_cluster.runtime.storage_server",
        "scaler_cluster.runtime.supervisor",
        "scaler_monitoring.dashboard.process",
        "scaler_monitoring.report_process",
    ],
)
def test_a_process_that_unpickles_is_reported(run, module) -> None:
    """Each process of the engine but a worker, when what its parent told it unpickles once more."""
    if module.startswith("scaler_monitoring.dashboard"):
        pytest.importorskip("bokeh")
    told = pickle.dumps(Unpickles())

    done = run("-m", module, told=len(told).to_bytes(LENGTH_BYTES, "big") + told)

    assert REFUSED in done.stderr.decode()
    reported(f"-m {module}\n(.*\n)+.* in read_config\n")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_closed(run, tmp_path, way) -> None:
    """No function or class of the standard library, nor of cloudpickle, unpickles in a command."""
    script = tmp_path / "scaler_top"
    script.write_text(way)

    assert REFUSED in run(str(script)).stderr.decode()
    reported("scaler_top\n")


@pytest.mark.parametrize("name", [one for one in SCRIPTS if one != "scaler_symphony_cluster"])
def test_a_command_is_watched(run, tmp_path, name) -> None:
    """Also if whatever it raises is swallowed. Only that of a proxy is not: it has workers in it."""
    script = tmp_path / name
    script.write_text(f"try: {WAYS[0]}\nexcept Exception: pass")

    assert run(str(script)).returncode == 0
    reported(f"{name}\n")


def test_what_a_parent_says_is_unpickled_once(run, tmp_path) -> None:
    """A process unpickles what it is told to do, and cannot be told again."""
    script = tmp_path / "scaler_scheduler"
    script.write_text(TOLD)

    done = run(str(script))

    assert done.stdout == b"[1]\n"
    assert REFUSED in done.stderr.decode()
    reported("in read_config")


def test_forks_and_programs_unpickle(run, tmp_path) -> None:
    """What a supervisor forks has Python's own functions again, and programs always have."""
    script = tmp_path / "scaler_cluster"
    script.write_text(FORKED)

    assert run(str(script)).stdout == b"7\n"
    assert run("-c", f"{WAYS[0]}; print(type(pickle.loads))").stdout == (
        b"<class 'builtin_function_or_method'>\n"
    )


def test_a_cluster_is_watched(executor) -> None:
    """All processes of a cluster find what watches them; its workers have Python's own functions."""
    assert executor.submit(type, pickle.loads).result(BOUND_S) is type(len)
    for process in psutil.Process().children(recursive=True):
        if "resource_tracker" not in " ".join(process.cmdline()):
            assert str(HOOK.parent) in process.environ()["PYTHONPATH"].split(os.pathsep)
