"""Looks at the stack of a worker's task now and then, while somebody wants to know what it does."""

from __future__ import annotations

import math
import sys
from random import random
from time import perf_counter as clock
from traceback import FrameSummary, StackSummary
from types import CodeType
from typing import TYPE_CHECKING, Protocol

from scaler_cluster import __file__ as engine_file
from scaler_cluster.call_tree import FUNCTIONS_MAX, CallTree, Frame
from scaler_cluster.runtime.task_run import make_run
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from types import FrameType

    from scaler_cluster.core.worker.work import Work
    from scaler_cluster.core.worker.worker import WorkerCore

IDLE_S = 0.1
"""While there is no task, it looks this often whether there is one: ten looks cost 0.1 ms."""
NODES_MAX = 1000
"""Of a function's tree, until it is sent: what has no place counts at its caller."""
FRAMES_MAX = 100
STACK_CHARS_MAX = 8000
"""Of a stack as text, the end of which says most."""

ENGINE = engine_file.removesuffix("__init__.py")
"""Where the files of the engine are."""
RUN = next(
    one for one in make_run.__code__.co_consts
    if isinstance(one, CodeType) and one.co_name == "run"
)  # fmt: skip
"""Below this code a task runs."""


class Sampled(Protocol):
    """The worker whose main thread is looked at."""

    @property
    def is_busy(self) -> bool:
        """Return True as long as the main thread runs tasks."""


class Sampler:
    """Merges what it sees of the ``main`` thread until it is asked; the control thread looks."""

    def __init__(self, worker: Sampled, core: WorkerCore, main: int) -> None:
        self.due = math.inf
        """When to :meth:`look`."""
        self.question: m.Sample | None = None
        """What is to be answered by :meth:`answer`."""
        self._worker = worker
        self._core = core
        self._main = main
        self._period_s = 0.0
        self._until = 0.0
        self._seen_at = 0.0
        """When a task was seen last; 0: there was none since."""
        self._trees: dict[bytes, CallTree] = {}
        self._samples: dict[bytes, int] = {}
        self._frames: dict[int, tuple[CodeType, Frame]] = {}
        """By the ids of codes: a code has no quick hash."""

    def ask(self, question: m.Sample, now: float) -> None:
        """Look from now on, for a while; the worker's lock is held."""
        self.question = question
        self._period_s = max(question.period_s, 0.001)
        self._until = now + question.for_s
        if self.due == math.inf:
            self._seen_at = 0.0
            self.due = now
        if not self._worker.is_busy:
            self.answer([])

    def look(self) -> None:
        """Take a sample."""
        now = clock()
        if now >= self._until:
            self.due = math.inf
            self._clear()
            return
        queue = self._core.queue
        work = queue[0] if self._worker.is_busy and queue else None
        if work is None:
            self._seen_at = 0.0
            self.due = now + IDLE_S
            return
        function = work.message.function
        codes = self._codes()
        # A sample stands for the time since the one before: code outside of Python may have kept
        # this thread from looking. Else a random pause: tasks may have a rhythm of their own.
        seen_s = now - self._seen_at if self._seen_at else self._period_s
        self._seen_at = now
        self.due = now + self._period_s * (0.5 + random())  # noqa: S311
        if function not in self._trees and len(self._trees) >= FUNCTIONS_MAX - 1:
            function = b""
        tree = self._trees.get(function)
        if tree is None:
            tree = self._trees[function] = CallTree(NODES_MAX)
            self._samples[function] = 0
        tree.add(map(self._frame, codes), max(round(seen_s * 1e6), 1))
        self._samples[function] += 1

    def _codes(self) -> list[CodeType]:
        """Return what the task is at, the outermost call first; nothing: the engine is at work."""
        return [frame.f_code for frame in self._calls()]

    def _calls(self) -> list[FrameType]:
        """Return the calls that the task is in, the outermost one first.

        They are not to be held for long: that would keep their variables.
        """
        frame: FrameType | None = sys._current_frames().get(self._main)
        calls: list[FrameType] = []
        start = 0
        while frame is not None:
            if frame.f_code is RUN:
                # The outermost one counts: a task may run others while it waits for them.
                start = len(calls)
            calls.append(frame)
            frame = frame.f_back
        calls = calls[:start]
        while calls and calls[-1].f_code.co_filename.startswith(ENGINE):
            calls.pop()
        calls.reverse()
        return calls

    def _frame(self, code: CodeType) -> Frame:
        known = self._frames.get(id(code))
        if known is None:
            known = code, Frame.of(_name(code), code.co_filename, code.co_firstlineno)
            self._frames[id(code)] = known
        return known[1]

    # -- the answer --------------------------------------------------------------------------

    def stack(self) -> list[FrameSummary]:
        """Return what the task is at; the lock need not be held, and is better not."""
        # Lines are read later.
        return [_summary(one) for one in self._calls()[-FRAMES_MAX:]]

    def answer(self, stack: list[FrameSummary]) -> None:
        """Say what was seen, and what the task is at; the worker's lock is held."""
        question, self.question = self.question, None
        if question is None:
            return
        trees = [tree.packed() for tree in self._trees.values()]
        samples, sizes = tuple(self._samples.values()), tuple(map(len, trees))
        answer = m.Sampled(question.number, tuple(self._trees), samples, sizes, b"".join(trees))
        if self._worker.is_busy and self._core.queue:
            self._add_running(answer, self._core.queue[0], stack)
        self._clear()
        self._core.reports.say(answer)

    def _add_running(self, answer: m.Sampled, work: Work, stack: list[FrameSummary]) -> None:
        answer.session, answer.task, answer.runs = work.session, work.task, work.message.function
        answer.age_s = max(clock() - self._core.reports.last_end, 0.0)
        text = "".join(StackSummary.from_list(stack).format())
        answer.stack = text.encode(errors="backslashreplace").decode()[-STACK_CHARS_MAX:]
        if not stack:
            answer.reason = (
                "no function in Python: it is written in another language, or its arguments or its "
                "result are being pickled"
            )

    def _clear(self) -> None:
        self._trees, self._samples, self._frames = {}, {}, {}


def _name(code: CodeType) -> str:
    # Before Python 3.11 there is none with its class.
    return getattr(code, "co_qualname", code.co_name)


def _summary(frame: FrameType) -> FrameSummary:
    code = frame.f_code
    return FrameSummary(code.co_filename, frame.f_lineno, _name(code), lookup_line=False)
