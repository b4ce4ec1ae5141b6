"""Actors: objects that live in one worker each, which runs their calls in order and nothing else.

To make an actor is a task, which is never begun twice. The worker that gets it has nothing else to
do, and gets nothing else any more: it counts as blocked, so a spare worker takes its place. Calls
are tasks that name the actor. They go to its worker in the order in which they came, and never
anywhere else; they are never asked back, and what runs is never interrupted. The worker knows of
which actor it is the place, and says so to a scheduler that was started anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.records.actors import ActorRecord
from scaler_cluster.core.records.lifecycle import ENDS, State
from scaler_cluster.core.records.workers import Run
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.assignment import Assigner
    from scaler_cluster.core.scheduler.failures import Failures
    from scaler_cluster.core.scheduler.machines import Machines
    from scaler_cluster.core.scheduler.pools import WorkerPools
    from scaler_cluster.core.scheduler.spares import Spares
    from scaler_cluster.core.scheduler.table import Table

RETURN_S = 10.0
"""So long after its start a scheduler does not take an actor for lost that it does not know: its
worker may come back."""
OWNER_S = 30.0
"""The same for the client with which an actor ends."""


class Actors:
    """Places actors, gives them their calls, and ends them."""

    def __init__(
        self,
        table: Table,
        pools: WorkerPools,
        assigner: Assigner,
        failures: Failures,
        spares: Spares,
        machines: Machines,
        now: float,
    ) -> None:
        self._table = table
        self._pools = pools
        self._assigner = assigner
        self._failures = failures
        self._spares = spares
        self._machines = machines
        self._returns_until = now + RETURN_S
        self._owners_until = now + OWNER_S
        self._strangers: dict[str, None] = {}
        """Actors that may yet come back."""

    # -- they come -----------------------------------------------------------------------------

    def submitted(self, run: Run) -> None:
        """A run was queued that makes an actor, or calls one."""
        if run.options.creates:
            self._expect(run)
        elif run.options.actor:
            self._table.actors.changed[run.options.actor] = None

    def _expect(self, run: Run) -> None:
        table, name = self._table, run.options.creates
        actors = table.actors
        record = actors.records.get(name)
        most = m.ACTORS_MAX * max(len(table.supervisors), 1)
        if record is not None and record.creation is None:
            # It was made for another scheduler: the task will not run again.
            return
        if record is not None or actors.has_ended(name):
            self._refuse(run, "it was made before")
        elif len(actors.records) >= most:
            actors.end(name, {"message": f"there are {most} others, {m.ACTORS_MAX} a machine"})
            self._refuse(run, actors.how_ended(name)["message"])
        else:
            actors.records[name] = ActorRecord(name, self._owner_of(run), run)

    def _refuse(self, run: Run, why: str) -> None:
        detail = {"actor": run.options.creates, "message": why}
        self._failures.fail_queued(run, m.FAILED_ACTOR, detail)

    def _owner_of(self, run: Run) -> int:
        """Return the session of the program that an actor is for: tasks make some, too."""
        table = self._table
        session = table.session_by_number[run.session]
        while session.worker:
            worker = table.workers[session.worker]
            if worker.actor in table.actors.records:
                return table.actors.records[worker.actor].owner
            above = table.session_by_number.get(worker.runs[0].session) if worker.runs else None
            if above is None:
                break
            session = above
        return session.number

    def placed(self, worker: WorkerRecord, run: Run, now: float) -> None:
        """A worker was given the task that makes an actor."""
        record = self._table.actors.records[run.options.creates]
        self._settle(worker, record, now)
        self._table.send(worker.peer, m.Hosts(record.name, record.owner, worker.portion))

    def returned(self, worker: WorkerRecord, hosts: m.Hosts, now: float, *, is_whole: bool) -> None:
        """A worker came that another scheduler knew, or this one before; an actor lives there."""
        actors, portion = self._table.actors, hosts.portion
        record = actors.records.setdefault(hosts.actor, ActorRecord(hosts.actor, hosts.owner))
        record.is_whole, record.is_awaiting = is_whole, True
        if record.creation is not None and record.creation.worker is not worker:
            # It has been made.
            record.creation = None
        self._settle(worker, record, now)
        if actors.has_ended(hosts.actor):
            self._kill(record, "its actor was given up while nothing was heard of it")
            del actors.records[hosts.actor]
        elif portion is not None and worker.portion is None:
            if self._machines.can_hold(worker, portion):
                self._machines.take(worker, portion)
            else:
                self._kill(record, "others have what its actor needs of the machine")

    def _settle(self, worker: WorkerRecord, record: ActorRecord, now: float) -> None:
        worker.actor, record.worker = record.name, worker
        worker.task_limit = 0
        self._spares.set_blocked(worker, now, is_blocked=True)
        self._table.actors.changed[record.name] = None

    # -- calls ---------------------------------------------------------------------------------

    def give_out(self, now: float) -> None:
        """Give actors the calls that wait for them; let those fail whose actor is gone."""
        actors = self._table.actors
        leaving, actors.leaving = actors.leaving, []
        for worker in leaving:
            self._pools.retire(worker)
        changed, actors.changed = actors.changed, {}
        for name in changed:
            record = actors.records.get(name)
            if record is None and not actors.has_ended(name) and now < self._returns_until:
                self._strangers[name] = None
            elif record is None:
                self._fail_calls(name)
            elif record.worker is not None:
                self._give(name, record.worker, now)

    def _give(self, name: str, worker: WorkerRecord, now: float) -> None:
        demand = m.TaskOptions(workers=(name,)).demand
        for user in self._table.backlog.users.values():
            queue = user.demanding.get(demand)
            if queue is None:
                continue
            while isinstance(run := queue.peek(), Run) and worker.count < worker.tasks_max:
                part = queue.take(run, worker.tasks_max - worker.count)
                unit_s = self._table.functions[part.function].mean_s
                self._assigner.assign(worker, part, unit_s, now)
            if queue.count:
                self._table.actors.changed[name] = None
            else:
                user.drop_empty([queue])

    def _fail_calls(self, name: str) -> None:
        how = self._table.actors.how_ended(name)
        demand = m.TaskOptions(workers=(name,)).demand
        for user in self._table.backlog.users.values():
            for run in list(user.demanding.get(demand, ())):
                self._failures.fail_queued(run, m.FAILED_ACTOR, how)

    # -- they go -------------------------------------------------------------------------------

    def on_end(self, peer: bytes, message: m.EndActor, now: float) -> None:
        """A client wants an actor to end."""
        if peer not in self._table.sessions:
            raise RemoteProtocolError("only a client says this")
        record = self._table.actors.records.get(message.actor)
        if record is not None:
            self._end(record, "it was destroyed")

    def _end(self, record: ActorRecord, why: str) -> None:
        creation = record.creation
        if record.worker is not None:
            self._kill(record, why)
            return
        self._table.actors.end(record.name, {"message": why})
        if creation is not None and creation.state is State.READY:
            self._failures.fail_queued(creation, m.FAILED_ACTOR, {"message": why})

    def _kill(self, record: ActorRecord, why: str) -> None:
        worker = record.worker
        if worker is not None and not worker.killed:
            worker.killed = why
            self._table.send(worker.supervisor, m.Kill(worker.peer, why))

    def tick(self, now: float) -> None:
        """End actors whose client is gone, and those that will never be made."""
        table = self._table
        if self._strangers and now >= self._returns_until:
            table.actors.changed |= self._strangers
            self._strangers = {}
        for record in list(table.actors.records.values()):
            creation = record.creation
            if record.owner in table.session_by_number:
                record.is_awaiting = False
            elif not record.is_awaiting or now >= self._owners_until:
                self._end(record, "the client is gone that it was made for")
            if record.worker is None and (creation is None or creation.state in ENDS):
                self._end(record, "it was never made")
