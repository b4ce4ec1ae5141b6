"""Executors, flags and programs."""

from __future__ import annotations

import pytest

from scaler_exec import ScalerExecutor
from tests.runtime.helpers import Flags, Program


@pytest.fixture
def executor():
    """Return an executor with two workers."""
    with ScalerExecutor(2) as executor:
        yield executor


@pytest.fixture
def single():
    """Return an executor with one worker, so that tasks run one after the other."""
    with ScalerExecutor(1) as executor:
        yield executor


@pytest.fixture
def flags(tmp_path):
    """Return a fresh directory of flags."""
    return Flags(tmp_path)


@pytest.fixture
def start_program():
    """Return what starts programs; those that still run at the end of the test are killed."""
    programs: list[Program] = []

    def start(source: str) -> Program:
        programs.append(Program(source))
        return programs[-1]

    yield start

    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()
