"""Pickles by value what other processes cannot import: functions and classes of ``__main__``.

cloudpickle does the work. What it does not do: it sets the attributes of a class anew wherever the
class is unpickled, so a result that names a class would overwrite that class in the process that
defined it, with what its attributes were when the task was sent.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import cloudpickle

if TYPE_CHECKING:
    import pickle
    from collections.abc import Callable

_defined: WeakSet[type] = WeakSet()
"""Classes that were defined in this process, and pickled here."""
_received: WeakSet[type] = WeakSet()
"""Classes that came from another process."""
_count = 0


def dumps_by_value(
    value: object,
    protocol: int,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
) -> bytes:
    """Pickle a value, and with it all that it names and that cannot be imported elsewhere."""
    file = io.BytesIO()
    Pickler(file, protocol=protocol, buffer_callback=buffer_callback).dump(value)
    return file.getvalue()


class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """cloudpickle's, but for who sets the attributes of a class."""

    def reducer_override(self, obj: Any) -> Any:
        """Say how to pickle a function or a class; NotImplemented: as C pickle does."""
        reduced = super().reducer_override(obj)
        if type(reduced) is not tuple or len(reduced) != 6 or not isinstance(obj, type):
            return reduced
        if obj not in _received:
            _defined.add(obj)
        make, args, state, items, pairs, set_state = reduced
        return make, args, (set_state, state), items, pairs, set_class_state


def set_class_state(cls: type, state: tuple[Callable[[type, Any], object], Any]) -> None:
    """Set the attributes of a class that was unpickled, unless it was defined in this process."""
    global _count  # noqa: PLW0603
    if cls not in _defined:
        _count += 1
        _received.add(cls)
        set_state, attributes = state
        set_state(cls, attributes)


def keep_class(cls: type) -> None:
    """Let a class keep the attributes that it has in this process, whatever is unpickled here."""
    _defined.add(cls)


def set_classes() -> int:
    """Return how often the attributes of classes were set by what was unpickled so far.

    Once there is more, a function that was unpickled before may see attributes of another time.
    """
    return _count
