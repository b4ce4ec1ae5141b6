# PYTHON_ARGCOMPLETE_OK
"""``scaler_keys``: makes and lists the keys of a cluster, adds some and removes some."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import guard
from scaler_cluster.config.load import Parser, complete
from scaler_cluster.security import key_files
from scaler_cluster.users import MANY

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

PROGRAM = "scaler_keys"
ABOUT = "Make and manage the keys of a cluster: without one, nobody reaches it."
USES = {
    "scheduler": "for scaler_scheduler, on its machine only: it says who is let in",
    "storage": "for scaler_object_storage_server",
    "worker": "for scaler_cluster, on each machine with workers",
    "client": "for programs: Client(keys=...), ScalerExecutor(keys=...), or SCALER_KEYS",
    "monitor": "for scaler_top, scaler_ui, scaler_metrics, scaler_record, scaler_logs and "
    "scaler_profile: it only looks",
    "operator": "for scaler_control: it cancels others' tasks, and pauses and ends workers",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    return guard(PROGRAM, lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> None:
    parser = _parser()
    complete(parser)
    given = parser.parse_args(arguments)
    given.run(given)


def _parser() -> Parser:
    parser = Parser(PROGRAM, description=ABOUT, allow_abbrev=False)
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=Parser)

    one = verbs.add_parser("new", help="make a directory with the keys of a new cluster")
    _takes_directory(one, _new)

    one = verbs.add_parser("add", help="make one more key, and let it in")
    _takes_directory(one, _add)
    one.add_argument("role", choices=MANY, help="what it is for")
    one.add_argument("name", help="whose it is")

    one = verbs.add_parser("list", help="list who is let in")
    _takes_directory(one, _list)

    one = verbs.add_parser("remove", help="let a key in no more, and end what it has running")
    _takes_directory(one, _remove)
    one.add_argument("name", help="whose it is")

    about = "make the key with which scaler_control acts on your clusters at loopback addresses"
    one = verbs.add_parser("loopback-operator", help=about)
    one.set_defaults(run=_loopback_operator)

    one = verbs.add_parser("show-public", help="show whose keys a file has, and no secret")
    one.add_argument("file", metavar="FILE", type=Path, help="a file of keys")
    one.set_defaults(run=_show_public)
    return parser


def _takes_directory(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]
) -> None:
    about = "where the keys of the cluster lie"
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help=about)
    parser.set_defaults(run=run)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _new(given: argparse.Namespace) -> None:
    for path in key_files.make_cluster(given.directory):
        _say(f"{path}  {USES[path.stem]}")
    _say("Copy each file only to where it is used, by a way that nobody else can read.")


def _add(given: argparse.Namespace) -> None:
    path = key_files.add(given.directory, given.role, given.name)
    _say(f"{path}  {USES[given.role]}")


def _list(given: argparse.Namespace) -> None:
    keys = key_files.read_keys(key_files.scheduler_file(given.directory))
    for one in (keys.own, *keys.known):
        _say(f"{one.role:<10} {one.name:<20} {one.public}")


def _remove(given: argparse.Namespace) -> None:
    key_files.remove(given.directory, given.name)
    _say(f"{given.name} is out: a scheduler that runs notices it within two seconds")


def _loopback_operator(given: argparse.Namespace) -> None:
    path = key_files.make_loopback_operator()
    _say(f"{path}  {USES['operator']}")
    _say("Schedulers that start from now on know it.")


def _show_public(given: argparse.Namespace) -> None:
    keys = key_files.read_keys(given.file)
    for one in (keys.own, *keys.known):
        _say(str(one))


if __name__ == "__main__":
    raise SystemExit(main())
