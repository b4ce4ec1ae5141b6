"""What the arguments of a task that raised look like, for those who watch. Off unless asked for.

A text is made from what only this process can read, by methods that users wrote: they may raise,
take long, or return a lot. So a thread of its own makes it, for which the worker waits a moment.
"""

from __future__ import annotations

import reprlib
import threading
from typing import TYPE_CHECKING, Any

from scaler_cluster.pickling.nodes import run_chain
from scaler_cluster.texts import sendable
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CHARS_MAX = 200
"""Of the text, and of no argument more."""
WAIT_S = 0.1
"""The worker does nothing else meanwhile."""
ITEMS_MAX = 1000
"""A collection of a user's own type is not looked into if it has more."""
COLLECTIONS = (str, bytes, bytearray, list, tuple, dict, set, frozenset)


class FailedArguments:
    """Makes the texts of one worker."""

    active: FailedArguments | None = None
    """Set before the first task, if the worker is to tell arguments."""

    def __init__(self) -> None:
        self._slow: set[type] = set()
        """Types whose ``__repr__`` took too long once: that is not called again."""

    def text(self, kind: int, args: tuple[Any, ...]) -> str:
        """Return what the call of a payload of this kind was given, cut to CHARS_MAX."""
        look = _Look(self._slow)
        thread = threading.Thread(
            target=look.take, args=(kind, args), name="scaler-arguments", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # There is no room for another thread.
            return ""
        thread.join(WAIT_S)
        parts = list(look.parts)
        if thread.is_alive():
            if look.at is not None:
                self._slow.add(look.at)
            parts.append("... (the others take too long)")
        text = " ".join(sendable(", ".join(parts)).split())
        return text if len(text) <= CHARS_MAX else text[: CHARS_MAX - 3] + "..."


class _Look(reprlib.Repr):
    """Takes one look at arguments, in a thread of its own, which may never end."""

    def __init__(self, slow: set[type]) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 80
        self.parts: list[str] = []
        """What was made so far."""
        self.at: type | None = None
        """The type whose ``__repr__`` is being called."""
        self._slow = slow

    def take(self, kind: int, args: tuple[Any, ...]) -> None:
        """Add a part for each argument, until there is enough."""
        chars = 0
        for part in self._parts_of(kind, args):
            self.parts.append(part)
            chars += len(part)
            if chars > CHARS_MAX:
                break

    def _parts_of(self, kind: int, args: tuple[Any, ...]) -> Iterator[str]:
        if kind == m.CALL_NODE and args[0] is run_chain:
            # Nobody knows which of them raised.
            for function, given, named, _ in args[1][0]:
                inner = ", ".join(self._call(given, named or {}))
                yield f"{getattr(function, '__name__', '...')}({inner})"
        elif kind == m.CALL_NODE:
            yield from self._call(args[1], args[2])
        elif kind in (m.CALL_KWARGS, m.CALL_NAMED):
            yield from self._call(args[0], args[1])
        else:
            yield from self._call(args, {})

    def _call(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
        yield from map(self.repr, args)
        yield from (f"{name}={self.repr(value)}" for name, value in kwargs.items())

    def repr_bytes(self, x: bytes | bytearray, level: int) -> str:
        """Look at the beginning of bytes: all of them may be many."""
        end = "..." if len(x) > self.maxstring else ""
        return repr(x[: self.maxstring]) + end

    repr_bytearray = repr_bytes

    def repr_instance(self, x: object, level: int) -> str:
        """Call the ``__repr__`` of anything else, unless that is known to be slow, or may be."""
        kind = type(x)
        if kind in self._slow:
            return f"<{kind.__qualname__}>"
        if isinstance(x, COLLECTIONS) and len(x) > ITEMS_MAX:
            return f"<{kind.__qualname__} of {len(x)}>"
        self.at = kind
        try:
            text = repr(x)
        except BaseException:
            return f"<{kind.__qualname__}>"
        if len(text) > self.maxother:
            return text[: self.maxother - 3] + "..."
        return text
