"""What is true of a scheduler's state after every step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scaler_cluster.core.credit import is_hungry
from scaler_cluster.core.lifecycle import State

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler import SchedulerCore
    from scaler_cluster.core.tasks import Run

ON_WORKER = (State.ASSIGNED, State.REVOKING, State.CANCELLING)


def check(core: SchedulerCore) -> None:
    """Raise AssertionError if something that must be true is not; costs O(everything)."""
    table = core.table
    places: dict[int, Run] = {}
    users: Counter[bytes] = Counter()
    queued = 0
    for run in table.ready:
        queued += run.count
        _true(run.state is State.READY and run.worker is None, "queued but not ready: %s", run)
        _true(id(run) not in places, "queued twice: %s", run)
        places[id(run)] = run
    _true(queued == table.ready.count, "the queue counts its tasks")
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
    for digest, function in table.functions.items():
        _true(function.users == users.pop(digest, 0), "miscounted users of function %r", digest)
        users.update(function.objects)
    for one, record in table.objects.records.items():
        _true(record.users == users.pop(one, 0) != 0, "miscounted users of object %r", one)
        _true(table.objects.stores.keys() >= record.stores.keys(), "at an unknown machine: %r", one)
    for (key, segment), one in table.objects.copying.items():
        there = key in table.objects.stores and one in table.objects.records
        _true(there and table.objects.records[one].segment == segment, "copied in vain: %r", one)
    for peer, key in table.objects.storages.items():
        _true(table.objects.stores[key].peer == peer, "a storage of nobody: %r", peer)
    _true(not users, "functions or objects in use were dropped: %r", users)


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


def _count(users: Counter[bytes], run: Run) -> None:
    users[run.function] += 1
    users.update(run.objects)


def _true(condition: bool, what: str, about: object = None) -> None:
    # The text is made only when it is needed: it would take longer than all the checks.
    if not condition:
        raise AssertionError(what % about if about is not None else what)
