"""A process that is stopped while it counts shared memory stops nobody else."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scaler_cluster.objects import recycled, shared_memory
from scaler_cluster.objects.shared_memory import SharedMemory

if TYPE_CHECKING:
    from pathlib import Path

MB = 1_000_000
STOPPED = """
import os, signal, sys
from scaler_cluster.objects import shared_memory
make = shared_memory._make
def stop_and_make(path, nbytes):
    os.kill(os.getpid(), signal.SIGSTOP)
    return make(path, nbytes)
shared_memory._make = stop_and_make
os.close(shared_memory.SharedMemory(sys.argv[1], 10_000_000).create("theirs", 1_000_000))
"""


@pytest.fixture
def stopped(tmp_path):
    """Return a process that was stopped while it makes a file, under the lock."""
    process = subprocess.Popen([sys.executable, "-c", STOPPED, str(tmp_path)])
    os.waitpid(process.pid, os.WUNTRACED)
    yield process
    process.kill()
    process.wait()


def count(directory: Path) -> int:
    return int.from_bytes((directory / "usage").read_bytes(), "little")


def test_a_stopped_process_stops_nobody(monkeypatch, caplog, tmp_path, stopped) -> None:
    """Others go on after a moment, without waiting again; once it goes on, the count is right."""
    monkeypatch.setattr(shared_memory, "LOCK_WAIT_S", 0.05)
    memory = SharedMemory(str(tmp_path), 10 * MB)
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b", "c"):
            fd = memory.create(name, MB)
            assert fd is not None
            os.close(fd)
        assert memory.remove("b", may_recycle=False)
    assert len(caplog.records) == 1
    assert count(tmp_path) == 2 * MB
    assert sorted(memory.names()) == ["a", "c"]

    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(30) == 0
    assert sorted(memory.names()) == ["a", "c", "theirs"]
    assert count(tmp_path) == 3 * MB


def test_two_that_replace_it_are_not_wrong_for_long(tmp_path) -> None:
    """Whose file of the count was replaced meanwhile counts anew in the end."""
    memory = SharedMemory(str(tmp_path), 10 * MB)
    with memory._locked() as inner:
        fd = os.open(tmp_path / "usage", os.O_RDONLY)
        memory._replace(fd)
        # It is there already: nothing happens.
        memory._replace(fd)
        os.close(fd)
        other = memory.create("a", MB)
        assert other is not None
        os.close(other)
        inner.used += 5 * MB
    assert count(tmp_path) == MB
    assert sorted(os.listdir(tmp_path)) == ["a", "usage"]


def test_a_recycled_file_that_is_gone_is_none(monkeypatch, tmp_path) -> None:
    """A process that was stopped may find that others took or dropped what it has seen."""
    (tmp_path / "recycled").mkdir()
    kept = recycled.Recycled(str(tmp_path))
    gone = [(MB, str(tmp_path / "recycled" / f"{MB}-1"))]
    monkeypatch.setattr(recycled.Recycled, "_sizes", lambda _: gone)

    assert kept.take(MB, str(tmp_path / "a")) == 0
    assert kept.drop(MB) == 0
