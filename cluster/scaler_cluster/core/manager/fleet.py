"""The units of a manager: which there are, by the scheduler's word and the system's, and how many.

Both may be late, or not know a unit that the other one knows. A unit is over only when neither of
them has it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler_cluster.core.manager.units import Phase, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scaler_cluster.core.manager.config import ManagerConfig
    from scaler_cluster.core.manager.units import Listed

BATCH = 32
"""Units started at once: if the system refuses them, not too many were asked for in vain."""
BACKOFF_S, BACKOFF_MAX_S = 1.0, 300.0
"""How long to wait after a start in vain; it doubles up to the second one."""
SHORT_FAILURES = 4
"""A unit that comes leaves no more than so many failures counted. So the pause after the next one
is 16 s at most: tasks wait for units that are killed again and again while they work."""
STURDY_S = 10.0
"""A unit that dies sooner than this after its workers came was in vain as well."""
SETTLE_S = 10.0
"""A system may list a unit only a while after it has accepted it; so long that is believed."""
RETURN_S = 60.0
"""A unit that the scheduler has lost, and that its system still lists, is ended after this."""
FAREWELL_S = 5.0
"""A unit that has drained ends by itself within this."""
STOP_AGAIN_S = 30.0
"""A unit that is still there this long after it was to be ended is ended once more."""


class Fleet:
    """The units of a manager; ``new_name`` returns what tells a unit's name from all others."""

    def __init__(self, config: ManagerConfig, new_name: Callable[[], str], now: float) -> None:
        self.config = config
        self.units: dict[str, Unit] = {}
        self.failed = 0
        """How many units were in vain."""
        self.reason = ""
        """Why the last one was; empty once another one has come."""
        self.is_starting = False
        self.is_known = False
        """Nothing is started before it is known what is there."""
        self.start_at = now
        """No unit is started before this."""
        self._new_name = new_name
        self._lived_s = 0.0
        """How long units have lived that are over."""
        self._failures = 0
        """How many were in vain since the last one came that has lived a while."""
        self._failed_at = -math.inf
        """When the last one was in vain."""

    # -- what the scheduler says ---------------------------------------------------------------

    def connected(self, here: Mapping[str, int], now: float) -> bool:
        """These units are here, with so many tasks; return True if the system should be asked."""
        for name, tasks in here.items():
            unit = self.units.get(name)
            if unit is None:
                unit = self._adopt(name, now)
            unit.tasks = tasks
            if unit.phase in (Phase.ASKED, Phase.COMING):
                unit.came(now)
                self.reason = ""
                self._failures = min(self._failures, SHORT_FAILURES)
            if self._failed_at < unit.came_at <= now - STURDY_S:
                self._failures = 0
        lost = [one for one in self.units.values() if one.is_connected and one.name not in here]
        for unit in lost:
            # It is gone, or was sent off; its system may have it yet. One that the system does not
            # list is over once that has said so.
            if unit.phase is Phase.DRAINING:
                # It has finished; a system that does not end it by itself is to do so soon.
                unit.until = min(unit.until, now + FAREWELL_S)
            if unit.phase is Phase.HERE:
                # It may come back: after a restart of the scheduler all do.
                unit.phase, unit.until = Phase.COMING, now + RETURN_S
        for unit in self.units.values():
            unit.is_connected = unit.name in here
        return bool(lost)

    def broken(self, name: str, reason: str, now: float) -> list[Unit]:
        """The workers of a unit are in vain; return the unit if it is yet to be ended."""
        # Its name comes last: terminals may cut the line.
        text = f"workers {reason} ({name})"
        unit = self.units.get(name)
        if unit is not None and unit.stays:
            self._in_vain(text, now)
            return [unit]
        if self.reason:
            # It has ended since, and its system hardly knows why.
            self.reason = text
        return []

    def scheduler_is_new(self) -> None:
        """It names no unit yet: one on its way out has not finished because of that."""
        for unit in self.units.values():
            if unit.phase is Phase.DRAINING:
                unit.is_connected = False

    def forget_scheduler(self) -> None:
        """The scheduler says nothing any more: only the system knows which units there are."""
        for unit in self.units.values():
            unit.is_connected = False

    # -- what the system says ------------------------------------------------------------------

    def started(self, names: Sequence[str], error: str, now: float) -> None:
        """The system has accepted units; or it says why it has not accepted all of them."""
        self.is_starting = False
        for name in names:
            unit = self.units.get(name)
            if unit is not None and unit.phase is Phase.ASKED:
                unit.phase, unit.until = Phase.COMING, now + self.config.start_timeout_s
                unit.is_refused = bool(error)
        if error:
            self._in_vain(error, now)

    def listed(self, listed: Mapping[str, Listed], now: float) -> None:
        """The system has these units."""
        self.is_known = True
        for name, one in listed.items():
            if not one.is_over and name not in self.units:
                self._adopt(name, now)
        for unit in list(self.units.values()):
            if unit.phase is not Phase.ASKED:
                self._compare(unit, listed.get(unit.name), now)

    def _compare(self, unit: Unit, listed: Listed | None, now: float) -> None:
        """Take in what the system says of a unit; None: it does not list it."""
        was_listed, unit.is_listed = unit.is_listed, listed is not None and not listed.is_over
        if listed is not None:
            unit.reason = listed.reason
        if unit.is_listed:
            unit.is_refused = False
            return
        is_ending = unit.is_refused or not unit.stays
        is_known = listed is not None or was_listed
        if (is_ending or is_known or now - unit.asked_at >= SETTLE_S) and not unit.is_connected:
            self._end(unit, now)

    # -- they come and go ----------------------------------------------------------------------

    def _adopt(self, name: str, now: float) -> Unit:
        """Take in a unit that another manager has started."""
        until = now + self.config.start_timeout_s
        unit = self.units[name] = Unit(name, now, Phase.COMING, until=until)
        return unit

    def _end(self, unit: Unit, now: float) -> None:
        """A unit is over."""
        del self.units[unit.name]
        self._lived_s += max(now - unit.asked_at, 0.0)
        if not unit.stays or unit.is_refused:
            return
        if not unit.has_come:
            self._in_vain(unit.reason or f"{unit.name} ended before its workers came", now)
        elif now - unit.came_at < STURDY_S:
            self._in_vain(unit.reason or f"{unit.name} ended as soon as its workers came", now)
        else:
            self.failed += 1

    def _in_vain(self, reason: str, now: float) -> None:
        self.failed += 1
        self.reason = reason
        pause_s = min(BACKOFF_S * 2.0 ** min(self._failures, 10), BACKOFF_MAX_S)
        self._failures += 1
        self._failed_at = now
        self.start_at = max(self.start_at, now + pause_s)

    # -- more ----------------------------------------------------------------------------------

    def missing(self, workers: int) -> int:
        """Return how many units may be started now, if so many workers are wanted."""
        if not self.is_known or self.is_starting:
            return 0
        room = self.config.units_max - len(self.units)
        staying = sum(unit.stays for unit in self.units.values())
        return max(min(self._units_for(workers) - staying, room, BATCH), 0)

    def ask_for(self, count: int, now: float) -> tuple[str, ...]:
        """Return the names of new units that are to be started now."""
        names = tuple(f"{self.config.name}-{self._new_name()}" for _ in range(count))
        self.units.update((name, Unit(name, now)) for name in names)
        self.is_starting = True
        return names

    # -- fewer ---------------------------------------------------------------------------------

    def surplus(self, workers: int) -> list[Unit]:
        """Return the units that are too many, if so many workers are wanted.

        What has not come goes first, the youngest of these; then what has the least to do.
        """
        staying = [unit for unit in self.units.values() if unit.stays]
        count = len(staying) - self._units_for(workers)
        if count <= 0:
            return []
        staying.sort(key=lambda one: (one.phase is Phase.HERE, one.tasks, -one.asked_at))
        return [one for one in staying[:count] if one.phase is not Phase.ASKED]

    def old(self, now: float) -> list[Unit]:
        """Return the units that the system will end before long."""
        return [one for one in self.here() if now >= one.came_at + self.config.lived_s]

    def late(self, now: float) -> list[Unit]:
        """Return the units whose time is over: they did not come, or do not finish."""
        late = [one for one in self.units.values() if now >= one.until]
        for unit in late:
            if unit.phase is Phase.COMING:
                what = f"did not come within {self.config.start_timeout_s:g} s"
                if unit.has_come:
                    what = f"did not come back within {RETURN_S:g} s"
                why = unit.reason or "their own output may say why"
                self._in_vain(f"workers {what}: {why} ({unit.name})", now)
        return late

    def drain(self, units: Iterable[Unit], now: float) -> tuple[str, ...]:
        """Let units finish what they run; return their names."""
        return self._set(units, Phase.DRAINING, now + self.config.drain_timeout_s)

    def stop(self, units: Iterable[Unit], now: float) -> tuple[str, ...]:
        """Have units ended; return their names."""
        return self._set(units, Phase.ENDING, now + STOP_AGAIN_S)

    def _set(self, units: Iterable[Unit], phase: Phase, until: float) -> tuple[str, ...]:
        chosen = tuple(units)
        for unit in chosen:
            unit.phase, unit.until = phase, until
        return tuple(one.name for one in chosen)

    # -- numbers -------------------------------------------------------------------------------

    def here(self) -> Iterable[Unit]:
        """Return the units whose workers are here to stay."""
        return (unit for unit in self.units.values() if unit.phase is Phase.HERE)

    def leaving(self) -> Iterable[Unit]:
        """Return the units that the scheduler should send off.

        Also those that the system should have ended: it may not know what another manager started.
        """
        return (
            unit
            for unit in self.units.values()
            if unit.phase is Phase.DRAINING or (unit.phase is Phase.ENDING and unit.is_connected)
        )

    @property
    def deadline(self) -> float:
        """When a unit's time is over, or its life."""
        due = [unit.until for unit in self.units.values()]
        due += [unit.came_at + self.config.lived_s for unit in self.here()]
        return min(due, default=float("inf"))

    def _units_for(self, workers: int) -> int:
        return min(-(-workers // self.config.per_unit), self.config.units_max)

    def count(self, *phases: Phase) -> int:
        """Return how many units are in these phases."""
        return sum(unit.phase in phases for unit in self.units.values())

    def lived_s(self, now: float) -> float:
        """Return how long all units have lived together."""
        return self._lived_s + sum(now - unit.asked_at for unit in self.units.values())
