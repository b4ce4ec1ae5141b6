"""The task in which some code runs: what it submits belongs to it."""

from __future__ import annotations

import itertools
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from scaler_cluster.wire import messages as m

_numbers = itertools.count(1)


class Scope:
    """One run of one task in this worker."""

    __slots__ = ("expired", "is_over", "level", "number", "over", "references", "seceded", "told")

    def __init__(self, told: m.Assign | m.AssignNodes | m.TaskOptions, level: int) -> None:
        self.number = next(_numbers)
        self.told = told
        """What it was submitted with: its depth, and what of it goes to the client."""
        self.level = level
        """How many tasks are below it on the stack of its thread."""
        self.is_over = False
        self.references: list[Callable[[], object]] = []
        """What it sent ahead."""
        self.seceded = False
        """It said that it would not use its worker's slot for a while."""
        self.over: threading.Event | None = None
        """Of one with a timeout: set when it has ended."""
        self.expired = False
        """Its time is over, and it has not been told."""


current: ContextVar[Scope | None] = ContextVar("scaler_task", default=None)
"""A thread has it from the task that runs on it; who copies contexts to other threads, as asyncio
does, takes it along. Other threads belong to the task that the worker was given."""
