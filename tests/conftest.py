"""What every test may count on, and what it must leave behind: nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).parent
ROOT = HERE.parent
REAL_PROCESSES = ("runtime", "compat", "differential", "provision")
"""Folders whose tests start real processes, and are looked after for what they leave behind."""
GONE_S = 15.0
"""What was told to end must have ended after this, however busy the machine is."""
MARK = "SCALER_TEST_SESSION"
"""In the environment of every process that the tests start, so that orphans are found as well."""
LONGEST = (
    "runtime/test_slow_links.py",
    "runtime/test_soak.py",
    "runtime/test_dashboard_for_all.py",
    "runtime/test_dashboard_history.py",
    "runtime/test_dashboard.py",
    "runtime/test_profile_page.py",
    "runtime/test_pages.py",
    "runtime/test_cluster.py",
    "runtime/test_commands.py",
    "compat/test_cpython_suites.py",
    "runtime/test_dashboard_acting.py",
    "runtime/test_dashboard_pages.py",
    "runtime/test_dashboard_replay.py",
    "runtime/test_sampling.py",
    "test_docs.py",
    "test_examples.py",
    "provision/test_job_queues.py",
    "provision/test_aws.py",
    "provision/test_aws_batch.py",
    "simulation/test_simulation.py",
)
"""Files that take a minute or so: one that began last would be the only one that runs at the end."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin first, and those without processes last: they fill what is left.

    In between, the number of a file's tests says how long it takes.
    """
    counts = Counter(item.path for item in items)
    longest = {HERE / name: number for number, name in enumerate(LONGEST)}
    keys = {
        path: (longest.get(path, len(longest)), not _is_real(path), -count)
        for path, count in counts.items()
    }
    items.sort(key=lambda item: keys[item.path])


def pytest_collection_finish() -> None:
    """Let no collection of garbage look at modules and tests: they stay, and are a million objects."""
    gc.collect()
    gc.freeze()


def children() -> list[psutil.Process]:
    """Return every process below this one that has not ended."""
    return [one for one in psutil.Process().children(recursive=True) if not _is_tracker(one)]


def our_processes() -> list[psutil.Process]:
    """Return every process that these tests started and that has not ended, orphans included.

    It asks all processes of this machine, which takes its time.
    """
    found = {process.pid: process for process in children()}
    mark = os.environ[MARK]
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found[process.pid] = process
        except psutil.Error:
            continue
    return [process for process in found.values() if not _is_tracker(process)]


def _is_tracker(process: psutil.Process) -> bool:
    """Return True for Python's own process that looks after segments: it ends with this one."""
    return "resource_tracker" in _command(process)


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


def _is_real(path: Path) -> bool:
    """Return True if the tests of a file start real processes."""
    return any(part in REAL_PROCESSES for part in path.relative_to(ROOT).parts)


def _end(left: Callable[[], list[psutil.Process]]) -> None:
    """Fail if these processes do not end by themselves, and end them."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), "processes were left behind", GONE_S)
    remains = left()
    commands = [_command(process) for process in remains]
    for process in remains:
        with contextlib.suppress(psutil.Error):
            process.kill()
    assert not commands, "processes were left behind"


def _left_in(places: Iterable[Path]) -> set[Path]:
    """Return the directories of clusters, clients and storages in these places."""
    found = (path for place in places for path in place.glob("scaler-*"))
    # The lock of whoever installs with pip stays.
    return {path for path in found if path.suffix != ".lock"}


@pytest.fixture(scope="module", autouse=True)
def private_directories(request, tmp_path_factory):
    """Return a module's own places for temporary files and for shared memory; both end empty.

    Fail if a process is left that is an orphan by now, which no single test looks for.
    """
    if not _is_real(request.path):
        yield ()
        return
    tmp_path_factory.getbasetemp()
    # Short: the path of a Unix socket goes in here.
    on_disk = "/tmp" if os.path.isdir("/tmp") else None
    # Its own as well: other tests may run on this machine at the same time.
    in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else on_disk
    places = [Path(tempfile.mkdtemp(prefix="t-", dir=top)) for top in (on_disk, in_memory)]
    before = {process.pid for process in our_processes()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(places[0]))
        patch.setattr(tempfile, "tempdir", str(places[0]))
        patch.setenv("SCALER_SHARED_MEMORY", str(places[1]))
        yield places

    try:
        _end(lambda: [process for process in our_processes() if process.pid not in before])
        assert not _left_in(places), "temporary directories or shared memory were left behind"
    finally:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(autouse=True)
def nothing_left(nobody_unpickles, request, private_directories, standing):
    """Fail a test that leaves a process, a temporary directory or a shared segment behind."""
    if not _is_real(request.path):
        yield
        return
    before = {process.pid for process in children()}
    there = _left_in(private_directories)

    yield

    _end(
        lambda: [
            process
            for process in children()
            if process.pid not in before and not _is_below(process, standing)
        ]
    )
    # What an orphan has in use ends with it.
    wait_until(
        lambda: not _left_in(private_directories) - there,
        "temporary directories or shared memory were left behind",
        GONE_S,
    )
