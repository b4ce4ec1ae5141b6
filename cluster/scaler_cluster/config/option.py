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
    """A setting, as the field of a section has it in its metadata."""

    name: str
    kind: Kind
    help: str
    short: tuple[str, ...]
    also: tuple[str, ...]
    """Names that other versions have for it."""
    is_positional: bool
    default: Any
    """MISSING: it must be given."""

    @property
    def flags(self) -> list[str]:
        """All that a command line may call it."""
        return [*self.short, *("--" + name.replace("_", "-") for name in self.names)]

    @property
    def names(self) -> tuple[str, ...]:
        """All that TOML may call it."""
        return (self.name, *self.also)

    @property
    def by_default(self) -> str:
        """What it is by default, where that is not said otherwise."""
        if self.default in (MISSING, None) or isinstance(self.default, bool | dict):
            return ""
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)

    @property
    def shown(self) -> str:
        """What an error calls it to who used a command line."""
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
    about = {"kind": kind, "help": help, "short": short, "also": also, "positional": is_positional}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=about)
    return field(default=default, metadata=about)


class Section:
    """Base of what a table of TOML, or the command line of a command, may set."""

    names: ClassVar[tuple[str, ...]]
    """What TOML calls it."""

    @classmethod
    def options(cls) -> list[Option]:
        """Return its settings: what it adds before what it has from another, logging last."""
        added = get_annotations(cls)
        found = []
        for one in fields(cls):  # type: ignore[arg-type]
            about = one.metadata
            default = one.default
            if one.default_factory is not MISSING:
                default = one.default_factory()
            shape = about["kind"], about["help"], about["short"], about["also"]
            found.append(Option(one.name, *shape, about["positional"], default))
        return sorted(
            found, key=lambda one: (one.name.startswith("logging_"), one.name not in added)
        )

    @classmethod
    def of(cls, called: Mapping[str, str] = MappingProxyType({}), /, **values: Any) -> Self:
        """Return a section with these values, of which the caller has ``called`` some otherwise.

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
