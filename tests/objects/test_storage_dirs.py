"""Where objects lie, and who can see them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scaler_cluster.objects.storage_dirs import MEMORY_SHARE, SHARED_MEMORY_VARIABLE, StorageDirs


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Return the directory that stands for the machine's shared memory."""
    directory = tmp_path / "shm"
    directory.mkdir()
    monkeypatch.setenv(SHARED_MEMORY_VARIABLE, str(directory))
    return directory


def test_memory_lies_where_the_environment_says(shared, tmp_path):
    """The memory directory follows the environment, and its limit is a share of what there is."""
    place = StorageDirs.in_directory(str(tmp_path / "scaler-1"))
    room = os.statvfs(shared)

    assert place.memory == str(shared / "scaler-1")
    assert place.disk == str(tmp_path / "scaler-1" / "objects")
    assert place.memory_limit == int(room.f_blocks * room.f_frsize * MEMORY_SHARE)


def test_the_limit_may_be_said(shared, tmp_path):
    """The memory limit may be given; with 0 everything goes to disk."""
    assert StorageDirs.in_directory(str(tmp_path / "scaler-1"), 5).memory_limit == 5
    assert StorageDirs.in_directory(str(tmp_path / "scaler-1"), 0).memory_limit == 0


def test_without_shared_memory_there_is_only_the_disk(tmp_path, monkeypatch):
    """Without shared memory, as in some containers, there is only the disk."""
    monkeypatch.setenv(SHARED_MEMORY_VARIABLE, str(tmp_path / "nowhere"))
    place = StorageDirs.in_directory(str(tmp_path / "scaler-1"), 5)

    assert (place.memory, place.memory_limit) == ("", 0)


def test_who_sees_both_directories_is_there(shared, tmp_path):
    """A process is on the machine only if it sees both directories."""
    place = StorageDirs.in_directory(str(tmp_path / "scaler-1"))
    assert not place.is_here
    Path(place.disk).mkdir(parents=True)
    assert not place.is_here
    Path(place.memory).mkdir()
    assert place.is_here
    assert not StorageDirs().is_here


def test_what_another_user_has_is_not_here(tmp_path, monkeypatch) -> None:
    """Root could write there, but the storage could not use what root has made."""
    place = StorageDirs(disk=str(tmp_path))
    assert place.is_here
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)

    assert place.exists
    assert not place.is_here
