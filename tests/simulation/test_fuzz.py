"""Strangers say anything, and nobody else notices."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing import fuzz as module
from scaler_cluster.testing.fuzz import MEMORY_BYTES_MAX, Scheduler, fuzz
from scaler_cluster.wire.batch import numbers


@pytest.mark.parametrize("seed", range(4))
def test_no_input_does_harm(seed) -> None:
    """Codec, scheduler, storage and feed survive anything; honest peers get what they ask for."""
    assert fuzz(25_000, seed) < MEMORY_BYTES_MAX


def test_a_fault_is_found(monkeypatch) -> None:
    """An error in a core ends the run, with what repeats it."""

    def numbers_of_before(*_: object) -> None:
        raise ValueError("bytes length not a multiple of item size")

    monkeypatch.setattr("scaler_cluster.core.scheduler.resumption.numbers", numbers_of_before)
    monkeypatch.setattr(module, "TARGETS", (Scheduler,))

    with pytest.raises(AssertionError, match=r"Scheduler, seed 1, input \d+"):
        fuzz(25_000, 1)


def test_numbers_that_are_none_break_the_protocol() -> None:
    """A peer that sends half a number has made the mistake, and not the scheduler."""
    assert numbers(b"\1\0\0\0") == [1]
    with pytest.raises(RemoteProtocolError, match="in the middle of one"):
        numbers(b"\1\0\0\0\2")


def test_the_command_says_what_it_did() -> None:
    """``python -m scaler_cluster.testing.fuzz`` gives so many inputs, and repeats a seed."""
    command = [sys.executable, "-m", "scaler_cluster.testing.fuzz", "2000", "7"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("2000 inputs of seed 7 in ")
    assert "no fault" in done.stdout
