"""What ends with the program, in its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

finishers: list[Callable[[], None]] = []
"""Called as the interpreter exits."""


def finish() -> None:
    """Have everything end; those who have a session register this with ``atexit``."""
    for one in finishers:
        one()
