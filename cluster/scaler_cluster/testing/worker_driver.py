"""A worker's main thread in slow motion: the shipped task loop, without anything that runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.worker.slot import SLOT_SESSION, SLOT_TASK, SLOT_WORDS
from scaler_cluster.core.worker.task_loop import (
    Failure,
    Outcome,
    Stored,
    Unfinished,
    run_work,
)
from scaler_cluster.testing.preemption import preempted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from scaler_cluster.core.worker.work import Work
    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.wire.batch import Buffer

RUN_WORK_CODE = run_work.__code__


class WorkerDriver:
    """Runs ``run_work`` up to each task; the caller says what becomes of the task, and when.

    ``pump`` is called where the loop sends and receives, ``has_come`` where it waits for the
    segments of a work, ``share`` where it sends results that were kept, and ``control`` before each
    line of the loop that does not hold the lock: there the control thread of a worker may act. The
    lines are not watched where ``is_near`` says that it will not: that takes most of the time.
    """

    def __init__(
        self,
        core: WorkerCore,
        pump: Callable[[], object] = lambda: None,
        has_come: Callable[[Work], bool] = lambda work: True,
        control: Callable[[], object] | None = None,
        share: Callable[[], object] = lambda: None,
        is_near: Callable[[], bool] = lambda: True,
    ) -> None:
        self.core = core
        self.slot = [0] * SLOT_WORDS
        """What its supervisor can see after its death."""
        self.pumped_at = 0.0
        """When :meth:`pump` was called last."""
        self.payload = b""
        """Payload of the task that it stands on, or stood on last."""
        self._now = 0.0
        self._pump = pump
        self._has_come = has_come
        self._control = control
        self._share = share
        self._is_near = is_near
        self._work: Work | None = None
        self._loop: Generator[None, Outcome | None, None] | None = None
        self.is_in_task = False
        self._is_locked = False

    # -- what the loop asks for: see LoopHost ------------------------------------------------

    def reported(self) -> None:
        """Nothing to note: here a result is written and reported at once."""

    @property
    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keeps the control thread away."""
        return self._hold()

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        assert not self._is_locked
        self._is_locked = True
        yield
        self._is_locked = False

    def clock(self) -> float:
        """Return the simulated time."""
        return self._now

    def pump(self) -> None:
        """Have the caller send and receive."""
        self.pumped_at = self._now
        self._pump()

    def expect_results(self, _by: float) -> None:
        """Nothing to see to: the control thread acts between any two lines, or not at all."""

    def share(self) -> None:
        """Have the caller send results that were kept."""
        self._share()

    def has_come(self, work: Work) -> bool:
        """Ask the caller whether the segments of a work are here."""
        return self._has_come(work)

    def load(self, _work: Work) -> Callable[[Buffer], None]:
        """Return what stands on a task instead of running it."""
        return self._stand_on

    def _stand_on(self, payload: Buffer) -> None:
        self.payload = bytes(payload)
        self.is_in_task = True

    # -- moves -------------------------------------------------------------------------------

    def take_up(self, now: float) -> Work | None:
        """Stand on the next task and return its work, or None if nothing is left to run.

        Also None if what a work needs is on its way here.
        """
        self._now = now
        while not self.is_in_task:
            if self._loop is None:
                if not self.core.queue:
                    return None
                self._work = self.core.queue[0]
                self._loop = run_work(self.core, self, self._work)
            if self._go_on(None) and not self.is_in_task:
                return None
        return self._work

    def end(self, outcome: Outcome, now: float) -> None:
        """Let the task end that it stands on; the loop goes on to the next one of the work."""
        assert self.is_in_task, "stands on no task"
        self.is_in_task = False
        self._now = now
        self._go_on(outcome)

    def _go_on(self, outcome: Outcome | None) -> bool:
        """Run the loop until it yields; return False if it ends."""
        assert self._loop is not None
        watched: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._control is not None and self._is_near():
            watched = preempted(RUN_WORK_CODE, self._preempt)
        with watched:
            try:
                self._loop.send(outcome)
            except StopIteration:
                self._loop = self._work = None
        return self._loop is not None

    def _preempt(self) -> None:
        if not self._is_locked and self._control is not None:
            self._control()

    # -- where it stands ---------------------------------------------------------------------

    @property
    def standing(self) -> Work:
        """The work whose task it stands on."""
        assert self._work is not None, "stands on no task"
        return self._work

    @property
    def task(self) -> tuple[int, int]:
        """Session and id of the task that it stands on."""
        return self.standing.session, self.standing.task

    @property
    def ran(self) -> tuple[int, int]:
        """Session and task that it runs or ran last, as its supervisor can see them."""
        return self.slot[SLOT_SESSION], self.slot[SLOT_TASK]

    # -- how a task may end --------------------------------------------------------------------

    def returned(self, result: bytes, now: float) -> None:
        """The task returned: its result waits for the next report."""
        self.end(result, now)

    def stored(
        self, payload: bytes, segments: tuple[bytes, ...], now: float, *, nbytes: int = 1
    ) -> None:
        """The task returned a value with large buffers, in these segments of so many bytes each."""
        self.end(Stored(payload, dict.fromkeys(segments, nbytes)), now)

    def skipped(self, now: float) -> None:
        """What the node needs did not return here."""
        self.end(Unfinished.SKIPPED, now)

    def raised(self, kind: str, payload: bytes, detail: dict[str, Any], now: float) -> None:
        """The task failed in one of the ways that messages name."""
        self.end(Failure(kind, payload, detail), now)

    def stopped(self, now: float) -> None:
        """The task was interrupted, as the core had asked for."""
        self.end(Unfinished.INTERRUPTED, now)
