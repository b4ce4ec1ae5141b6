"""The machines of a simulated cluster: supervisors and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.placement import has_all
from scaler_cluster.core.supervisor import Exit, SupervisorConfig, SupervisorCore
from scaler_cluster.core.worker import FLUSH_S, Work, WorkerCore
from scaler_cluster.links.link import HUB
from scaler_cluster.testing.bench import PYTHON, segment
from scaler_cluster.testing.clients import object_of
from scaler_cluster.testing.nodes import Node
from scaler_cluster.testing.simulated_tasks import SimulatedTasks
from scaler_cluster.testing.storages import MemoryFiles, StorageNode
from scaler_cluster.testing.tasks import Task
from scaler_cluster.testing.worker_driver import WorkerDriver
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.testing.nested import NestedNode
    from scaler_cluster.testing.simulation import Simulation
    from scaler_cluster.wire.batch import Buffer
    from scaler_cluster.wire.messages import Capabilities

LOOK_FOR_S = 0.01
"""How often a worker looks whether a segment has come."""


class SupervisorNode(Node):
    """A machine: a supervisor, its workers, and the storage of one that has files of its own."""

    def __init__(
        self, simulation: Simulation, number: int, workers: int, files: MemoryFiles
    ) -> None:
        name = simulation.name("S")
        super().__init__(simulation, name)
        self.number = number
        """The machine that comes when this one is gone is in the same place."""
        self.capabilities: Capabilities = (("even", -1),) if number % 2 == 0 else ()
        self.core = SupervisorCore(SupervisorConfig(workers), name, "simulated", simulation.now)
        self.files = files
        self._is_settled = False
        self._storage: StorageNode | None = None
        self._workers: dict[int, WorkerNode] = {}
        self.tell_hub(
            [m.Hello(m.SUPERVISOR, m.PROTOCOL_VERSION, PYTHON, 1, "simulated", workers=workers)]
        )
        if files is simulation.home:
            self._settle()
        self.turn()

    @property
    def is_home(self) -> bool:
        """Return True on the scheduler's machine."""
        return self.files is self.simulation.home

    def _settle(self) -> None:
        self._is_settled = True
        self.core.start(self.simulation.now)

    def _start_storage(self) -> None:
        if self.is_alive():
            self._storage = StorageNode(
                self.simulation, self.files, self.name, lambda _: self._start_storage()
            )

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        messages = self.exchange.receive(HUB, frames, self.simulation.now)
        self.core.receive(messages)
        if not self._is_settled and any(type(message) is m.Welcome for message in messages):
            self._start_storage()
            self._settle()
        self.turn()

    def turn(self) -> None:
        simulation, core = self.simulation, self.core
        if core.leave is not None:
            self.crash(15)
            return
        core.tick(simulation.now)
        for index, peer in core.to_spawn:
            self._workers[index] = WorkerNode(simulation, peer, self, index)
            core.spawned(index, index + 100)
        core.to_spawn.clear()
        kills, core.to_kill[:] = list(core.to_kill), []
        for index in kills:
            if index in self._workers:
                self._workers[index].crash(9)
        self.tell_hub(core.take_actions())
        self.set_timer(core.deadline)

    def reap(self, worker: WorkerNode, number: int | None) -> None:
        """A worker of this machine ended."""
        if not self.is_alive() or self._workers.get(worker.index) is not worker:
            return
        del self._workers[worker.index]
        session, task = worker.hands.slot
        code = None if number is not None else 0
        end = Exit(worker.index + 100, code, number, 0, "", True, False, session, task)
        self.core.died(worker.index, end, self.simulation.now)
        self.turn()

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
        self, simulation: Simulation, name: bytes, supervisor: SupervisorNode, index: int
    ) -> None:
        super().__init__(simulation, name)
        self.core = WorkerCore()
        self.hands = WorkerDriver(self.core)
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
        self.tell_hub(
            [
                m.Hello(
                    m.WORKER,
                    m.PROTOCOL_VERSION,
                    PYTHON,
                    1,
                    "simulated",
                    supervisor.name,
                    place=self._files.place,
                    spare=index >= supervisor.core.config.workers,
                    capabilities=supervisor.capabilities,
                )
            ]
        )

    @property
    def is_idle(self) -> bool:
        """See :class:`Node`."""
        return not self.core.queue

    def check_over(self) -> None:
        """See :class:`Node`."""
        core = self.core
        assert not core._graphs, f"keeps results of nodes: {core._graphs}"
        assert not core.mapped, f"maps {core.mapped}"
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
        self.stack.frames.clear()
        if self.session is not None:
            self.session.stop()

    def pause(self, until: float) -> None:
        """See :class:`Node`."""
        super().pause(until)
        if self.session is not None:
            self.session.paused_until = until

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.core.receive(self.exchange.receive(HUB, frames, self.simulation.now))
        self.turn()

    def turn(self) -> None:
        core, now = self.core, self.simulation.now
        if core.interrupt_due():
            self.stack.interrupt()
        while self.is_alive():
            self.stack.advance()
            if not self.is_alive() or self.stack.frames or not self._take_up():
                break
        if not self.is_alive():
            return
        if now >= self._flush_at or not core.queue:
            core.flush()
            self._flush_at = now + FLUSH_S
        self.tell_hub(core.take_actions())
        if core.leave is not None and not core.queue:
            self.tell_hub([m.Goodbye()])
            self.stop()
            self.simulation.at(now, lambda: self._supervisor.reap(self, None))
            return
        if core.results:
            self.set_timer(self._flush_at)

    # -- tasks -------------------------------------------------------------------------------

    def may_run(self, options: m.TaskOptions) -> bool:
        """Return True if this worker has what tasks with these options demand."""
        return has_all(dict(self._supervisor.capabilities), options.capabilities)

    def _take_up(self) -> bool:
        """Begin with the next task, or report why it cannot run; return False if there is none."""
        core, hands, now = self.core, self.hands, self.simulation.now
        work = hands.take_up(now, self._has_come)
        if work is None:
            return False
        task = Task.of(hands.payload)
        self._ran = task.name
        if work.message.report_start:
            core.started(work)
        inputs: list[bytes] = []
        for node in task.needs:
            sent, made = (work.values or {}).get(node), work.results.get(node)
            found = sent or made
            if found is None:
                hands.skipped(now)
                return True
            value = self.value(found, keep=bool(sent))
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
        self.stack.begin(task, inputs, work.message.depth)
        return True

    def _has_come(self, work: Work) -> bool:
        """Return True once the segments of a work are here, or will never be."""
        core, message = self.core, work.message
        if not work.stop or core.leave is not None:
            return True
        wanted = message.segments if isinstance(message, m.AssignNodes) else ()
        if not self._supervisor.is_home:
            wanted += work.function.objects + message.objects
        if all(one in core.missing or self._view(one) is not None for one in wanted):
            return True
        self.set_timer(self.simulation.now + LOOK_FOR_S)
        return False

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
        if not task.segments:
            self.hands.returned(result, now)
            return
        cut = len(result) // task.segments
        parts = [result[:cut], result[cut:]] if task.segments > 1 else [result]
        names = []
        for part in parts:
            self._written += 1
            names.append(segment(self.name, self._written))
            self._files.write(names[-1], part)
        self.hands.stored(b"large", tuple(names), now)

    def raised(self, error: bytes) -> None:
        """It raised."""
        self.hands.raised(m.FAILED_EXCEPTION, error, {}, self.simulation.now)

    def interrupted(self) -> None:
        """It was interrupted, as the scheduler wanted."""
        self.hands.stopped(self.simulation.now)
