"""What each worker calls before its first task: ``pkg.mod:func`` or ``pkg.mod:func(1, x="a")``."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from re import fullmatch
from typing import Any

from scaler_cluster.errors import ConfigError

FORM = 'write "pkg.mod:func", or "pkg.mod:func(1, name=\'a\')" with plain values'


@dataclass(frozen=True)
class Preload:
    """A function by its name, with its arguments."""

    module: str
    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> None:
        """Import the module and call the function; raises whatever that raises."""
        # A client has no use for this import.
        from pkgutil import resolve_name

        resolve_name(f"{self.module}:{self.function}")(*self.args, **self.kwargs)


def parse_preload(spec: str) -> Preload:
    """Return what a text calls, whether or not that exists; raises ConfigError."""
    module, mark, call = spec.strip().partition(":")
    if not mark or not fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module):
        raise ConfigError(f"names no module and function: {spec!r}; {FORM}")
    try:
        node: ast.expr = ast.parse(call.strip(), mode="eval").body
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if isinstance(node, ast.Call):
            args = tuple(map(ast.literal_eval, node.args))
            # A **mapping has no name: it is refused below.
            kwargs = {one.arg or "": ast.literal_eval(one.value) for one in node.keywords}
            node = node.func
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise ConfigError(f"is no call of a function with plain values: {spec!r}; {FORM}") from None
    function = ast.unparse(node)
    if "" in kwargs or not fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", function):
        raise ConfigError(f"names no function: {spec!r}; {FORM}")
    return Preload(module, function, args, kwargs)
