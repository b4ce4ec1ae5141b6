"""What the tests of backends share: settings, and a backend of which nothing is real."""

from __future__ import annotations

import pytest

from tests.runtime.helpers import Flags
from tests.runtime.shell import Shell

ADDRESS = "tcp://127.0.0.1:8516"


@pytest.fixture
def shell(tmp_path):
    """Return a shell; what still runs in it at the end of the test must end when it is told to."""
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.fixture
def flags(tmp_path):
    """Return flags by which a test and its tasks tell each other how far they are."""
    (tmp_path / "flags").mkdir()
    return Flags(tmp_path / "flags")
