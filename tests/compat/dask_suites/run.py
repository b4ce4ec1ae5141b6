"""Run Dask's own tests, which are part of what it installs, on this engine.

``python tests/compat/dask_suites/run.py`` runs a choice, and ``run.py MODULE ...`` all of these
modules; ``--all`` runs all that there is, on Dask's own scheduler of processes, too, and compares.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CHOSEN = (
    "dask.bag.tests.test_bag",
    "dask.tests.test_delayed",
    "dask.array.tests.test_array_core",
    "dask.dataframe.dask_expr.tests.test_collection",
    "dask.dataframe.dask_expr.tests.test_groupby",
)
"""Of arrays, frames, bags and delayed values, what says most in a minute or two."""
CASES = "6"
"""Of those, so many cases of each test: one has 2,448 of the same, another ten of each aggregation."""
ALL = (
    "dask.array.tests",
    "dask.dataframe",
    "dask.bag.tests",
    "dask.tests.test_base",
    "dask.tests.test_delayed",
    "dask.tests.test_graph_manipulation",
)


def run(get: str, modules: list[str], more: list[str], outcomes: Path) -> int:
    """Run modules on a scheduler, with more arguments for pytest; return its exit code."""
    command = [
        sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), "--rootdir", str(HERE),
        "--get", get, "--outcomes", str(outcomes), *more, "--pyargs", *modules,
    ]  # fmt: skip
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Elsewhere: tests leave files where they are, and no folder here is to be a package there.
    with tempfile.TemporaryDirectory() as place:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": place}
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("-n", default="2", help="processes of pytest, each with a cluster")
    named, more = parser.parse_known_args()
    modules = list(ALL if named.all else named.modules or CHOSEN)
    more = ["-n", named.n, *more]
    if not (named.all or named.modules):
        more += ["--cases", CASES]
    with tempfile.TemporaryDirectory() as place:
        paths = {get: Path(place) / get for get in ("scaler", "processes")}
        code = run("scaler", modules, more, paths["scaler"])
        if not named.all:
            return code
        run("processes", modules, more, paths["processes"])
        ours, theirs = (json.loads(path.read_text()) for path in paths.values())
    only = [name for name in ours if ours[name] == "failed" and theirs.get(name) == "passed"]
    Path(os.environ.get("DASK_BOTH", os.devnull)).write_text(json.dumps([ours, theirs]))
    print(f"{len(only)} fail here and pass on Dask's processes:", *only, sep="\n")
    return bool(only)


if __name__ == "__main__":
    sys.exit(main())
