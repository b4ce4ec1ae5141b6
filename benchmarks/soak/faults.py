"""What goes wrong meanwhile: a list of faults, and who draws from it at random."""

from __future__ import annotations

import math
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.soak.site import MAY_END, send

if TYPE_CHECKING:
    from collections.abc import Callable

    import psutil

    from benchmarks.soak.site import Site
    from tests.runtime.machines import Machine

KILL_WORKER, KILL_STORAGE = "kill worker", "kill storage"
KILL_SUPERVISOR, KILL_SCHEDULER = "kill supervisor", "kill scheduler"
STOP_WORKER, STOP_STORAGE = "stop worker", "stop storage"
STOP_SUPERVISOR, STOP_SCHEDULER = "stop supervisor", "stop scheduler"
STOP_CLIENT = "stop client"
MUTE, CUT, SLOW = "mute cable", "cut cable", "slow cable"
KILLS = KILL_WORKER, KILL_STORAGE, KILL_SUPERVISOR, KILL_SCHEDULER
STOPS = STOP_WORKER, STOP_STORAGE, STOP_SUPERVISOR, STOP_SCHEDULER, STOP_CLIENT
CABLES = MUTE, CUT, SLOW
FAULTS = *KILLS, *STOPS, *CABLES

RATES_KBIT_S = (2_000, 10_000, 50_000)
RESTART_AFTER_S = (0.0, 3.0)
LOOK_S = 0.05
KEEP_S = 1.0
"""As RestartSec= of our units for systemd."""
REFUSED_S = 75.0
"""So a scheduler beside a storage server is killed less often: clients wait for 60 s."""


@dataclass(frozen=True)
class Plan:
    """How often what goes wrong, and for how long."""

    weights: dict[str, int]
    pause_s: float
    """Mean time from one fault to the next; the one before may still go on."""
    lasts_s: tuple[float, float]
    """Least and most time for which something is stopped, mute, cut or slow."""
    apart_s: dict[str, float]
    """For some faults: there is none of the same kind for so long."""


WILD = Plan(
    weights={
        KILL_WORKER: 12, KILL_STORAGE: 3, KILL_SUPERVISOR: 3, KILL_SCHEDULER: 3,
        STOP_WORKER: 4, STOP_STORAGE: 2, STOP_SUPERVISOR: 2, STOP_SCHEDULER: 2, STOP_CLIENT: 2,
        MUTE: 3, CUT: 2, SLOW: 3,
    },
    pause_s=2.0,
    lasts_s=(0.5, 10.0),
    apart_s={KILL_SCHEDULER: 20.0, KILL_SUPERVISOR: 10.0},
)  # fmt: skip
CALM = Plan(
    weights={
        KILL_WORKER: 6, KILL_STORAGE: 1, KILL_SUPERVISOR: 1, KILL_SCHEDULER: 1,
        STOP_WORKER: 2, STOP_STORAGE: 1, STOP_SUPERVISOR: 1, STOP_SCHEDULER: 1, STOP_CLIENT: 1,
        MUTE: 1, CUT: 1, SLOW: 1,
    },
    pause_s=3.0,
    lasts_s=(0.2, 1.5),
    apart_s={KILL_SCHEDULER: 30.0, KILL_SUPERVISOR: 20.0},
)  # fmt: skip
"""For a machine that is busy with other things: nobody is silent for as long as its timeout."""


@dataclass
class Injected:
    """A fault that was injected; times are of the monotonic clock, which machines share."""

    fault: str
    target: str
    began: float
    ended: float = float("inf")


class Chaos(threading.Thread):
    """Injects faults until it is told to stop that; then everything is healed, and only kept up."""

    def __init__(self, site: Site, clients: list[psutil.Process], plan: Plan, seed: int) -> None:
        super().__init__(name="chaos")
        self.injected: list[Injected] = []
        self.problems: list[str] = []
        self.kept: Counter[str] = Counter()
        """How often what was started again because it had ended by itself, as it may."""
        self._site = site
        self._clients = clients
        self._plan = plan
        self._dice = random.Random(seed)
        self._is_enough = threading.Event()
        self._is_healed = threading.Event()
        self._is_over = threading.Event()
        self._drawn_at = 0.0
        self._heals: list[tuple[float, Injected, Callable[[], object]]] = []
        self._ways = {KILL_WORKER: self._kill, KILL_STORAGE: self._kill} | {
            KILL_SUPERVISOR: self._kill_part, KILL_SCHEDULER: self._kill_part,
            MUTE: self._harm_cable, CUT: self._harm_cable, SLOW: self._harm_cable,
        } | dict.fromkeys(STOPS, self._stop)  # fmt: skip

    def stop_injecting(self) -> None:
        """Heal everything and inject nothing more; return when that is done."""
        self._is_enough.set()
        self._is_healed.wait()

    def end(self) -> None:
        """Look after nothing any more."""
        self._is_enough.set()
        self._is_over.set()
        self.join()

    def run(self) -> None:
        try:
            self._inject()
        except Exception as error:
            self.problems.append(f"the soak itself failed: {error!r}")
        try:
            self._heal_all(math.inf)
        finally:
            # Who waits for it must not wait for ever.
            self._is_healed.set()
        while not self._is_over.wait(LOOK_S):
            self._keep()
            self._heal_all(time.monotonic())

    def _inject(self) -> None:
        plan, dice = self._plan, self._dice
        due = time.monotonic() + plan.pause_s
        while not self._is_enough.wait(LOOK_S):
            now = time.monotonic()
            self._heal_all(now)
            self._keep()
            if now < due:
                continue
            due = now + dice.uniform(0, 2 * plan.pause_s)
            fault = dice.choices(list(plan.weights), list(plan.weights.values()))[0]
            lasts_s = dice.uniform(*plan.lasts_s)
            restart_s = dice.uniform(*RESTART_AFTER_S)
            apart_s = plan.apart_s.get(fault, 0.0)
            if fault == KILL_SCHEDULER and self._site.stand_alone:
                apart_s = REFUSED_S
            self._drawn_at = now
            if all(one.fault != fault or now - one.began > apart_s for one in self.injected):
                self._ways[fault](fault, restart_s if fault in KILLS else lasts_s)

    def _keep(self) -> None:
        """Start what has ended by itself again, as a service manager does."""
        for name, part in self._site.parts.items():
            status = part.process.poll()
            if status is None or self._is_ill(name):
                continue
            ended, role = f"{name} ended by itself with status {status}", name.split()[0]
            now = time.monotonic()
            record = Injected(f"kill {role}", name, now)
            if (role, status) in MAY_END:
                self.kept[ended] += 1
                # To all others it is as if it had been killed.
                self.injected.append(record)
            else:
                self.problems.append(ended)
            self._heals.append((now + KEEP_S, record, part.start))

    def _heal_all(self, until: float) -> None:
        """Heal what is due by then."""
        for entry in [one for one in self._heals if one[0] <= until]:
            self._heals.remove(entry)
            _, record, heal = entry
            heal()
            record.ended = time.monotonic()

    def _note(self, fault: str, target: str, lasts_s: float, heal: Callable[[], object]) -> None:
        # What follows from a signal may have happened before the call that sends it returns.
        record = Injected(fault, target, self._drawn_at)
        self.injected.append(record)
        self._heals.append((time.monotonic() + lasts_s, record, heal))

    def _is_ill(self, target: str) -> bool:
        return any(record.target == target for _, record, _ in self._heals)

    def _processes(self, role: str) -> list[psutil.Process]:
        if role == "client":
            return self._clients
        return self._site.roles()[role]

    def _choose(self, role: str) -> psutil.Process | None:
        found = [one for one in self._processes(role) if not self._is_ill(f"pid {one.pid}")]
        return self._dice.choice(found) if found else None

    def _kill(self, fault: str, lasts_s: float) -> None:
        process = self._choose(fault.split()[1])
        # A storage beside its scheduler, and a worker, are started again by their parent.
        server = self._site.parts.get("storage server")
        if process is None:
            return
        if server is not None and process.pid == server.process.pid:
            self._kill_named("storage server", fault, lasts_s)
        elif send(process, signal.SIGKILL):
            self._note(fault, f"pid {process.pid}", 0.0, lambda: None)

    def _kill_part(self, fault: str, lasts_s: float) -> None:
        role = fault.split()[1]
        names = [name for name in self._site.parts if name.split()[0] == role]
        self._kill_named(self._dice.choice(names), fault, lasts_s)

    def _kill_named(self, name: str, fault: str, lasts_s: float) -> None:
        part = self._site.parts[name]
        if self._is_ill(name) or self._is_ill(f"pid {part.process.pid}"):
            return
        part.process.kill()
        part.process.wait()
        self._note(fault, name, lasts_s, part.start)

    def _stop(self, fault: str, lasts_s: float) -> None:
        process = self._choose(fault.split()[1])
        parts = self._site.parts.items()
        if process is None or any(
            self._is_ill(name) for name, part in parts if part.process.pid == process.pid
        ):
            return
        if send(process, signal.SIGSTOP):
            target = f"pid {process.pid}"
            self._note(fault, target, lasts_s, lambda: send(process, signal.SIGCONT))

    def _harm_cable(self, fault: str, lasts_s: float) -> None:
        number = self._dice.randrange(len(self._site.machines))
        machine: Machine = self._site.machines[number]
        target = f"cable {number}"
        if self._is_ill(target):
            return
        if fault == MUTE:
            machine.mute()
            self._note(fault, target, lasts_s, machine.unmute)
        elif fault == CUT:
            machine.cut()
            self._note(fault, target, lasts_s, machine.mend)
        else:
            machine.slow(self._dice.choice(RATES_KBIT_S))
            self._note(fault, target, lasts_s, machine.hasten)
