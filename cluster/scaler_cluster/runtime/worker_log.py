"""What a supervisor logs of its workers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.supervisor.supervisor import Exit

log = logging.getLogger("scaler.supervisor")


class WorkerLog:
    """Names workers by ``name_of`` their slot; by its number if that is empty."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._is_failure_logged = False

    def started(self, slot: int) -> None:
        """Say that a worker runs."""
        log.info("Worker[%s] started", self._name(slot))

    def ended(self, slot: int, end: Exit, reason: str) -> None:
        """Say how a worker ended; ``reason`` is why it was killed, if it was.

        Of failures to start only the first is told: they are alike.
        """
        name = self._name(slot)
        if end.initializer_failed:
            if not self._is_failure_logged:
                log.error("Worker[%s] cannot start:\n%s", name, end.stderr_tail.rstrip())
            self._is_failure_logged = True
        elif reason:
            log.warning("Worker[%s] was killed: %s", name, reason)
        elif end.signal or end.exit_code:
            how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
            log.warning("Worker[%s] died: %s", name, how)
        else:
            log.info("Worker[%s] ended", name)

    def _name(self, slot: int) -> str:
        return self._name_of(slot) or str(slot)
