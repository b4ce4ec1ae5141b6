"""cloudpickle's pickler, with the types that cloudpickle itself does not ship."""

from __future__ import annotations

from collections import ChainMap
from types import CodeType
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from pickle import Pickler
else:
    from cloudpickle import Pickler

__all__ = ["CloudPickler"]


def _reduce_code(code: CodeType) -> Any:
    """Return how to make a code object that knows its file, for tracebacks and warnings.

    Since version 3.1.3 cloudpickle forgets that.
    """
    _, args = cloudpickle.cloudpickle._code_reduce(code)
    return make_code, (args, code.co_filename)


def make_code(args: tuple[Any, ...], filename: str) -> CodeType:
    """Return the code object of a function that was pickled by value."""
    return CodeType(*args).replace(co_filename=filename)


class CloudPickler(Pickler):
    """Pickles functions and classes by value where they cannot be imported."""

    # An instance may have one of its own.
    dispatch_table: Any = ChainMap(  # noqa: RUF012
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )
