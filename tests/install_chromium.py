"""Makes sure that the tests find a Chromium: `python tests/install_chromium.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
# It may wait for another installation, but removes nothing that somebody wanted.
APT = (
    "env",
    "DEBIAN_FRONTEND=noninteractive",
    "apt-get",
    "-q",
    "-y",
    "--no-remove",
    "-o",
    "DPkg::Lock::Timeout=300",
)


def find_chromium() -> str | None:
    """Return the path of a Chromium: ``SCALER_CHROMIUM``, or the first on the path, if any."""
    return os.environ.get("SCALER_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def install_chromium() -> None:
    """Install Debian's Chromium, if this machine is a Debian and lets us."""
    apt = APT if os.geteuid() == 0 else ("sudo", "-n", *APT)
    if shutil.which("apt-get") is None or shutil.which(apt[0]) is None:
        return
    # Without the newest list, the package that the old one names may be gone. Where the list
    # cannot be had, the installation says so.
    subprocess.run((*apt, "update"), check=False)
    subprocess.run((*apt, "install", "--no-install-recommends", "chromium"), check=False)


def main() -> None:
    """Say which Chromium there is; install one if there is none, or exit with what to do."""
    if find_chromium() is None:
        install_chromium()
    found = find_chromium()
    if found is None:
        sys.exit(
            "The tests of the dashboard need Chromium, and it cannot be installed from here: "
            "install it (Debian: apt-get install chromium), or set SCALER_CHROMIUM to its path."
        )
    print(f"Chromium: {found}")


if __name__ == "__main__":
    main()
