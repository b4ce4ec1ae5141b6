"""The report in Markdown."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from benchmarks.page.data import TITLES
from benchmarks.peer import WORKERS
from benchmarks.report import ARROWS, cell, number
from benchmarks.scenario import EVERY_PEER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.page.data import Data

NOTHING = "-"
PICTURE = "![What a task costs that does nothing, by library]({place}/benchmarks.svg)"
BUSY = "Something else ran as it began, or had just ended: the load says so."
README_PEERS = ("ours", "ppe", "joblib", "dask", "ray", "scaler")
OF_PYTHON = ("ppe", "pool")
COLUMNS = (
    ("no-op map, tasks/s", "map_noop", "rate"),
    ("submit to result, µs", "round_trip", "p50"),
    ("10 ms tasks, % efficient", "tasks_10ms", "efficiency"),
    ("100 MB to 100 tasks, s", "broadcast", "seconds"),
    ("start to first result, s", "lifecycle", "start"),
)


def overview(data: Data, peers: Sequence[str]) -> list[str]:
    """Return the table of the most important figures, a row for each peer."""
    heads = ["", *(text for text, _, _ in COLUMNS), "a worker is killed"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * len(COLUMNS) + "---|"]
    for peer in peers:
        cells = [data.median(scenario, peer, metric) for _, scenario, metric in COLUMNS]
        texts = [NOTHING if value is None else number(value) for value in cells]
        lines.append(f"| {TITLES[peer]} | {' | '.join(texts)} | {data.fault(peer) or NOTHING} |")
    return lines


def task_peers(data: Data) -> list[str]:
    """Return the peers that run tasks, not graphs of Dask only."""
    return [peer for peer in data.peers if peer in EVERY_PEER]


def provenance(data: Data) -> str:
    """Say where, when and with what the figures were measured."""
    machine = data.raw["machine"]
    versions = "".join(
        f" {TITLES[peer]} {data.raw['peers'][peer]['version']}."
        for peer in data.peers
        if peer in EVERY_PEER and peer not in OF_PYTHON
    )
    busy = f" **{BUSY}**" if data.is_busy() else ""
    runs = data.raw["repeats"]
    medians = "One run" if runs == 1 else f"Medians of up to {runs} runs"
    return (
        f"Measured on {machine['when'][:10]} on {machine['processor']}, {machine['cores']} cores, "
        f"{machine['system']}, Python {machine['python']}, load {machine['load']} at the start, "
        f"revision {machine['revision']}. {medians}, {WORKERS} workers.{versions} "
        f"Command: `{data.raw['command']}`.{busy}"
    )


def losses(data: Data) -> list[str]:
    """Return a line for each figure of which peers have better ones: what we lose."""
    lines = []
    for (scenario, metric), group in groupby(data.losses(), lambda loss: loss[:2]):
        ours = data.median(scenario, "ours", metric)
        better = sorted(group, key=lambda loss: -loss.times)
        texts = [
            f"{TITLES[loss.peer]} {number(data.median(*loss[:1], loss.peer, metric) or 0)}, "
            f"{loss.times:.2f} times as good{' (within the spread)' if loss.is_close else ''}"
            for loss in better
        ]
        unit = data.unit(scenario, metric)
        lines.append(
            f"- `{scenario}`, {metric}, {unit}: ours {number(ours or 0)}; {'; '.join(texts)}"
        )
    return lines or ["- nothing of what was measured"]


def readme(data: Data) -> str:
    """Return what README.md has between its markers."""
    peers = [peer for peer in README_PEERS if peer in data.peers]
    lines = [*overview(data, peers), "", provenance(data), "", PICTURE.format(place="docs/images")]
    return "\n".join(lines)


def performance(data: Data) -> str:
    """Return what docs/performance.md has between its markers."""
    lines = [*overview(data, task_peers(data)), "", provenance(data)]
    lines += ["", PICTURE.format(place="images")]
    lines += ["", "Where others are better:", "", *losses(data)]
    lines += ["", "Not measured, or with fewer tasks:", "", *notes(data)]
    return "\n".join(lines)


def notes(data: Data) -> list[str]:
    """Say what is missing, what failed and who had fewer tasks."""
    raw = data.raw
    minutes, limit_s, less = raw["seconds"] / 60, raw["limit_s"], raw["less"]
    time = f"all took {minutes:.0f} minutes; each measurement had {limit_s:g} s"
    lines = [f"- {time}; all peers but ours had a {less}th of the tasks, or fewer"]
    for why, peers in _by_reason(raw["skipped"]).items():
        lines.append(f"- not measured: {peers}: {why}")
    for name, scenario in data.scenarios.items():
        for why, peers in _by_reason(scenario["left_out"]).items():
            lines.append(f"- `{name}` without {peers}: {why}")
        counts = {peer: data.median(name, peer, "tasks") for peer in data.peers}
        most = max((count for count in counts.values() if count), default=0)
        fewer = {
            peer: f"{count:,.0f} tasks instead of {most:,.0f}"
            for peer, count in counts.items()
            if count and count < most
        }
        lines += [f"- `{name}`: {peers} had {why}" for why, peers in _by_reason(fewer).items()]
        lines += _stopped(data, name)
    return lines + [f"- failed: {failure}" for failure in data.raw["failures"]]


def _by_reason(reasons: dict[str, str]) -> dict[str, str]:
    """Return the peers that have the same reason, as text."""
    found: dict[str, list[str]] = {}
    for peer, why in reasons.items():
        found.setdefault(why, []).append(TITLES[peer])
    return {why: ", ".join(peers) for why, peers in found.items()}


def _stopped(data: Data, name: str) -> list[str]:
    """Say which step of a ladder was the last one of a peer that did not take them all."""
    if name not in {"echo", "many_tasks", "many_workers"}:
        return []
    last = {}
    for peer in data.peers:
        done = [metric for metric in data.metrics(name) if data.figure(name, peer, metric)]
        if done and len(done) < len(data.metrics(name)):
            last[peer] = f"ended with {done[-1]}, as the next step would have taken too long"
    return [f"- `{name}`: {peers} {why}" for why, peers in _by_reason(last).items()]


def summary(data: Data) -> str:
    """Return the whole report in Markdown."""
    peers = data.peers
    lines = ["# Benchmarks", "", performance(data), "", "## All figures", ""]
    lines += ["Median (least..most); **ours / theirs**; ↑ more is better, ↓ less.", ""]
    lines.append(f"| scenario | metric | unit | {' | '.join(TITLES[peer] for peer in peers)} |")
    lines.append("|---|---|---|" + "---:|" * len(peers))
    for name in data.scenarios:
        for metric in data.metrics(name):
            figures = {peer: data.figure(name, peer, metric) for peer in peers}
            if any(figures.values()):
                cells = [cell(figures[peer], figures.get("ours")) for peer in peers]
                arrow = ARROWS[data.scenarios[name]["better"][metric]]
                unit = f"{data.unit(name, metric)} {arrow}"
                lines.append(f"| {name} | {metric} | {unit} | {' | '.join(cells)} |")
    lines += ["", "## Scenarios", ""]
    lines += [f"- `{name}`: {scenario['summary']}" for name, scenario in data.scenarios.items()]
    lines += [f"- `{name}`, not run: {text}" for name, text in data.raw["not_run"].items()]
    return "\n".join(lines) + "\n"
