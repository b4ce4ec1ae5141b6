"""How many threads numeric libraries start in a worker.

Left alone, each worker starts as many as the machine has CPUs, and with a worker for each CPU they
keep each other from working. The libraries read these variables when they are imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENMP = "OMP_NUM_THREADS"
AFTER_OPENMP = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Of libraries that ask for OPENMP where their own variable is not set."""
OTHERS = ("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")


def thread_limits(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return what to add to an environment, so that each library starts so many threads.

    What its user has set there stays; who has set OPENMP has set it for all that ask for that.
    """
    names = OTHERS if OPENMP in environment else (OPENMP, *AFTER_OPENMP, *OTHERS)
    return {name: str(threads) for name in names if name not in environment}
