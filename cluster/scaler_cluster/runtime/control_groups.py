"""The control groups of this process, in which Linux counts and limits memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = Path("/sys/fs/cgroup")


def read(path: str) -> bytes:
    """Return what is in a file of the kernel; nothing if it is not there."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - half the time of a Path
            return file.read()
    except OSError:
        return b""


def memory_groups() -> Iterator[tuple[Path, Path, bool]]:
    """Yield the root of each hierarchy that may count memory, the group of this process in it.

    The third is True for the unified hierarchy (version 2).
    """
    for line in read("/proc/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield GROUPS, GROUPS / path.lstrip("/"), True
        elif "memory" in controllers.split(","):
            yield GROUPS / "memory", GROUPS / "memory" / path.lstrip("/"), False
