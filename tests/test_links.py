"""Each link within the repository leads somewhere: to a file, and to a heading of it.

Sphinx checks the links of the pages in ``docs`` among each other, but not those from outside, nor
those that leave ``docs``. Links to other sites need a network: ``tox run -e links``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOLDERS = ("docs", "examples", "benchmarks")
SOURCES = ("scaler_exec", "cluster", "compat", "monitoring", "tests", *FOLDERS)
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(
        page
        for folder in FOLDERS
        for page in (ROOT / folder).glob("**/*.md")
        # What a report has left there, and what npm brought.
        if not {"results", "node_modules"} & {*page.parts}
    ),
]
FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(<?([^()\s>]+)>?(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,3} +(.+)$", re.MULTILINE)
"""Deeper ones have no anchor in the pages that Sphinx makes: ``myst_heading_anchors``."""
FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:")
MENTION = re.compile(r"\bdocs/[\w-]+(?:/[\w-]+)*\.(?:md|py|json|yml|html)\b")


def links(page: Path) -> list[str]:
    """Return where the links and images of a page lead."""
    text = CODE.sub("`code`", FENCE.sub("", page.read_text()))
    return [link for link in LINK.findall(text) if not FOREIGN.match(link)]


@cache
def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as GitHub and MyST make them."""
    names: set[str] = set()
    for title in HEADING.findall(FENCE.sub("", page.read_text())):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        name = first = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        again = 0
        while name in names:
            again += 1
            name = f"{first}-{again}"
        names.add(name)
    return names


def fault(page: Path, link: str) -> str | None:
    """Return what is wrong with a link, if anything."""
    path, _, anchor = link.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return f"{link}: there is no such file"
    if DOCS in page.parents and there != DOCS and DOCS not in there.parents:
        return f"{link}: it leaves docs, so the site lacks it"
    if anchor and (there.suffix != ".md" or anchor not in anchors(there)):
        return f"{link}: there is no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Files, headings and images that a page links are there."""
    faults = [found for found in (fault(page, link) for link in links(page)) if found]

    assert not faults


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    """A missing file, image or heading is noticed; code and other sites are left alone."""
    (tmp_path / "other.md").write_text("# A `title`, [linked](x)!\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md#a-title-linked) [b](other.md#twice-1) [c](#here) `[d](none)`\n"
        '[e](https://example.org/none) [f](other.md "title")\n```\n[g](none)\n# h\n```\n'
    )

    assert [fault(page, link) for link in links(page)] == [None, None, None, None]
    for wrong in ("none.md", "none.png", "other.md#twice-2", "#h", "#none"):
        assert fault(page, wrong) is not None


def test_each_picture_is_shown() -> None:
    """No picture lies about that no page shows."""
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page)}
    unseen = [file.name for file in (DOCS / "images").iterdir() if file not in shown]

    assert not unseen


def test_pages_that_code_names_are_there() -> None:
    """Where code, tests or the changelog send their readers to a page, there is one."""
    sources = [file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")]
    named = {
        (name, file) for file in [*PAGES, *sources] for name in MENTION.findall(file.read_text())
    }

    assert len(named) > 40
    assert not [pair for pair in named if not (ROOT / pair[0]).exists()]
