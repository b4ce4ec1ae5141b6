"""The directories of a cluster: who removes them when its processes end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from scaler_cluster.process import directories
from scaler_cluster.process.directories import ClusterDirs
from tests.runtime.helpers import BOUND_S, environment

OTHER = """
import sys
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.directories import ClusterDirs

ClusterDirs(sys.argv[1], StorageDirs()).hold()
print(flush=True)
sys.stdin.read()
"""
"""A process that holds the directories until its standard input ends, however it dies."""


@pytest.fixture
def dirs():
    """Return directories that this process has made, and holds."""
    made = ClusterDirs.named()
    made.make()
    yield made
    made.remove()


@pytest.fixture
def other(dirs):
    """Return another process that holds them."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, dirs.directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    yield process
    process.kill()
    process.communicate()


def test_the_only_one_removes_them(dirs) -> None:
    """Whoever lets go of directories that nobody else holds removes them."""
    dirs.let_go()

    assert not os.path.exists(dirs.directory)
    assert not os.path.exists(dirs.storage.memory)


def test_they_stay_as_long_as_another_process_holds_them(dirs, other) -> None:
    """A process that ends by itself leaves them to the others, and waits for nobody."""
    dirs.let_go()
    assert os.path.exists(dirs.directory)

    other.communicate()
    dirs.let_go()
    assert not os.path.exists(dirs.directory)


def test_the_last_one_waits_for_who_is_about_to_die(dirs, other, monkeypatch) -> None:
    """A process whose death goes on still has its lock for a moment: its heir waits for that."""
    monkeypatch.setattr(directories, "DYING_S", BOUND_S)
    death = threading.Timer(0.2, other.kill)
    death.start()
    dirs.let_go(is_last=True)
    death.join()

    assert not os.path.exists(dirs.directory)


def test_a_parent_that_lets_others_remove_them_does_not_stand_in_the_way(dirs) -> None:
    """In an orderly end, the parent holds them no longer, so its child removes them at once."""
    program = OTHER.replace("sys.stdin.read()", "ClusterDirs(sys.argv[1], StorageDirs()).let_go()")
    command = [sys.executable, "-c", program, dirs.directory]

    subprocess.run(command, env=environment(), check=True, capture_output=True)
    assert os.path.exists(dirs.directory)
    dirs.release()
    subprocess.run(command, env=environment(), check=True, capture_output=True)
    assert not os.path.exists(dirs.directory)
