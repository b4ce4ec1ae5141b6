"""A function by its name: all that a program needs to say which one it means."""

from __future__ import annotations

from typing import Any

from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX
from scaler_cluster.pickling.constant import Constant
from scaler_cluster.texts import named


class NamedFunction(Constant):
    """A function that is known where it runs, by its name: also in another language than Python.

    Pass it in the place of a function to ``submit`` or ``map`` of a client or an executor, with
    the ``capabilities`` of the workers that know the name. Workers in Python know every function
    that they can import, as ``"module:function"``. Called here, it is looked for in the same way.

    Arguments and results are None, booleans, integers of 64 bits, floats, texts, bytes, and lists,
    tuples (which arrive as lists) and dicts of these, with texts as keys. What else is passed
    makes the future raise PayloadError. What the function raises arrives as RemoteError, with the
    remote traceback as its cause.

    Args:
        name: What it is called there, at most 200 characters.

    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a text, not {named(name)}")
        if not 0 < len(name) <= FUNCTION_NAME_CHARS_MAX:
            raise ValueError(f"name must have 1 to {FUNCTION_NAME_CHARS_MAX} characters")
        self.name = name

    @property
    def label(self) -> str:
        """The name."""
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of this name in this process; raises LookupError if there is none."""
        from pkgutil import resolve_name  # few processes need it

        module, mark, name = self.name.partition(":")
        if not (module and mark and name):
            raise LookupError(
                f"Python has no function {self.name!r}: it knows functions as 'module:function'; "
                "for one of another language, demand a capability of its workers"
            )
        try:
            function = resolve_name(self.name)
        except (ImportError, AttributeError, ValueError) as error:
            raise LookupError(f"there is no function {self.name!r} here: {error}") from error
        return function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, NamedFunction) else NotImplemented

    def __hash__(self) -> int:
        return hash((NamedFunction, self.name))

    def __repr__(self) -> str:
        return f"NamedFunction({self.name!r})"

    def __reduce__(self) -> Any:
        """Become the same where it is unpickled: a node of a graph may call it in Python."""
        return NamedFunction, (self.name,)
