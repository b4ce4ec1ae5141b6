"""What importing the package costs, in what it imports."""

from __future__ import annotations

import subprocess
import sys


def test_asyncio_is_imported_by_those_who_use_it():
    """Importing scaler_exec imports no asyncio; its AsyncClient is there all the same."""
    source = (
        "import sys, scaler_exec; before = 'asyncio' in sys.modules; "
        "known = 'AsyncClient' in dir(scaler_exec); "
        "print(before, known, scaler_exec.AsyncClient.__name__, 'asyncio' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["False", "True", "AsyncClient", "True"]
