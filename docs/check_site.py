"""Checks a site that Sphinx has made: ``python docs/check_site.py DIRECTORY``.

It must be hostable as it is, below any address and without a network: what its pages load and link
is there, and every page is in the list for language models. It raises AssertionError otherwise.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src"}
"""Which attribute of an element a browser loads without being asked."""
NO_FILE = {"canonical"}
STYLE_URL = re.compile(r"""(?:@import|url\()\s*["']?([^"')\s]+)""")
SUMMARY_CHARS = range(40, 301)


class Page(HTMLParser):
    """What a page loads, where it leads, and the names of its places."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.linked: set[str] = set()
        self.places: set[str] = set()
        self.texts: dict[str, str] = {}
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        given = {name: value or "" for name, value in attrs}
        self.places.add(given.get("id", ""))
        link = given.get(LOADED.get(tag, "href"), "")
        if tag == "meta":
            self.texts[given.get("name") or given.get("property", "")] = given.get("content", "")
        elif tag == "a":
            self.linked.add(link)
        elif tag in LOADED and link and given.get("rel") not in NO_FILE:
            self.loaded.add(link)


def is_foreign(link: str) -> bool:
    """Return whether a link leads to another host, or is none that a file answers."""
    parts = urlsplit(link)
    return bool(parts.scheme or parts.netloc)


def faults_of(name: str, page: Page, pages: dict[str, Page], site: Path) -> list[str]:
    """Return what is wrong with a page."""
    found = [f"{name} loads {link}" for link in page.loaded if is_foreign(link)]
    for link in page.loaded | page.linked:
        parts = urlsplit(link)
        if is_foreign(link):
            continue
        if parts.path.startswith("/"):
            found.append(f"{name}: {link} does not work below an address")
        elif parts.path and not (site / unquote(parts.path)).exists():
            found.append(f"{name}: {link} is not there")
        there = pages.get(parts.path or name)
        if parts.fragment and there and unquote(parts.fragment) not in there.places:
            found.append(f"{name}: {link} has no such place")
    return found


def main(site: Path) -> None:
    """Check a site."""
    pages = {file.name: Page(file) for file in site.glob("*.html")}
    faults = [one for name, page in pages.items() for one in faults_of(name, page, pages, site)]
    for style in site.glob("_static/**/*.css"):
        urls = STYLE_URL.findall(style.read_text())
        faults += [f"{style.name} loads {url}" for url in urls if url.startswith(("http", "//"))]
    written = {file.stem for file in site.glob("*.md")}
    listed = (site / "llms.txt").read_text()
    full = (site / "llms-full.txt").read_text()
    for name in written:
        about = pages[f"{name}.html"].texts["description"]
        if len(about) not in SUMMARY_CHARS:
            faults.append(f"{name}: its first sentence does not say what it is about: {about!r}")
        if name != "index" and f"]({name}.md): {about}\n" not in listed:
            faults.append(f"{name} is not in llms.txt")
        if (site / f"{name}.md").read_text() not in full:
            faults.append(f"{name} is not in llms-full.txt")
    assert len(written) > 40
    assert (site / "404.html").exists()
    assert not faults, "\n".join(faults)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
