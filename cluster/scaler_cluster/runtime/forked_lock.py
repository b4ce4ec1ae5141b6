"""What keeps a child that a task forked from acting as the worker."""

from __future__ import annotations

import contextlib
import os
import sys


class ForkedLock:
    """Stands for the worker's lock in a forked child: a child that returns from the task ends."""

    def __enter__(self) -> None:
        """End the process, as the end of its program would."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)

    def __exit__(self, *_: object) -> None:
        """Never get so far."""
