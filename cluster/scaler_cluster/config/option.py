"""One setting: its names on a command line and in TOML, its kind, its default, its help."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from inspect import get_annotations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from scaler_cluster.config.values import suggest
from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from scaler_cluster.config.values import Kind


@dataclass(frozen=True)
class Option:
    """A setting: the field of a section, with the metadata that :func:`option` put there."""

    name: str
    kind: Kind
    help: str
    short: tuple[str, ...]
    also: tuple[str, ...]
    """Names that other versions have for the setting."""
    is_positional: bool
    default: Any
    """MISSING: the setting has none, and must be given."""

    @property
    def flags(self) -> list[str]:
        """Every flag of the setting on a command line."""
        return [*self.short, *("--" + name.replace("_", "-") for name in self.names)]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the setting in TOML."""
        return (self.name, *self.also)

    @property
    def by_default(self) -> str:
        """The default as text; empty if the help text says it."""
        if self.default in (MISSING, None) or isinstance(self.default, bool | dict):
            return ""
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)

    @property
    def shown(self) -> str:
        """The name of the setting in errors about a command line."""
        long = "--" + self.name.replace("_", "-")
        if self.is_positional:
            return self.name
        return "/".join([*self.short[:1], long])


def option(
    help: str,  # noqa: A002
    kind: Kind,
    *short: str,
    default: Any = MISSING,
    also: tuple[str, ...] = (),
    is_positional: bool = False,
) -> Any:
    """Return the field of a section that is a setting."""
    # Under the names that Option has for them.
    about = {
        "kind": kind,
        "help": help,
        "short": short,
        "also": also,
        "is_positional": is_positional,
    }
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Section:
    """Base of the settings of a table of TOML, and of the command line of a command."""

    names: ClassVar[tuple[str, ...]]
    """Names of the table in TOML."""

    def __post_init__(self) -> None:
        """Raise ConfigError if the settings contradict each other."""

    @classmethod
    def options(cls) -> list[Option]:
        """Return the settings: the class's own ones, then inherited ones, then those of logging."""
        added = get_annotations(cls)
        found = []
        for one in fields(cls):
            made = one.default_factory
            default = one.default if made is MISSING else made()
            found.append(Option(name=one.name, default=default, **one.metadata))
        return sorted(
            found, key=lambda one: (one.name.startswith("logging_"), one.name not in added)
        )

    @classmethod
    def of(cls, called: Mapping[str, str] = MappingProxyType({}), /, **values: Any) -> Self:
        """Return a section with these values; errors use the names in ``called`` for settings.

        Raises TypeError or ConfigError if one is wrong.
        """
        known = {one.name: one for one in cls.options()}
        checked = {}
        for name, value in values.items():
            if name not in known:
                raise ConfigError(f"there is no setting {name!r}{suggest(name, known)}")
            is_default = value is None and known[name].default is None
            kind = known[name].kind
            checked[name] = None if is_default else kind.argument(called.get(name, name), value)
        return cls(**checked)
