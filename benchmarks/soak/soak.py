"""The run itself: starts the site, clients and faults, watches them, and judges in the end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.processes import children
from benchmarks.soak.allowed import Failure, excuse
from benchmarks.soak.faults import Chaos, Injected
from benchmarks.soak.site import Site, await_true, dump
from benchmarks.soak.tasks import TWICE
from benchmarks.soak.vitals import MEMORY, SEGMENTS, Clock, Vitals
from tests.runtime.helpers import environment

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.soak.faults import Plan

CLIENTS = 2
SAMPLE_EVERY_S = 2.0
SAY_EVERY_S = 60.0
LOOK_S = 0.2
QUIET_S = 60.0
"""Once everything has come back, what was stored must be gone after this."""
FETCH_S = 300.0
"""Each large result of a machine that is gone is waited for for 30 s, one after the other."""
PROBLEMS_MAX = 40


class SoakClient:
    """A process of a client, and what it has said."""

    def __init__(self, number: int, site: Site, seed: int, timeout_s: float) -> None:
        marks = site.directory / "marks" / str(number)
        marks.mkdir()
        self.marks = marks
        self.log = site.directory / f"client-{number}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak.client",
                 site.address, str(seed), str(marks), str(timeout_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
            )  # fmt: skip
        self.runs: dict[str, int] = {}
        self.outcomes: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.problems: list[str] = []
        self.hangs: list[str] = []
        self.is_done = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if "runs" in said:
                self.runs, self.outcomes = said["runs"], Counter(said["outcomes"])
            if "failure" in said:
                self.failures.append(Failure(**said["failure"]))
            if "problem" in said:
                self.problems.append(said["problem"])
            if "hang" in said:
                self.hangs.append(said["hang"])
            self.is_done = self.is_done or "done" in said

    def ask_to_end(self) -> None:
        """Let it end once everything has come back."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None and not self._reader.is_alive()


class Soak:
    """One run of the soak."""

    def __init__(
        self, directory: Path, *, seed: int, seconds: float, plan: Plan, timeout_s: float
    ) -> None:
        self.problems: list[str] = []
        self._directory = directory
        self._seed = seed
        self._seconds = seconds
        self._plan = plan
        self._timeout_s = timeout_s
        self._clients: list[SoakClient] = []
        self._vitals = Vitals()
        self._injected: list[Injected] = []
        self._excuses: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()

    def run(self) -> None:
        """Run for the time that was asked for, then let everything end."""
        # The scheduler's storage or a server: both are to be tried.
        with Site(self._directory, stand_alone=self._seed % 2 == 0) as site:
            where = "a storage server" if site.stand_alone else "the scheduler's storage"
            print(f"soak: seed {self._seed}, {self._seconds / 60:g} min, objects in {where}")
            for number in range(CLIENTS):
                seed = 1_000_000 * (CLIENTS * self._seed + number)
                self._clients.append(SoakClient(number, site, seed, self._timeout_s))
            processes = [psutil.Process(one.process.pid) for one in self._clients]
            chaos = Chaos(site, processes, self._plan, self._seed)
            self._injected = chaos.injected
            chaos.start()
            try:
                self._watch(site, processes, time.monotonic() + self._seconds)
                chaos.stop_injecting()
                self._await_clients()
            finally:
                chaos.end()
            self.problems += chaos.problems
            self._kept = chaos.kept
            self._finish(site, processes)
        self.problems += [f"left: {one.pid} {one.cmdline()}" for one in children()]

    def _watch(self, site: Site, processes: list[psutil.Process], until: float) -> None:
        """Sample and say how it goes, until the time is over or a client has a problem."""
        sample, say = Clock(SAMPLE_EVERY_S), Clock(SAY_EVERY_S)
        while time.monotonic() < until and not self._is_in_trouble():
            time.sleep(LOOK_S)
            if sample.is_due():
                self._vitals.look(site, processes)
            if say.is_due():
                print(self._line(until), flush=True)

    def _is_in_trouble(self) -> bool:
        return any(one.hangs or one.has_ended for one in self._clients)

    def _line(self, until: float) -> str:
        outcomes = sum((one.outcomes for one in self._clients), Counter())
        told = ", ".join(f"{count} {how}" for how, count in outcomes.most_common())
        memory = ", ".join(
            f"{role} {self._vitals.last(role, MEMORY):.0f}"
            for role in ("client", "scheduler", "supervisor", "worker", "storage")
        )
        left = (until - time.monotonic()) / 60
        segments = self._vitals.last("machines", SEGMENTS)
        return (
            f"{left:5.1f} min left: {len(self._injected)} faults; {told}; "
            f"MB: {memory}; {segments:.0f} segments"
        )

    def _await_clients(self) -> None:
        """Let clients end."""
        for client in self._clients:
            client.ask_to_end()
        end = time.monotonic() + self._timeout_s + FETCH_S
        while time.monotonic() < end and not all(one.has_ended for one in self._clients):
            if any(one.hangs for one in self._clients):
                break
            time.sleep(LOOK_S)

    def _finish(self, site: Site, processes: list[psutil.Process]) -> None:
        """Look at what is left, end everything, judge."""
        for number, client in enumerate(self._clients):
            self.problems += [f"client {number}: HANG: {what}" for what in client.hangs]
            if not client.has_ended and not client.hangs:
                self.problems.append(f"client {number}: HANG: it does not end")
            elif client.has_ended and client.process.returncode:
                self.problems.append(f"client {number} ended with {client.process.returncode}")
            elif client.has_ended and not client.is_done:
                self.problems.append(f"client {number} ended too early")
        if any("HANG" in problem for problem in self.problems):
            self._say_who_hangs(site, processes)
        else:
            self._end_in_order(site)
        for client in self._clients:
            client.process.kill()
            client.process.wait()
        self._judge()

    def _say_who_hangs(self, site: Site, processes: list[psutil.Process]) -> None:
        parts = [one for found in site.roles().values() for one in found]
        with (self._directory / "hang.txt").open("w") as out:
            for line in dump([*processes, *parts], shutil.which("py-spy")):
                out.write(f"{line}\n")
        # What a process writes as it is aborted.
        time.sleep(1.0)

    def _end_in_order(self, site: Site) -> None:
        try:
            await_true(lambda: not list(site.segments()), "", QUIET_S)
        except TimeoutError:
            self.problems.append(f"segments are left: {sorted(site.segments())[:5]}")
        self.problems += site.end()
        try:
            await_true(lambda: not site.leftovers(), "")
        except TimeoutError:
            self.problems.append(f"directories are left: {site.leftovers()[:5]}")
        for log in sorted(self._directory.glob("*.log")):
            text = log.read_text(errors="replace")
            if "bug of the scheduler" in text or "Traceback" in text:
                self.problems.append(f"{log}: a bug was logged")

    def _judge(self) -> None:
        """Find out which failures no fault allows, and what else the clients found."""
        for number, client in enumerate(self._clients):
            self.problems += [f"client {number}: {one}" for one in client.problems]
            twice = [path.name for path in client.marks.glob(f"*{TWICE}")]
            self.problems += [f"client {number}: {name} of at_most_once" for name in twice]
            for failure in client.failures:
                fault = excuse(failure, self._injected)
                if fault:
                    self._excuses[f"{failure.error} by {fault}"] += 1
                else:
                    self.problems.append(f"client {number}: nothing allows {failure}")
        self.problems += [
            f"not flat: {one.what}: {one.middle:.0f} {one.unit}, then {one.last:.0f}"
            for one in self._vitals.trends()
            if not one.is_flat
        ]

    def report(self, took_s: float) -> None:
        """Print what happened."""
        runs: Counter[str] = Counter()
        for client in self._clients:
            runs.update(client.runs)
        outcomes = sum((one.outcomes for one in self._clients), Counter())
        faults = Counter(one.fault for one in self._injected)
        print(f"\n{took_s:.0f} s in all")
        for title, counted in (
            ("runs", runs),
            ("futures", outcomes),
            ("faults", faults),
            ("kept alive", self._kept),
            ("allowed errors", self._excuses),
        ):
            print(f"{title:>15}: " + ", ".join(f"{n} {what}" for what, n in counted.most_common()))
        print(f"{'':>31} {'middle':>9} {'last':>9} {'most':>9}")
        for one in self._vitals.trends():
            name = f"{one.what} {one.unit}"
            print(f"{name:>31} {one.middle:>9.0f} {one.last:>9.0f} {one.most:>9.0f}")
        for fault in self._injected if self.problems else ():
            print(f"  {fault.began:.1f}..{fault.ended:.1f} {fault.fault}: {fault.target}")
        # Last: of a long output, CI shows the end.
        for problem in self.problems[:PROBLEMS_MAX]:
            print(f"PROBLEM {problem}")
        if len(self.problems) > PROBLEMS_MAX:
            print(f"... and {len(self.problems) - PROBLEMS_MAX} more")
        print("FAILED" if self.problems else "ok: each future resolved once, as it should")
