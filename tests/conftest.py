"""What every test may count on, and what it must leave behind: nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import uuid
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
REAL_PROCESSES = ("runtime", "compat", "differential", "provision")
"""Folders whose tests start real processes, and are looked after for what they leave behind."""
GONE_S = 15.0
"""What was told to end must have ended after this, however busy the machine is."""
MARK = "SCALER_TEST_SESSION"
"""In the environment of every process that the tests start, so that orphans are found as well."""

os.environ[MARK] = uuid.uuid4().hex
KEYS = tempfile.TemporaryDirectory(prefix="scaler-tests-keys-")
"""The keys of this user for loopback addresses, and those of all clusters elsewhere: the tests read
and write none of whoever runs them."""
os.environ["XDG_STATE_HOME"] = KEYS.name
os.environ["SCALER_KEYS"] = str(Path(KEYS.name) / "keys")
UNPICKLED = Path(KEYS.name) / "unpickled"
"""Where processes report that they unpickle and must not, see ``tests/hook/sitecustomize.py``."""
UNPICKLED.mkdir()
os.environ["SCALER_TEST_UNPICKLED"] = str(UNPICKLED)
# A shell starts what runs in its background with SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
if str(ROOT) not in sys.path:
    # Last, so that an installed package wins: workers import ``tests.runtime.tasks`` from here.
    sys.path.append(str(ROOT))

from scaler_cluster.security.key_files import make_cluster  # noqa: E402 - after the environment
from tests.runtime.helpers import (  # noqa: E402 - it is found by that path
    HOOK,
    nobody_unpickled,
    wait_until,
)

make_cluster(Path(os.environ["SCALER_KEYS"]))
if str(HOOK.parent) not in sys.path:
    # Both: some programs are given this process's path, and others only its environment.
    sys.path.append(str(HOOK.parent))
    paths = filter(None, [str(HOOK.parent), os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def our_processes() -> list[psutil.Process]:
    """Return every process that these tests started and that has not ended, orphans included."""
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    mark = os.environ[MARK]
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found[process.pid] = process
        except psutil.Error:
            continue
    return [process for process in found.values() if "resource_tracker" not in _command(process)]


def _command(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()}: {' '.join(process.cmdline())}"
    except psutil.Error:
        return f"{process.pid}: ended"


def _is_below(process: psutil.Process, above: set[int]) -> bool:
    try:
        return any(one.pid in above for one in (process, *process.parents()))
    except psutil.NoSuchProcess:
        return True  # It has ended since it was found.


@pytest.fixture
def shell(tmp_path):
    """Return a shell; what still runs in it at the end of the test must end when it is told to."""
    # It imports the engine, for which the environment is made above.
    from tests.runtime.shell import Shell

    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session", autouse=True)
def nobody_unpickles_at_the_end():
    """Fail the last test for what was reported since: by processes of a whole module, say."""
    yield
    nobody_unpickled(UNPICKLED)


@pytest.fixture(autouse=True)
def nobody_unpickles():
    """Fail a test if any but clients and workers unpickled."""
    yield
    nobody_unpickled(UNPICKLED)


@pytest.fixture(scope="module")
def standing() -> set[int]:
    """Return the ids of processes of a whole module, which end all that they start by themselves.

    Each is looked after by the fixture that started it.
    """
    return set()


@pytest.fixture(autouse=True)
def nothing_left(nobody_unpickles, request, tmp_path_factory, monkeypatch, standing):
    """Fail a test that leaves a process, a temporary directory or a shared segment behind."""
    if not any(part in REAL_PROCESSES for part in request.path.relative_to(ROOT).parts):
        yield
        return
    tmp_path_factory.getbasetemp()
    # Short: the path of a Unix socket goes in here, and holds about 100 bytes.
    private = tempfile.mkdtemp(prefix="t-", dir="/tmp" if os.path.isdir("/tmp") else None)
    monkeypatch.setenv("TMPDIR", private)
    monkeypatch.setattr(tempfile, "tempdir", private)
    # Here as well: other tests may run on this machine at the same time.
    shared = tempfile.mkdtemp(prefix="t-", dir="/dev/shm") if os.path.isdir("/dev/shm") else private
    monkeypatch.setenv("SCALER_SHARED_MEMORY", shared)
    before = {process.pid for process in our_processes()}

    def left() -> list[psutil.Process]:
        return [
            process
            for process in our_processes()
            if process.pid not in before and not _is_below(process, standing)
        ]

    yield

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), "processes were left behind", GONE_S)
    remains = left()
    commands = [_command(process) for process in remains]
    for process in remains:
        try:
            process.kill()
        except psutil.Error:
            continue

    def directories() -> list[str]:
        return sorted(
            str(path) for place in (private, shared) for path in Path(place).glob("scaler-*")
        )

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not directories(), "directories were left", 0.0 if commands else 2.0)
    remaining = directories()
    shutil.rmtree(private, ignore_errors=True)
    shutil.rmtree(shared, ignore_errors=True)
    assert not commands, "processes were left behind"
    assert not remaining, "temporary directories or shared memory were left behind"
