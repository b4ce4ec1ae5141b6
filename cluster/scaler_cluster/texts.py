"""Texts about values and exceptions of others, whatever their own methods do."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING

from scaler_cluster.errors import INTERRUPTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.errors import Death

TEXT_CHARS_MAX = 100_000
"""Tracebacks and messages are cut to this: an endless recursion's text must stay sendable."""
LINES_MAX = 500
"""Lines that a worker tells at once of what its tasks print: ten screens full, twice a second."""
LINE_CHARS_MAX = 4000
"""Of each; the rest of it is cut off, and counted."""

_describe = reprlib.Repr()
_describe.maxother = _describe.maxstring = 80


def how_it_died(death: Death, more: str = "", *, of_actor: bool = False) -> str:
    """Return a death's diagnosis as a sentence, and ``more`` of it; what is not known is left out.

    It says why the engine or the kernel killed the process, with the limit that it exceeded.
    """
    if death.signal is not None:
        how = f"was killed by signal {death.signal}"
    else:
        how = f"exited with code {death.exit_code}"
    if death.reason:
        how += f" ({death.reason})"
    when = "" if of_actor else " while it ran this task"
    who = "its process" if of_actor else "the worker process"
    if death.pid:
        who += f" {death.pid} on {death.host}"
    text = f"{who} {how}{when}"
    if death.peak_rss_bytes:
        text += f"; peak memory {death.peak_rss_bytes / 1e6:.0f} MB"
    return f"{text}; {more}" if more else text


def named(value: object) -> str:
    """Return the type of a value and what it looks like, for people."""
    return f"{type(value).__qualname__} {look_of(value)}".rstrip()


def look_of(value: object) -> str:
    """Return what a value looks like, cut to a line; empty if its ``__repr__`` fails."""
    try:
        return sendable(_describe.repr(value))
    except INTERRUPTS:
        raise
    except BaseException:
        return ""


def kind_of(value: object) -> str:
    """Return the name of a value's type, with its module unless that is ``builtins``."""
    kind = type(value)
    in_module = "" if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}."
    return in_module + kind.__qualname__


def with_article(noun: str) -> str:
    """Return a noun after ``a`` or ``an``."""
    return f"{'an' if noun.lstrip('_')[:1].lower() in 'aeiou' else 'a'} {noun}"


def show(error: BaseException, to_text: Callable[[object], str] = repr) -> str:
    """Return an exception's text, whatever its ``__str__`` and ``__repr__`` do."""
    try:
        text = to_text(error)
    except INTERRUPTS:
        raise
    except BaseException:
        text = f"{type(error).__qualname__} (its text cannot be made)"
    return sendable(text[:TEXT_CHARS_MAX])


def last_line(text: str) -> str:
    """Return the last line of what somebody wrote, which says most; empty: there is none."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def dropped_lines(count: int) -> str:
    """Return what stands in the place of lines that were too many."""
    return f"{count:,} more {'line was' if count == 1 else 'lines were'} dropped here"


def sendable(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot hold, written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """Return lines that do nothing to a terminal but to be read."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def shown(value: object) -> str:
    """Return what a value looks like, in short, or at least of what type it is."""
    return look_of(value) or with_article(kind_of(value))
