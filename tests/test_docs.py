"""The pages say what the code says, and what they show runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scaler_exec
from scaler_cluster import errors
from tests.runtime.helpers import BOUND_S, TYPED, environment, with_free_ports

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = {"actors"}
"""Modules of scaler_exec that the page describes as such."""
DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], str]]:
    """Return what makes each page that is made from the code."""
    monkeypatch.syspath_prepend(DOCS)
    pages: dict[str, Callable[[], str]] = importlib.import_module("make_reference").PAGES
    return pages


def test_reference_pages_are_up_to_date(made: dict[str, Callable[[], str]]) -> None:
    """A page made from the code is the one that the code would make now."""
    old = [page for page, make in made.items() if make() != (DOCS / page).read_text()]

    assert not old, "run: python docs/make_reference.py"
    says = "<!-- made by docs/make_reference.py -->"
    assert {page.name for page in DOCS.glob("*.md") if says in page.read_text()} <= set(made)


def test_the_reference_has_each_public_name() -> None:
    """What users import is described: errors by their module, all else by its name."""
    page = (DOCS / "api.md").read_text()
    assert "automodule:: scaler_cluster.errors" in page
    described = set(re.findall(r"auto\w+:: scaler_exec\.(\w+)$", page, re.MULTILINE))
    of_errors = {name for name in scaler_exec.__all__ if hasattr(errors, name)}

    assert described | of_errors | {"__version__"} == set(scaler_exec.__all__) | PACKAGES


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_shows_what_it_prints(tmp_path: Path) -> None:
    """Each cell of the notebook that is a page gives what is stored below it."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    stored = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    fresh = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(
        fresh, timeout=2 * BOUND_S, kernel_name="python3", resources=resources
    )

    client.execute(env=environment() | {"IPYTHONDIR": str(tmp_path)})

    outputs = [[cell.get("outputs") for cell in one.cells] for one in (stored, fresh)]
    assert outputs[0] == outputs[1]
