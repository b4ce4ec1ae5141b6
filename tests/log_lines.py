"""Finds the lines that the engine may log, in its source."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tests.house import find_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGGERS = {"log", "LOGGER", "client_log"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
WRITERS = {"_note", "_ended", "_log"}
"""Methods of the scheduler's shell and journal that are given a line."""
GAP = "…"
"""Stands for what differs from line to line."""


def lines_in_source() -> dict[str, str]:
    """Return each line that may be logged, with a module that logs it."""
    found: dict[str, str] = {}
    for module, file in find_modules().items():
        if module.startswith("scaler_cluster"):
            for line in _lines(ast.parse(file.read_text())):
                found.setdefault(line, module)
    return found


def _lines(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        if owner in LOGGERS and node.func.attr in LEVELS:
            candidates = node.args[:2]
        elif owner == "self" and node.func.attr in WRITERS:
            candidates = [arg for arg in node.args if isinstance(arg, ast.JoinedStr)]
        elif ast.unparse(node.func) == "self._lines.append":
            candidates = [arg for arg in ast.walk(node) if isinstance(arg, ast.JoinedStr)]
        else:
            continue
        for argument in candidates:
            line = _text(argument)
            # A line that is nothing but another text: it is found where that is made.
            if line.replace(GAP, "").strip(" :"):
                yield line


def _text(node: ast.expr) -> str:
    """Return a text with gaps; empty if it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values
        )
    else:
        return ""
    text = re.sub(r"%(\.\d+)?[sdrfg]", GAP, text)
    return text.partition("\n")[0]
