"""``python -m benchmarks.report_all``: all peers, all kinds of measurements, one page.

Peers that need an environment of their own get one below a cache directory. A peer that cannot be
installed or run is named with the reason. The page, its raw data and a summary go to a directory.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import signal
import sys
import time
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks import ROOT
from benchmarks.catalogue import SCENARIOS, find
from benchmarks.environments import DEFAULT, interpreters
from benchmarks.page import documents, history, html_page, svg, tables
from benchmarks.page.data import Data
from benchmarks.peers import PEERS
from benchmarks.report import as_json, machine
from benchmarks.runner import Measured, Options, probe, run_all
from benchmarks.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = ROOT / "benchmarks" / "results"
CHOSEN = (
    *("map_noop", "map_chunked", "submit_collect", "round_trip", "tasks_1ms", "tasks_10ms"),
    *("uneven_tail", "graph_tree", "graph_chain", "graph_fan"),
    *("worker_killed", "lifecycle", "broadcast", "echo", "nested_fibonacci"),
    *("workload_group_many", "workload_merge", "workload_shuffle", "workload_sum"),
    *("workload_matmul", "workload_rechunk", "workload_words", "workload_tree"),
    *("many_workers", "many_tasks", "queue_depth_1e4"),
)
"""In this order, as the time may not suffice for the last ones."""
ONCE = CHOSEN[CHOSEN.index("worker_killed") :]
"""These take longer, and run once."""
CHOSEN_PEERS = (*Scenario.peers, "threads")
QUICK = ("map_noop", "submit_collect", "round_trip", "worker_killed")
QUICK_PEERS = ("ours", "ppe")
LESS, QUICK_LESS = 5, 100
LIBRARIES = ("numpy", "pandas", "dask", "bokeh")
"""Those of this environment, which the page names besides the peers."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report_all",
        description="Measures the engine and all peers, and writes one page about it.",
    )
    parser.add_argument("--quick", action="store_true", help="ours and ppe, few scenarios")
    parser.add_argument("--whole", action="store_true", help="every scenario and peer: hours")
    parser.add_argument("--scenarios", type=_names, help="names or groups instead of those chosen")
    parser.add_argument("--peers", type=_names, help="names instead of all that may be measured")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which all ends")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each measurement")
    parser.add_argument(
        "--less", type=int, help="divide the number of tasks of all peers but ours by it"
    )
    parser.add_argument(
        "--peers-cache", type=Path, default=DEFAULT, metavar="DIR", help="environments of peers"
    )
    parser.add_argument("--install-only", action="store_true", help="make these, measure nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="for the page")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing: show this")
    parser.add_argument("--history", type=Path, metavar="FILE", help="append to it, and show it")
    parser.add_argument("--write-docs", action="store_true", help="write README.md and docs/")
    return parser.parse_args(arguments)


def _shown(words: Sequence[str]) -> str:
    """Return the command without the places of this machine."""
    places = ("--peers-cache", "--out", "--history")
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before not in places and word.split("=")[0] not in places
    ]
    return shlex.join(["python", "-m", "benchmarks.report_all", *kept])


def _without(here: dict[str, str], text: str) -> str:
    """Return a text without the places of this machine."""
    for place, name in here.items():
        text = text.replace(place, name)
    return text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Run all that was asked for; return the raw data."""
    start, where = time.monotonic(), machine()
    chosen = QUICK if options.quick else tuple(SCENARIOS) if options.whole else CHOSEN
    scenarios = find(options.scenarios) if options.scenarios else [SCENARIOS[one] for one in chosen]
    rivals = QUICK_PEERS if options.quick else tuple(PEERS) if options.whole else CHOSEN_PEERS
    peers = list(options.peers or rivals)
    less = options.less or (QUICK_LESS if options.quick else LESS)
    measured = Measured()
    pythons, failed = interpreters(peers, options.peers_cache, _say)
    measured.skipped |= failed
    measured.skipped |= {peer: "not asked for" for peer in PEERS if peer not in peers}
    with TemporaryDirectory(prefix="scaler-benchmarks-") as place:
        how = Options(
            repeats=options.repeats,
            timeout_s=options.timeout,
            less=less,
            pythons=pythons,
            together=True,
            place=place,
            once=() if options.whole else ONCE,
            deadline=start + options.minutes * 60,
        )
        peers = probe(peers, how, measured)
        for peer, why in measured.skipped.items():
            _say(f"{peer} skipped: {why}")
        try:
            run_all(scenarios, peers, how, measured, _say)
        except KeyboardInterrupt:
            measured.failures.append("interrupted: the figures are of the repeats until then")
        here = {str(options.peers_cache.resolve()): "PEERS", str(ROOT): ".", str(Path.home()): "~"}
        measured.failures = [_without(here, text) for text in measured.failures]
        raw = as_json(scenarios, peers, measured, how)
    return raw | {
        "machine": where,
        "command": command,
        "seconds": round(time.monotonic() - start),
        "less": less,
        "limit_s": options.timeout,
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "not_run": {
            name: scenario.summary
            for name, scenario in SCENARIOS.items()
            if scenario not in scenarios
        },
    }


def write(raw: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the page and what belongs to it."""
    data = Data(raw)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.history and not options.from_json:
        history.append(options.history, data)
    past = history.read(options.history) if options.history else []
    if not options.from_json:
        (options.out / "report.json").write_text(json.dumps(raw, indent=1) + "\n")
    (options.out / "report.html").write_text(html_page.render(data, past))
    (options.out / "report.md").write_text(tables.summary(data))
    if options.write_docs:
        documents.write(data)
        (ROOT / "docs" / "images" / "benchmarks.svg").write_text(svg.chart(data))
    _say(f"written: {options.out / 'report.html'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; return 1 if nothing of ours was measured."""
    options = parse(arguments)
    # So that what the runs share is removed then as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.install_only:
        _, failed = interpreters(options.peers or CHOSEN_PEERS, options.peers_cache, _say)
        for why in failed.values():
            _say(why)
        return 1 if failed else 0
    if options.from_json:
        raw = json.loads(options.from_json.read_text())
    else:
        raw = measure(options, _shown(sys.argv[1:] if arguments is None else arguments))
    write(raw, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
