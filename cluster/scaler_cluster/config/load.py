"""Where settings come from: the command line first, then a file, then the defaults."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from scaler_cluster.config import manager_types
from scaler_cluster.config.sections import SECTION
from scaler_cluster.config.values import FILES, FLAG, URLS, suggest
from scaler_cluster.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.config.option import Option, Section

    S = TypeVar("S", bound=Section)


# -- files -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """One table of a file, as it was written."""

    file: str
    name: str
    values: dict[str, Any]
    number: int
    """Which one of the tables of this name it is, from 0."""
    text: str

    @property
    def kind(self) -> type[Section]:
        """The class of its settings; raises ConfigError."""
        if self.name in SECTION:
            return SECTION[self.name]
        try:
            found = manager_types.settings_of_table(self.name, self.values)
        except ConfigError as error:
            raise ConfigError(f"{self.where()} {error}") from None
        assert found is not None
        return found

    def where(self, key: str = "") -> str:
        """Return file, line, table and key, as far as they are known."""
        line = _line_of(self.text, self.name, self.number, key)
        place = f"{self.file}, line {line}" if line else self.file
        return f"{place}: [{self.name}] {key}".rstrip()

    def read(self, kind: type[Section]) -> dict[str, Any]:
        """Return the values of the table by the settings' own names; raises ConfigError."""
        known = {name: one for one in kind.options() for name in one.names}
        found: dict[str, Any] = {}
        for key, value in self.values.items():
            one = known.get(key.replace("-", "_"))
            if one is None:
                hint = suggest(key, known)
                raise ConfigError(f"{self.where(key)} is not a setting{hint or '; see --help'}")
            if one.name in found:
                raise ConfigError(f"{self.where(key)} is another name of {one.name}: give only one")
            try:
                found[one.name] = one.kind.check(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{self.where(key)} {error}") from None
        return found

    def make(self, kind: type[S], others: Mapping[str, Any] = MappingProxyType({})) -> S:
        """Return the settings of this table, whose class is a subclass of ``kind``.

        Settings that the table leaves out are taken from ``others``, then from the defaults.
        Raises ConfigError.
        """
        own = self.kind
        assert issubclass(own, kind)
        values = {**others, **self.read(own)}
        try:
            require(own, values)
        except ConfigError as error:
            raise ConfigError(f"{self.where()} {error}") from None
        try:
            return own(**values)
        except ConfigError as error:
            raise ConfigError(f"{self.where()}: {error}") from None


def read_file(path: str) -> list[Table]:
    """Return the tables of a file; raises ConfigError with file and line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not text in UTF-8") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    tables: list[Table] = []
    for name, value in content.items():
        many = value if isinstance(value, list) else [value]
        line = _line_of(text, name, 0, "") or _line_of(text, "", 0, name)
        place = f"{path}, line {line}" if line else path
        known = (*SECTION, manager_types.TABLE, *manager_types.TABLES)
        if name not in known:
            names = ", ".join(f"[{one}]" for one in known)
            hint = suggest(name, known)
            raise ConfigError(f"{place}: there is no table [{name}]{hint or f', only {names}'}")
        if not all(isinstance(one, dict) for one in many):
            raise ConfigError(f"{place}: {name} must be a table: [{name}]")
        tables += [Table(path, name, one, index, text) for index, one in enumerate(many)]
    return tables


def _line_of(text: str, table: str, number: int, key: str) -> int:
    """Return the line of a key in a table, or of the table; 0 if it is written in another form."""
    header = re.compile(rf"\s*\[\[?\s*[\"']?{re.escape(table)}[\"']?\s*\]\]?\s*(#.*)?$")
    entry = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    is_inside = not table
    for line, content in enumerate(text.splitlines(), 1):
        if content.lstrip().startswith("["):
            is_inside = bool(header.match(content)) and number == 0
            number -= bool(header.match(content))
            if is_inside and not key:
                return line
        elif is_inside and key and entry.match(content):
            return line
    return 0


# -- command lines -----------------------------------------------------------------------------

BY_FLAG = "--"
"""What a setting that needs no name begins with in argparse's result if it was given by name."""
_TLS = ": there is no TLS between processes, but keys: see scaler_keys and --keys"
_LOG_HUB = ": nobody listens for logs; --logging-paths says where to log"
OLDER_FLAGS = MappingProxyType(
    dict.fromkeys(("--tls-cert", "-tc", "--tls-key", "-tk"), _TLS)
    | dict.fromkeys(("--log-hub-address", "-la"), _LOG_HUB)
)
"""Flags that versions of Scaler had, and what to do in their place."""


class Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError, with one line that says what is wrong."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def make_parser(program: str, about: str, options: Sequence[Option]) -> Parser:
    """Return a parser whose result has only the options that were given."""
    parser = Parser(program, description=about, allow_abbrev=False)
    parser.add_argument("-c", "--config", metavar="FILE", help="TOML file with these settings")
    for one in options:
        keywords: dict[str, Any] = {"default": argparse.SUPPRESS, "help": _help(one)}
        if one.is_positional:
            continue
        keywords["dest"] = one.name
        if one.kind is FLAG:
            keywords["action"] = argparse.BooleanOptionalAction
        else:
            keywords["metavar"] = one.kind.metavar
        if one.kind in (FILES, URLS):
            keywords["nargs"] = "+"
        parser.add_argument(*one.flags, **keywords)
    for one in options:
        if not one.is_positional:
            continue
        keywords = {"default": argparse.SUPPRESS, "help": _help(one)}
        parser.add_argument(one.name, nargs="?", metavar=one.name, **keywords)
        # Who writes its name means the same.
        keywords["help"] = argparse.SUPPRESS
        parser.add_argument(*one.flags, dest=f"{BY_FLAG}{one.name}", **keywords)
    return parser


def load(
    kind: type[S],
    program: str,
    about: str,
    arguments: Sequence[str] | None = None,
) -> S:
    """Return the settings of a command; raises ConfigError, which says what to change."""
    options = kind.options()
    parser = make_parser(program, about, options)
    complete(parser)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        flags = [flag for one in options for flag in one.flags]
        flag = unknown[0].partition("=")[0]
        hint = OLDER_FLAGS.get(flag) or suggest(flag, flags) or f"; see {program} --help"
        raise ConfigError(f"{unknown[0]} is not an option{hint}")
    values: dict[str, Any] = {}
    table = _own_table(kind, program, given.config) if given.config is not None else None
    if table is not None:
        values |= table.read(kind)
    for one in options:
        by_flag = f"{BY_FLAG}{one.name}"
        if one.name in given and by_flag in given:
            raise ConfigError(f"{one.name} is given twice: with its name, and without")
        name = by_flag if by_flag in given else one.name
        if name in given:
            try:
                values[one.name] = one.kind.read(getattr(given, name))
            except ValueError as error:
                raise ConfigError(f"{one.shown} {error}") from None
    try:
        require(kind, values)
    except ConfigError as error:
        table_name = f"[{kind.names[0]}]"
        raise ConfigError(f"{error}: give it here, or in {table_name} of a --config file") from None
    return kind(**values)


def require(kind: type[Section], values: dict[str, Any]) -> None:
    """Raise ConfigError if a setting without a default is missing."""
    for one in kind.options():
        if one.default is MISSING and one.name not in values:
            raise ConfigError(f"{one.shown} is missing")


def _own_table(kind: type[Section], program: str, path: str) -> Table | None:
    tables = [one for one in read_file(path) if one.name in kind.names and one.kind is kind]
    if len(tables) > 1:
        raise ConfigError(
            f"{tables[1].where()}: the file has {len(tables)} of these tables, but {program} runs "
            "one; the command scaler runs all of them"
        )
    return tables[0] if tables else None


def _help(one: Option) -> str:
    return f"{one.help} (default: {one.by_default})" if one.by_default else one.help


def complete(parser: Parser) -> None:
    """If a shell asks for completions, answer it and end the process; else do nothing."""
    import os

    if "_ARGCOMPLETE" in os.environ:
        try:
            import argcomplete
        except ImportError:
            return
        argcomplete.autocomplete(parser)
