"""Uploaded code in a worker: where it is unpacked."""

from __future__ import annotations

import errno
import io
import zipfile
from pathlib import Path

import pytest

from scaler_cluster.runtime import worker_code


def archive() -> memoryview:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("a.py", "VALUE = 1\n")
    return memoryview(stream.getvalue())


def test_a_failure_to_put_unpacked_code_in_place_is_raised(tmp_path, monkeypatch):
    """Else the worker would import from a directory that is not there."""

    def refuse(self: Path, _: Path) -> Path:
        raise OSError(errno.EACCES, "refused", str(self))

    monkeypatch.setattr(worker_code, "home", str(tmp_path))
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="refused"):
        worker_code._directory_of(archive())
    assert list((tmp_path / worker_code.DIRECTORY).iterdir()) == []


def test_a_worker_that_was_faster_is_no_failure(tmp_path, monkeypatch):
    """What it has put there serves both."""
    rename = Path.rename

    def be_slower(self: Path, target: Path) -> Path:
        target.mkdir()
        (target / "a.py").write_text("VALUE = 1\n")
        return rename(self, target)

    monkeypatch.setattr(worker_code, "home", str(tmp_path))
    monkeypatch.setattr(Path, "rename", be_slower)
    assert (Path(worker_code._directory_of(archive())) / "a.py").exists()
