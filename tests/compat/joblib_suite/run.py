"""Run joblib's own tests of ``Parallel``, which are part of what it installs, on this engine.

``python tests/compat/joblib_suite/run.py [ARGUMENTS FOR PYTEST ...]``
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run what is asked for; return the exit code of pytest."""
    command = [
        sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), "--rootdir", str(HERE),
        *sys.argv[1:], "--pyargs", "joblib.test.test_parallel",
    ]  # fmt: skip
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Elsewhere: tests leave files where they are, and no folder here is to be a package there.
    with tempfile.TemporaryDirectory() as place:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
