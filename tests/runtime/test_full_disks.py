"""Shared memory and disk that are full: single tasks fail, and work goes on once there is room."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scaler_cluster.objects.storage_dirs import SHARED_MEMORY_VARIABLE
from tests.runtime.helpers import BOUND_S, environment, run_program

pytestmark = pytest.mark.slow

SIZE = 16 << 20
"""Bytes of each of the two file systems."""
MOUNTS = f"""
options="$3,size={SIZE}"
mount -t tmpfs -o "$options" memory "$1" && mount -t tmpfs -o "$options" disk "$2" &&
shift 3 && exec "$@"
"""
PROGRAM = """
import gc, os, sys
import numpy as np
from scaler_exec import ScalerExecutor, StorageFullError

LARGE = 3 << 20

def large(number):
    return np.full(LARGE, number, np.uint8)

def small(number):
    return number * number

with ScalerExecutor(2) as executor:
    # Twice as much as fits into memory and disk together; the results are kept.
    futures = [executor.submit(large, number) for number in range(20)]
    others = [executor.submit(small, number) for number in range(200)]
    assert [other.result() for other in others] == [number ** 2 for number in range(200)]
    held, full = [], 0
    for number, future in enumerate(futures):
        try:
            value = future.result()
        except StorageFullError as error:
            assert "no room for an object of 3.1 MB" in str(error), error
            full += 1
        else:
            assert value.shape == (LARGE,) and (value == number).all()
            held.append(value)
    assert 5 <= len(held) <= 10 and full == 20 - len(held), (len(held), full)
    # An argument that has no room fails alone, too.
    try:
        executor.submit(np.sum, np.ones(20 << 20, np.uint8)).result()
    except StorageFullError:
        pass
    else:
        raise AssertionError("there was room")
    assert executor.submit(small, 7).result() == 49
    # What was given back makes room: everything works again.
    del value, future, futures
    held.clear()
    gc.collect()
    for attempt in range(1000):
        try:
            again = [executor.submit(large, number).result() for number in range(3)]
        except StorageFullError:
            continue
        break
    assert [int(one[-1]) for one in again] == [0, 1, 2]
    assert executor.submit(np.sum, np.ones(2 << 20, np.uint8)).result() == 2 << 20
print("right")
"""


@pytest.fixture
def in_small_directories(tmp_path):
    """Return a function that runs a program whose shared memory and disk are small."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    start = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNTS, "sh"]
    start += [str(memory), str(disk)]
    try:
        probe = subprocess.run(
            [*start, "noatime", "true"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        pytest.skip(f"there is no {error.filename}")
    if probe.returncode:
        pytest.skip(f"this machine refuses a mount: {probe.stderr.strip()}")
    variables = environment() | {SHARED_MEMORY_VARIABLE: str(memory), "TMPDIR": str(disk)}

    def run(program, options="noatime"):
        return subprocess.run(
            [*start, options, sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * BOUND_S,
            env=variables,
            check=False,
        )

    return run


def test_results_and_arguments_without_room_fail_alone(in_small_directories) -> None:
    """Tasks whose data fits nowhere raise StorageFullError; others go on, and these do later."""
    done = in_small_directories(PROGRAM)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr
    assert "Traceback" not in done.stderr


FILES = """
import numpy as np
from scaler_exec import ScalerExecutor, StorageFullError

def large(number):
    return np.full(100_000, number, np.uint8)

with ScalerExecutor(1) as executor:
    futures = [executor.submit(large, number) for number in range(120)]
    held, full = [], 0
    for number, future in enumerate(futures):
        try:
            held.append(future.result())
        except StorageFullError:
            full += 1
        else:
            assert (held[-1] == number).all()
    assert held and full, (len(held), full)
    assert executor.submit(pow, 2, 5).result() == 32
print("right")
"""


def test_no_room_for_files_is_no_room(in_small_directories) -> None:
    """File systems that have room for bytes, but for no more files, are full as well."""
    done = in_small_directories(FILES, "nr_inodes=48")
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr
    assert "Traceback" not in done.stderr


LOGS = """
import logging
from scaler_cluster.logs import setup_logger

setup_logger([{path!r}])
for number in range(100):
    logging.getLogger("scaler.scheduler").warning("line %d", number)
print("right")
"""


def test_a_log_on_a_full_disk_is_one_line(tmp_path) -> None:
    """A process whose log cannot be written says so once, and goes on."""
    done = run_program(LOGS.format(path="/dev/full"))
    # Python itself says no more of it when the file is closed.
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr
    assert done.stderr.splitlines() == [
        "cannot write the log /dev/full: No space left on device; lines are lost"
    ]

    path = str(tmp_path / "log")
    done = run_program(LOGS.format(path=path))
    assert (done.stdout, done.stderr) == ("right\n", "")
    with open(path) as file:
        assert file.read().count("line") == 100
