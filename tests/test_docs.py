"""The reference pages say what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["protocol.md", "task-states.md"])
def test_reference_pages_are_up_to_date(page: str) -> None:
    """A page made from the code is the one that the code would make now."""
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.PAGES[page]() == (DOCS / page).read_text(), "run: python docs/make_reference.py"
