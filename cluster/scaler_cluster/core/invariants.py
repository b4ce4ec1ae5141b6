"""What is true of a scheduler's state after every step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scaler_cluster.core.credit import is_hungry
from scaler_cluster.core.lifecycle import State
from scaler_cluster.core.placement import may_run
from scaler_cluster.core.totals import nodes_to_run, of_graph

if TYPE_CHECKING:
    from scaler_cluster.core.graph import GraphRecord
    from scaler_cluster.core.ready_nodes import ReadyNodes
    from scaler_cluster.core.records import SessionRecord
    from scaler_cluster.core.scheduler import SchedulerCore
    from scaler_cluster.core.tasks import Run

ON_WORKER = (State.ASSIGNED, State.REVOKING, State.CANCELLING)


def check(core: SchedulerCore) -> None:
    """Raise AssertionError if something that must be true is not; costs O(everything)."""
    table = core.table
    places: dict[int, Run] = {}
    users: Counter[bytes] = Counter()
    queued = 0
    groups: dict[ReadyNodes, int] = {}
    for queue in (table.ready, *table.demanding.values()):
        queued = 0
        for run in queue:
            queued += run.count
            _true(run.state is State.READY and run.worker is None, "queued but not ready: %s", run)
            _true(id(run) not in places, "queued twice: %s", run)
            _true(table.queue(run.options) is queue, "queued elsewhere: %s", run)
            places[id(run)] = run
        ready = queue.ready_groups()
        _true(queued + sum(ready.values()) == queue.count, "the queue counts its tasks")
        _true(groups.keys().isdisjoint(ready), "queued twice: %r", ready)
        groups |= ready
    _check_workers(core, places, users)
    for session in table.sessions.values():
        end = 0
        for first, run in session.runs.items():
            _true(first == run.first and run.count > 0, "filed elsewhere: %s", run)
            _true(first >= end, "overlaps another: %s", run)
            end = run.stop
            _true(id(run) in places, "nobody has it: %s", run)
            _count(users, run)
        users.update(one for one, is_whole in session.functions.items() if is_whole)
        users.update(session.objects.keys())
        let = min(session.asked, session.allowed)
        _true(session.used <= let or not core.asks_first(session), "was not let: %r", session)
        for graph in session.graphs.values():
            _check_graph(session, graph)
            for group in graph.groups:
                _true(group.count == groups.get(group, 0), "miscounted in the queue: %s", graph)
            users[graph.function] += 1
            users.update(graph.objects)
            for _, segments in graph.results.values():
                users.update(segments)
    _true(not table.noticed and not table.stopping, "left over: %r", table.noticed)
    for digest, function in table.functions.items():
        _true(function.users == users.pop(digest, 0), "miscounted users of function %r", digest)
        users.update(function.objects)
    nbytes: Counter[bytes] = Counter()
    objects: Counter[bytes] = Counter()
    for one, record in table.objects.records.items():
        objects.update(record.stores.keys())
        for key in record.stores:
            nbytes[key] += record.nbytes
        _true(record.users == users.pop(one, 0) != 0, "miscounted users of object %r", one)
        _true(table.objects.stores.keys() >= record.stores.keys(), "at an unknown machine: %r", one)
    for (key, segment), one in table.objects.copying.items():
        there = key in table.objects.stores and one in table.objects.records
        _true(there and table.objects.records[one].segment == segment, "copied in vain: %r", one)
        nbytes[key] += table.objects.records[one].nbytes
    for key, store in table.objects.stores.items():
        _true(store.nbytes == nbytes[key], "miscounted bytes of machine %r", key)
        _true(store.objects == objects[key], "miscounted objects of machine %r", key)
        records = map(table.objects.records.get, store.copies)
        there = all(record is not None and key in record.stores for record in records)
        _true(there, "remembers copies that it has not: %r", key)
    for peer, key in table.objects.storages.items():
        _true(table.objects.stores[key].peer == peer, "a storage of nobody: %r", peer)
    _true(not users, "functions or objects in use were dropped: %r", users)
    total = sum(record.nbytes for record in table.objects.records.values())
    _true(total == table.objects.nbytes, "miscounted bytes of all objects")
    _check_totals(core)


def _check_totals(core: SchedulerCore) -> None:
    """Each task that was submitted has not ended, or is counted as what became of it, once."""
    table = core.table
    functions: Counter[int] = Counter()
    users: Counter[int] = Counter()
    for session in table.sessions.values():
        count = 0
        for run in session.runs.values():
            if run.graph is None and run.state is not State.CANCELLING:
                count += run.count
                functions[id(table.functions[run.function].totals)] += run.count
        for graph in session.graphs.values():
            nodes = nodes_to_run(graph)
            _true(of_graph(graph).submitted == nodes, "miscounts its nodes: %s", graph)
            count += nodes
            functions[id(table.functions[graph.function].totals)] += nodes
        _true(session.totals.pending == count, "miscounted tasks of a client: %r", session.totals)
    users.update(id(function.totals) for function in table.functions.values())
    for _, totals in table.names:
        _true(totals.pending == functions.pop(id(totals), 0), "miscounted tasks: %r", totals)
        _true(totals.users == users.pop(id(totals), 0), "miscounted functions: %r", totals)
    _true(not any(functions.values()), "tasks that count nowhere: %r", functions)


def _check_workers(core: SchedulerCore, places: dict[int, Run], users: Counter[bytes]) -> None:
    table, dispatch = core.table, core._dispatch
    held = 0
    for peer, worker in table.workers.items():
        count = 0
        for run in worker.runs:
            count += run.count
            _true(run.worker is worker and run.state in ON_WORKER, "not on its worker: %s", run)
            _true(id(run) not in places, "at two places: %s", run)
            places[id(run)] = run
            able = may_run(worker, run.options)
            _true(able, "on a worker that has not what it demands: %s", run)
            if run.session not in table.session_by_number:
                _count(users, run)
                _true(run.state is State.CANCELLING, "of a session that left: %s", run)
        held += count
        _true(count == worker.count, "a worker's count is its runs': %r", peer)
        _true(worker.revoking >= 0, "answered more than it was asked: %r", peer)
        _true(table.supervisors[worker.supervisor].workers.get(peer) is worker, "astray: %r", peer)
        nested = table.sessions.get(worker.session)
        is_its = nested is None if not worker.session else nested and nested.worker == peer
        _true(bool(is_its), "a session of another worker: %r", worker)
        _true(bool(worker.session) or not worker.blocked, "blocked without a word: %r", worker)
        is_listed = peer in table.supervisors[worker.supervisor].spares
        _true(is_listed is worker.spare, "a spare worker that is none: %r", worker)
        _true(dispatch.offers_work_to(worker) == is_hungry(worker), "overlooked: %r", worker)
    _true(held == table.in_flight, "the table counts what workers have")


def _check_graph(session: SessionRecord, graph: GraphRecord) -> None:
    places = bytearray(len(graph.states))
    for run in session.runs.values():
        if run.graph is graph and run.state is not State.CANCELLING:
            start = run.first - graph.first
            places[start : start + run.count] = b"\1" * run.count
    for node in graph.lent:
        _true(not places[node], "lent, and on a worker: %s", graph)
        places[node] = graph.is_live(node)
    uses = list(graph.wanted)
    for node, state in enumerate(graph.states):
        lack = [one for one in graph.dependencies(node) if graph.states[one] != State.DONE]
        is_live = graph.is_live(node)
        if is_live:
            for one in graph.dependencies(node):
                uses[one] += 1
            _true(len(lack) == graph.missing[node], "miscounts what it waits for: %s", graph)
            is_ready = not lack and not places[node] and node >= graph.inputs
            _true((state == State.READY) == is_ready, "ready or not: %s", graph)
        _true(places[node] == (state == State.ASSIGNED), "a node astray: %s", graph)
    _true(graph.live == sum(map(graph.is_live, range(len(uses)))), "miscounts the live: %s", graph)
    _true(graph.count == graph.states.count(State.READY), "miscounts the ready: %s", graph)
    open_count = graph.count + graph.states.count(State.WAITING)
    _true(graph.open == open_count, "miscounts the open: %s", graph)
    for node, state in enumerate(graph.states):
        if graph.is_whole and (graph.is_live(node) or state == State.DONE):
            _true(uses[node] == graph.uses[node], "miscounts who needs a node: %s", graph)
            _true(uses[node] > 0 or not graph.is_live(node), "runs in vain: %s", graph)
        is_kept = state == State.DONE and graph.uses[node] > 0
        _true((node in graph.results) == is_kept, "keeps the wrong results: %s", graph)
    _true(not graph.is_over, "a graph that is over: %s", graph)
    _true(not (graph.ended or graph.stopped or graph.dropped), "left over: %s", graph)


def _count(users: Counter[bytes], run: Run) -> None:
    users[run.function] += 1
    users.update(run.objects)


def _true(condition: bool, what: str, about: object = None) -> None:
    # The text is made only when it is needed: it would take longer than all the checks.
    if not condition:
        raise AssertionError(what % about if about is not None else what)
