"""Calls that each worker makes once which is there now."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from scaler_cluster.client.task_session import TaskSession
from scaler_cluster.core.client.roll_call import RollCall
from scaler_cluster.errors import ClusterUnreachableError, ConfigError, TaskLostError
from scaler_cluster.wire.messages import DEFAULT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.session import Session
    from scaler_cluster.wire import messages as m

LOOK_S = 2.0
"""How often to look whether the workers are still there that have not answered; at first sooner."""
HEIR_S = 0.1
"""How often to look whether one has come in place of one that left."""
PRIORITY = 1 << 30
"""Before all tasks that wait: a worker may have long ones ahead."""


class WorkerInfo(NamedTuple):
    """A worker, as :func:`run` and the ``setup`` of plugins name it."""

    name: str
    """What its cluster calls it; else ``HOST/PID``."""
    host: str
    """Its machine."""
    pid: int


class Outcome(NamedTuple):
    """What a worker made of a call: ``error`` is None if it returned ``value``."""

    value: Any
    error: BaseException | None


def present_workers(session: Session) -> m.WorkerList:
    """Return the workers that take tasks now.

    Raises ClusterUnreachableError if the scheduler does not say it in time, and ConfigError inside
    of tasks.
    """
    if isinstance(session, TaskSession):
        raise ConfigError(
            "a task cannot call on all workers: its own runs the task, and would be waited for; "
            "do it in the program"
        )
    listed = session.list_workers()
    if listed is None:
        raise ClusterUnreachableError(f"the scheduler at {session.address} does not answer")
    return listed


def described(listed: m.WorkerList) -> dict[str, WorkerInfo]:
    """Return workers by their aliases."""
    often = Counter(listed.names)
    rows = zip(listed.aliases, listed.names, listed.hosts, listed.pids, strict=True)
    return {
        alias: WorkerInfo(name if name and often[name] == 1 else f"{host}/{pid}", host, pid)
        for alias, name, host, pid in rows
    }


def chosen(
    present: Mapping[str, WorkerInfo], workers: Sequence[str] | None
) -> dict[str, WorkerInfo]:
    """Return the workers with these names, or of these machines; None: all.

    Raises ConfigError for a name that none has.
    """
    if workers is None:
        return dict(present)
    known = {name for one in present.values() for name in (one.name, one.host)}
    for name in workers:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"no worker or machine is called {name!r}: there are {there}")
    return {
        alias: one for alias, one in present.items() if one.name in workers or one.host in workers
    }


def call_on_workers(
    session: Session,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    workers: Sequence[str] | None = None,
) -> dict[WorkerInfo, Outcome]:
    """Let each of these workers make a call, once; return when all have answered or are gone.

    A worker answers when it has done what it runs, and what it was given ahead. If it leaves before
    that, or is killed for a task of others, the one that is started in its place makes the call. A
    call that was begun is not made again. Raises as :func:`present_workers` and :func:`chosen`.
    """
    listed = present_workers(session)
    asked: dict[str, tuple[WorkerInfo, ScalerFuture[Any]]] = {}

    def ask(alias: str, worker: WorkerInfo) -> None:
        options = replace(DEFAULT_OPTIONS, workers=(alias,), priority=PRIORITY, at_most_once=True)
        asked[alias] = worker, session.submit(function, args, kwargs or {}, options)

    for alias, worker in chosen(described(listed), workers).items():
        ask(alias, worker)
    roll, given_up = RollCall(listed), set[str]()
    lost: list[str] = []
    look_s = HEIR_S
    while True:
        if lost:
            session.wait(lambda: False, timeout=HEIR_S)
        else:
            session.wait(partial(_are_done, asked.values()), timeout=look_s)
            look_s = min(2 * look_s, LOOK_S)
        lost = [one for one in asked if one not in given_up and _is_lost(asked[one][1])]
        if not lost and _are_done(asked.values()):
            return {worker: _outcome(worker, future) for worker, future in asked.values()}
        now = session.list_workers()
        if now is None:
            continue
        session.cancel([asked[one][1] for one in asked if one not in now.aliases])
        for alias, heir in roll.heirs(now, lost).items():
            if heir is None:
                given_up.add(alias)
            else:
                del asked[alias]
                ask(heir, described(now)[heir])


def _are_done(calls: Iterable[tuple[WorkerInfo, ScalerFuture[Any]]]) -> bool:
    return all(future.done() for _, future in calls)


def _is_lost(call: ScalerFuture[Any]) -> bool:
    """Return True if a worker left, or was killed for another task, before it began the call."""
    return call.cancelled()


def _outcome(worker: WorkerInfo, future: ScalerFuture[Any]) -> Outcome:
    try:
        error = future.exception()
    except CancelledError:
        error = TaskLostError(f"the worker {worker.name} on {worker.host} left before it answered")
    return Outcome(None, error) if error is not None else Outcome(future.result(), None)
