"""What Sphinx does for this site besides: notebooks, files for machines, what previews show.

It is an extension of ``conf.py``, without a dependency of its own.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myst_parser.parsers.sphinx_ import MystParser

if TYPE_CHECKING:
    from docutils.nodes import document
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

NOT_TEXT = re.compile(
    r"^(?:---\n.*?\n---\n|```.*?^```$|<!--.*?-->|\|.*?$|#.*?$|!\[.*?$)", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
MARKS = re.compile(r"[*`]+")
SUMMARY_CHARS_MIN = 60
LLMS_HEAD = """\
# scaler-exec

> {summary}

Each page is here as HTML and, at the link below, as Markdown. [llms-full.txt](llms-full.txt) has
all pages in one file.
"""


# -- notebooks -------------------------------------------------------------------------------------


class NotebookParser(MystParser):  # type: ignore[misc]
    """Reads a notebook as the Markdown that it amounts to."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: document) -> None:
        """Parse the text of a notebook."""
        super().parse(as_markdown(inputstring), document)


def as_markdown(notebook: str) -> str:
    """Return the cells of a notebook with their outputs, which are texts."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        shown = "".join(_text(output) for output in cell["outputs"])
        if shown:
            parts.append(f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _text(output: dict[str, Any]) -> str:
    text = output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
    return "".join(text) + "\n"


# -- what machines read ----------------------------------------------------------------------------


def summary(markdown: str) -> str:
    """Return what a page says first: a sentence, or two if it is short."""
    paragraph = next((one for one in NOT_TEXT.sub("", markdown).split("\n\n") if one.strip()), "")
    words = " ".join(MARKS.sub("", LINK.sub(r"\1", paragraph)).split())
    text = ""
    for sentence in re.split(r"(?<=[.:?]) ", words):
        if len(text) < SUMMARY_CHARS_MIN:
            text = f"{text} {sentence}".strip()
    return re.sub(r":$", ".", text)


def _markdown(app: Sphinx, name: str) -> str:
    file = Path(app.env.doc2path(name))
    text = file.read_text()
    return as_markdown(text) if file.suffix == ".ipynb" else text


def _sections(env: BuildEnvironment) -> dict[str, list[str]]:
    """Return the names of the pages by the captions of the start page, in its order."""
    from sphinx import addnodes

    trees = env.get_doctree(env.config.root_doc).findall(addnodes.toctree)
    return {tree["caption"]: [page for _, page in tree["entries"]] for tree in trees}


def describe(app: Sphinx, name: str, _: str, context: dict[str, Any], __: object) -> None:
    """Put into the head of a page what search engines and previews of links show."""
    if name not in app.env.found_docs:
        return
    about = summary(_markdown(app, name))
    texts = {
        "description": ("name", about),
        "og:title": ("property", re.sub("<.*?>", "", context["title"])),
        "og:description": ("property", about),
        "og:type": ("property", "article"),
        "og:site_name": ("property", app.config.project),
    }
    if app.config.html_baseurl:
        texts["og:url"] = (
            "property",
            app.config.html_baseurl + context["pageurl"].rsplit("/", 1)[-1],
        )
    context["metatags"] += "".join(
        f'<meta {key}="{what}" content="{escape(text)}" />\n' for what, (key, text) in texts.items()
    )


def write_files(app: Sphinx, error: Exception | None) -> None:
    """Write the pages as Markdown, ``llms.txt``, ``llms-full.txt``, and a map of the site.

    A map needs the address of the site: ``-D html_baseurl=https://example.org/docs/``.
    """
    if error is not None or app.builder.format != "html":
        return
    out, env = Path(app.outdir), app.env
    start = env.config.root_doc
    names = sorted(env.found_docs - {"404"})
    texts = {name: _markdown(app, name) for name in names}
    short = LLMS_HEAD.format(summary=summary(texts[start])).splitlines()
    full = [texts[start]]
    for caption, names in _sections(env).items():
        short += ["", f"## {caption}", ""]
        for name in names:
            title = env.titles[name].astext()
            short.append(f"- [{title}]({name}.md): {summary(texts[name])}")
            full.append(f"<!-- {name}.md -->\n\n{texts[name]}")
    for name, text in texts.items():
        (out / f"{name}.md").write_text(text)
    (out / "llms.txt").write_text("\n".join(short) + "\n")
    (out / "llms-full.txt").write_text("\n\n".join(full))
    if base := app.config.html_baseurl:
        places = "".join(f"<url><loc>{base}{name}.html</loc></url>\n" for name in texts)
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        head = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{space}">'
        (out / "sitemap.xml").write_text(f"{head}\n{places}</urlset>\n")
        (out / "robots.txt").write_text(f"User-agent: *\nSitemap: {base}sitemap.xml\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of all this."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
