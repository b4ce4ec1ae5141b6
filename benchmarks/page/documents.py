"""Writes the measured tables into README.md and docs/performance.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import ROOT
from benchmarks.page import tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.page.data import Data

BEGIN, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"
DOCUMENTS: dict[Path, Callable[[Data], str]] = {
    ROOT / "README.md": tables.readme,
    ROOT / "docs" / "performance.md": tables.performance,
}


def with_table(text: str, table: str) -> str:
    """Return a text with another table between its markers; raises ValueError if it has none."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def write(data: Data) -> None:
    """Write the tables."""
    for path, table in DOCUMENTS.items():
        path.write_text(with_table(path.read_text(), table(data)))
