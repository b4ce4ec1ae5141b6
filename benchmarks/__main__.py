"""``python -m benchmarks``: see README.md beside this file."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.catalogue import SCENARIOS, find
from benchmarks.peers import PEERS
from benchmarks.report import as_json, machine, markdown
from benchmarks.runner import Measured, Options, probe, run_all
from benchmarks.scenario import Size


def names(text: str) -> list[str]:
    """Return the parts of a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def interpreter(text: str) -> tuple[str, str]:
    """Return the two sides of NAME=PATH."""
    peer, separator, path = text.partition("=")
    if not separator or peer not in PEERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH of one of {', '.join(PEERS)}")
    return peer, path


def positive(text: str) -> float:
    """Return a number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return number


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
    parser.add_argument(
        "--scale", type=positive, default=1.0, help="times as many chunks in each workload_*"
    )
    parser.add_argument(
        "--chunk-scale", type=positive, default=1.0, help="times as many bytes in each chunk there"
    )
    parser.add_argument(
        "--together", action="store_true", help="like ones on one cluster of each peer: faster"
    )
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
    # So that what the runs share is removed then as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with TemporaryDirectory(prefix="scaler-benchmarks-") as place:
        return measure(arguments, place)


def measure(arguments: argparse.Namespace, place: str) -> int:
    """Run, print and write, with a directory that the runs share; return 1 if a run failed."""
    options = Options(
        repeats=arguments.repeats,
        full=arguments.full,
        timeout_s=arguments.timeout,
        pythons=dict(arguments.peer_python),
        size=Size(arguments.scale, arguments.chunk_scale),
        together=arguments.together,
        place=place,
    )
    where = machine()
    say(", ".join(f"{key} {value}" for key, value in where.items()))
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
        report = as_json(arguments.scenarios, peers, measured, options)
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report | {"machine": where}, indent=1) + "\n")
    return 1 if measured.failures else 0


if __name__ == "__main__":
    sys.exit(main())
