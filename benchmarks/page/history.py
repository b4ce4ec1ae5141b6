"""One line of JSON for each run, so that a regression is seen.

A line is what pytest-benchmark writes for a run: machine, commit, time, and for each benchmark its
name, group, parameters and the spread of its values. A line is whole in itself: so a file only
grows, and needs no index and no directory for each machine, as the results of asv do.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.page.data import Data

VERSION = "1"


def line(data: Data) -> dict[str, Any]:
    """Return what a run adds."""
    machine = data.raw["machine"]
    revision = machine["revision"]
    return {
        "machine_info": {name: machine[name] for name in ("system", "processor", "cores", "load")},
        "commit_info": {
            "id": revision.removesuffix("-dirty"),
            "dirty": revision.endswith("-dirty"),
        },
        "datetime": machine["when"],
        "version": VERSION,
        "benchmarks": [
            _benchmark(data, scenario, metric, peer)
            for scenario in data.scenarios
            for metric in data.metrics(scenario)
            for peer in data.peers
            if data.figure(scenario, peer, metric)
        ],
    }


def _benchmark(data: Data, scenario: str, metric: str, peer: str) -> dict[str, Any]:
    figure = data.figure(scenario, peer, metric)
    assert figure is not None
    return {
        "group": scenario,
        "name": f"{scenario}[{peer}-{metric}]",
        "params": {"peer": peer, "metric": metric},
        "extra_info": {
            "unit": data.unit(scenario, metric),
            "better": data.scenarios[scenario]["better"][metric],
        },
        "stats": {
            "min": figure.low,
            "max": figure.high,
            "mean": statistics.fmean(figure.values),
            "median": figure.median,
            "rounds": len(figure.values),
        },
    }


def append(path: Path, data: Data) -> None:
    """Append a run to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line(data)) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Return all runs of the file, the oldest first; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().splitlines()]
