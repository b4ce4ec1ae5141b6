"""Which workers may run which tasks: what tasks demand, and what workers offer.

A worker runs one task at a time, and that task may use all that the worker offers. So no amount is
ever exceeded if the scheduler gives a worker only tasks that demand no more than it offers. What
the workers of a machine share is counted: see ``amounts.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.wire.messages import WHOLE_MACHINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.core.records.workers import WorkerPool, WorkerRecord
    from scaler_cluster.wire.messages import Capabilities, Portion, TaskOptions


def has_all(offered: Mapping[str, float], demanded: Capabilities) -> bool:
    """Return True if everything that is demanded is offered, and enough of it."""
    for name, amount in demanded:
        have = offered.get(name)
        if have is None or 0 <= have < amount:
            return False
    return True


def is_able(pool: WorkerPool, options: TaskOptions) -> bool:
    """Return True if the workers of a pool offer what tasks demand; names are looked at later."""
    demanded = options.capabilities
    return (pool.has_python or bool(demanded)) and has_all(pool.offered, demanded)


def is_named(options: TaskOptions, names: Sequence[str]) -> bool:
    """Return True if tasks may go to a worker of these names, as far as names go."""
    return not options.workers or any(name in options.workers for name in names)


def has_inside(offered: Mapping[str, float], portion: Portion | None, options: TaskOptions) -> bool:
    """Return True if a task may run on the stack of one that waits, but for names.

    ``offered`` is what the worker has for itself, ``portion`` what the waiting task has. An actor
    is made in a worker of its own.
    """
    if options.creates:
        return False
    if portion is None:
        return options.cores == 1 and has_all(offered, options.capabilities)
    is_wide_enough = portion.is_whole or 1 <= options.cores <= portion.cores
    return is_wide_enough and has_all({**offered, **dict(portion.uses)}, options.capabilities)


def may_run_inside(worker: WorkerRecord, options: TaskOptions) -> bool:
    """Return True if a task may run on the stack of one that waits on a worker."""
    has_it = has_inside(dict(worker.pool.capabilities), worker.portion, options)
    return has_it and is_named(options, worker.names)


def may_run(worker: WorkerRecord, options: TaskOptions) -> bool:
    """Return True if a worker has what tasks demand, or its machine if others do not use it."""
    has_it = is_able(worker.pool, options)
    # The place of an actor goes by no other name of its own.
    names = (worker.actor, worker.host) if worker.actor else worker.names
    return has_it and is_named(options, names)


def uncounted(capabilities: Capabilities) -> Capabilities:
    """Return the capabilities that are never used up."""
    return tuple((name, amount) for name, amount in capabilities if amount < 0)


def describe(options: TaskOptions) -> str:
    """Say in a few words what tasks demand."""
    parts = [name if amount <= 0 else f"{name}={amount}" for name, amount in options.capabilities]
    if options.cores == WHOLE_MACHINE:
        parts.append("a whole machine")
    elif options.cores > 1:
        parts.append(f"{options.cores} cores of one machine")
    if options.workers:
        parts.append("the name " + " or ".join(map(repr, options.workers)))
    return ", ".join(parts)
