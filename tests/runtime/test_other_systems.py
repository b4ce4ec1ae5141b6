"""Clients on Windows and macOS, as far as Linux can show it; see ``other_system.py``.

What those systems lack is taken from the client's process before it imports the engine. The cluster
is a real one, in other processes.
"""

from __future__ import annotations

import psutil
import pytest

from scaler_exec import SchedulerClusterCombo
from tests.runtime.helpers import free_port, run_program

pytestmark = pytest.mark.slow
SYSTEMS = ["darwin", "win32"]
BEGIN = """
from tests.runtime.other_system import become
become({system!r})
address = {address!r}

import threading
import numpy as np
import scaler
from scaler_exec import Client, ConfigError, ScalerExecutor, SchedulerClusterCombo

def double(value):
    return 2 * value
"""


@pytest.fixture(scope="module")
def address(standing):
    """Return where a cluster of two workers is reached."""
    with SchedulerClusterCombo(2, f"tcp://127.0.0.1:{free_port(2)}") as cluster:
        standing |= {child.pid for child in psutil.Process().children()}
        yield cluster.get_address()


def run_on(system: str, program: str, address: str = "") -> list[str]:
    """Return what a program prints on another system."""
    done = run_program(BEGIN.format(system=system, address=address) + program)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("system", SYSTEMS)
def test_values_of_all_sizes_go_both_ways(address, system) -> None:
    """Small and large arguments and results; the large ones go through the socket."""
    program = """
with Client(address) as client:
    print(client.submit(double, 3).result(), sum(client.map(double, range(500))))
    for nbytes in (1 << 16, 5_000_000):
        result = client.submit(double, np.ones(nbytes // 8)).result()
        print(int(result.sum()), result.flags.writeable, client.submit(len, b"x" * nbytes).result())
    reference = client.send_object(np.arange(1_000_000))
    print({client.submit(np.sum, reference).result() for _ in range(3)} == {499_999_500_000})
    print(client.get({"a": (double, "b"), "b": (np.ones, "n"), "n": 100_000}, ["a"])["a"].sum())
import sys
print("scaler_cluster.objects.segments" in sys.modules)
"""
    assert run_on(system, program, address) == [
        "6 249500", "16384 True 65536", "1250000 True 5000000", "True", "200000.0", "False",
    ]  # fmt: skip


@pytest.mark.parametrize("system", SYSTEMS)
def test_threads_errors_and_executors(address, system) -> None:
    """Several threads wait at once; an error has the worker's traceback; executors join."""
    program = """
with ScalerExecutor(address=address) as executor:
    print(sum(executor.map(double, range(100), chunksize=7)))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(executor.submit(double, 1).result()))
        for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    print(found)
    error = executor.submit(double, None).exception()
    print(type(error).__name__, "in double" in str(error.__cause__))
    executor.submit(double, 4).cancel()
"""
    assert run_on(system, program, address) == [
        "9900", "[2, 2, 2, 2]", "TypeError True",
    ]  # fmt: skip


@pytest.mark.parametrize("system", SYSTEMS)
def test_clusters_are_refused(system) -> None:
    """Whoever starts a cluster there is told where it runs, and what to pass."""
    program = """
for start in (ScalerExecutor, lambda: SchedulerClusterCombo(2)):
    try:
        start()
    except ConfigError as error:
        print(error)
"""
    text = f"a cluster runs on Linux, and this system is '{system}': start one there, and pass "
    text += 'its address, as in ScalerExecutor(address="tcp://host:8516"), or '
    text += 'Client("tcp://host:8516")'

    assert run_on(system, program) == [text, text]


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_kept_beyond_its_client(address, system) -> None:
    """A future and a map give the values that had come; else they say that the client is gone."""
    program = """
import time
from concurrent.futures import CancelledError

with Client(address) as client:
    come, waits = client.submit(double, 3), client.submit(time.sleep, 600)
    large = client.submit(np.ones, 1_000_000)
    come.result()
    large.result()
print(come.result(), int(large.result().sum()))
try:
    print("no error:", waits.result())
except CancelledError:
    print("cancelled")
executor = ScalerExecutor(address=address)
with executor:
    values = executor.map(double, range(3))
    first = next(values)
print(first, *values)
try:
    executor.map(double, range(3))
except RuntimeError as error:
    print(error)
"""
    found = run_on(system, program, address)
    assert ["6 1000000", "cancelled", "0 2 4"] == found[:3]
    assert "after shutdown" in found[3]
