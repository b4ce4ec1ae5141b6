"""``python -m benchmarks``: see README.md beside this file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.catalogue import SCENARIOS, find
from benchmarks.peers import PEERS
from benchmarks.report import as_json, machine, markdown
from benchmarks.runner import Measured, Options, probe, run_all


def names(text: str) -> list[str]:
    """Return the parts of a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def interpreter(text: str) -> tuple[str, str]:
    """Return the two sides of NAME=PATH."""
    peer, separator, path = text.partition("=")
    if not separator or peer not in PEERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH of one of {', '.join(PEERS)}")
    return peer, path


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures the engine and its peers in one run.",
        epilog="Scenarios: " + ", ".join(SCENARIOS) + ". Peers: " + ", ".join(PEERS) + ".",
    )
    parser.add_argument("--scenarios", type=names, default=[], help="names or groups; all")
    parser.add_argument("--peers", type=names, default=list(PEERS), help="names; all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    parser.add_argument("--full", action="store_true", help="as many tasks for the slow peers")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per run")
    parser.add_argument(
        "--peer-python",
        type=interpreter,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="run this peer in another interpreter, which needs psutil, pyzmq and msgpack too",
    )
    options = parser.parse_args()
    unknown = [peer for peer in options.peers if peer not in PEERS]
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}")
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    try:
        options.scenarios = find(options.scenarios)
    except KeyError as error:
        parser.error(f"no such scenario: {error.args[0]}")
    return options


def say(line: str) -> None:
    """Tell how far it is; the tables alone go to standard output."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run, print, write; return 1 if a run failed."""
    arguments = parse()
    options = Options(
        repeats=arguments.repeats,
        full=arguments.full,
        timeout_s=arguments.timeout,
        pythons=dict(arguments.peer_python),
    )
    place = machine()
    say(", ".join(f"{key} {value}" for key, value in place.items()))
    measured = Measured()
    wanted = [
        peer
        for peer in arguments.peers
        if any(peer in scenario.peers for scenario in arguments.scenarios)
    ]
    peers = probe(wanted, options, measured)
    for peer, why in measured.skipped.items():
        say(f"{peer} skipped: {why}")
    try:
        run_all(arguments.scenarios, peers, options, measured, say)
    except KeyboardInterrupt:
        measured.failures.append("interrupted: the figures are of the repeats until then")
    print(markdown(arguments.scenarios, peers, measured))
    if arguments.json:
        report = as_json(arguments.scenarios, peers, measured, options.repeats)
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report | {"machine": place}, indent=1) + "\n")
    return 1 if measured.failures else 0


if __name__ == "__main__":
    sys.exit(main())
