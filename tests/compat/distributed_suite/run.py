"""Run distributed's own tests of its client, as an older wheel of it has them, on this engine.

``DISTRIBUTED_TESTS=DIRECTORY python tests/compat/distributed_suite/run.py [ARGUMENTS FOR PYTEST ...]``

The directory is where ``distributed`` was unpacked; nothing of it is run but the tests.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MODULES = (
    "test_actor", "test_as_completed", "test_client", "test_client_executor", "test_events",
    "test_locks", "test_multi_locks", "test_publish", "test_queues", "test_resources",
    "test_semaphore", "test_variable", "test_worker_client",
)  # fmt: skip


def is_there(module: str, name: str) -> bool:
    """Return True if this Python finds a name in a module."""
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def importable(source: str) -> str:
    """Return a test's text with what is no more to be imported as names of ``distributed``.

    Of that, all can be imported: see stand_in.py.
    """
    tree = ast.parse(source)
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        module = node.module or ""
        if not module.startswith("distributed") and not all(
            is_there(module, one.name) for one in node.names
        ):
            node.module = "distributed"
    return ast.unparse(tree)


def main() -> int:
    """Run what is asked for; return the exit code of pytest."""
    tests = Path(os.environ["DISTRIBUTED_TESTS"], "distributed", "tests")
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as place:
        for name in MODULES:
            path = tests / f"{name}.py"
            if path.exists():
                Path(place, path.name).write_text(importable(path.read_text()))
        command = [
            sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), "--rootdir", place,
            *sys.argv[1:], place,
        ]  # fmt: skip
        paths.append(place)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": place}
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
