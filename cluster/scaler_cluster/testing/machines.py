"""The machines of a simulated cluster: supervisors and workers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.records.amounts import Amounts
from scaler_cluster.core.records.limits import FLUSH_S
from scaler_cluster.core.records.placement import has_inside
from scaler_cluster.core.supervisor.config import SupervisorConfig
from scaler_cluster.core.supervisor.supervisor import (
    ComeBack,
    Exit,
    Kill,
    Send,
    Spawn,
    SupervisorCore,
)
from scaler_cluster.core.worker.kept_results import Pickled
from scaler_cluster.core.worker.reports import Kept
from scaler_cluster.core.worker.worker import WorkerCore
from scaler_cluster.ids import HUB
from scaler_cluster.testing.bench import PYTHON, segment
from scaler_cluster.testing.nodes import Node
from scaler_cluster.testing.sessions import HEARTBEAT_S
from scaler_cluster.testing.simulated_tasks import SimulatedTasks
from scaler_cluster.testing.storages import StorageNode
from scaler_cluster.testing.tasks import Task, object_of
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.worker.work import Work
    from scaler_cluster.testing.memory_files import MemoryFiles
    from scaler_cluster.testing.nested import NestedNode
    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

LOOKS_LATE_S = (0.0, 0.0005, 0.02, 0.1)
"""How late the control thread may see what has arrived while tasks run."""
LINES_LATE_MAX = 25
"""How many lines of the task loop may be run before the control thread sees what has arrived."""
LARGE_BYTES = 100_000
"""How large a result is said to be that a worker keeps."""
LIMITS = (math.inf, 2.5 * LARGE_BYTES)
"""How much a worker may keep that nobody else has."""
FLUSHES = 0.01
"""How likely the control thread reports results before a line of the task loop."""
CAPABILITIES: tuple[m.Capabilities, ...] = ((), (("even", -1),), (("even", 2), ("odd", 1)))
"""What a machine may offer, if that changes."""
SHARED: m.Capabilities = (("gpu", 2), ("memory", 1.5))
"""What the workers of a machine share, if they do."""
LINES_AT_ONCE = 40
"""How many lines of the task loop are run at once, at most, between two tasks."""


class SupervisorNode(Node):
    """A machine: a supervisor, its workers, and the storage of one that has files of its own."""

    def __init__(self, simulation: World, number: int, workers: int, files: MemoryFiles) -> None:
        name = simulation.name("S")
        super().__init__(simulation, name)
        self.number = number
        """The machine that comes when this one is gone is in the same place."""
        usual: m.Capabilities = (("even", -1),) if number % 2 == 0 else ()
        changes = simulation.plan.has_changing_machines and simulation.is_faulty
        self.capabilities = simulation.random.choice(CAPABILITIES) if changes else usual
        self.is_changed = self.capabilities != usual
        self.core = SupervisorCore(
            SupervisorConfig(workers, heartbeat_s=HEARTBEAT_S), name, "simulated", simulation.now
        )
        self.files = files
        self._is_settled = False
        self._storage: StorageNode | None = None
        self._workers: dict[int, WorkerNode] = {}
        who = m.PROTOCOL_VERSION, PYTHON, 1, "simulated"
        self._shared = SHARED if simulation.plan.has_shares else ()
        self._hello = m.Hello(m.SUPERVISOR, *who, workers=workers, capabilities=self._shared)
        self.tell_hub([self._hello])
        self.turn()

    @property
    def is_home(self) -> bool:
        """Return True on the scheduler's machine."""
        return self.files is self.simulation.home

    def _start_storage(self) -> None:
        if self.is_alive():
            self._storage = StorageNode(
                self.simulation, self.files, self.name, lambda _: self._start_storage()
            )

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        messages = self.exchange.receive(HUB, frames, self.simulation.now)
        self.core.receive(messages)
        if not self._is_settled and any(type(message) is m.Welcome for message in messages):
            self._is_settled = True
            if not self.is_home:
                self._start_storage()
            self.core.start(self.simulation.now)
        self.turn()

    def turn(self) -> None:
        simulation, core = self.simulation, self.core
        core.tick(simulation.now)
        messages: list[m.Message] = []
        for action in core.take_actions():
            if isinstance(action, Send):
                messages.append(action.message)
            elif isinstance(action, Spawn):
                node = WorkerNode(simulation, action.peer, self, action.slot)
                self._workers[action.slot] = node
                core.spawned(action.slot, action.slot + 100)
            elif isinstance(action, Kill):
                if action.slot in self._workers:
                    self._workers[action.slot].crash(9)
            elif isinstance(action, ComeBack):
                said = [*self.exchange.undelivered(HUB), *messages]
                self.exchange = Exchange(simulation.random.getrandbits(31) + 1)
                messages = [replace(self._hello, resume=1), *action.words(said)]
            else:
                self.crash(15)
                return
        self.tell_hub(messages)
        self.set_timer(core.deadline)

    def reap(self, worker: WorkerNode, number: int | None) -> None:
        """A worker of this machine ended."""
        if not self.is_alive() or self._workers.get(worker.index) is not worker:
            return
        if self.paused_until > self.simulation.now:
            self.simulation.at(self.paused_until, lambda: self.reap(worker, number))
            return
        del self._workers[worker.index]
        session, task = worker.hands.ran
        code = None if number is not None else 0
        end = Exit(worker.index + 100, code, number, 0, "", True, False, session, task)
        self.core.died(worker.index, end, self.simulation.now)
        self.turn()

    def check_portions(self) -> None:
        """See that no two tasks that run here have the same GPU, or more than there is."""
        amounts = Amounts(self._shared)
        for worker in self._workers.values():
            portion = worker.portion
            if portion is not None:
                amounts.take(portion)

    def silence(self, until: float) -> None:
        """Pause the supervisor and some of its workers; the others go on."""
        self.pause(until)
        self.simulation.machines_lost += 1
        self.simulation.start_limits.clear()
        for worker in self._workers.values():
            if self.simulation.random.random() < 0.5:
                worker.pause(until)

    def crash(self, number: int) -> None:
        """The machine is gone, with its workers; another one comes."""
        self.leave()
        self.simulation.machines_lost += 1
        add = self.simulation.add_machine
        self.simulation.at(self.simulation.now + 0.5, lambda: add(self.number))

    def leave(self) -> None:
        """The machine is gone for good."""
        self.stop()
        for worker in list(self._workers.values()):
            worker.stop()
        if not self.is_home:
            self.files.is_there = False
            if self._storage is not None:
                self._storage.stop()


class WorkerNode(Node):
    """A worker process: runs tasks one after the other, each for a simulated while."""

    def __init__(
        self, simulation: World, name: bytes, supervisor: SupervisorNode, index: int
    ) -> None:
        super().__init__(simulation, name, supervisor.name)
        self.core = WorkerCore()
        self.core.kept.limit_bytes = simulation.random.choice(LIMITS)
        self.hands = WorkerDriver(
            self.core, self._pump, self._has_come, self._preempt, self._share, self._is_near
        )
        self.index = index
        self.session: NestedNode | None = None
        """That of its tasks, once one of them needed it."""
        self.stack = SimulatedTasks(self)
        self._supervisor = supervisor
        self._files = supervisor.files
        self._ran = b""
        """Name of the task in the hands' slot."""
        self._written = 0
        self._flush_at = 0.0
        self._inbox: list[m.Message] = []
        """What has arrived, and the control thread has not seen yet."""
        self._lines_left = self._lines_to_flush()
        """How many lines of the task loop are run before the control thread acts, if it does not
        look into the inbox earlier."""
        self._look_at = 0.0
        """When the control thread looks into the inbox while a task runs."""
        self._hello = m.Hello(
            m.WORKER,
            m.PROTOCOL_VERSION,
            PYTHON,
            1,
            "simulated",
            supervisor.name,
            place=self._files.place,
            spare=index >= supervisor.core.config.workers,
            capabilities=supervisor.capabilities,
            task_limit=simulation.plan.task_limit,
        )
        self.tell_hub([self._hello])

    @property
    def is_idle(self) -> bool:
        """See :class:`Node`."""
        return not self.core.queue

    @property
    def portion(self) -> m.Portion | None:
        """What the task that runs here has of the machine."""
        is_running = self.is_alive() and self.hands.is_in_task
        return self.core.queue[0].message.portion if is_running else None

    def check_over(self) -> None:
        """See :class:`Node`."""
        core = self.core
        assert not core.kept.graphs, f"keeps results of nodes: {core.kept.graphs}"
        assert not core.mapped, f"maps {core.mapped}"
        assert not core.awaited, f"awaits {core.awaited}"
        assert not core.interrupt, f"is to interrupt {core.interrupt}"

    # -- the process -------------------------------------------------------------------------

    def crash(self, number: int) -> None:
        """The process is killed; its supervisor notices."""
        if self.is_alive():
            self.simulation.died.add(self._ran)
            self.stop()
            now = self.simulation.now
            self.simulation.at(now + 0.001, lambda: self._supervisor.reap(self, number))

    def stop(self) -> None:
        """See :class:`Node`; the session of its tasks is in the same process."""
        super().stop()
        limits = self.simulation.start_limits
        for task in [task for task, (_, holder) in limits.items() if holder == self.name]:
            del limits[task]
        if self.session is not None:
            # First of all: the generators of the tasks end whenever they are collected.
            self.session.stop()
        self.stack.frames.clear()

    def pause(self, until: float) -> None:
        """See :class:`Node`."""
        super().pause(until)
        if self.session is not None:
            self.session.paused_until = self.paused_until

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        now = self.simulation.now
        messages = self.exchange.receive(HUB, frames, now)
        if not self._inbox and self.core.queue:
            late = self.simulation.random.randrange(LINES_LATE_MAX)
            self._lines_left = min(self._lines_left, late)
            self._look_at = now + self.simulation.random.choice(LOOKS_LATE_S)
            self.set_timer(self._look_at)
        self._inbox += messages
        self.turn()

    def turn(self) -> None:
        core, now = self.core, self.simulation.now
        if not core.queue or now >= self._look_at:
            self._pump()
        elif self._inbox:
            # An earlier turn may have taken the place of the one that was to look.
            self.set_timer(self._look_at)
        if core.interrupt_due():
            self.stack.interrupt()
        while self.is_alive():
            self.stack.advance()
            if not self.is_alive() or self.stack.frames or not self._take_up():
                break
        if not self.is_alive():
            return
        self._share()
        if now >= self._flush_at or not core.queue:
            core.reports.flush()
            self._flush_at = now + FLUSH_S
        self.tell_hub(core.take_actions())
        for one in core.reports.take_garbage():
            self._files.remove(one)
        if core.may_leave(self.exchange.backlog(HUB)):
            self.tell_hub([m.Goodbye()])
            self.stop()
            self.simulation.at(now, lambda: self._supervisor.reap(self, None))
            return
        if core.reports.results:
            self.set_timer(self._flush_at)

    def _pump(self) -> None:
        """Send what is to be sent, and take in what has arrived."""
        core = self.core
        self.tell_hub(core.take_actions())
        while self._inbox:
            messages, self._inbox = self._inbox, []
            core.receive(messages)
            if core.is_unknown:
                self._come_back()
                if not self.is_alive():
                    return
            self.tell_hub(core.take_actions())

    def _come_back(self) -> None:
        """Tell a scheduler that does not know this worker what it holds."""
        if self.session is not None:
            # What its tasks submitted is lost, and they with it.
            self.stop()
            now = self.simulation.now
            self.simulation.at(now, lambda: self._supervisor.reap(self, None))
            return
        now, undelivered = self.simulation.now, self.exchange.undelivered(HUB)
        self.exchange = Exchange(self.simulation.random.getrandbits(31) + 1)
        hello = replace(self._hello, resume=1)
        self.tell_hub([hello, *self.core.come_back(undelivered, self._written + 1, now)])

    def _preempt(self) -> None:
        """Act as the control thread, now and then, where the main thread is between two lines."""
        self._lines_left -= 1
        if self._lines_left < 0:
            self._lines_left = self._lines_to_flush()
            self.core.reports.flush()
            self._pump()
            self._share()

    def _is_near(self) -> bool:
        """Return True if the control thread may act before the next task."""
        if self._lines_left < LINES_AT_ONCE:
            return True
        self._lines_left -= LINES_AT_ONCE
        return False

    def _lines_to_flush(self) -> int:
        return int(self.simulation.random.expovariate(FLUSHES))

    # -- tasks -------------------------------------------------------------------------------

    def may_run(self, options: m.TaskOptions) -> bool:
        """Return True if this worker has what tasks with these options demand."""
        portion = self.core.queue[0].message.portion if self.core.queue else None
        return has_inside(dict(self._supervisor.capabilities), portion, options)

    def _take_up(self) -> bool:
        """Begin with the next task, or report why it cannot run; return False if there is none."""
        hands, now = self.hands, self.simulation.now
        work = hands.take_up(now)
        if work is None or not self.is_alive():
            return False
        task = Task.of(hands.payload)
        self._ran = task.name
        inputs: list[bytes] = []
        for node in task.needs:
            sent, kept = (work.values or {}).get(node), work.kept.values.get(node)
            if type(kept) is bytes:
                inputs.append(kept)
                continue
            found = kept or sent
            if found is None:
                hands.skipped(now)
                return True
            value = self.value(found, keep=kept is None)
            if value is None:
                hands.raised(m.FAILED_MISSING, b"", {}, now)
                return True
            inputs.append(value)
        if work.message.objects:
            value = self.read(work.message.objects)
            if value is None:
                hands.raised(m.FAILED_MISSING, b"", {}, now)
                return True
            assert value == b"".join(map(object_of, task.objects)), f"{task} got {value!r}"
        self.simulation.note_start(hands.task)
        if self.core.hosts is not None:
            self.simulation.note_call(self.core.hosts.actor, self.name, hands.task)
        self._supervisor.check_portions()
        self.stack.begin(task, inputs, work.message.depth)
        return True

    def _has_come(self, work: Work) -> bool:
        """Return True once the segments of a work are here, or will never be."""
        core, message = self.core, work.message
        wanted = message.segments if isinstance(message, m.AssignNodes) else ()
        if not self._supervisor.is_home:
            wanted += work.function.objects + message.objects
        return not core.waits(work, wanted, lambda one: self._view(one) is not None)

    def value(self, found: tuple[Buffer, tuple[bytes, ...]], *, keep: bool = True) -> bytes | None:
        """Return a result that came as payload and segments, None if one of these is not here."""
        payload, segments = found
        return self.read(segments, keep=keep) if segments else bytes(payload)

    def read(self, segments: tuple[bytes, ...], *, keep: bool = True) -> bytes | None:
        """Return what is in segments, None if one is not here."""
        views = [self._view(one, keep=keep) for one in segments]
        return b"".join(view for view in views if view is not None) if all(views) else None

    def _view(self, one: bytes, *, keep: bool = True) -> memoryview | None:
        """Map a segment, and keep that for others if the scheduler knows of it."""
        view = self.core.mapped.get(one)
        if view is None and self._files.has(one):
            view = self._files.open(one)
            if keep:
                self.core.mapped[one] = view
        return view

    # -- how the task at hand ended: see :class:`SimulatedTasks` -----------------------------------

    def returned(self, task: Task, result: bytes) -> None:
        """It returned."""
        now = self.simulation.now
        work = self.hands.standing
        if isinstance(work.message, m.AssignNodes) and work.message.is_shared:
            work.kept.values[work.node] = result
            if task.segments and not work.must_send:
                self.hands.end(Kept(task.segments * LARGE_BYTES), now)
                return
        if not task.segments:
            self.hands.returned(result, now)
            return
        self.hands.stored(b"large", self._write(result, task.segments), now)

    def _write(self, result: bytes, count: int) -> tuple[bytes, ...]:
        """Write a large result to one segment or two; return their names."""
        cut = len(result) // count
        parts = [result[:cut], result[cut:]] if count > 1 else [result]
        names = []
        for part in parts:
            self._written += 1
            names.append(segment(self.name, self._written))
            self._files.write(names[-1], part)
        return tuple(names)

    def _share(self) -> None:
        """Send results that workers elsewhere need, and write out what has no room."""
        kept = self.core.kept
        while True:
            found = kept.take_to_share()
            is_excess = found is None
            if is_excess:
                if kept.is_due:
                    wanted = kept.room_wanted()
                    kept.have_room(self.simulation.random.choice((wanted, wanted // 2)))
                found = kept.take_excess()
            if found is None:
                return
            session, task, result = found
            if result is None:
                shared = m.Shared(session, task, m.FAILED_MISSING, b"", (), (), {})
            else:
                names = self._write(result, 1)
                shared = m.Shared(session, task, "", b"large", names, (LARGE_BYTES,), {})
                pickled = Pickled(b"large", names)
                if is_excess:
                    kept.written_out(session, task, pickled)
                else:
                    kept.sent(session, task, pickled, LARGE_BYTES)
            self.core.reports.shared(shared)

    def raised(self, error: bytes) -> None:
        """It raised."""
        self.hands.raised(m.FAILED_EXCEPTION, error, {}, self.simulation.now)

    def interrupted(self) -> None:
        """It was interrupted, as the scheduler wanted."""
        self.hands.stopped(self.simulation.now)
