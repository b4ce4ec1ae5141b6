"""How the peers of another scheduler come back: its supervisors and workers, and its clients.

Workers hold tasks that clients ask for again. So nothing of either is taken in for a while, until
all are here: tasks that a worker holds stay there, and only the others run again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.records.announced import Announced
from scaler_cluster.core.records.roster import Roster
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.core.records.returning import Returning
    from scaler_cluster.core.scheduler.claims import Claims
    from scaler_cluster.core.scheduler.config import SchedulerConfig
    from scaler_cluster.core.scheduler.inventories import Inventories
    from scaler_cluster.core.scheduler.table import Table
    from scaler_cluster.core.scheduler.worker_handlers import WorkerHandlers

GRACE_S = 5.0
"""So long after its start a scheduler waits for all peers of the scheduler before it. They notice
within about two seconds that it is another one."""
NUDGE_S = 0.5
"""How often workers are told that they are unknown: they may not have connected yet."""
REMEMBER_S = 60.0
"""So long it knows which tasks were started before that must not start twice."""
LEDGER_NUMBERS = 3
"""Session, first task and number of tasks."""
AT_ONCE = (m.Hello, m.Heartbeat, m.Goodbye, m.Shutdown)
"""What a client may say at any time."""


class Resumption:
    """Takes in what was known to another scheduler, in an order in which it fits together."""

    def __init__(
        self,
        table: Table,
        config: SchedulerConfig,
        claims: Claims,
        workers: WorkerHandlers,
        inventories: Inventories,
        handle: Callable[[bytes, m.Message, float], None],
        give_up: Callable[[bytes, float, str], None],
        now: float,
    ) -> None:
        self._table = table
        self._config = config
        self._claims = claims
        self._workers = workers
        self._inventories = inventories
        self._handle = handle
        self._give_up = give_up
        self.until = now + GRACE_S
        """What is missing then is not waited for any more; inf: nothing is."""
        self._forget_at = self.until + REMEMBER_S
        self._is_over = False
        """True once nothing is waited for."""
        self._chain: tuple[int, ...] = ()
        """Schedulers before this one all of whose machines have come back."""
        self.to_nudge: list[bytes] = []
        """Workers that are to be told that they are unknown."""
        self._nudge_at = math.inf
        self.handlers: dict[type[m.Message], Callable[[bytes, Any, float], None]] = {
            m.Resumed: self._on_resumed,
            m.Hosts: self._on_hosts,
            m.Holding: self._on_holding,
            m.Held: self._on_held,
            m.Roll: self._on_roll,
        }

    # -- what they say -------------------------------------------------------------------------

    def defer(self, peer: bytes, message: m.Message, now: float) -> bool:
        """Keep what a client says, to hear it later; return False if it is to be heard now."""
        deferred = self._table.deferred.get(peer)
        if deferred is None or isinstance(message, AT_ONCE):
            return False
        deferred.messages.append(message)
        if type(message) is m.Resumed:
            deferred.is_complete = True
            self._on_resumed(peer, message, now)
        self._table.sessions[peer].last_seen = now
        return True

    def _on_resumed(self, peer: bytes, message: m.Resumed, now: float) -> None:
        if peer not in self._table.sessions:
            raise RemoteProtocolError("only a client says this")
        self._table.sessions[peer].announced = Announced(message.first_segment)

    def _returning(self, peer: bytes) -> Returning | None:
        """Return the worker that comes back; None: it is said to be dead, so this is too late."""
        returning = self._table.returning.get(peer)
        if returning is None and self._table.has_parted(peer):
            return None
        if returning is None or returning.is_complete:
            raise RemoteProtocolError("only a worker that comes back says this")
        return returning

    def _on_hosts(self, peer: bytes, message: m.Hosts, now: float) -> None:
        returning = self._returning(peer)
        if returning is not None:
            returning.hosts = message

    def _on_holding(self, peer: bytes, message: m.Holding, now: float) -> None:
        if message.portion is not None and message.count != 1:
            raise RemoteProtocolError("several tasks with one portion of a machine")
        returning = self._returning(peer)
        if returning is not None:
            returning.holdings.append(message)

    def _on_held(self, peer: bytes, message: m.Held, now: float) -> None:
        started = numbers(message.started, "Q")
        if len(started) % LEDGER_NUMBERS:
            raise RemoteProtocolError("not three numbers for each run")
        returning = self._returning(peer)
        if returning is None:
            return
        returning.is_complete = True
        returning.is_whole = message.is_whole
        returning.first_segment = message.first_segment
        returning.devices = message.devices
        for at in range(0, len(started), LEDGER_NUMBERS):
            session, first, count = started[at : at + LEDGER_NUMBERS]
            self._claims.started(session, first, first + count)

    def _on_roll(self, peer: bytes, message: m.Roll, now: float) -> None:
        supervisor = self._table.supervisors.get(peer)
        if supervisor is None:
            raise RemoteProtocolError("only a supervisor says this")
        supervisor.roll = dict.fromkeys(message.workers)
        supervisor.is_whole = message.is_whole
        self._nudge_at = now

    # -- time ----------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When :meth:`tick` has something to do."""
        table = self._table
        due = self._nudge_at
        if not self._is_over and (table.deferred or table.returning):
            due = min(due, self.until)
        if table.returning:
            due = min(due, *(one.until for one in table.returning.values()))
        return due

    def tick(self, now: float) -> None:
        """Tell workers that they are unknown which have not said a word yet."""
        if now >= self._forget_at and self._claims.epochs:
            self._claims.forget()
        if now < self._nudge_at:
            return
        table = self._table
        for supervisor in table.supervisors.values():
            for peer in supervisor.roll or ():
                if peer not in table.workers and peer not in table.returning:
                    self.to_nudge.append(peer)
        self._nudge_at = now + NUDGE_S if self.to_nudge else math.inf

    def act(self, now: float) -> None:
        """Take in who can be taken in by now, if anyone is here or :attr:`until` has come."""
        table = self._table
        if not self._is_over and (now >= self.until or self._are_all_here()):
            self._end()
        ready = [peer for peer, it in table.deferred.items() if it.is_complete and self._is_over]
        heard = {peer: table.deferred.pop(peer).messages for peer in ready}
        later: dict[bytes, list[m.Message]] = {}
        dubious: list[tuple[bytes, range]] = []
        called: dict[str, None] = {}
        for peer, messages in heard.items():
            asked, later[peer] = _parted(messages)
            once = [one for one in asked if isinstance(one, m.Submit) and one.options.at_most_once]
            called |= dict.fromkeys(one.options.actor for one in once)
            dubious += [
                (peer, range(one.first, one.first + len(one.batch)))
                for one in once
                if not (one.options.actor and table.sessions[peer].is_resumed)
            ]
            self._hear(peer, asked, now)
        if table.returning:
            self._take_all_in(now)
        for peer, tasks in dubious:
            if peer in table.sessions:
                self._claims.judge(table.sessions[peer], tasks.start, tasks.stop)
        for actor in called:
            self._claims.judge_calls(actor)
        for peer, messages in later.items():
            self._hear(peer, messages, now)

    def _end(self) -> None:
        """Nothing more is waited for."""
        table, before = self._table, self._config.predecessor
        is_whole = all(one.is_whole for one in table.supervisors.values())
        is_whole &= all(one.is_whole for one in table.returning.values())
        if before is not None and before.is_whole and is_whole and self._are_machines_here():
            self._claims.epochs = self._chain = before.epochs
        self._is_over = True
        self.until = math.inf
        table.is_roster_new = True

    @property
    def roster(self) -> Roster:
        """What the next scheduler is to know if this one is killed now."""
        table, before = self._table, self._config.predecessor
        machines, is_whole = frozenset(table.supervisors), not table.has_lost_machines
        if before is None or self._is_over:
            return Roster((*self._chain, self._config.epoch), machines, is_whole)
        epochs = (*before.epochs, self._config.epoch)
        return Roster(epochs, machines | before.machines, is_whole and before.is_whole)

    def _hear(self, peer: bytes, messages: Sequence[m.Message], now: float) -> None:
        """Take in what a client has said."""
        try:
            for message in messages:
                if peer in self._table.sessions:
                    self._handle(peer, message, now)
        except RemoteProtocolError as error:
            self._give_up(peer, now, str(error))

    def _take_all_in(self, now: float) -> None:
        """Take in the workers that can be taken in by now."""
        table, objects = self._table, self._table.objects
        before = dict(table.returning)
        for peer, returning in before.items():
            self._take_in(peer, returning, now)
        came = {objects.key_of(it.hello) for it in before.values() if it.hello.resume}
        came -= {objects.key_of(it.hello) for it in table.returning.values()}
        if not objects.adopts:
            # What they wrote before was not to be judged until now.
            for key in sorted(came):
                self._inventories.ask(key)

    def _take_in(self, peer: bytes, returning: Returning, now: float) -> None:
        table = self._table
        if returning.is_complete and returning.hello.supervisor in table.supervisors:
            sessions = map(table.session_by_number.get, {one.session for one in returning.holdings})
            waits = any(one is not None and one.peer in table.deferred for one in sessions)
            is_time = now >= returning.until or (self._is_over and not waits)
            if is_time or not returning.holdings:
                del table.returning[peer]
                self._workers.admit(peer, returning, now)
        elif now >= returning.until:
            del table.returning[peer]
            table.send(peer, m.Goodbye("its supervisor is not here"))
            table.outbox.part_with(peer)

    def _are_machines_here(self) -> bool:
        """Return True if all machines of the scheduler before have come back, with all workers."""
        before, table = self._config.predecessor, self._table
        rolls = {peer: it.roll for peer, it in table.supervisors.items() if it.roll is not None}
        workers, returning = table.workers, table.returning
        return (
            before is not None
            and before.machines <= rolls.keys()
            and all(
                peer in workers or (peer in returning and returning[peer].is_complete)
                for roll in rolls.values()
                for peer in roll
            )
        )

    def _are_all_here(self) -> bool:
        """Return True if nothing more is to be waited for."""
        table = self._table
        if not self._are_machines_here():
            return False
        holdings = [one for it in table.returning.values() for one in it.holdings]
        held = {one.session for one in holdings if not one.is_nested}
        here = {one.number for peer, one in table.sessions.items() if peer not in table.deferred}
        here |= {
            table.sessions[peer].number
            for peer, deferred in table.deferred.items()
            if deferred.is_complete
        }
        return held <= here


def _parted(messages: Sequence[m.Message]) -> tuple[list[m.Message], list[m.Message]]:
    """Part what a client asks again from what has tasks given out, or is new.

    Nothing is to be given out before all clients and workers have been heard.
    """
    at = next(n for n, one in enumerate(messages) if type(one) is m.Resumed)
    asked = [one for one in messages[:at] if not (isinstance(one, m.Cancel) and one.queued_only)]
    return asked, list(messages[at + 1 :])
