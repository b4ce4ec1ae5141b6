"""Where we differ from ProcessPoolExecutor on purpose: all of it, and nothing else, is documented."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.differential.differing import DIFFERENCES


@pytest.mark.parametrize("shown", DIFFERENCES)
def test_it_differs_as_it_is_said(play, shown) -> None:
    """Each row of the table is a difference that shows: if it vanished, the row is wrong."""
    _, _, standard, ours = DIFFERENCES[shown]
    answers = play([["scene", shown]], "fork", "executor")

    assert answers == {"fork": [["returned", standard]], "executor": [["returned", ours]]}


def test_the_page_has_exactly_these_rows() -> None:
    """docs/executor.md names every difference that is known."""
    page = (ROOT / "docs" / "executor.md").read_text()
    part = page.split("## What differs from `ProcessPoolExecutor`\n", 1)[1].split("\n## ", 1)[0]
    rows = [row for row in re.findall(r"^\| (.+?) \|", part, re.MULTILINE) if row != "what"]

    assert sorted(one.name for one in DIFFERENCES.values()) == sorted(rows)
