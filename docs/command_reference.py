"""Writes ``command-lines.md``, from the parsers that the commands themselves use."""

from __future__ import annotations

import argparse
import signal
import sys
from importlib import import_module
from pathlib import Path

from scaler_cluster.config.load import Parser
from scaler_cluster.config.manager_types import MANAGERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
MANAGER = "scaler_worker_manager"
HEAD = """\
# Command lines

<!-- made by docs/make_reference.py -->

Each command with all that it takes, as `--help` says it. [Commands](commands.md) explains what the
commands are for, and [Settings](settings.md) has the same options as keys of a file.

| to | use |
|---|---|
| run a cluster | {cluster} |
| have workers started on demand | {demand} |
| watch | {watch} |
| act on what runs, make keys | {act} |
"""
USES = {
    "cluster": "scaler scaler_scheduler scaler_cluster scaler_object_storage_server",
    "demand": "scaler_worker_manager scaler_symphony_cluster scaler_worker_adapter_native "
    "scaler_worker_adapter_fixed_native scaler_worker_adapter_ecs scaler_worker_adapter_symphony",
    "watch": "scaler_top scaler_ui scaler_logs scaler_profile scaler_metrics scaler_record "
    "scaler_report scaler_trace",
    "act": "scaler_control scaler_keys",
}
OTHER_NAMES = {"scaler_cluster": "scaler_worker", "scaler_ui": "scaler_gui"}
TYPES = """\
## scaler_worker_manager

Have workers started as they are wanted: [Workers on demand](managers.md).

`scaler_worker_manager TYPE [scheduler_address] [option ...]`

All types have these options:
"""


class _Caught(Exception):
    """Has the parser of a command that was about to read its command line."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def command_lines() -> str:
    """Return the reference of all command lines."""
    scripts = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
    listed = [name for names in USES.values() for name in names.split()]
    assert sorted([*listed, *OTHER_NAMES.values()]) == sorted(scripts), "list each command above"
    shown = {
        key: ", ".join(f"[`{name}`](#{name})" for name in names.split())
        for key, names in USES.items()
    }
    lines = HEAD.format(**shown).rstrip().splitlines()
    for name in listed:
        lines += ["", *(_manager(scripts) if name == MANAGER else _command(name, scripts))]
    return "\n".join(lines) + "\n"


def _command(name: str, scripts: dict[str, str]) -> list[str]:
    parser = parser_of(scripts[name])
    lines = [f"## {name}", "", _sentence(parser.description or "")]
    if other := OTHER_NAMES.get(name):
        assert _rows(parser_of(scripts[other])) == _rows(parser)
        lines += ["", f"`{other}` is another name of this command."]
    lines += ["", *_usage(parser), *_table(_rows(parser))]
    for verb, about, one in _verbs(parser):
        lines += [
            "",
            f"### {name} {verb}",
            "",
            _sentence(about),
            "",
            *_usage(one),
            *_table(_rows(one)),
        ]
    return lines


def _manager(scripts: dict[str, str]) -> list[str]:
    """Return the options that all types have, once, and then those of each type."""
    rows = {name: _rows(parser_of(scripts[MANAGER], name)) for name in MANAGERS}
    common = [row for row in rows["slurm"] if all(row in one for one in rows.values())]
    types: dict[tuple[str, ...], list[str]] = {}
    for name, of_type in rows.items():
        types.setdefault(tuple(of_type), []).append(name)
    lines = [*TYPES.splitlines(), *_table(common)]
    for of_type, names in types.items():
        own = [row for row in of_type if row not in common]
        lines += ["", f"### {MANAGER} {', '.join(names)}", *_table(own)]
    return lines


def parser_of(entry: str, *arguments: str) -> argparse.ArgumentParser:
    """Return the parser of a command, which gets no farther than to that."""
    module, _, function = entry.partition(":")
    main = getattr(import_module(module), function)
    before = signal.getsignal(signal.SIGTERM)
    kept = Parser.parse_known_args

    def catch(self: Parser, *_: object) -> None:
        raise _Caught(self)

    Parser.parse_known_args = catch  # type: ignore[assignment,method-assign]
    try:
        main(list(arguments))
    except _Caught as caught:
        return caught.parser
    finally:
        Parser.parse_known_args = kept  # type: ignore[method-assign]
        signal.signal(signal.SIGTERM, before)
    raise AssertionError(f"{entry} reads no command line")


def _sentence(text: str) -> str:
    assert text
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _verbs(
    parser: argparse.ArgumentParser,
) -> list[tuple[str, str, argparse.ArgumentParser]]:
    """Return the verbs of a command, each with what it does and its parser."""
    for one in parser._actions:
        if isinstance(one, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in one._choices_actions}
            return [(verb, helps[verb], choice) for verb, choice in one.choices.items()]
    return []


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [one for one in parser._actions if one.help != argparse.SUPPRESS and one.dest != "help"]


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    """Return what a command line looks like."""
    words = parser.prog.split()
    for one in _shown(parser):
        if not one.option_strings:
            name = _metavar(one)
            words.append(f"[{name}]" if one.nargs == "?" else name)
    if any(one.option_strings for one in _shown(parser)):
        words.append("[option ...]")
    return [f"`{' '.join(words)}`"]


def _metavar(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest)


def _rows(parser: argparse.ArgumentParser) -> list[str]:
    """Return a row for each argument of a command, but for verbs, which have their own."""
    rows = []
    for one in _shown(parser):
        if isinstance(one, argparse._SubParsersAction):
            continue
        names = list(one.option_strings) or [_metavar(one)]
        if one.option_strings and one.nargs != 0:
            names[-1] += f" {_metavar(one)}" + (" ..." if one.nargs == "+" else "")
        shown = ", ".join(f"`{name}`" for name in names)
        # Before Python 3.13, argparse itself adds this to a flag that can be denied.
        about = (one.help or "").replace("%%", "%").replace(" (default: %(default)s)", "")
        rows.append(_row(shown, about))
    return rows


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _table(rows: list[str]) -> list[str]:
    return ["", "| argument | meaning |", "|---|---|", *rows] if rows else []
