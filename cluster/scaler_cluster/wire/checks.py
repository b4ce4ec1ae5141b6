"""What a plain field of a message may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.ids import NAME_CHARS_MAX, SEGMENT_NAME_BYTES_MAX, TASK_ID_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

PATH_CHARS_MAX = 4096
"""Characters of a path or an address, as the kernel has it for paths."""
TEXT_BYTES_MAX = 1 << 20
"""Texts are tracebacks, reasons and printed lines; senders cut them long before."""
SECONDS_MAX = 1e9
"""Durations are measured; one of 30 years, or infinite, would only poison a mean."""
CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int and 0 <= value <= TASK_ID_MAX,
    "float": lambda value: type(value) in (int, float) and 0 <= value <= SECONDS_MAX,
    "bool": lambda value: type(value) is bool,
    "str": lambda value: type(value) is str and len(value) <= TEXT_BYTES_MAX,
    # Names of segments, objects and processes: a longer one would be no name of a file.
    "bytes": lambda value: type(value) is bytes and len(value) <= SEGMENT_NAME_BYTES_MAX,
    "dict[str, Any]": lambda value: type(value) is dict and all(map(_is_detail, value.items())),
}
"""By its annotation."""


def is_name(value: object) -> bool:
    """Return True for a text that is kept for long."""
    return type(value) is str and len(value) <= NAME_CHARS_MAX


def is_path(value: object) -> bool:
    """Return True for a path or an address."""
    return type(value) is str and len(value) <= PATH_CHARS_MAX


def _is_detail(item: tuple[object, object]) -> bool:
    """Return True for a name and a plain value: what nests too deep could not be sent on."""
    name, value = item
    if type(value) is str:
        return type(name) is str and len(value) <= TEXT_BYTES_MAX
    return type(name) is str and (value is None or type(value) in (int, float, bool))
