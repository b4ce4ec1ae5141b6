"""What is true of a scheduler's state after every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.core.lifecycle import State

if TYPE_CHECKING:
    from scaler_cluster.core.scheduler import SchedulerCore

ON_WORKER = (State.ASSIGNED, State.REVOKING, State.CANCELLING)


def check(core: SchedulerCore) -> None:
    """Raise AssertionError if something that must be true is not; costs O(everything)."""
    table = core.table
    queued = list(table.ready)
    users: dict[bytes, int] = {}
    _true(sum(run.count for run in queued) == table.ready.count, "the queue counts its tasks")
    for run in queued:
        _true(run.state is State.READY and run.worker is None, f"queued but not ready: {run}")
    for worker in table.workers.values():
        _true(
            sum(run.count for run in worker.runs) == worker.count, "a worker's count is its runs'"
        )
        for run in worker.runs:
            _true(run.worker is worker and run.state in ON_WORKER, f"not on its worker: {run}")
    held = sum(worker.count for worker in table.workers.values())
    _true(held == table.in_flight, "the table counts what workers have")
    places = {id(run) for run in queued}
    for worker in table.workers.values():
        for run in worker.runs:
            _true(id(run) not in places, f"at two places: {run}")
            places.add(id(run))
            if run.session not in table.session_by_number:
                users[run.function] = users.get(run.function, 0) + 1
                _true(run.state is State.CANCELLING, f"of a session that left: {run}")
    for session in table.sessions.values():
        end = 0
        for first, run in session.runs.items():
            _true(first == run.first and run.count > 0, f"filed under {first}: {run}")
            _true(first >= end, f"overlaps another: {run}")
            end = run.stop
            _true(id(run) in places, f"nobody has it: {run}")
            users[run.function] = users.get(run.function, 0) + 1
        for digest in session.functions:
            users[digest] = users.get(digest, 0) + 1
    for digest, function in table.functions.items():
        _true(function.users == users.get(digest, 0), f"users of function {digest.hex()}")
    _true(not users.keys() - table.functions.keys(), "a function in use was dropped")


def _true(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
