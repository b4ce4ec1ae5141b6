"""The kernel kills a worker for lack of memory, in a control group that is really limited."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scaler_cluster.runtime import control_groups, oom
from scaler_exec import ScalerExecutor, WorkerDiedError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S

LIMIT = 400 << 20
PROGRAM = """
import os, sys
for path in sys.argv[1:]:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
from scaler_exec import ScalerExecutor, WorkerDiedError

def take(nbytes):
    return len(bytearray(b"x") * nbytes)

with ScalerExecutor(max_workers=1) as executor:
    assert executor.submit(abs, -1).result(60) == 1
    error = executor.submit(take, 3 << 30).exception(60)
    assert type(error) is WorkerDiedError, error
    print(error.death.signal, error.death.out_of_memory, error.death.reason)
    assert executor.submit(abs, -2).result(60) == 2
"""


@pytest.fixture
def group():
    """Return a new control group whose memory is limited; skip where nobody may make one."""
    name = f"scaler-test-{os.getpid()}"
    groups = control_groups.GROUPS
    choices = (
        (groups / "memory" / name, "memory.limit_in_bytes"),
        (groups / name, "memory.max"),
    )
    for directory, limit in choices:
        try:
            directory.mkdir()
        except OSError:
            continue
        try:
            (directory / limit).write_text(str(LIMIT))
            with contextlib.suppress(OSError):
                (directory / "memory.swap.max").write_text("0")
            yield directory
        except FileNotFoundError:
            # The unified hierarchy without a controller of memory.
            continue
        else:
            return
        finally:
            directory.rmdir()
    pytest.skip("needs root, and a hierarchy of control groups that limits memory")


@pytest.mark.slow
def test_the_kernel_kills_a_worker(group) -> None:
    """A worker that the kernel kills for lack of memory is WorkerDiedError with out_of_memory."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(group / "cgroup.procs")],
        capture_output=True,
        text=True,
        timeout=4 * BOUND_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    number, is_oom, reason = done.stdout.split(maxsplit=2)
    assert (number, is_oom) == ("9", "True")
    assert reason.startswith("out of memory: the kernel killed it, as memory was short in its cont")
    assert f"oom_kill in {group}/memory." in reason


def test_who_is_killed_by_others_had_memory() -> None:
    """A worker that somebody else kills is not said to have been out of memory."""
    with ScalerExecutor(max_workers=1) as executor:
        error = executor.submit(tasks.fail, "kill").exception(BOUND_S)

    assert isinstance(error, WorkerDiedError)
    assert error.death.signal == signal.SIGKILL
    assert not error.death.out_of_memory
    assert error.death.reason == ""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
        ("low 0\nhigh 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 1\n", 2),
        ("nr_free_pages 1\noom_kill 12\n", 12),
        ("under_oom 0\n", -1),
    ],
)
def test_each_kernel_has_its_file(tmp_path: Path, text, count) -> None:
    """The count is found in the files of both hierarchies, and of the machine."""
    path = tmp_path / "file"
    path.write_text(text)
    assert oom._kills(str(path)) == count
    assert oom._kills(str(tmp_path / "none")) == -1
