"""What a function can be called with, as far as its signature tells."""

from __future__ import annotations

import inspect
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARK = "__scaler_options__"
"""The attribute of a function that has the options which ``task`` gave it."""
_NOTHING = object()


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return True if a function takes a keyword argument of this name, or any."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return True
    one = parameters.get(name)
    return one is not None and one.kind in {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }


def rows_of(function: Callable[..., Any], iterable: Iterable[Any]) -> tuple[Iterable[Any], bool]:
    """Return the items of an iterable, and whether they are tuples of arguments, the old form.

    See :meth:`Client.map` for the rule. Only an iterable that begins with a tuple is looked at
    further: the items of others are not even touched.
    """
    if type(iterable) in (list, tuple, range):
        first = iterable[0] if iterable else _NOTHING  # type: ignore[index]
    else:
        items = iter(iterable)
        first = next(items, _NOTHING)
        if first is _NOTHING:
            return (), False
        iterable = chain((first,), items)
    if type(first) is not tuple:
        return iterable, False
    takes_one = _takes_one(function)
    if takes_one and len(first) != 1:
        return iterable, False
    rows = list(iterable)
    is_old = all(type(row) is tuple and (len(row) == 1 or not takes_one) for row in rows)
    return rows, is_old


def _takes_one(function: Callable[..., Any]) -> bool:
    """Return True if a function can be called with one positional argument, for all we know."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True
