"""Programs for the client of distributed: they find the same with ours, and with its own."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

pytest.importorskip("dask._task_spec", reason="the client needs a Dask of 2024.12 or later")

from tests.compat.distributed_programs import PROGRAMS
from tests.conftest import our_processes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
NEEDS = {"array": "numpy", "dask_ml": "dask_ml", "frame": "pyarrow", "xarray": "xarray"}


@pytest.fixture(scope="module")
def distributed(standing):
    """Return the module and a client of two workers."""
    module = importlib.import_module("scaler_exec.distributed")
    with module.Client(n_workers=2, threads_per_worker=1) as client:
        standing.update(process.pid for process in our_processes())
        yield module, client


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_the_program_finds_the_same(distributed, program, tmp_path):
    """Each returns what it does with the package's own client."""
    pytest.importorskip(NEEDS.get(program.__name__, "dask"))
    assert PROGRAMS[program] == program(*distributed, tmp_path)


def test_the_page_lists_the_programs():
    """Each is a row of the table."""
    rows = re.findall(r"^\| [\w.-]+ \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert [one.__name__ for one in PROGRAMS] == rows
