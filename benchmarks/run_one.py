"""Runs one scenario once on one peer, in this process, and prints the figures as JSON.

``python -m benchmarks.run_one SCENARIO PEER [--full]``, or ``--probe PEER`` for the library's
version. A process of its own per run isolates memory and import costs, and lets a peer live in
another environment; :mod:`benchmarks.runner` starts these.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from typing import Any

MISSING, WRONG = "missing", "wrong"


def load(name: str) -> Any:
    """Return the peer with its library imported, or print why not and exit."""
    from benchmarks.peers import PEERS

    peer = PEERS[name]()
    try:
        peer.load()
    except ImportError as error:
        report({MISSING: f"{peer.module} cannot be imported ({error})"})
        sys.exit(0)
    return peer


def report(answer: dict[str, object]) -> None:
    """Print the answer as the last line, whatever a library has printed before."""
    print("\n" + json.dumps(answer), flush=True)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="benchmarks.run_one")
    parser.add_argument("scenario", nargs="?")
    parser.add_argument("peer")
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    for module in ("psutil", "msgpack", "zmq"):
        if find_spec(module) is None:
            report({MISSING: f"{module}, which measures it, is not installed there"})
            return
    peer = load(options.peer)
    if options.probe:
        report({"version": peer.version(), "python": sys.version.split()[0]})
        return
    from benchmarks.catalogue import SCENARIOS
    from benchmarks.scenario import Run, WrongResult

    try:
        figures = SCENARIOS[options.scenario].measure(Run(peer, options.full))
    except WrongResult as error:
        report({WRONG: str(error)})
    else:
        report({"figures": figures})


if __name__ == "__main__":
    main()
