"""Segments in directories of their own."""

from __future__ import annotations

import pytest

from scaler_cluster.ids import segment_names
from scaler_cluster.objects.segments import Segments
from scaler_cluster.objects.storage_dirs import StorageDirs

MB = 1_000_000


@pytest.fixture
def places(tmp_path):
    """Return a directory that stands for the memory, and one on disk."""
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    return tmp_path / "memory", tmp_path / "disk"


@pytest.fixture
def make(places):
    """Return what makes the segments of an owner, with 10 MB of memory."""

    def make(owner=b"C1", limit=10 * MB, memory=True):
        return Segments(
            StorageDirs(str(places[0]) if memory else "", str(places[1]), limit),
            segment_names(owner),
        )

    return make
