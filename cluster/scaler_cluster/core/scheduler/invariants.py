"""What is true of a scheduler's state after every step."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from scaler_cluster.core.graph.graph import NodeRun
from scaler_cluster.core.graph.layers import STATES
from scaler_cluster.core.records.credit import is_hungry
from scaler_cluster.core.records.lifecycle import State
from scaler_cluster.core.records.placement import may_run
from scaler_cluster.core.scheduler.machines import cores_needed
from scaler_cluster.core.scheduler.places import LEASED, STAKE_BYTES, cost_of

if TYPE_CHECKING:
    from collections.abc import Container

    from scaler_cluster.core.graph.graph import GraphRecord
    from scaler_cluster.core.graph.ready_nodes import ReadyNodes
    from scaler_cluster.core.records.workers import Run
    from scaler_cluster.core.scheduler.coordination import Coordination
    from scaler_cluster.core.scheduler.objects import ObjectTable
    from scaler_cluster.core.scheduler.scheduler import SchedulerCore
    from scaler_cluster.core.scheduler.session import SessionRecord

ON_WORKER = (State.ASSIGNED, State.REVOKING, State.CANCELLING)


def check(core: SchedulerCore) -> None:
    """Raise AssertionError if something that must be true is not; costs O(everything)."""
    table = core.table
    places: dict[int, Run] = {}
    users: Counter[bytes] = Counter()
    queued = 0
    groups: dict[ReadyNodes, int] = {}
    for queue in table.backlog.queues():
        queued = 0
        for run in queue:
            queued += run.count
            _true(run.state is State.READY and run.worker is None, "queued but not ready: %s", run)
            _true(id(run) not in places, "queued twice: %s", run)
            _true(table.backlog.queue(run) is queue, "queued elsewhere: %s", run)
            places[id(run)] = run
        ready = queue.ready_groups()
        _true(queued + sum(ready.values()) == queue.count, "the queue counts its tasks")
        _true(groups.keys().isdisjoint(ready), "queued twice: %r", ready)
        groups |= ready
    for user in table.backlog.users.values():
        for queue in user.demanding.values():
            is_asleep = user.is_asleep(queue.options, core._pools)
            is_runnable = core._pools.is_runnable(queue.options)
            _true(not (queue.count and is_asleep and is_runnable), "overlooked: %r", queue.options)
            _true(core._machines.is_right(queue), "machines overlooked: %r", queue.options)
    for run in table.backlog.resting:
        is_right = run.state is State.READY and run.worker is None and run.count == 1
        _true(is_right and id(run) not in places, "rests, and does not wait: %s", run)
        places[id(run)] = run
    _check_workers(core, places, users)
    check_coordination(core._coordinating.coordination, table.session_by_number)
    _check_machines(core)
    _check_actors(core)
    for session in table.sessions.values():
        end = 0
        for first, run in sorted(session.runs.items()):
            _true(first == run.first and run.count > 0, "filed elsewhere: %s", run)
            _true(first >= end, "overlaps another: %s", run)
            end = run.stop
            _true(id(run) in places, "nobody has it: %s", run)
            _count(users, run)
        users.update(one for one, is_whole in session.functions.items() if is_whole)
        users.update(session.objects.keys())
        let = min(session.asked, session.allowed)
        may_send = session.used <= let or not core._clients.asks_first(session)
        _true(may_send, "was not let: %r", session)
        for graph in session.graphs.values():
            _check_graph(session, graph)
            for group in graph.nodes.groups:
                _true(group.count == groups.get(group, 0), "miscounted in the queue: %s", graph)
            users[graph.function] += 1
            users.update(graph.objects)
            for _, segments in graph.nodes.results.values():
                users.update(segments)
    noticed, stopping = table.answers.noticed, core._graphs.stopping
    _true(not noticed and not stopping, "left over: %r", noticed)
    for digest, function in table.functions.items():
        _true(function.users == users.pop(digest, 0), "miscounted users of function %r", digest)
        users.update(function.objects)
    _check_objects(core.table.objects, users)
    _true(not users, "functions or objects in use were dropped: %r", users)
    _check_totals(core)


def _check_objects(table: ObjectTable, users: Counter[bytes]) -> None:
    """Check the objects, and take their users out of ``users``."""
    nbytes: Counter[bytes] = Counter()
    objects: Counter[bytes] = Counter()
    for one, record in table.records.items():
        objects.update(record.stores.keys())
        for key in record.stores:
            nbytes[key] += record.nbytes
        _true(record.users == users.pop(one, 0) != 0, "miscounted users of object %r", one)
        _true(table.stores.keys() >= record.stores.keys(), "at an unknown machine: %r", one)
    for (key, segment), copy in table.copying.items():
        one = copy.object
        there = key in table.stores and one in table.records
        _true(there and table.records[one].segment == segment, "copied in vain: %r", one)
        nbytes[key] += table.records[one].nbytes
    for key, store in table.stores.items():
        _true(store.nbytes == nbytes[key], "miscounted bytes of machine %r", key)
        _true(store.objects == objects[key], "miscounted objects of machine %r", key)
        records = map(table.records.get, store.copies)
        there = all(record is not None and key in record.stores for record in records)
        _true(there, "remembers copies that it has not: %r", key)
    for peer, key in table.storages.items():
        _true(table.stores[key].peer == peer, "a storage of nobody: %r", peer)
    total = sum(record.nbytes for record in table.records.values())
    _true(total == table.owners.nbytes, "miscounted bytes of all objects")
    owned: Counter[tuple[int, str]] = Counter()
    for record in table.records.values():
        owned[record.owner.session, record.owner.function] += record.nbytes
    rows = {key: row.nbytes for key, row in table.owners.rows.items()}
    _true(rows == dict(owned), "miscounted bytes of owners: %r", rows)


def _check_totals(core: SchedulerCore) -> None:
    """Each task that was submitted has not ended, or is counted as what became of it, once."""
    table = core.table
    functions: Counter[int] = Counter()
    users: Counter[int] = Counter()
    for session in table.sessions.values():
        count = 0
        for run in session.runs.values():
            if not isinstance(run, NodeRun) and run.state is not State.CANCELLING:
                count += run.count
                functions[id(table.functions[run.function].totals)] += run.count
        for graph in session.graphs.values():
            nodes = graph.nodes_to_run
            _true(graph.totals().submitted == nodes, "miscounts its nodes: %s", graph)
            count += nodes
            for layer in graph.layers.records:
                functions[id(layer.totals)] += layer.nodes
                users[id(layer.totals)] += 1
        back = sum(count for _, count in session.recalled.values())
        _true(session.totals.recalled == back, "miscounted recalled tasks: %r", session.totals)
        _true(session.totals.pending == count, "miscounted tasks of a client: %r", session.totals)
    users.update(id(function.totals) for function in table.functions.values())
    for _, totals in table.names:
        _true(totals.pending == functions.pop(id(totals), 0), "miscounted tasks: %r", totals)
        _true(totals.users == users.pop(id(totals), 0), "miscounted functions: %r", totals)
    _true(not any(functions.values()), "tasks that count nowhere: %r", functions)


def _check_workers(core: SchedulerCore, places: dict[int, Run], users: Counter[bytes]) -> None:
    table = core.table
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
        may_block = bool(worker.session or worker.actor)
        _true(may_block or not worker.blocked, "blocked without a word: %r", worker)
        is_listed = peer in table.supervisors[worker.supervisor].spares
        _true(is_listed is worker.spare, "a spare worker that is none: %r", worker)
        _true(core._pools.offers_work_to(worker) == is_hungry(worker), "overlooked: %r", worker)
    _true(held == table.in_flight, "the table counts what workers have")


def _check_machines(core: SchedulerCore) -> None:
    """No machine has more in use than it has, and what is in use is what its tasks have."""
    for supervisor in core.table.supervisors.values():
        workers = supervisor.workers
        portions = []
        for worker in workers.values():
            own = [run.portion for run in worker.runs if run.portion is not None]
            _true(own == [worker.portion] * len(own), "a portion of no task: %r", worker)
            held = [] if worker.portion is None else [worker.portion]
            _true(bool(worker.actor) or len(own) == len(held), "a portion astray: %r", worker)
            portions += held
            _true(not worker.parked or not core._pools.offers_work_to(worker), "%r", worker)
        _true(supervisor.amounts.is_right(portions), "more in use than there is: %r", portions)
        blocked = {peer for peer, one in workers.items() if one.blocked}
        _true(supervisor.blocked.keys() == blocked, "miscounted: %r", supervisor.blocked)
        wide = {
            peer
            for peer, one in workers.items()
            if one.portion is not None and (one.portion.is_whole or one.portion.cores > 1)
        }
        _true(supervisor.wide.keys() == wide, "miscounted: %r", supervisor.wide)
        needed, parked = cores_needed(supervisor), supervisor.parked
        _true(len(parked) <= needed, "parked for nobody: %r", parked)
        is_short = supervisor.peer in core._machines._short
        is_right = len(parked) == needed or needed == math.inf or is_short
        _true(is_right, "too few are parked: %r", supervisor)
        for peer, worker in parked.items():
            _true(workers.get(peer) is worker and worker.parked, "not parked: %r", worker)
            _true(is_short or not worker.count, "runs, and is parked: %r", worker)


def _check_actors(core: SchedulerCore) -> None:
    """Each actor is in one worker, which has nothing but what makes it, and calls of it."""
    table = core.table
    for name, record in table.actors.records.items():
        worker = record.worker
        is_there = worker is None or table.workers.get(worker.peer) is worker
        _true(is_there, "an actor in a worker that is gone: %r", name)
        _true(worker is None or worker.actor == name, "an actor in another's worker: %r", name)
    for worker in table.workers.values():
        for run in worker.runs:
            ours = run.options.actor or run.options.creates
            is_right = ours == worker.actor or run.state is State.CANCELLING
            _true(is_right, "not where its actor lives: %s", run)
        _true(not worker.actor or worker.blocked, "may be given other tasks: %r", worker)


def _check_graph(session: SessionRecord, graph: GraphRecord) -> None:
    nodes, topology = graph.nodes, graph.topology
    places = bytearray(len(nodes.states))
    for run in session.runs.values():
        if isinstance(run, NodeRun) and run.graph is graph and run.state is not State.CANCELLING:
            start = run.first - graph.first
            places[start : start + run.count] = b"\1" * run.count
    for node in graph.handed_over:
        _true(not places[node], "handed over, and on a worker: %s", graph)
        places[node] = nodes.is_live(node) and node not in nodes.stopping
    uses = list(nodes.wanted)
    for node, state in enumerate(nodes.states):
        lack = [one for one in topology.dependencies(node) if nodes.states[one] != State.DONE]
        is_live = nodes.is_live(node)
        if is_live:
            for one in topology.dependencies(node):
                uses[one] += 1
            shared = sum(
                nodes.sharing[one].count(node)
                for one in topology.dependencies(node)
                if one in nodes.sharing
            )
            shared += node in nodes.stopping
            is_right = len(lack) + shared == nodes.missing[node]
            _true(is_right, "miscounts what it waits for: %s", graph)
            is_ready = not (lack or shared or places[node]) and node >= topology.inputs
            _true((state == State.READY) == is_ready, "ready or not: %s", graph)
        _true(places[node] == (state == State.ASSIGNED), "a node astray: %s", graph)
    _true(nodes.live == sum(map(nodes.is_live, range(len(uses)))), "miscounts the live: %s", graph)
    _true(nodes.ready == nodes.states.count(State.READY), "miscounts the ready: %s", graph)
    open_count = nodes.ready + nodes.states.count(State.WAITING)
    _true(nodes.open == open_count, "miscounts the open: %s", graph)
    for node, state in enumerate(nodes.states):
        if topology.is_whole and (nodes.is_live(node) or state == State.DONE):
            _true(uses[node] == nodes.uses[node], "miscounts who needs a node: %s", graph)
            _true(uses[node] > 0 or not nodes.is_live(node), "runs in vain: %s", graph)
        is_needed = nodes.uses[node] > 0 or node < topology.inputs
        is_there = node in nodes.results or node in nodes.kept
        _true(is_there == (state == State.DONE and is_needed), "keeps the wrong: %s", graph)
    _true(nodes.results.keys().isdisjoint(nodes.kept), "kept and sent: %s", graph)
    _true(nodes.sharing.keys() <= nodes.kept.keys(), "shares what is not kept: %s", graph)
    _true(not nodes.unplaced, "nodes without a place: %s", graph)
    for group in nodes.groups:
        for node, peer in group.homes.items():
            _true(nodes.states[node] == State.READY, "bound, and not ready: %s", graph)
            _true(node in group.bound_to(peer), "bound to a worker that has it not: %s", graph)
    _check_layers(graph)
    _true(not graph.is_over, "a graph that is over: %s", graph)
    _true(not (nodes.ended or nodes.stopped or nodes.dropped), "left over: %s", graph)


def _check_layers(graph: GraphRecord) -> None:
    """What is counted by name is together what is counted of the graph."""
    layers, states, inputs = graph.layers, graph.nodes.states, graph.topology.inputs
    _true(layers.count == len(states), "nodes without a name: %s", graph)
    counts = layers.counts(states, inputs)
    for layer, found in zip(layers.records, counts, strict=True):
        _true(layer.nodes == sum(found.values()), "miscounts a name: %s", graph)
    for state in STATES:
        total = sum(found.get(state, 0) for found in counts)
        _true(total == states.count(state, inputs), "miscounts its names: %s", graph)


def _count(users: Counter[bytes], run: Run) -> None:
    users[run.function] += 1
    users.update(run.objects)


def _true(condition: bool, what: str, about: object = None) -> None:
    # The text is made only when it is needed: it would take longer than all the checks.
    if not condition:
        raise AssertionError(what % about if about is not None else what)


def check_coordination(coordination: Coordination, sessions: Container[int]) -> None:
    """Nobody has more than there is, or waits for what is there; ``sessions`` are those known."""
    stakes, waiting = coordination.stakes, coordination.waiting
    known = (*waiting, *stakes.by_session, *stakes.taken)
    _true(all(one in sessions for one in known), "sessions that are gone wait or hold")
    nbytes: Counter[str] = Counter()
    for place in coordination.places:
        nbytes[place.user] += STAKE_BYTES
        is_full = bool(place.most) and len(place.stakes) > place.most
        _true(not (is_full and place.kind in LEASED), "more hold it than may: %r", place)
        _true(not (place.puts and place.has_room), "there is room: %r", place)
        for request in [*place.waits.values(), *place.puts.values()]:
            is_known = waiting[request.session][request.message.number] is request
            _true(is_known, "waits in vain: %r", request)
        if place.waits:
            request = next(iter(place.waits.values()))
            free = [one for one in request.places if one.has_room and one.is_first(request)]
            is_lease = place.kind in LEASED
            is_there = len(free) >= request.message.count if is_lease else bool(place.stakes)
            _true(not is_there, "waits for what is there: %r", request)
    values = (one for place in coordination.places for one in place.stakes.values())
    held = (one for mine in stakes.taken.values() for some in mine.values() for one in some)
    requests = [one for mine in waiting.values() for one in mine.values()]
    got = (one for request in requests for one in request.got)
    for stake in {id(one): one for one in (*values, *held, *got)}.values():
        nbytes[stake.user] += stake.nbytes
    for request in requests:
        nbytes[request.user] += request.nbytes
    for message, user in coordination.early:
        nbytes[user] += cost_of(message)
    _true(nbytes == coordination.places.nbytes, "counts bytes of nothing")
