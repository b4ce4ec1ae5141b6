"""The core of a manager: hears what is wanted, and decides what is done about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from scaler_cluster.core.manager.fleet import Fleet
from scaler_cluster.core.manager.units import Phase
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from scaler_cluster.core.manager.config import ManagerConfig
    from scaler_cluster.core.manager.units import Listed, Unit

LEAVE_S = 10.0
"""How long the units may finish what they run when the manager is told to end."""
LEFT_S = 60.0
"""The manager ends this long after that, even if the system has not ended all of them."""
LAG_S = 1.0
"""A tick this long after its deadline means that this process was slow, not the scheduler."""
REASON_CHARS = 1000


# -- actions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send a message to the scheduler."""

    message: m.Message


@dataclass(frozen=True)
class Start:
    """Have the backend start units; :meth:`ManagerCore.started` is then called."""

    units: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """Ask the backend which units there are; :meth:`ManagerCore.looked` is then called."""


@dataclass(frozen=True)
class Stop:
    """Have the backend end units; :meth:`ManagerCore.stopped` is then called."""

    units: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """End the manager; the reason is empty if it was asked to."""

    reason: str


@dataclass(frozen=True)
class ComeBack:
    """Say Hello anew to a scheduler that does not know this manager, and then this."""

    message: m.Message


Action: TypeAlias = "Send | Start | Look | Stop | Leave | ComeBack"


class ManagerCore:
    """Decides which units are started, drained and ended; the shell has it done.

    ``new_name`` returns what tells a unit's name from those of all others.
    """

    def __init__(
        self, config: ManagerConfig, offer: m.Offer, new_name: Callable[[], str], now: float
    ) -> None:
        self.config = config
        self.fleet = Fleet(config, new_name, now)
        self.wanted = config.least
        """How many workers there are to be."""
        self._offer = offer
        self._is_looking = False
        self._is_blaming = False
        """Whether the reason is that the system did not answer: forgotten when it does."""
        self._look_at = now
        self._heartbeat_at = now
        self._heard_at = now
        self._leave_at = math.inf
        """When the units that are left are ended, and then the manager."""
        self._next_leave = math.inf
        """When the next step towards that is due."""
        self._leaving = ""
        """Why the manager leaves, if nobody asked for it."""
        self._is_over = False
        self._outbox: list[Action] = [Send(offer)]

    @property
    def reason(self) -> str:
        """Why workers are missing; empty: nothing is wrong, as far as anybody knows."""
        return self.fleet.reason

    # -- from the scheduler --------------------------------------------------------------------

    def heard(self, now: float) -> None:
        """Something came from the scheduler, if only that it has heard this manager."""
        self._heard_at = now

    def receive(self, messages: Sequence[m.Message], now: float) -> None:
        """Take in what the scheduler sent; raises RemoteProtocolError if it must not."""
        for message in messages:
            handler = self._HANDLERS.get(type(message))
            if handler is None:
                raise RemoteProtocolError(f"{type(message).__name__} is not for a manager")
            handler(self, message, now)

    def _on_wanted(self, message: m.Wanted, now: float) -> None:
        if len(message.units) != len(message.tasks):
            raise RemoteProtocolError("more units than numbers of their tasks, or fewer")
        self.wanted = min(message.workers, self.config.most)
        here = dict(zip(message.units, message.tasks, strict=True))
        if self.fleet.connected(here, now):
            self._look_at = min(self._look_at, now)

    def _on_unit_broken(self, message: m.UnitBroken, now: float) -> None:
        self._drop(self.fleet.broken(message.unit, message.reason, now), now)

    def _on_refused(self, message: m.Refused, _: float) -> None:
        # Whoever has come in its place has its units.
        self._over(message.reason)

    def _on_goodbye(self, _: m.Goodbye, now: float) -> None:
        self.fleet.forget_scheduler()
        self._leave_by(now)

    def _on_unknown(self, _: m.Unknown, _now: float) -> None:
        self.fleet.scheduler_is_new()
        if not any(type(one) is ComeBack for one in self._outbox):
            self._outbox.append(ComeBack(replace(self._offer, wanted=self.wanted)))

    def _on_welcome(self, _: m.Welcome, now: float) -> None:
        self._heartbeat_at = now

    _HANDLERS: ClassVar[dict[type[m.Message], Callable[[Any, Any, float], None]]] = {
        m.Wanted: _on_wanted,
        m.UnitBroken: _on_unit_broken,
        m.Refused: _on_refused,
        m.Goodbye: _on_goodbye,
        m.Unknown: _on_unknown,
        m.Welcome: _on_welcome,
    }

    # -- from the backend ----------------------------------------------------------------------

    def started(self, names: Sequence[str], error: str, now: float) -> None:
        """The system has accepted units; or it says why it has not accepted all of them."""
        self.fleet.started(names, error, now)
        if error:
            # Some may have been accepted.
            self._look_at = now

    def looked(self, listed: Mapping[str, Listed] | None, error: str, now: float) -> None:
        """The system has these units; None: it does not answer, and says why."""
        self._is_looking = False
        self._look_at = now + self.config.look_s
        if listed is None:
            self._is_blaming, self.fleet.reason = True, error
            return
        if self._is_blaming:
            self._is_blaming, self.fleet.reason = False, ""
        self.fleet.listed(listed, now)

    def stopped(self, error: str, now: float) -> None:
        """The system has ended units, or says why it has not."""
        if error:
            self._is_blaming, self.fleet.reason = True, error
        self._look_at = now

    # -- time ----------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        due = [self._heartbeat_at, self._next_leave]
        due += [self.fleet.deadline, math.inf if self._is_looking else self._look_at]
        if self._leave_at == math.inf:
            due.append(self._heard_at + self.config.death_timeout_s)
            if self.fleet.missing(self.wanted):
                due.append(self.fleet.start_at)
        return min(due)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._is_over:
            return
        if now >= self._heartbeat_at and now - self._heartbeat_at > LAG_S:
            self._heard_at += now - self._heartbeat_at
        if now >= self._heard_at + self.config.death_timeout_s and self._leave_at == math.inf:
            self._leaving = f"the scheduler at {self.config.address} does not answer"
            self.fleet.forget_scheduler()
            self._leave_by(now)
        if self._is_over:
            return
        self._stop(self.fleet.late(now), now)
        if self._leave_at < math.inf:
            self._tick_leaving(now)
        else:
            self._keep_in_step(now)
        if now >= self._look_at and not self._is_looking:
            self._is_looking = True
            self._outbox.append(Look())
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self.config.heartbeat_s
            self._report(now)

    def leave(self, now: float) -> None:
        """End the manager, and its units unless they are to be kept.

        They may finish what they run for LEAVE_S.
        """
        self._leave_by(now + LEAVE_S)

    def _leave_by(self, when: float) -> None:
        """End the units that are left at that time."""
        if self.config.keeps_units:
            self._over(self._leaving)
        self._leave_at = self._next_leave = min(self._leave_at, when)

    def _over(self, reason: str) -> None:
        self._is_over = True
        self._outbox.append(Leave(reason))

    def _keep_in_step(self, now: float) -> None:
        """Have units started that are missing; let those go that are too many, or too old."""
        self._drain(self.fleet.old(now), now)
        self._drop(self.fleet.surplus(self.wanted), now)
        missing = self.fleet.missing(self.wanted)
        if missing and now >= self.fleet.start_at:
            self._outbox.append(Start(self.fleet.ask_for(missing, now)))

    def _tick_leaving(self, now: float) -> None:
        """Let all units go, and leave with the last one."""
        if not self.fleet.units and (self.fleet.is_known or now >= self._leave_at):
            self._over(self._leaving)
        elif now < self._leave_at:
            self._drop(self.fleet.surplus(0), now)
        elif now >= self._leave_at + LEFT_S:
            left = ", ".join(self.fleet.units)
            self._over(f"the system does not end {left}: {self.reason or 'nobody says why'}")
        else:
            self._next_leave = self._leave_at + LEFT_S
            if now - self._heard_at >= LEAVE_S:
                self.fleet.forget_scheduler()
            units = self.fleet.units.values()
            there = [one for one in units if one.phase not in (Phase.ASKED, Phase.ENDING)]
            self._stop(there, now)

    def _drop(self, units: list[Unit], now: float) -> None:
        """Drain units that are here, and end the others."""
        self._drain([one for one in units if one.phase is Phase.HERE], now)
        self._stop([one for one in units if one.phase is not Phase.DRAINING], now)

    def _drain(self, units: Iterable[Unit], now: float) -> None:
        if names := self.fleet.drain(units, now):
            self._outbox.append(Send(m.Drain(names)))

    def _stop(self, units: Iterable[Unit], now: float) -> None:
        if names := self.fleet.stop(units, now):
            self._outbox.append(Stop(names))

    # -- words ---------------------------------------------------------------------------------

    def _report(self, now: float) -> None:
        fleet = self.fleet
        coming = fleet.count(Phase.ASKED, Phase.COMING)
        ending = fleet.count(Phase.DRAINING, Phase.ENDING)
        reason = fleet.reason[:REASON_CHARS]
        self._outbox.append(Send(m.Units(coming, ending, fleet.failed, reason, fleet.lived_s(now))))
        leaving = tuple(one.name for one in fleet.leaving())
        if leaving:
            # A scheduler that was restarted does not know.
            self._outbox.append(Send(m.Drain(leaving)))

    def take_actions(self) -> list[Action]:
        """Return what is to be done since this was called last, in this order."""
        outbox = self._outbox
        self._outbox = []
        return outbox
