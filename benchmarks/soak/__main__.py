"""Everything at once: a mixed load on three machines while anything is killed, stopped and cut.

``python -m benchmarks.soak --minutes N [--seed S] [--calm]``. Two clients ask for tasks, maps,
nested tasks, graphs and large objects, of a scheduler and clusters that were started by our
commands, on machines made of network namespaces. A fault is drawn from the seed every few seconds.
Each future must resolve once, with what a sequential evaluation says, or with an error that a fault
of that time allows (:mod:`benchmarks.soak.allowed`). What all parts hold must stay the same, and in
the end nothing may be left. The exit status is 1 if anything was wrong. Needs root, for namespaces.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.own_keys import use_own_keys
from benchmarks.soak.faults import CALM, WILD
from benchmarks.soak.soak import Soak
from tests.runtime.machines import can_make_machines

INSIDE = "SCALER_SOAK"
"""Names, in the soak's own namespaces, its directory."""
IN_NAMESPACES = ("unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork",
                 "--kill-child", "--mount-proc")  # fmt: skip
AS_INIT = 'for one in tmp shm; do mount -t tmpfs none "$0/$one" || exit 1; done; "$@"; exit $?'
"""The first process of a namespace must take care of orphans, as a shell does."""


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calm", action="store_true", help="fewer and shorter faults")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds until a run has hung")
    parser.add_argument(
        "--keep", action="store_true", help="keep the logs of a run without problems"
    )
    return parser.parse_args()


def run_in_namespaces() -> int:
    """Run this program again where its machines are its own; return its exit status."""
    import subprocess

    if not can_make_machines():
        sys.stderr.write("soak: making network namespaces needs root, unshare, nsenter and ip\n")
        return 2
    # Not in a directory for temporary files: those of each machine are its own.
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir="/var/tmp"))
    for name in ("tmp", "shm", "marks"):
        (directory / name).mkdir()
    variables = os.environ | {
        INSIDE: str(directory),
        "TMPDIR": str(directory / "tmp"),
        "SCALER_SHARED_MEMORY": str(directory / "shm"),
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
    }
    program = [sys.executable, "-m", "benchmarks.soak", *sys.argv[1:]]
    command = [*IN_NAMESPACES, "sh", "-c", AS_INIT, str(directory), *program]
    status = subprocess.run(command, env=variables, check=False).returncode
    if status == 0 and "--keep" not in sys.argv:
        shutil.rmtree(directory)
    else:
        print(f"logs are in {directory}")
    return status


def main() -> int:
    """Run it; return 1 if anything was wrong."""
    options: Any = parse()
    directory = os.environ.get(INSIDE)
    if directory is None:
        return run_in_namespaces()
    use_own_keys(Path(directory) / "keys")
    soak = Soak(
        Path(directory),
        seed=options.seed,
        seconds=60 * options.minutes,
        plan=CALM if options.calm else WILD,
        timeout_s=options.timeout,
    )
    began = time.monotonic()
    soak.run()
    soak.report(time.monotonic() - began)
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
