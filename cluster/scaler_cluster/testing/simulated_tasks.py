"""The main thread of a simulated worker: the task it was given, and those that run on its stack."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.core.worker.subtasks import HandedOver, Subtask
from scaler_cluster.core.worker.waiting import Step, Waiting
from scaler_cluster.testing.nested import NestedNode
from scaler_cluster.testing.programs import (
    RAISED,
    Act,
    Ask,
    AskGraph,
    Await,
    Crash,
    Disturbed,
    GiveUp,
    Pause,
    Raised,
    Secede,
    program,
)
from scaler_cluster.testing.tasks import Task, object_of
from scaler_cluster.testing.world import SessionHost
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.testing.worker_driver import WorkerDriver
    from scaler_cluster.wire.batch import Buffer

CONNECT_S = 10.0
"""A session that was not welcomed by then gives up."""


class TaskPlayer(SessionHost, Protocol):
    """A simulated worker, as the tasks that it plays see it."""

    core: WorkerCore
    hands: WorkerDriver
    session: NestedNode | None
    """That of its tasks, once one of them needed it."""

    def set_timer(self, when: float) -> None:
        """Have a turn then, unless one comes before."""

    def crash(self, number: int) -> None:
        """The process is killed by a signal of this number."""

    def value(self, found: tuple[Buffer, tuple[bytes, ...]]) -> bytes | None:
        """Return a result that came as payload and segments, None if one of these is not here."""

    def read(self, segments: tuple[bytes, ...]) -> bytes | None:
        """Return what is in segments, None if one is not here."""

    def returned(self, task: Task, result: bytes) -> None:
        """The task that the worker was given returned."""

    def raised(self, error: bytes) -> None:
        """The task that the worker was given raised."""

    def interrupted(self) -> None:
        """The task that the worker was given was interrupted, as the scheduler wanted."""


class Frame:
    """One run of one task."""

    def __init__(self, number: int, task: Task, depth: int, child: Subtask | None) -> None:
        self.number = number
        self.task = task
        self.depth = depth
        """How many tasks are above it, wherever they run."""
        self.child = child
        """What it is on the stack of the task that waits for it; None: the worker was given it."""
        self.inputs: Sequence[bytes] = ()
        self.program = program(task)
        self.act: Act | None = None
        """What it wants to do, once the session is there."""
        self.wakes_at = -math.inf
        self.waiting: Waiting | None = None
        self.steps: Generator[Step, None, None] | None = None
        """What it does while it waits."""
        self.awaited: Sequence[int] = ()
        self.seceded = False
        self.began_at = 0.0
        self.expires_at = math.inf
        self.tries = 0


class SimulatedTasks:
    """Plays the programs of tasks, as ``runtime/nested.py`` and ``inline_runner.py`` run them."""

    def __init__(self, worker: TaskPlayer) -> None:
        self.frames: list[Frame] = []
        self._worker = worker
        self._simulation = worker.simulation
        self._numbers = itertools.count(1)
        self._connect_until = math.inf

    def begin(self, task: Task, inputs: Sequence[bytes], depth: int) -> None:
        """The worker was given a task."""
        frame = self._push(task, depth, None)
        frame.inputs = inputs
        frame.program = program(task, inputs)

    def _push(self, task: Task, depth: int, child: Subtask | None) -> Frame:
        frame = Frame(next(self._numbers), task, depth, child)
        frame.began_at = self._simulation.now
        if child is not None and child.options.timeout_s is not None:
            frame.expires_at = self._simulation.now + child.options.timeout_s
            self._worker.set_timer(frame.expires_at)
        self.frames.append(frame)
        return frame

    @property
    def _session(self) -> NestedNode:
        session = self._worker.session
        assert session is not None
        return session

    # -- playing -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Go on until nothing can be done for now, or the task has ended."""
        self._expire()
        while self.frames:
            frame = self.frames[-1]
            answer: Any = None
            try:
                if frame.act is not None:
                    if not self._connect():
                        return
                    act, frame.act = frame.act, None
                    answer = self._do(frame, act)
                    if frame.waiting is not None:
                        continue
                elif frame.wakes_at > self._simulation.now:
                    self._worker.set_timer(frame.wakes_at)
                    return
                elif frame.waiting is not None:
                    if not self._wait(frame, frame.waiting):
                        if self.frames[-1] is frame:
                            return
                        continue
                    answer = self._end_wait(frame)
                act = frame.program.send(answer)
            except Disturbed:
                try:
                    act = frame.program.throw(Disturbed())
                except Disturbed:
                    self._end(frame, Disturbed())
                    continue
            except StopIteration as end:
                self._end(frame, end.value)
                continue
            except Raised as error:
                self._end(frame, error)
                continue
            self._take(frame, act)

    def _take(self, frame: Frame, act: Act) -> None:
        if isinstance(act, Pause):
            frame.wakes_at = self._simulation.now + act.seconds
        elif isinstance(act, Crash):
            self._worker.crash(11)
        else:
            frame.act = act

    def _connect(self) -> bool:
        """Return True once tasks can be submitted; raises Disturbed if they never can."""
        worker, now = self._worker, self._simulation.now
        if worker.session is None:
            worker.session = NestedNode(worker)
            self._connect_until = now + CONNECT_S
        session = worker.session
        if session.core.welcome.session:
            if session.is_over:
                raise Disturbed
            return True
        if session.is_over or now >= self._connect_until:
            session.stop()
            worker.session = None
            raise Disturbed
        worker.set_timer(self._connect_until)
        return False

    def _do(self, frame: Frame, act: Act) -> Any:
        session = self._session
        if frame.child is None and not session.core.owned.get(frame.number):
            # What follows it here is another work: its end is to be noticed.
            self._worker.core.end_with(self._worker.hands.standing)
        session.owner = frame.number
        if isinstance(act, Ask):
            options = replace(act.options, depth=frame.depth + 1)
            if self._simulation.plan.has_shares:
                cores = 1, m.WHOLE_MACHINE, self._simulation.plan.workers
                options = replace(options, cores=self._simulation.random.choice(cores))
            ask = session.ask_map if act.is_map else session.ask
            return ask(act.tasks, options)
        if isinstance(act, AskGraph):
            return session.ask_graph(act.graph.deeper(frame.depth + 1), act.inputs)
        if isinstance(act, GiveUp):
            session.give_up(act.tasks)
            session.turn()
        elif isinstance(act, Secede):
            self._set_seceded(frame, seceded=act.seceded)
        elif isinstance(act, Await):
            frame.awaited = act.tasks
            frame.waiting = Waiting(self._simulation.now, act.timeout_s)
            frame.steps = frame.waiting.steps(
                session,
                deque(act.tasks),
                lambda: self._is_there(frame),
                lambda: self._simulation.now,
            )
        return None

    def _set_seceded(self, frame: Frame, *, seceded: bool) -> None:
        if frame.seceded is not seceded:
            frame.seceded = seceded
            self._session.count_waiting(1 if seceded else -1)

    # -- waiting -----------------------------------------------------------------------------

    def _is_there(self, frame: Frame) -> bool:
        return self._session.resolved.keys() >= set(frame.awaited)

    def _wait(self, frame: Frame, waiting: Waiting) -> bool:
        """Return True once what a task waits for is there, or its time is over."""
        assert frame.steps is not None
        for step in frame.steps:
            if step is Step.RUN:
                child = self._session.core.claim_first(waiting.tasks)
                waiting.has_run = child is not None
                if child is not None:
                    self._run(child)
                    return False
            else:
                self._session.turn()
                self._worker.set_timer(waiting.until)
                return False
        return True

    def _end_wait(self, frame: Frame) -> list[bytes] | None:
        """Return what a task waited for; raises Disturbed if something went wrong with that."""
        waiting, frame.waiting = frame.waiting, None
        assert waiting is not None
        if not self._is_there(frame):
            return None
        session = self._session
        values = []
        for task in frame.awaited:
            outcome, expected = session.resolved[task], session.asked[task].expected
            if isinstance(outcome, bytes):
                values.append(outcome)
            elif isinstance(outcome, m.Returned) and isinstance(expected, bytes):
                values.append(expected)
            elif (
                isinstance(outcome, m.Failed)
                and isinstance(expected, frozenset)
                and bytes(outcome.payload) in expected
            ):
                values.append(RAISED)
            else:
                raise Disturbed
        return values

    def _run(self, child: Subtask) -> None:
        """Run a task for the one that waits for it."""
        task = Task.of(bytes(child.batch.data))
        frame = self._push(task, child.options.depth, child)
        if type(child) is HandedOver:
            self._begin_node(frame, child)
            return
        self._note_start(child)
        views = [bytes(self._session.core.views[one]) for one in child.objects]
        assert views == list(map(object_of, task.objects)), f"{task} got {views!r}"

    def _note_start(self, child: Subtask) -> None:
        self._simulation.note_start((self._session.core.welcome.session, child.first))

    def _begin_node(self, frame: Frame, node: HandedOver) -> None:
        """Take what a node needs, unless that was lost or removed meanwhile."""
        task, worker = frame.task, self._worker
        found = [worker.value(node.values[one]) for one in task.needs]
        content = worker.read(node.objects)
        values = [value for value in found if value is not None]
        if content is None or len(values) < len(found):
            self._pop(frame)
            self._settle(frame, node, m.Failed(node.first, m.FAILED_MISSING))
            return
        assert content == b"".join(map(object_of, task.objects)), f"{task} got {content!r}"
        self._note_start(node)
        frame.inputs = values
        frame.program = program(task, values)

    # -- the end of a task -------------------------------------------------------------------

    def _end(self, frame: Frame, outcome: bytes | Raised | Disturbed) -> None:
        """A task returned or raised."""
        child = frame.child
        if isinstance(outcome, Disturbed):
            self._simulation.disturbed.add(frame.task.disturbed)
        if not isinstance(outcome, bytes) and child and frame.tries < child.options.retries:
            frame.tries += 1
            frame.program = program(frame.task, frame.inputs)
            return
        error = b""
        if not isinstance(outcome, bytes):
            is_own = isinstance(outcome, Raised)
            error = frame.task.error if is_own else frame.task.disturbed
        self._pop(frame)
        if child is not None:
            failed = m.Failed(child.first, m.FAILED_EXCEPTION, error)
            self._settle(frame, child, failed if error else outcome)
        elif isinstance(outcome, bytes):
            self._worker.returned(frame.task, outcome)
        else:
            self._worker.raised(error)

    def _pop(self, frame: Frame) -> None:
        assert self.frames.pop() is frame
        frame.program.close()
        if frame.steps is not None:
            frame.steps.close()
        if self._worker.session is not None:
            self._session.end_owner(frame.number)
            self._set_seceded(frame, seceded=False)

    def _settle(self, frame: Frame, child: Subtask, outcome: Any) -> None:
        now = self._simulation.now
        self._session.settle(child, outcome, now - frame.began_at)

    # -- interruptions -----------------------------------------------------------------------

    @property
    def _can_be_interrupted(self) -> bool:
        """Return False while a stubborn task computes, or one connects."""
        frame = self.frames[-1]
        computes = frame.wakes_at > self._simulation.now
        return frame.act is None and not (computes and frame.task.is_stubborn)

    def interrupt(self) -> None:
        """The scheduler wants the task to be stopped that the worker was given."""
        if self.frames and self._can_be_interrupted:
            self._unwind(0)
            self._worker.interrupted()

    def _expire(self) -> None:
        """Interrupt the task whose time is over, with what runs on top of it."""
        for index, frame in enumerate(self.frames):
            if frame.expires_at <= self._simulation.now and self._can_be_interrupted:
                assert frame.child is not None
                self._unwind(index + 1)
                self._pop(frame)
                self._settle(frame, frame.child, m.Failed(frame.child.first, m.FAILED_TIMEOUT, b""))
                return

    def _unwind(self, height: int) -> None:
        """End what stands above; nobody is left who waits for it."""
        while len(self.frames) > height:
            frame = self.frames[-1]
            self._pop(frame)
            if frame.child is not None:
                self._session.settle(frame.child, None, 0.0)
