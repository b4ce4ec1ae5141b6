"""What earlier schedulers had counted, added to what the one says that took their place. Pure.

Each scheduler counts from nothing, by a clock of its own; a monitor shows one cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster.core.records.totals import OTHERS
from scaler_cluster.wire import feed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAMES_MAX = 2048
"""Functions that are remembered apart: twice as many as one scheduler counts apart."""
PEERS_MAX = 20_000
"""Clients, and workers, that are remembered: as many as a snapshot has room for."""
ENDED = ("done", "failed", "cancelled")
COUNTED = (*ENDED, "submitted", "retried", "moved", "inlined", "busy_s", "inlined_s")
"""What is added up, of the rows that have it."""
SUMS = ("worker_deaths", "errors")
MAPS = ("sent", "received", "skipped")


T = TypeVar("T", feed.Tasks, feed.Function, feed.Client)
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Earlier:
    """What there was to be known of earlier schedulers, for one who has heard none of them."""

    restarts: int
    """How often another one took the place of the one before."""
    shift_s: float
    """What makes of a moment of the last one's clock one of the first one's."""
    counted: feed.Snapshot
    """What was counted before the last one; ``run`` is the name of that one."""


@dataclass
class Past:
    """What was before the scheduler that speaks."""

    _shift_s: float = 0.0
    """What makes of a moment of this scheduler's clock one of the first scheduler's."""
    _sums: feed.Snapshot = field(default_factory=feed.Snapshot)
    """The numbers that stand for themselves."""
    _functions: dict[str, feed.Function] = field(default_factory=dict)
    _clients: dict[tuple[int, str, int], feed.Client] = field(default_factory=dict)
    _given: dict[bytes, int] = field(default_factory=dict)
    """How many tasks each worker had got."""
    _away: set[tuple[type, int | bytes]] = field(default_factory=set)
    """Those that the scheduler before knew, until they join again."""

    def close(self, last: feed.Snapshot | None, shift_s: float) -> None:
        """Another scheduler speaks, whose clock is behind by ``shift_s``.

        ``last`` is the last snapshot, as :meth:`continued` had returned it. Clients submit again
        what had not ended then, so this is not counted as submitted before.
        """
        self._shift_s = shift_s
        if last is None:
            return
        kept = {name: getattr(last, name) for name in (*SUMS, *MAPS)}
        self._sums = feed.Snapshot(tasks=_ended(last.tasks), **kept)
        self._functions = _fitting([_ended(row) for row in last.functions])
        clients = {_client(row): _ended(row) for row in last.clients}
        self._clients = _remembered(clients, self._clients)
        self._given = _remembered({row.worker: row.given for row in last.workers}, self._given)
        self._away = {
            *((feed.MachineJoined, row.machine) for row in last.machines),
            *((feed.WorkerJoined, row.worker) for row in last.workers),
            *((feed.ClientJoined, row.session) for row in last.clients),
        }

    def earlier(self, restarts: int, run: str) -> Earlier:
        """Return what makes another Past one like this, if it is told it by :meth:`close`."""
        given = [feed.Worker(worker=worker, given=count) for worker, count in self._given.items()]
        counted = replace(
            self._sums,
            run=run,
            functions=list(self._functions.values()),
            clients=list(self._clients.values()),
            workers=given,
        )
        return Earlier(restarts, self._shift_s, counted)

    def continued(self, message: feed.Snapshot | feed.Events) -> feed.Snapshot | feed.Events:
        """Return a message as a scheduler would have sent it that had been there all the time."""
        clock = message.clock + self._shift_s
        if isinstance(message, feed.Events):
            events = [replace(event, at=event.at + self._shift_s) for event in message.events]
            return replace(message, clock=clock, events=events)
        before = self._sums
        sums: dict[str, Any] = {
            **{name: getattr(before, name) + getattr(message, name) for name in SUMS},
            **{name: _joined(getattr(before, name), getattr(message, name)) for name in MAPS},
        }
        return replace(
            message,
            clock=clock,
            tasks=_sum(before.tasks, message.tasks),
            functions=self._add_functions(message.functions),
            clients=[
                _sum(self._clients[key], row) if (key := _client(row)) in self._clients else row
                for row in message.clients
            ],
            workers=[
                replace(row, given=row.given + self._given[row.worker])
                if row.worker in self._given
                else row
                for row in message.workers
            ],
            **sums,
        )

    def is_return(self, event: feed.Event) -> bool:
        """Return True if somebody joins whom the scheduler before had known; once of each."""
        if isinstance(event, feed.MachineJoined):
            key: tuple[type, int | bytes] = type(event), event.machine
        elif isinstance(event, feed.WorkerJoined):
            key = type(event), event.worker
        elif isinstance(event, feed.ClientJoined):
            key = type(event), event.session
        else:
            return False
        is_known = key in self._away
        self._away.discard(key)
        return is_known

    def _add_functions(self, rows: list[feed.Function]) -> list[feed.Function]:
        """Return what was counted of functions, with those that nobody has called since."""
        before = dict(self._functions)
        named = [(row, before.pop(row.name, None)) for row in rows]
        return [*(row if old is None else _sum(old, row) for row, old in named), *before.values()]


def _client(row: feed.Client) -> tuple[int, str, int]:
    # Another cluster may have taken the place of one, and given the same number to its client.
    return row.session, row.host, row.pid


def _ended(row: T) -> T:
    """Return what was counted of the tasks that have ended."""
    return replace(row, submitted=sum(getattr(row, name) for name in ENDED), recalled=0)


def _sum(before: T, row: T) -> T:
    names = {one.name for one in fields(row)}.intersection(COUNTED)
    return replace(row, **{name: getattr(before, name) + getattr(row, name) for name in names})


def _joined(before: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + counts.get(name, 0) for name in {**before, **counts}}


def _remembered(last: dict[K, V], before: dict[K, V]) -> dict[K, V]:
    """Return the last counts, and as far as there is room those of peers that had not come back."""
    others = ((key, value) for key, value in before.items() if key not in last)
    return last | dict(islice(others, max(PEERS_MAX - len(last), 0)))


def _fitting(rows: Iterable[feed.Function]) -> dict[str, feed.Function]:
    """Return functions by name; those that there is no room for are counted together."""
    found: dict[str, feed.Function] = {}
    for row in rows:
        name = row.name if len(found) < NAMES_MAX else OTHERS
        others = found.get(name)
        found[name] = replace(row, name=name) if others is None else _sum(row, others)
    return found
