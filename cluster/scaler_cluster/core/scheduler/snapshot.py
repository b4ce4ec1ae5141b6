"""A snapshot: all that a scheduler knows, as watchers are told it."""

from __future__ import annotations

import math
from collections import Counter
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from scaler_cluster.core.records import totals as t
from scaler_cluster.core.records.placement import describe
from scaler_cluster.core.scheduler.graph_rows import add_graphs
from scaler_cluster.core.scheduler.naming import name_of
from scaler_cluster.ids import alias_of
from scaler_cluster.wire import feed

if TYPE_CHECKING:
    from scaler_cluster.core.records.managers import ManagerRecord
    from scaler_cluster.core.records.objects import ObjectRecord
    from scaler_cluster.core.records.supervisors import SupervisorRecord
    from scaler_cluster.core.records.workers import WorkerRecord
    from scaler_cluster.core.scheduler.graph_rows import GraphLooks
    from scaler_cluster.core.scheduler.objects import ObjectTable
    from scaler_cluster.core.scheduler.session import SessionRecord
    from scaler_cluster.core.scheduler.table import Table

ROWS_MAX = 20_000
"""Rows of each table; the row of a worker takes 4 µs to make and to send."""
OWNERS_MAX = 500
"""Clients and functions of which it is told how much of what is stored they made: those with most.
"""
TRANSFERS_MAX = 500
"""Pairs of machines of which it is told what was copied between them: those with most."""
OBJECTS_MAX = 20_000
"""Objects among which the largest are found, those that came first: it takes 4 ms."""


def take_snapshot(table: Table, looks: GraphLooks, objects: int, now: float) -> feed.Snapshot:
    """Return what the table holds, with so many of the largest objects."""
    snapshot = feed.Snapshot(clock=now)
    snapshot.sent = {kind.__name__: count for kind, count in table.outbox.sent.items()}
    snapshot.received = {kind.__name__: count for kind, count in table.received.items()}
    snapshot.worker_deaths = table.deaths
    functions = {id(one): (name, one.copy()) for name, one in table.names}
    clients = {number: one.totals.copy() for number, one in table.session_by_number.items()}
    ended = t.Totals()
    for _, one in functions.values():
        ended.add(one)
    handed_over = add_graphs(snapshot, table, looks, functions, clients, ended)
    snapshot.functions = [
        feed.Function(
            name, one.submitted, one.done, one.failed, one.cancelled, one.recalled, one.retried,
            one.moved, one.busy_s, one.mean_s, one.inlined, one.inlined_s,
        )
        for name, one in functions.values()
        if one.submitted
    ]  # fmt: skip
    sessions = islice(table.sessions.values(), ROWS_MAX)
    snapshot.clients = [_client(one, clients[one.number], now) for one in sessions]
    machines = islice(table.supervisors.values(), ROWS_MAX)
    snapshot.machines = [_machine(one, now) for one in machines]
    workers = islice(table.workers.values(), ROWS_MAX)
    snapshot.workers = [_worker(table, one, now) for one in workers]
    snapshot.objects, snapshot.objects_bytes = (
        len(table.objects.records),
        table.objects.owners.nbytes,
    )
    snapshot.stores = _stores(table.objects)
    snapshot.transfers = _transfers(table.objects)
    snapshot.largest = _largest(table.objects, objects)
    snapshot.owners = _owners(table.objects)
    demands = _demands(table, now)
    snapshot.demands = demands[:ROWS_MAX]
    snapshot.managers = _managers(table)
    snapshot.refused = table.refused
    snapshot.errors = table.errors
    there = {
        "clients": len(table.sessions),
        "machines": len(table.supervisors),
        "workers": len(table.workers),
        "demands": len(demands),
        "owners": len(table.objects.owners.rows),
        "transfers": len(table.objects.transfers.rows),
        "graphs": sum(len(one.graphs) for one in table.sessions.values()),
    }
    for name, count in there.items():
        if count > len(getattr(snapshot, name)):
            snapshot.left_out[name] = count - len(getattr(snapshot, name))
    snapshot.tasks = _tasks(snapshot, table, ended, handed_over)
    return snapshot


def _demands(table: Table, now: float) -> list[feed.Demand]:
    """Return what waits by what it demands, and what waits for any worker if there is none."""
    rows: dict[object, feed.Demand] = {}
    for queue in table.backlog.queues():
        unmet_s = None if queue.unmet_since == math.inf else now - queue.unmet_since
        if queue.is_for_any and unmet_s is None:
            continue
        # Users who demand the same have a queue each.
        demand = queue.options.demand
        row = rows.setdefault(demand, feed.Demand(describe(queue.options), 0, unmet_s))
        row.tasks += queue.count
    return list(rows.values())


def _tasks(snapshot: feed.Snapshot, table: Table, total: t.Totals, handed_over: int) -> feed.Tasks:
    busy = sum(worker.count > 0 for worker in table.workers.values())
    ready = table.backlog.count
    waiting = sum(graph.waiting for graph in snapshot.graphs)
    if "graphs" in snapshot.left_out:
        waiting = max(waiting, total.pending - ready - table.in_flight)
    return feed.Tasks(
        waiting, ready, table.in_flight - busy, busy + handed_over, total.submitted, total.done,
        total.failed, total.cancelled, total.recalled, total.retried, total.moved,
        total.inlined,
    )  # fmt: skip


def _client(session: SessionRecord, totals: t.Totals, now: float) -> feed.Client:
    return feed.Client(
        session.number, session.host, session.pid, alias_of(session.worker), totals.submitted,
        totals.done, totals.failed, totals.cancelled, totals.recalled, len(session.graphs),
        len(session.functions), len(session.objects), now - session.last_seen,
    )  # fmt: skip


def _machine(supervisor: SupervisorRecord, now: float) -> feed.Machine:
    row = feed.Machine(
        alias_of(supervisor.peer), supervisor.host, supervisor.workers_wanted,
        len(supervisor.workers), len(supervisor.spares), now - supervisor.last_seen,
    )  # fmt: skip
    vitals = supervisor.vitals
    if vitals is not None:
        row.lag_s = supervisor.lag_s
        row.cpus, row.cpu = vitals.cpus, vitals.cpu_milli / 1000
        if vitals.memory_bytes:
            row.memory_bytes, row.free_bytes = vitals.memory_bytes, vitals.free_bytes
        row.agent_cpu = vitals.agent_cpu_milli / 1000
        row.agent_rss_bytes = vitals.agent_rss_bytes
        row.restarts = vitals.restarts
    return row


def _managers(table: Table) -> list[feed.Manager]:
    managers = islice(table.managers.values(), ROWS_MAX)
    offering = [one for one in managers if one.offer is not None]
    if not offering:
        return []
    supervisors = table.supervisors.values()
    staying = (one for one in supervisors if one.workers and not one.is_draining)
    running = Counter(manager for manager, _ in {(one.manager, one.unit) for one in staying})
    return [_manager(one, 0 if one.is_own else running[one.name]) for one in offering]


def _manager(manager: ManagerRecord, running: int) -> feed.Manager:
    offer, units = manager.offer, manager.units
    assert offer is not None
    return feed.Manager(
        manager.name, manager.host, offer.kind, manager.wanted, manager.here, offer.least,
        offer.most, running, units.coming, units.ending, units.failed, units.reason, units.unit_s,
        manager.idle_s,
    )  # fmt: skip


def _worker(table: Table, worker: WorkerRecord, now: float) -> feed.Worker:
    count = worker.count
    row = feed.Worker(
        alias_of(worker.peer), alias_of(worker.supervisor), worker.host, worker.name, worker.pid,
        worker.pool.offered, count, 0, worker.given, worker.backlog_s,
    )  # fmt: skip
    if worker.runs:
        run = worker.runs[0]
        row.session, row.task = run.session, run.first
        row.function = name_of(table.functions, run)
        row.age_s = now - worker.progress_at
    row.is_spare, row.is_blocked, row.is_stalled = worker.spare, worker.blocked, worker.stalled
    row.is_leaving, row.is_paused = worker.retiring or bool(worker.killed), worker.paused
    is_closed = row.is_blocked or row.is_stalled or row.is_leaving or row.is_paused
    if not is_closed and worker.asleep_at == math.inf:
        row.free = max(worker.tasks_max - count, 0)
        if worker.task_limit:
            row.free = min(row.free, worker.task_limit - worker.given)
    if worker.vitals is not None:
        row.cpu, row.rss_bytes = worker.vitals
    machine = table.supervisors[worker.supervisor].vitals
    if machine is not None and machine.memory_limit_bytes:
        row.memory_limit_bytes = machine.memory_limit_bytes
    row.up_s, row.busy_s = now - worker.joined_at, worker.busy_s
    return row


def _stores(objects: ObjectTable) -> list[feed.Store]:
    return [
        feed.Store(
            alias_of(key), store.place.address.partition("#")[0], store.objects, store.nbytes,
            store.place.memory_limit, len(store.copies), store.peer is not None,
        )
        for key, store in objects.stores.items()
    ]  # fmt: skip


def _transfers(objects: ObjectTable) -> list[feed.Transfer]:
    rows = nlargest(TRANSFERS_MAX, objects.transfers.rows.items(), key=lambda item: item[1].nbytes)
    return [
        feed.Transfer(alias_of(source), alias_of(target), one.copies, one.nbytes, one.failed)
        for (source, target), one in rows
    ]


def _owners(objects: ObjectTable) -> list[feed.Owner]:
    rows = nlargest(OWNERS_MAX, objects.owners.rows.values(), key=lambda one: one.nbytes)
    return [feed.Owner(one.session, one.function, one.objects, one.nbytes) for one in rows]


def _largest(objects: ObjectTable, count: int) -> list[feed.LargeObject]:
    records = islice(objects.records.items(), OBJECTS_MAX)
    largest = nlargest(count, records, key=lambda item: item[1].nbytes)
    return [_object(one, record) for one, record in largest]


def _object(one: bytes, record: ObjectRecord) -> feed.LargeObject:
    return feed.LargeObject(
        alias_of(one), record.nbytes, record.users, len(record.workers), len(record.stores),
        record.owner.session, record.owner.function,
    )  # fmt: skip
