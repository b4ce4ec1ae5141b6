"""Turns what was measured into a markdown table and into JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import ROOT
from benchmarks.goals import GOALS
from benchmarks.ratios import RATIOS, geometric_mean, ratios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.figures import Figure
    from benchmarks.runner import Measured, Options
    from benchmarks.scenario import Metric, Scenario

NO_TIME = "the time was over"
ARROWS = {"more": "↑", "less": "↓", "": ""}


def number(value: float) -> str:
    """Return a number with three or four digits that count."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if size < 1 else f"{value:.2f}"


def cell(figure: Figure | None, ours: Figure | None) -> str:
    """Return median, spread and, for a peer, the ratio of our median to its."""
    if figure is None:
        return ""
    text = f"{number(figure.median)} ({number(figure.low)}..{number(figure.high)})"
    if ours is None or figure is ours or not figure.median:
        return text
    return f"{text} **{number(ours.median / figure.median)}x**"


def row(scenario: Scenario, metric: Metric, peers: Sequence[str], measured: Measured) -> str:
    """Return the line of one metric."""
    figures = {peer: measured.figure(scenario.name, peer, metric.key) for peer in peers}
    ours = figures.get("ours")
    cells = [cell(figures[peer], ours) for peer in peers]
    unit = f"{metric.unit} {ARROWS[metric.better]}".strip()
    return f"| {scenario.name} | {metric.key} | {unit} | " + " | ".join(cells) + " |"


def notes(scenarios: Sequence[Scenario], peers: Sequence[str], measured: Measured) -> list[str]:
    """Return what the table cannot say: left out, failed, run with fewer tasks."""
    lines = [f"- {peer} skipped: {why}" for peer, why in measured.skipped.items()]
    for scenario in scenarios:
        lines += [
            f"- {scenario.name} without {peer}: {why}"
            for peer, why in scenario.left_out(full=False).items()
            if peer in peers and (scenario.name, peer, "tasks") not in measured.values
        ]
        counts = {peer: measured.median(scenario.name, peer, "tasks") for peer in peers}
        most = max((count for count in counts.values() if count), default=0)
        lines += [
            f"- {scenario.name} on {peer} with {count:,.0f} tasks instead of {most:,.0f}"
            for peer, count in counts.items()
            if count and count < most
        ]
    return lines + [f"- FAILED {failure}" for failure in measured.failures]


def workload_rows(peers: Sequence[str], measured: Measured) -> list[str]:
    """Return the table of the workloads of Dask: the median seconds of all, and the ratios."""
    by_ratio = {ratio.text: ratios(measured, ratio) for ratio in RATIOS}
    shown = {text: found for text, found in by_ratio.items() if found}
    if not shown:
        return []
    names = list(dict.fromkeys(name for found in shown.values() for name in found))
    peers = [
        peer
        for peer in peers
        if any(measured.median(name, peer, "seconds") is not None for name in names)
    ]
    lines = [
        f"| workload, s | {' | '.join([*peers, *shown])} |",
        "|---|" + "---|" * (len(peers) + len(shown)),
    ]
    for name in names:
        medians = [measured.median(name, peer, "seconds") for peer in peers]
        cells = [*medians, *(found.get(name) for found in shown.values())]
        lines.append(f"| {name} | {' | '.join(map(known, cells))} |")
    for text, of in (("geometric mean", geometric_mean), ("least", min)):
        figures = [number(of(found.values())) for found in shown.values()]
        lines.append(f"| {text} | {' | '.join(['' for _ in peers] + figures)} |")
    return lines


def known(value: float | None) -> str:
    """Return a number, or nothing where there is none."""
    return "" if value is None else number(value)


def goal_rows(measured: Measured) -> list[str]:
    """Return the lines of the goals whose scenarios were run."""
    lines = []
    for goal in GOALS:
        value = goal.value(measured)
        if value is not None:
            bound = ("≥ " if goal.better == "more" else "≤ ") + number(goal.bound)
            met = "yes" if goal.met(value) else "**NO**"
            lines.append(f"| {goal.text} | {bound} | {number(value)} | {met} |")
    return lines


def markdown(scenarios: Sequence[Scenario], peers: Sequence[str], measured: Measured) -> str:
    """Return the tables of figures and of goals."""
    lines = [
        "| scenario | metric | unit | " + " | ".join(peers) + " |",
        "|---|---|---|" + "---|" * len(peers),
    ]
    for scenario in scenarios:
        ran = {key[1:] for key in measured.values if key[0] == scenario.name}
        lines += [
            row(scenario, metric, peers, measured)
            for metric in scenario.metrics
            if any((peer, metric.key) in ran for peer in peers)
        ]
    lines += ["", "Median (least..most) of the repeats; **ours / peer**; ↑ more is better, ↓ less."]
    lines += notes(scenarios, peers, measured)
    workloads = workload_rows(peers, measured)
    if workloads:
        lines += ["", *workloads]
    goals = goal_rows(measured)
    if goals:
        lines += ["", "| floor | bound | measured | met |", "|---|---|---|---|", *goals]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "when": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "revision": revision.stdout.strip(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open() as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()


def as_json(
    scenarios: Sequence[Scenario], peers: Sequence[str], measured: Measured, options: Options
) -> dict[str, Any]:
    """Return everything, each single value included."""
    results: dict[str, Any] = {}
    for scenario in scenarios:
        by_peer = results.setdefault(scenario.name, {"summary": scenario.summary, "peers": {}})
        by_peer["units"] = {metric.key: metric.unit for metric in scenario.metrics}
        by_peer["better"] = {metric.key: metric.better for metric in scenario.metrics}
        for name, peer, metric in measured.values:
            figure = measured.figure(name, peer, metric)
            if name == scenario.name and figure:
                by_peer["peers"].setdefault(peer, {})[metric] = figure.as_json()
        by_peer["left_out"] = scenario.left_out(full=options.full) | {
            peer: NO_TIME
            for name, peer in sorted(measured.missed)
            if name == scenario.name and peer not in by_peer["peers"]
        }
    goals = [(goal, goal.value(measured)) for goal in GOALS]
    return {
        "machine": machine(),
        "repeats": options.repeats,
        "together": options.together,
        "size": dataclasses.asdict(options.size),
        "peers": {peer: measured.versions.get(peer) for peer in peers},
        "skipped": measured.skipped,
        "failures": measured.failures,
        "scenarios": results,
        "ratios": {ratio.text: ratios(measured, ratio) for ratio in RATIOS},
        "goals": [
            {"text": goal.text, "bound": goal.bound, "value": value, "met": goal.met(value)}
            for goal, value in goals
            if value is not None
        ],
    }
