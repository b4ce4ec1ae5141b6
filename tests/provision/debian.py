"""Programs of Debian's packages, unpacked into a directory of the tests' own: nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "scaler-exec-tests"
"""Packages stay here from one run to the next."""


def unpacked(*packages: str) -> Path:
    """Return the root of these packages; skips the test where they cannot be had."""
    if sys.platform != "linux" or os.geteuid() or not shutil.which("apt-get"):
        pytest.skip("Debian's packages are fetched by root, with apt-get")
    name = "-".join(sorted(packages))[:100]
    root, debs = CACHE / f"{name}-root", CACHE / name
    if root.exists():
        return root
    debs.mkdir(parents=True, exist_ok=True)
    done = _run(["apt-get", "download", *packages], debs)
    if done.returncode:
        # A machine that has not been updated for long does not know the packages any more.
        _run(["apt-get", "update"], debs)
        done = _run(["apt-get", "download", *packages], debs)
    if done.returncode:
        pytest.skip(f"apt-get download: {done.stderr.strip().splitlines()[-1]}")
    draft = root.with_suffix(".draft")
    for deb in debs.glob("*.deb"):
        subprocess.run(["dpkg", "-x", deb, draft], check=True)
    draft.rename(root)
    return root


def _run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
