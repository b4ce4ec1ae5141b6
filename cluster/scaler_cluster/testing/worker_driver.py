"""What a worker's main thread does with its core, one move at a time, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.worker import Work, WorkerCore
    from scaler_cluster.wire.messages import AssignNodes


class WorkerDriver:
    """Moves a worker's cursor as ``runtime/worker.py`` does; the caller decides what tasks do."""

    def __init__(self, core: WorkerCore) -> None:
        self.core = core
        self.work: Work | None = None
        """What it stands on; None: nothing was taken up."""
        self.slot = (0, 0)
        """Session and task that it ran last, as its supervisor can see them after its death."""

    def take_up(
        self, now: float, has_come: Callable[[Work], bool] = lambda work: True
    ) -> Work | None:
        """Stand on the next task and return its work, or None if nothing is left to run.

        Also None if what a work needs is on its way here: ``has_come`` tells.
        """
        core = self.core
        while self.work is not None or core.queue:
            if self.work is None:
                work = core.queue[0]
                if not has_come(work):
                    return None
                self.work = work
                self.work.cursor = 0
                core.begin(self.work, now)
            work = self.work
            if work.cursor < work.stop:
                self.slot = (work.session, work.first + work.cursor)
                return work
            core.finish(work)
            self.work = None
        return None

    @property
    def task(self) -> tuple[int, int]:
        """Session and id of the task that it stands on."""
        work = self._standing()
        return work.session, work.first + work.cursor

    @property
    def payload(self) -> bytes:
        """Payload of the task that it stands on."""
        work = self._standing()
        start = work.cursor
        (payload,) = work.batch.cut(start, start + 1)
        return bytes(payload)

    def returned(self, result: bytes, now: float) -> None:
        """The task returned: its result waits for the next report."""
        work = self._standing()
        self.core.results.append(result)
        if work.values is not None:
            work.results[self.node] = result, ()
        self.core.last_end = now
        work.cursor += 1

    @property
    def node(self) -> int:
        """Number of the node that it stands on, in its graph."""
        work = self._standing()
        return work.first + work.cursor - cast("AssignNodes", work.message).graph

    def stored(self, payload: bytes, segments: tuple[bytes, ...], now: float) -> None:
        """The task returned a value with large buffers, in these segments."""
        work = self._standing()
        self.core.last_end = now
        self.core.stored(work, payload, dict.fromkeys(segments, 1))
        if work.values is not None:
            work.results[self.node] = payload, segments
        work.cursor += 1
        self.core.begin(work, now)

    def skipped(self, now: float) -> None:
        """What the node needs did not return here."""
        work = self._standing()
        self.core.skipped(work)
        work.cursor += 1
        self.core.begin(work, now)

    def raised(self, kind: str, payload: bytes, detail: dict[str, Any], now: float) -> None:
        """The task failed in one of the ways that messages name."""
        work = self._standing()
        self.core.last_end = now
        self.core.erred(work, kind, payload, detail)
        work.cursor += 1
        self.core.begin(work, now)

    def stopped(self, now: float) -> None:
        """The task was interrupted, as the core had asked for."""
        work = self._standing()
        self.core.last_end = now
        self.core.interrupted(work)
        work.cursor += 1
        self.core.begin(work, now)

    def _standing(self) -> Work:
        if self.work is None:
            raise AssertionError("stands on no task")
        return self.work
