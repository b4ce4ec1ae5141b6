"""An environment of its own for each peer, made once below a cache directory.

Some cannot share one: opengris-scaler brings a package of a name of ours. Others are large.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INSTALLS = {
    "loky": "loky",
    "joblib": "joblib",
    "mpire": "mpire",
    "parsl": "parsl",
    "executorlib": "executorlib",
    "ray": "ray",
    "scaler": "opengris-scaler",
}
"""What a peer needs. The others run where the report is made: they are part of Python, or of the
extra `benchmarks`, and Dask has to have the same pandas and numpy as we."""
MEASURING = ("msgpack", "numpy", "psutil", "pyzmq")
DEFAULT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scaler-benchmarks"
ERROR_LINES = 2
INSTALL_TIMEOUT_S = 600.0


def interpreters(
    peers: Sequence[str], cache: Path, say: Callable[[str], None]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the interpreters of peers, made if they are not there, and why others have none."""
    found, failed = {}, {}
    for peer in [peer for peer in peers if peer in INSTALLS]:
        try:
            found[peer] = str(_made(peer, cache, say))
        except (OSError, subprocess.SubprocessError) as error:
            failed[peer] = f"{INSTALLS[peer]} cannot be installed: {_last_lines(error)}"
    return found, failed


def _made(peer: str, cache: Path, say: Callable[[str], None]) -> Path:
    """Return the interpreter of the peer's environment."""
    place = cache.resolve() / peer
    python = place / "bin" / "python"
    done = place / "installed"
    if done.exists():
        return python
    say(f"installing {INSTALLS[peer]} into {place}")
    shutil.rmtree(place, ignore_errors=True)
    _run(_uv(), "venv", "--quiet", "--python", sys.executable, str(place))
    packages = [INSTALLS[peer], *MEASURING]
    _run(_uv(), "pip", "install", "--quiet", "--python", str(python), *packages)
    done.touch()
    return python


def _uv() -> str:
    """Return the command, also where the environment that has it is not active."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise FileNotFoundError("uv is not here: pip install uv")
    return uv


def _run(*command: str) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"UV_CONSTRAINT", "VIRTUAL_ENV"}
    }
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        timeout=INSTALL_TIMEOUT_S,
    )


def _last_lines(error: Exception) -> str:
    text = getattr(error, "stderr", None) or str(error)
    return " / ".join(str(text).strip().splitlines()[-ERROR_LINES:])
