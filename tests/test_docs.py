"""The pages say what the code says, and what they show runs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.helpers import TYPED, with_free_ports

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["protocol.md", "feed.md", "settings.md", "task-states.md"])
def test_reference_pages_are_up_to_date(page: str) -> None:
    """A page made from the code is the one that the code would make now."""
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.PAGES[page]() == (DOCS / page).read_text(), "run: python docs/make_reference.py"


BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [page for page in [DOCS.parent / "README.md", *sorted(DOCS.glob("**/*.md"))]
         if BLOCK.search(page.read_text()) and page.name not in TYPED]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """The examples of a page run as one program, from its top to its end."""
    if page.name in {"dask.md", "distributed.md"}:
        pytest.importorskip("dask")
    source = "\n".join(BLOCK.findall(with_free_ports(page.read_text())))

    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
