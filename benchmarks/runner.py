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
    scenario: Scenario, peer: str, options: Options, measured: Measured
) -> dict[str, float] | None:
    """Run one scenario once on one peer and keep its figures; None if it failed."""
    flags = ["--full"] if options.full else []
    answer = call(peer, options, scenario.name, peer, *flags)
    figures: dict[str, float] | None = answer.get("figures")
    if figures is None:
        reason = answer.get("wrong") or answer.get("missing") or answer.get("failed")
        measured.failures.append(f"{scenario.name} on {peer}: {reason}")
        return None
    for metric, value in figures.items():
        measured.values.setdefault((scenario.name, peer, metric), []).append(value)
    return figures


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
        for scenario in scenarios:
            for peer in peers:
                left_out = peer not in scenario.peers or peer in scenario.left_out(
                    full=options.full
                )
                if left_out or (scenario.name, peer) in failed:
                    continue
                figures = run_once(scenario, peer, options, measured)
                if figures is None:
                    failed.add((scenario.name, peer))
                    say(f"FAILED {measured.failures[-1]}")
                    continue
                first = scenario.metrics[0]
                say(
                    f"{repeat + 1}/{options.repeats} {scenario.name} on {peer}: "
                    f"{figures[first.key]:,.4g} {first.unit}"
                )
