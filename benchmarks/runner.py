"""Runs every scenario on every peer, interleaved, each run in a fresh process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks import ROOT, SOURCE_ROOTS
from benchmarks.figures import Figure
from benchmarks.scenario import Size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.scenario import Scenario

ERROR_LINES = 3


@dataclass
class Options:
    """What the command line says about how to run."""

    repeats: int = 5
    full: bool = False
    timeout_s: float = 600.0
    pythons: dict[str, str] = field(default_factory=dict)
    """Interpreter of a peer, where it is not this one."""
    size: Size = field(default_factory=Size)
    """Of the real workloads of Dask."""
    together: bool = False
    """Whether the scenarios that may do so share one cluster of each peer."""
    place: str = ""
    """The directory that the runs share; empty: each run makes its own."""

    def flags(self) -> list[str]:
        """Return what a run is told of this."""
        flags = [f"--scale={self.size.chunks}", f"--chunk-scale={self.size.nbytes}"]
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
    failures: list[str] = field(default_factory=list)

    def figure(self, scenario: str, peer: str, metric: str) -> Figure | None:
        """Return the figure, or None if there is none."""
        values = self.values.get((scenario, peer, metric))
        return Figure.of(values) if values else None

    def median(self, scenario: str, peer: str, metric: str) -> float | None:
        """Return the median, or None if there is none."""
        figure = self.figure(scenario, peer, metric)
        return figure.median if figure else None


def call(peer: str, options: Options, *arguments: str) -> dict[str, Any]:
    """Run :mod:`benchmarks.run_one` in the peer's interpreter and return its answer.

    Where it fails, hangs or says nothing, the answer is ``{"failed": why}``.
    """
    environment = dict(os.environ)
    paths = [*SOURCE_ROOTS, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    process = subprocess.Popen(
        [options.pythons.get(peer, sys.executable), "-m", "benchmarks.run_one", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=options.timeout_s)
    except subprocess.TimeoutExpired:
        out, error = "", f"no end within {options.timeout_s:g} s"
    finally:
        # Also whatever a hung or crashed peer left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = out.strip().splitlines()
    if process.returncode == 0 and lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer
    return {"failed": " / ".join(error.strip().splitlines()[-ERROR_LINES:]) or "no answer"}


def probe(peers: Sequence[str], options: Options, measured: Measured) -> list[str]:
    """Return the peers that can run; note the versions of these and the reasons of the others."""
    present = []
    for peer in peers:
        answer = call(peer, options, peer, "--probe")
        if "version" in answer:
            measured.versions[peer] = answer
            present.append(peer)
        else:
            measured.skipped[peer] = answer.get("missing") or answer.get("failed", "")
    return present


def run_once(
    scenarios: Sequence[Scenario], peer: str, options: Options, measured: Measured
) -> dict[str, dict[str, float]]:
    """Run scenarios once on one peer, keep their figures and return those of each that ended well.

    If there are several, they share a cluster.
    """
    names = [scenario.name for scenario in scenarios]
    reply = call(peer, options, ",".join(names), peer, *options.flags())
    answers = reply.get("answers") or dict.fromkeys(names, reply)
    found = {}
    for name, answer in answers.items():
        figures: dict[str, float] | None = answer.get("figures")
        if figures is None:
            reason = answer.get("wrong") or answer.get("missing") or answer.get("failed")
            measured.failures.append(f"{name} on {peer}: {reason}")
            continue
        found[name] = figures
        for metric, value in figures.items():
            measured.values.setdefault((name, peer, metric), []).append(value)
    return found


def groups(scenarios: Sequence[Scenario], *, together: bool) -> list[list[Scenario]]:
    """Return the scenarios, each alone or with those with which it shares a cluster."""
    sharing = [scenario for scenario in scenarios if together and scenario.may_share]
    alone = [[scenario] for scenario in scenarios if scenario not in sharing]
    return [*alone, sharing] if sharing else alone


def run_all(
    scenarios: Sequence[Scenario],
    peers: Sequence[str],
    options: Options,
    measured: Measured,
    say: Callable[[str], None],
) -> None:
    """Run everything once, then everything again: a drift of the machine meets all alike.

    Of a peer that fails a scenario no further repeat is tried.
    """
    failed: set[tuple[str, str]] = set()
    for repeat in range(options.repeats):
        for group in groups(scenarios, together=options.together):
            for peer in peers:
                wanted = [
                    scenario
                    for scenario in group
                    if peer in scenario.peers
                    and peer not in scenario.left_out(full=options.full)
                    and (scenario.name, peer) not in failed
                ]
                if not wanted:
                    continue
                before = len(measured.failures)
                found = run_once(wanted, peer, options, measured)
                for failure in measured.failures[before:]:
                    say(f"FAILED {failure}")
                for scenario in wanted:
                    if scenario.name not in found:
                        failed.add((scenario.name, peer))
                        continue
                    first = scenario.metrics[0]
                    say(
                        f"{repeat + 1}/{options.repeats} {scenario.name} on {peer}: "
                        f"{found[scenario.name][first.key]:,.4g} {first.unit}"
                    )
