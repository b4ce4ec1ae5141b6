"""Texts about values and exceptions of others, whatever their own methods do."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT_CHARS_MAX = 100_000
"""Tracebacks and messages are cut to this: an endless recursion's text must stay sendable."""

_describe = reprlib.Repr()
_describe.maxother = _describe.maxstring = 80


def named(value: object) -> str:
    """Return the type of a value and what it looks like, for people."""
    try:
        return f"{type(value).__qualname__} {_describe.repr(value)}"
    except Exception:
        return type(value).__qualname__


def show(error: BaseException, to_text: Callable[[object], str] = repr) -> str:
    """Return an exception's text, whatever its ``__str__`` and ``__repr__`` do."""
    try:
        text = to_text(error)
    except Exception:
        text = f"{type(error).__qualname__} (its text cannot be made)"
    return sendable(text[:TEXT_CHARS_MAX])


def sendable(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot hold, written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
