"""Runs a scenario once on one peer, in this process, and writes the figures as JSON.

``python -m benchmarks.run_one SCENARIO[,SCENARIO ...] PEER --answers FILE``, or ``--probe PEER``
for the version of the library. A process of its own per run isolates memory and import costs, and
lets a peer live in another environment; :mod:`benchmarks.runner` starts these. Several scenarios
share one cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenario import Run, Scenario

MISSING, WRONG, FAILED = "missing", "wrong", "failed"


def load(name: str, answers: Path) -> Any:
    """Return the peer with its library imported, or say why not and exit."""
    from benchmarks.peers import PEERS

    peer = PEERS[name]()
    try:
        peer.load()
    except ImportError as error:
        report(answers, {MISSING: f"{peer.module} cannot be imported ({error})"})
        sys.exit(0)
    return peer


def report(answers: Path, answer: dict[str, object]) -> None:
    """Append an answer to the file: what a library prints is not mixed with it."""
    with answers.open("a") as file:
        file.write(json.dumps(answer) + "\n")


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="benchmarks.run_one")
    parser.add_argument("scenario", nargs="?")
    parser.add_argument("peer")
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--less", type=int, default=1)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--answers", type=Path, required=True, help="the file that gets them")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--chunk-scale", type=float, default=1.0)
    options = parser.parse_args()
    for module in ("psutil", "msgpack", "zmq"):
        if find_spec(module) is None:
            report(options.answers, {MISSING: f"{module}, which measures it, is not there"})
            return
    peer = load(options.peer, options.answers)
    if options.probe:
        report(options.answers, {"version": peer.version(), "python": sys.version.split()[0]})
        return
    from benchmarks.catalogue import SCENARIOS
    from benchmarks.processes import in_child
    from benchmarks.scenario import Run, Size

    size = Size(options.scale, options.chunk_scale)
    with ExitStack() as held:
        place = options.place or Path(held.enter_context(TemporaryDirectory()))
        run = Run(peer, options.full, place, size, less=options.less)
        scenarios = [SCENARIOS[name] for name in options.scenario.split(",")]
        needed = [scenario.prepare for scenario in scenarios if scenario.prepare]
        if needed:
            in_child(partial(call_all, needed, run))
        if len(scenarios) > 1:
            held.enter_context(run.opened())
            run = replace(run, is_open=True)
        for scenario in scenarios:
            report(options.answers, {"scenario": scenario.name, **measure(scenario, run)})


def call_all(needed: list[Callable[[Run], None]], run: Run) -> None:
    """Prepare what scenarios need."""
    for prepare in needed:
        prepare(run)


def measure(scenario: Scenario, run: Run) -> dict[str, object]:
    """Return the figures, or why there are none; what is raised ends a scenario that is alone."""
    from benchmarks.scenario import WrongResult

    try:
        return {"figures": scenario.measure(run)}
    except WrongResult as error:
        return {WRONG: str(error)}
    except Exception as error:
        if not run.is_open:
            raise
        traceback.print_exc()
        return {FAILED: f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
