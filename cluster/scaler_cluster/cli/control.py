# PYTHON_ARGCOMPLETE_OK
"""``scaler_control``: acts on the tasks and workers of a cluster, with an operator's key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.client.operator import Operator
from scaler_cluster.config.load import Parser, complete
from scaler_cluster.errors import ConfigError
from scaler_cluster.wire.messages import (
    CANCEL,
    DRAIN,
    PAUSE,
    PLACES,
    RESTART,
    RESUME,
    WORK,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.operator import Met

PROGRAM = "scaler_control"
ABOUT = (
    "Cancel tasks, and pause, resume, drain or restart workers, with an operator's key. The "
    "command says what that would meet, and asks before it does it."
)
HELP = {
    CANCEL: "cancel a task (CLIENT:TASK), all tasks of a function, a graph, or a client's work",
    PAUSE: "give a worker or machine nothing more until it is resumed",
    RESUME: "let a paused worker or machine go on",
    DRAIN: "let a worker or machine finish what it runs, and leave for good",
    RESTART: "let new processes take the place of a worker, or of a machine's workers",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    return guard(PROGRAM, lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> None:
    parser = _parser()
    complete(parser)
    given = parser.parse_args(arguments)
    with Operator(given.address, keys=given.keys, timeout=given.timeout) as operator:
        act = _action(operator, given)
        what = f"{given.action} {given.kind} {given.name}"
        if not given.yes:
            _ask(f"{what}: {act(True).text}. Do it? [y/N] ")
        sys.stdout.write(f"{what}: {act(False).text}\n")


def _action(operator: Operator, given: argparse.Namespace) -> Callable[[bool], Met]:
    """Return what does it, or tries what it would do."""
    name = {given.kind: given.name}
    if given.action == RESTART:
        name["force"] = given.force
    method = getattr(operator, given.action)
    return lambda is_trial: method(**name, trial=is_trial)


def _ask(question: str) -> None:
    """Ask whoever sits at the terminal; raises ConfigError if that is nobody, or if they say no."""
    sys.stdout.write(question)
    sys.stdout.flush()
    if not sys.stdin.isatty():
        sys.stdout.write("\n")
        raise ConfigError("nobody is here to be asked: say --yes to do it")
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was done")


def _parser() -> Parser:
    parser = Parser(PROGRAM, description=ABOUT, allow_abbrev=False)
    parser.add_argument("address", metavar="ADDRESS", help="the address of the scheduler")
    verbs = parser.add_subparsers(
        required=True, dest="action", metavar="ACTION", parser_class=Parser
    )
    for action, text in HELP.items():
        one = verbs.add_parser(action, help=text, description=text)
        kinds = WORK if action == CANCEL else PLACES
        one.add_argument("kind", choices=kinds, help="what it acts on")
        one.add_argument("name", metavar="NAME", help="which, as the dashboard and scaler_top say")
        one.add_argument("--yes", action="store_true", help="do not ask before")
        about = "a file of an operator's key; without it, the one for loopback, or SCALER_KEYS"
        one.add_argument("--keys", metavar="FILE", help=about)
        about = "seconds to wait for the scheduler's answer (default: %(default)s)"
        one.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help=about)
        if action == RESTART:
            about = "kill them at once: what they run begins anew"
            one.add_argument("--force", action="store_true", help=about)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
