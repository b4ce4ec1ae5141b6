"""The kinds of values that settings have: how they are written, and what is wrong with one.

Each reads text of the command line, values of TOML and those of a program, and raises ValueError
with what is wrong, as the end of a sentence that begins with the setting's name.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from numbers import Integral, Real
from re import ASCII, fullmatch
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from scaler_cluster.arguments import read_size
from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import NAME_CHARS_MAX
from scaler_cluster.preload import parse_preload
from scaler_cluster.texts import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SOCKET_PATH_MAX = 107
"""Bytes that the path of a Unix socket may have."""
PORT_MAX = 65535
TOKEN_CHARS_MIN = 16
"""Whoever reaches a port may try as many tokens as it answers: length makes that hopeless."""
FOREIGN = ("inproc", "tls", "ws", "wss")
"""Transports that others speak."""


@dataclass(frozen=True)
class Kind:
    """What a value may be. ``read`` always takes text as well: command lines have nothing else."""

    metavar: str
    wants: str
    """The words for an error about a value of another type."""
    types: tuple[type, ...]
    """The types that TOML and programs may give."""
    read: Callable[[Any], Any]
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """Return the value that TOML or a program means; raises TypeError or ValueError."""
        is_one = isinstance(value, self.types) and (
            not isinstance(value, bool) or bool in self.types
        )
        if not is_one:
            raise TypeError(f"must be {self.wants}, not {shown(value)}")
        return self.read(value)

    def argument(self, name: str, value: Any) -> Any:
        """Return what an argument means; raises TypeError or ConfigError with its name."""
        try:
            return self.check(value)
        except TypeError as error:
            raise TypeError(f"{name} {error}") from None
        except ValueError as error:
            raise ConfigError(f"{name} {error}") from None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that asks whether the user meant a known name, or nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f": did you mean {close[0]!r}?" if close else ""


# -- numbers, texts ----------------------------------------------------------------------------


def whole(least: int, unset: int | None = None, most: float = math.inf) -> Kind:
    """Return the kind of whole numbers from ``least`` to ``most``, or ``unset``."""
    also = "" if unset is None else f", or {unset}"
    bounds = f"{least} or more" if most == math.inf else f"{least} to {most}"

    def read(value: Any) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"must be a whole number, not {value!r}") from None
        if not least <= number <= most and number != unset:
            raise ValueError(f"must be {bounds}{also}, not {number}")
        return number

    return Kind("N", "a whole number", (Integral,), read)


def seconds(*, zero: bool = False, negative: bool = False) -> Kind:
    """Return the kind of durations, which may be 0 or negative only if the arguments allow it."""
    wants = "a number of seconds"

    def read(value: Any) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"must be {wants}, not {value!r}") from None
        if not math.isfinite(number):
            raise ValueError(f"must be {wants}, not {value}")
        if (number == 0 and not zero) or (number < 0 and not negative):
            bound = "other than 0" if negative else "0 or more" if zero else "greater than 0"
            raise ValueError(f"must be {bound}, not {number:g}")
        return int(number) if number == int(number) else number

    return Kind("SECONDS", wants, (Real,), read)


def nbytes(least: int) -> Kind:
    """Return the kind of sizes from ``least`` on: numbers of bytes, or texts as "2GB"."""

    def read(value: Any) -> int:
        number = read_size(value)
        if number < least:
            raise ValueError(f"must be {least} or more, not {value!r}")
        return number

    return Kind("SIZE", "a number of bytes or a text such as 2GB", (Real, str), read)


def choice(*known: str) -> Kind:
    """Return the kind of one of these words."""

    def read(value: str) -> str:
        for one in known:
            if one.lower() == value.strip().lower():
                return one
        raise ValueError(f"must be one of {', '.join(known)}, not {value!r}")

    return Kind("|".join(known), f"one of {', '.join(known)}", (str,), read, known)


def _read_text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _read_names(value: str | list[Any] | tuple[Any, ...]) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    names: list[str] = []
    for part in parts:
        if not isinstance(part, str) or not part.strip():
            raise ValueError(f"must be texts separated by commas, not {value!r}")
        names += [one.strip() for one in part.split(",")]
    return tuple(names)


def _read_short_names(value: str | list[Any] | tuple[Any, ...]) -> tuple[str, ...]:
    names = _read_names(value)
    for name in names:
        _check_name(name)
    return names


def _check_name(name: str) -> None:
    if len(name) > NAME_CHARS_MAX:
        most = f"{NAME_CHARS_MAX} characters at most"
        raise ValueError(f"must have names of {most}, not {name!r:.60}")


TEXT = Kind("TEXT", "a text", (str,), _read_text)
FILE = Kind("FILE", "the path of a file", (str,), _read_text)
FILES = Kind("FILE", "a list of paths", (str, list, tuple), _read_names)
NAMES = Kind("NAME,...", "a list of names", (str, list, tuple), _read_short_names)
FLAG = Kind("", "true or false", (bool,), lambda value: value)


# -- addresses ---------------------------------------------------------------------------------


def read_address(text: str, *, listens: bool = False) -> str:
    """Return an address of ZeroMQ in its normal form; raises ValueError.

    Only who ``listens`` may say ``*``, or port 0 for any free one.
    """
    scheme, mark, rest = text.strip().partition("://")
    if not mark:
        meant = f"tcp://{scheme}" if fullmatch(r"[^:/\s]+:\d+", scheme) else "tcp://127.0.0.1:8516"
        raise ValueError(f"must begin with tcp:// or ipc://, such as {meant}, not {text!r}")
    if scheme == "ipc":
        if not rest or len(rest.encode()) > SOCKET_PATH_MAX:
            raise ValueError(f"must have a path of 1 to {SOCKET_PATH_MAX} bytes, not {text!r}")
        return f"ipc://{rest}"
    if scheme != "tcp":
        known = "is not supported" if scheme in FOREIGN else "is not a transport"
        raise ValueError(f"must begin with tcp:// or ipc://, not {text!r}: {scheme}:// {known}")
    host, mark, port = rest.rpartition(":")
    if not mark or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(
            f"must end with a port from 0 to {PORT_MAX}, such as tcp://host:8516, not {text!r}"
        )
    if not listens and not int(port):
        raise ValueError(f"must have the port at which the scheduler listens, not 0: {text!r}")
    return f"tcp://{_read_host(host, text, listens=listens)}:{int(port)}"


class HasAddress(Protocol):
    """A cluster that can be joined, as :class:`SchedulerClusterCombo`."""

    def get_address(self) -> str:
        """Return the address of its scheduler."""


def read_given_address(given: str | HasAddress | None) -> str | None:
    """Return the address that a program gives to join a cluster, or the cluster; None stays None.

    Raises TypeError or ConfigError.
    """
    if given is None:
        return None
    get_address = getattr(given, "get_address", None)
    address: str = CONNECT.argument("address", get_address() if callable(get_address) else given)
    return address


def _read_host(host: str, text: str, *, listens: bool) -> str:
    if host == "*":
        if not listens:
            raise ValueError(f"must name the host to connect to, not {text!r}")
        return "0.0.0.0"  # noqa: S104
    try:
        number = ip_address(host[1:-1] if host[:1] + host[-1:] == "[]" else host)
    except ValueError:
        if not fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", host):
            raise ValueError(f"must have a host name or an IP address, not {text!r}") from None
        return host
    return f"[{number}]" if number.version == 6 else str(number)


def _read_storages(value: str | list[Any] | tuple[Any, ...]) -> tuple[str, ...]:
    addresses = tuple(read_address(one, listens=True) for one in _read_names(value))
    for one in addresses:
        if not one.startswith("tcp://"):
            raise ValueError(f"must be tcp://host:port, not {one!r}")
    return addresses


def _read_host_and_port(value: str) -> str:
    try:
        return read_address(f"tcp://{value.strip()}", listens=True).removeprefix("tcp://")
    except ValueError:
        raise ValueError(f"must be host:port, such as 127.0.0.1:8081, not {value!r}") from None


def _read_token(text: str) -> str:
    # It stands in links and cookies as it is. No error shows it: errors are logged.
    if not re.fullmatch(r"[\w.~-]*", text, re.ASCII):
        raise ValueError("must consist of letters, digits, -, ., _ and ~")
    if len(text) < TOKEN_CHARS_MIN:
        raise ValueError(
            f"must have {TOKEN_CHARS_MIN} characters or more, so that nobody can guess it"
        )
    return text


def _read_prefix(value: str) -> str:
    """Return the beginning of paths: nothing, or "/" and a text that does not end with "/"."""
    path = value.strip().strip("/")
    if path and not fullmatch(r"[\w.~-]+(/[\w.~-]+)*", path, ASCII):
        raise ValueError(
            f"must be a path of letters, digits, - and _, such as /scaler, not {value!r}"
        )
    return f"/{path}" if path else ""


def _read_url(text: str) -> str:
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must be a URL such as http://127.0.0.1:8080, not {text!r}")
    return text.strip().rstrip("/")


def _read_urls(value: str | list[Any] | tuple[Any, ...]) -> tuple[str, ...]:
    urls = tuple(map(_read_url, _read_names(value)))
    if len(set(urls)) != len(urls):
        raise ValueError(f"must have each URL once, not {value!r}")
    return urls


PORT = whole(0, most=PORT_MAX)
URL = Kind("URL", "a text such as http://127.0.0.1:8080", (str,), _read_url)
URLS = Kind("URL", "a list of URLs", (str, list, tuple), _read_urls)
HOST = Kind("HOST", "a host", (str,), lambda text: _read_host(text.strip(), text, listens=True))
HOST_AND_PORT = Kind("HOST:PORT", "a text of the form host:port", (str,), _read_host_and_port)
TOKEN = Kind("TOKEN", "a text of letters, digits, -, ., _ and ~", (str,), _read_token)
PREFIX = Kind("PATH", "a path such as /scaler", (str,), _read_prefix)
LISTEN = Kind("ADDRESS", "an address", (str,), lambda text: read_address(text, listens=True))
CONNECT = Kind("ADDRESS", "a text such as tcp://127.0.0.1:8516", (str,), read_address)
STORAGES = Kind("ADDRESS,...", "an address or a list of them", (str, list, tuple), _read_storages)


# -- what workers have and run -----------------------------------------------------------------


def _read_capabilities(value: str | dict[str, Any]) -> dict[str, float]:
    if isinstance(value, dict):
        pairs = [(str(name), amount) for name, amount in value.items()]
    else:
        parts = [part.partition("=") for part in value.split(",")] if value.strip() else []
        pairs = [(name, amount if mark else -1) for name, mark, amount in parts]
    capabilities: dict[str, float] = {}
    for given, amount in pairs:
        name = given.strip()
        if not name:
            raise ValueError(
                f'must be names, such as "linux,gpu=1": one name in {value!r} is empty'
            )
        _check_name(name)
        if name in capabilities:
            raise ValueError(f"names {name!r} twice")
        try:
            number = float(amount)
        except (TypeError, ValueError):
            raise ValueError(f"must be numbers, such as gpu=1, not {name}={amount}") from None
        if not -1 <= number < math.inf:
            raise ValueError(f"must be 0 or more, or -1 for any amount, not {name}={amount}")
        capabilities[name] = int(number) if number == int(number) else number
    return capabilities


def _read_preload(value: str) -> str:
    parse_preload(value)
    return value.strip()


CAPABILITIES = Kind("NAME=N,...", 'a text such as "linux,gpu=1"', (str, dict), _read_capabilities)
PRELOAD = Kind("MODULE:FUNCTION", "a text such as pkg.mod:func(1)", (str,), _read_preload)
