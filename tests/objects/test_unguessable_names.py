"""Nobody can name what another process stores who was not told of it."""

from __future__ import annotations

import subprocess
import sys

from scaler_cluster.ids import (
    SEGMENT_NAME_BYTES_MAX,
    alias_of,
    is_segment_of,
    segment_names,
    segment_number,
)
from scaler_cluster.objects.digest import digest_of
from tests.runtime.helpers import environment

PROGRAM = """
from scaler_cluster.objects.digest import digest_of
print(digest_of(memoryview(b"the same array")).hex())
"""


def test_equal_content_has_another_name_in_another_process() -> None:
    """So no client can put something else under the name of another one's array."""
    here = digest_of(memoryview(b"the same array"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert digest_of(memoryview(b"the same array")) == here
    assert bytes.fromhex(done.stdout) != here


def test_the_name_of_one_segment_does_not_tell_the_next() -> None:
    """Names say their owner's alias and their number, and end in what nobody can guess."""
    owner = b"W" + bytes(range(12))
    first, again = next(segment_names(owner)), next(segment_names(owner))

    assert first != again
    assert owner.hex() not in first
    assert first.startswith(alias_of(owner).hex())
    for name in (first.encode(), again.encode()):
        assert is_segment_of(owner, name)
        assert segment_number(name) == 0
        assert len(name) <= SEGMENT_NAME_BYTES_MAX
