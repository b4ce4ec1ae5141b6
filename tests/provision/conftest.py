"""What the tests of backends share: settings, and a backend of which nothing is real."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.runtime.helpers import Flags, wait_until

ADDRESS = "tcp://127.0.0.1:8516"


@pytest.fixture
def no_file_is_left(monkeypatch):
    """Fail a test whose processes leave a file of theirs behind; ask for it before ``shell``."""
    # Short: the path of a Unix socket goes in here.
    places = [tempfile.mkdtemp(prefix="t-", dir=one) for one in ("/tmp", "/dev/shm")]
    for name, place in zip(("TMPDIR", "SCALER_SHARED_MEMORY"), places, strict=True):
        monkeypatch.setenv(name, place)

    def left() -> list[str]:
        return [str(path) for place in places for path in Path(place).glob("scaler-*")]

    yield
    try:
        wait_until(lambda: not left(), lambda: f"files are left: {left()}")
    finally:
        for place in places:
            shutil.rmtree(place)


@pytest.fixture
def flags(tmp_path):
    """Return flags by which a test and its tasks tell each other how far they are."""
    (tmp_path / "flags").mkdir()
    return Flags(tmp_path / "flags")
