"""Checks of what programs pass to public calls.

Each check returns the value as the engine has it: a number of numpy becomes one of Python. A value
of a wrong type raises TypeError, one that cannot work ConfigError, which is a ValueError. Each says
in one sentence which argument it is, what it takes and what it got.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scaler_cluster.errors import ConfigError
from scaler_cluster.ids import NAME_CHARS_MAX, TASK_ID_MAX
from scaler_cluster.texts import shown
from scaler_cluster.users import INSECURE
from scaler_cluster.wire.options import WHOLE_MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    F = TypeVar("F", bound=Callable[..., Any])

WHOLE_MAX = (1 << 63) - 1
"""Messages hold whole numbers of 64 bits."""
SECONDS_MAX = 1e9
"""Thirty years: the system's clocks and waits take no more."""
CAPABILITIES_MAX = 256
"""No task demands so many things; the codec refuses more."""
NAMES_MAX = 65_536
"""As many machines as a task may be allowed to run on; the codec refuses more."""
LEVELS = "True, False, or a level, such as logging.INFO, 'INFO' or 20"
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
SIZE = re.compile(
    r"(\d{1,20}\.?\d{0,20}|\.\d{1,20})\s*(?:([kmgtp])(i?))?b?", re.ASCII | re.IGNORECASE
)


# -- functions -----------------------------------------------------------------------------------


def function(value: F, call: str) -> F:
    """Return what a task is to call, given to ``call``, as "submit"."""
    if callable(value):
        return value
    if isinstance(value, Future):
        raise TypeError(
            f"fn must be a function, not a future: a future may be an argument, as in "
            f"{call}(fn, future)"
        )
    raise TypeError(
        f"fn must be a function, not {shown(value)}: write {call}(fn, x), not {call}(fn(x))"
    )


# -- numbers -------------------------------------------------------------------------------------


def whole(
    name: str,
    value: object,
    least: int = -WHOLE_MAX,
    *,
    bound: str = "",
    wants: str = "an integer",
) -> int:
    """Return a whole number, ``least`` or more; ``bound`` says that in other words."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wants}, not {shown(value)}")
    number = int(value)
    if number < least:
        raise ConfigError(f"{name} must be {bound or f'{least} or more'}, not {shown(number)}")
    if number > WHOLE_MAX:
        raise ConfigError(f"{name} must have 64 bits at most, not {shown(number)}")
    return number


def seconds(name: str, value: object, *, any_sign: bool = False) -> float:
    """Return a number of seconds greater than 0, or of ``any_sign``."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {shown(value)}")
    number: Any = value
    if not any_sign and not number > 0:
        raise ConfigError(f"{name} must be greater than 0 seconds, not {shown(value)}")
    if not abs(number) <= SECONDS_MAX:
        raise ConfigError(f"{name} must be {SECONDS_MAX:g} seconds at most, not {shown(value)}")
    return float(number)


def read_size(value: object) -> int:
    """Return a number of bytes, given as a number or as a text such as "2GB" or "1.5 GiB".

    A thousand makes kB, MB, GB, TB and PB, 1024 makes KiB, MiB, GiB, TiB and PiB. Upper and lower
    case are the same, and the "B" may be left out.

    Raises TypeError or ValueError with the end of a sentence that begins with a name.
    """
    if isinstance(value, str):
        match = SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"must be a size such as 2GB, 512 MiB or 1000000, not {shown(value)}")
        digits, prefix, binary = match.groups()
        unit: int = (1024 if binary else 1000) ** POWERS[(prefix or "").lower()]
        before, _, after = digits.partition(".")
        return int(before or 0) * unit + int(after or 0) * unit // int(10 ** len(after))
    if isinstance(value, Real) and not isinstance(value, bool):
        if isinstance(value, Integral) or float(value).is_integer():
            number: Any = value
            return int(number)
        raise ValueError(f"must be a whole number of bytes, not {value}")
    raise TypeError(
        f"must be a number of bytes or a text such as 2GB or 512 MiB, not {shown(value)}"
    )


def size(name: str, value: object, least: int = 1, *, bound: str = "") -> int:
    """Return a number of bytes, as :func:`read_size` takes it; ``least`` and ``bound`` as above."""
    try:
        number = read_size(value)
    except TypeError as error:
        raise TypeError(f"{name} {error}") from None
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from None
    if not least <= number <= WHOLE_MAX:
        raise ConfigError(f"{name} must be {bound or f'{least} or more'}, not {shown(value)}")
    return number


# -- others --------------------------------------------------------------------------------------


def flag(name: str, value: object) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return value


def instance(name: str, value: object, kinds: type | tuple[type, ...], wants: str) -> Any:
    """Return what is of one of these types."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {wants}, not {shown(value)}")
    return value


def having(name: str, value: object, methods: Collection[str], wants: str) -> Any:
    """Return what has all of these methods or attributes."""
    if not all(hasattr(value, one) for one in methods):
        raise TypeError(f"{name} must be {wants}, not {shown(value)}")
    return value


def capabilities(name: str, value: Mapping[Any, Any] | None) -> tuple[tuple[str, float], ...]:
    """Return what tasks demand, as it travels: names with amounts, ordered."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise TypeError(f'{name} must be a mapping such as {{"gpu": 1}}, not {shown(value)}')
    if len(value) > CAPABILITIES_MAX:
        raise ConfigError(f"{name} must be {CAPABILITIES_MAX} at most, not {len(value)}")
    found: list[tuple[str, float]] = []
    for what, amount in value.items():
        _check_name(name, what)
        if not isinstance(amount, Real) or isinstance(amount, bool):
            raise TypeError(f"{name}[{what!r}] must be a number, not {shown(amount)}")
        number: Any = amount
        if not -1 <= number <= TASK_ID_MAX:
            raise ConfigError(
                f"{name}[{what!r}] must be an amount of 0 or more, or -1 if it only has to be "
                f"there, not {shown(amount)}"
            )
        found.append((what, int(number) if isinstance(amount, Integral) else float(number)))
    return tuple(sorted(found))


def cores(name: str, value: object) -> int:
    """Return how many cores of a machine a task needs."""
    count = whole(name, value)
    if count < 1 and count != WHOLE_MACHINE:
        raise ConfigError(f"{name} must be 1 or more, or -1 for a whole machine, not {count}")
    return count


def names(name: str, value: object) -> tuple[str, ...]:
    """Return one name or several."""
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"{name} must be a name or a list of names, not {shown(value)}")
    if len(value) > NAMES_MAX:
        raise ConfigError(f"{name} must be {NAMES_MAX} at most, not {len(value)}")
    for one in value:
        _check_name(name, one)
    return tuple(sorted(value))


def _check_name(name: str, one: object) -> None:
    if not isinstance(one, str):
        raise TypeError(f"{name} must have texts as names, not {shown(one)}")
    if not 0 < len(one) <= NAME_CHARS_MAX:
        raise ConfigError(
            f"{name} must have names of 1 to {NAME_CHARS_MAX} characters, not {shown(one)}"
        )


# -- output, keys --------------------------------------------------------------------------------


def log_level(forward_logs: bool | int | str) -> int:
    """Return from which level on records are forwarded: 0 for none, the root logger's for True."""
    if isinstance(forward_logs, bool):
        return max(logging.getLogger().level, 1) if forward_logs else 0
    level: object = forward_logs
    if isinstance(level, str):
        level = logging.getLevelName(level)
        if not isinstance(level, int):
            raise ConfigError(f"forward_logs must be {LEVELS}, not {forward_logs!r}")
    return whole("forward_logs", level, 1, bound=LEVELS, wants=LEVELS)


def keys_path(keys: str | os.PathLike[str] | None, security_config: object = None) -> str | None:
    """Return the keys that a program gives, by one of two names, with a path that is absolute.

    A client that is pickled takes the path along, and another process has another directory.
    """
    has_files = getattr(security_config, "has_credentials", None)
    if has_files is not None and not has_files():
        # Scaler's configuration of TLS, without TLS.
        security_config = None
    if security_config is not None and not isinstance(security_config, (str, os.PathLike)):
        raise ConfigError(
            "security_config must be a path of keys that scaler_keys made: there is no TLS between "
            "processes, but keys for both sides (CURVE)"
        )
    if keys is not None and security_config is not None:
        raise ConfigError("keys and security_config are the same: give only one")
    given = security_config if keys is None else keys
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"keys must be a path, not {shown(given)}")
    return INSECURE if given == INSECURE else str(Path(given).expanduser().absolute())
