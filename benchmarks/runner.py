"""Runs every scenario on every peer, interleaved, each run in a fresh process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks import ROOT, SOURCE_ROOTS
from benchmarks.figures import Figure
from benchmarks.run_one import MISSING
from benchmarks.scenario import Size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.scenario import Scenario

ERROR_LINES = 3
LOOK_S = 0.1
EXIT_S = 5.0
"""How long a run may take to end once it has said all."""
MARK = "SCALER_BENCHMARK_RUN"
"""The environment variable by which all processes of a run are known."""


@dataclass
class Options:
    """What the command line says about how to run."""

    repeats: int = 5
    full: bool = False
    less: int = 1
    """What the number of tasks is divided by, but for ours."""
    timeout_s: float = 600.0
    pythons: dict[str, str] = field(default_factory=dict)
    """Interpreter of a peer, where it is not this one."""
    size: Size = field(default_factory=Size)
    """Of the real workloads of Dask."""
    together: bool = False
    """Whether the scenarios that may do so share one cluster of each peer."""
    place: str = ""
    """The directory that the runs share; empty: each run makes its own."""
    once: Sequence[str] = ()
    """Scenarios that are not repeated, by name."""
    deadline: float = math.inf
    """When all ends, by the monotonic clock."""

    def flags(self) -> list[str]:
        """Return what a run is told of this."""
        flags = [f"--scale={self.size.chunks}", f"--chunk-scale={self.size.nbytes}"]
        if self.less > 1:
            flags.append(f"--less={self.less}")
        if self.full:
            flags.append("--full")
        if self.place:
            flags.append(f"--place={self.place}")
        return flags


@dataclass
class Measured:
    """Everything that was measured."""

    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Peers that were not run at all, and why."""
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    """By scenario, peer and metric, one value per repeat."""
    failed: set[tuple[str, str]] = field(default_factory=set)
    """Scenarios and peers that did not end well."""
    missed: set[tuple[str, str]] = field(default_factory=set)
    """Scenarios and peers for which there was no time."""
    failures: list[str] = field(default_factory=list)

    def figure(self, scenario: str, peer: str, metric: str) -> Figure | None:
        """Return the figure, or None if there is none."""
        values = self.values.get((scenario, peer, metric))
        return Figure.of(values) if values else None

    def median(self, scenario: str, peer: str, metric: str) -> float | None:
        """Return the median, or None if there is none."""
        figure = self.figure(scenario, peer, metric)
        return figure.median if figure else None


@dataclass
class Reply:
    """What a run said before its end, and why it said no more."""

    answers: list[dict[str, Any]]
    reason: str


def call(peer: str, options: Options, *arguments: str, expected: int = 1) -> Reply:
    """Run :mod:`benchmarks.run_one` in the peer's interpreter and return its answers.

    It has so long for each of the expected ones. What the peer leaves behind is ended.
    """
    with TemporaryDirectory(prefix="scaler-benchmarks-") as place:
        answers, errors = Path(place, "answers"), Path(place, "errors")
        answers.touch()
        python = options.pythons.get(peer, sys.executable)
        mark = f"{os.getpid()}-{time.monotonic_ns()}"
        with errors.open("w") as error_file:
            process = subprocess.Popen(
                [python, "-m", "benchmarks.run_one", *arguments, f"--answers={answers}"],
                cwd=ROOT,
                env=_environment(python) | {MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=error_file,
                start_new_session=True,
            )
            try:
                is_late = not _ends(process, answers, expected, options)
            finally:
                _end(process, mark)
        said = [json.loads(line) for line in answers.read_text().splitlines()]
        if is_late:
            return Reply(said, f"no end within {options.timeout_s:g} s")
        lines = errors.read_text(errors="replace").strip().splitlines()
        return Reply(said, " / ".join(lines[-ERROR_LINES:]) or "no answer")


def _environment(python: str) -> dict[str, str]:
    """Return the environment variables of a run: the peer's own commands are found first."""
    environment = dict(os.environ)
    paths = [*SOURCE_ROOTS, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    environment["PATH"] = os.pathsep.join([str(Path(python).parent), environment.get("PATH", "")])
    return environment


def _ends(process: subprocess.Popen[bytes], answers: Path, expected: int, options: Options) -> bool:
    """Wait; return False if the run gave no further answer in time.

    With all of its answers there it may hang: a peer that lost a worker may wait for it forever.
    """
    given, since = 0, time.monotonic()
    while True:
        try:
            process.wait(LOOK_S)
            return True
        except subprocess.TimeoutExpired:
            pass
        now, before = time.monotonic(), given
        given = answers.read_text().count("\n")
        if given > before:
            since = now
        limit_s = EXIT_S if given >= expected else options.timeout_s
        if now - since > limit_s or now > options.deadline:
            return given >= expected


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a run, and what a hung or crashed peer left behind, in whatever session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for other in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if other.environ().get(MARK) == mark:
                other.kill()


def probe(peers: Sequence[str], options: Options, measured: Measured) -> list[str]:
    """Return the peers that can run; note the versions of these and the reasons of the others."""
    present = []
    for peer in peers:
        if peer in measured.skipped:
            continue
        reply = call(peer, options, peer, "--probe")
        answer = reply.answers[0] if reply.answers else {MISSING: reply.reason}
        if "version" in answer:
            measured.versions[peer] = answer
            present.append(peer)
        else:
            measured.skipped[peer] = answer[MISSING]
    return present


def run_once(
    scenarios: Sequence[Scenario], peer: str, options: Options, measured: Measured
) -> dict[str, dict[str, float]]:
    """Run scenarios once on one peer, keep their figures and return those of each that ended well.

    If there are several, they share a cluster, but for those after one that did not end.
    """
    found: dict[str, dict[str, float]] = {}
    rest = [scenario.name for scenario in scenarios]
    while rest:
        reply = call(peer, options, ",".join(rest), peer, *options.flags(), expected=len(rest))
        answers = {answer.pop("scenario", ""): answer for answer in reply.answers}
        # Of those without an answer, the first one is to blame for the others.
        failed = next((name for name in rest if name not in answers), "")
        is_over = time.monotonic() > options.deadline
        if failed and not is_over:
            answers[failed] = answers.pop("", {"failed": reply.reason})
        for name in [name for name in rest if name in answers]:
            rest.remove(name)
            figures: dict[str, float] | None = answers[name].get("figures")
            if figures is None:
                reason = next(iter(answers[name].values()))
                measured.failures.append(f"{name} on {peer}: {reason}")
                continue
            found[name] = figures
            for metric, value in figures.items():
                measured.values.setdefault((name, peer, metric), []).append(value)
        if rest and is_over:
            measured.missed |= {(name, peer) for name in rest}
            return found
    return found


def groups(scenarios: Sequence[Scenario], *, together: bool) -> list[list[Scenario]]:
    """Return the scenarios, each alone or with those with which it shares a cluster."""
    found: dict[str, list[Scenario]] = {}
    for scenario in scenarios:
        key = f"shared {scenario.shares}" if together and scenario.shares else scenario.name
        found.setdefault(key, []).append(scenario)
    return list(found.values())


def run_all(
    scenarios: Sequence[Scenario],
    peers: Sequence[str],
    options: Options,
    measured: Measured,
    say: Callable[[str], None],
) -> None:
    """Run everything once, then everything again: a drift of the machine meets all alike.

    What is to run only once comes last.
    """
    often = [scenario for scenario in scenarios if scenario.name not in options.once]
    once = [scenario for scenario in scenarios if scenario.name in options.once]
    for repeat in range(options.repeats):
        run_round(often, peers, options, measured, f"{repeat + 1}/{options.repeats}", say)
    run_round(once, peers, options, measured, "1/1", say)


def run_round(
    scenarios: Sequence[Scenario],
    peers: Sequence[str],
    options: Options,
    measured: Measured,
    name: str,
    say: Callable[[str], None],
) -> None:
    """Run each scenario once on each peer, but for those where it has failed before."""
    for group in groups(scenarios, together=options.together):
        for peer in peers:
            wanted = [
                scenario
                for scenario in group
                if peer in scenario.peers
                and peer not in scenario.left_out(full=options.full)
                and (scenario.name, peer) not in measured.failed
            ]
            if wanted and time.monotonic() > options.deadline:
                measured.missed |= {(one.name, peer) for one in wanted}
            elif wanted:
                before = len(measured.failures)
                found = run_once(wanted, peer, options, measured)
                for failure in measured.failures[before:]:
                    say(f"FAILED {failure}")
                for scenario in wanted:
                    if scenario.name in found:
                        first = scenario.metrics[0]
                        value = found[scenario.name][first.key]
                        say(f"{name} {scenario.name} on {peer}: {value:,.4g} {first.unit}")
                    else:
                        measured.failed.add((scenario.name, peer))
