"""What pages say besides what terminals do: text, and HTML with all of it escaped."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from scaler_monitoring import texts, view
from scaler_monitoring.dashboard.links import function_url, task_url, worker_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scaler_monitoring.model import Model

NO_FAILURE = "No failure was heard of in the last half hour."
BACK = '<p><a class="back" href="?">← All of them</a></p>'
"""Leads from one thing to the list; Escape does as well."""
NO_DEATH = "No death was heard of in the last half hour."
"""Single events are told to who listens only: counts know of those before as well."""


def many(count: int, what: str) -> str:
    """Return a count with what was counted: ``1 task``, ``2,000 tasks``."""
    return f"{view.whole(count)} {what}{'s' * (count != 1)}"


def failed_before(model: Model) -> str:
    """Return how many tasks failed of which nothing is told any more; empty: none did."""
    assert model.snapshot is not None
    failed = 0 if model.failures else model.snapshot.tasks.failed
    return f"{many(failed, 'task')} failed before." if failed else ""


def reason(why: str, error: str) -> str:
    """Return why tasks failed or are run again: the type of the exception, if there was one."""
    return texts.plain(error or why)


def object_name(name: bytes) -> str:
    """Return the id of an object: random bytes, or a worker's id with a number."""
    text = name.decode("ascii", errors="replace")
    return text if text.isascii() and text.isprintable() else name.hex()


# -- HTML ------------------------------------------------------------------------------------

STYLE = """
    p { margin: 0 0 .5rem; }
    p.none { color: var(--muted); }
    dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem;
        margin: 0 0 .5rem; }
    dl.facts dt { color: var(--muted); }
    dl.facts dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
    pre { background: var(--panel); border: 1px solid var(--grid);
        border-left: 5px solid var(--muted); border-radius: 4px;
        margin: .2rem 0 .6rem; padding: .5rem .7rem; max-height: 26rem;
        overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere;
        font: 13px/1.45 ui-monospace, monospace; }
    h3 { font-size: 14px; margin: .3rem 0 .1rem; }
    table { border-collapse: collapse; width: 100%; background: var(--panel); }
    th { text-align: left; color: var(--muted); font-weight: 600; font-size: 12px; }
    th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--grid); vertical-align: top;
        overflow-wrap: anywhere; }
    td.number, td.time, td.name, th.number, th.time, th.name { white-space: nowrap; width: 1%;
        font-variant-numeric: tabular-nums; }
    td.number, th.number { text-align: right; }
    td.name { max-width: 12rem; overflow: hidden; text-overflow: ellipsis; }
    a { color: var(--accent); }
    h2 { font-size: 18px; margin: .3rem 0; overflow-wrap: anywhere; }
    a:focus-visible, pre:focus-visible { outline: 3px solid var(--accent); outline-offset: -3px; }
    @media (max-width: 40rem) {
        thead { display: none; }
        table, tbody { display: block; }
        tr { display: flex; flex-wrap: wrap; gap: 0 .9rem; padding: .25rem .35rem;
            border-bottom: 2px solid var(--grid); }
        td, td.number, td.time, td.name { display: block; width: auto; max-width: 100%; padding: 0;
            border: 0; white-space: normal; text-align: left; }
        td:empty { display: none; }
        td::before { content: attr(data-title) " "; color: var(--muted); font-size: 12px; }
    }
"""
"""Of what is made here; see :func:`parts.text`."""


@dataclass(frozen=True)
class Link:
    """Text that leads to another page."""

    text: str
    href: str


Text: TypeAlias = "str | Link | tuple[str | Link, ...]"
"""Text, of which all or parts lead elsewhere."""


def cell(what: Text) -> str:
    """Return HTML of a text."""
    if isinstance(what, tuple):
        return "".join(map(cell, what))
    if isinstance(what, str):
        return escape(what)
    return f'<a href="{escape(what.href)}">{escape(what.text)}</a>'


def function_link(function: str) -> Link:
    """Return the name of a function, which leads to it."""
    return Link(view.function_name(function), function_url(function))


def work_link(session: int, first: int, count: int = 1) -> Link:
    """Return the name of tasks, which leads to them."""
    name = view.task_name(session, first, count)
    return Link(name, task_url(name))


def worker_link(model: Model, worker: bytes) -> str | Link:
    """Return the name of a worker, which leads to it."""
    return Link(model.label(worker), worker_url(worker)) if worker else "none"


def nothing(sentence: str) -> str:
    """Return HTML that says why there is nothing."""
    return f'<p class="none">{escape(sentence)}</p>'


def facts(pairs: Mapping[str, Text]) -> str:
    """Return HTML of names and what they are; what is empty is left out."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{cell(value)}</dd>" for name, value in pairs.items() if value
    )
    return f'<dl class="facts">{rows}</dl>'


def link(href: str, what: str) -> str:
    """Return HTML of a link to another page."""
    return f'<p><a href="{escape(href)}">{escape(what)}</a></p>'


def printed(title: str, text: str) -> str:
    """Return HTML of lines that a program printed, under a heading; nothing if there are none."""
    if not text.strip():
        return ""
    # It can be reached by keyboard, as it scrolls.
    return f'<h3>{escape(title)}</h3><pre tabindex="0">{escape(text.rstrip())}</pre>'


def table(head: Mapping[str, str], rows: Iterable[Iterable[Text]]) -> str:
    """Return HTML of a small table, of text; ``head`` has the class of each column by its title.

    On a phone each row is a card.
    """
    titles = "".join(
        f'<th class="{kind}" scope="col">{escape(title)}</th>' for title, kind in head.items()
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}" data-title="{escape(title)}">{cell(one)}</td>'
            for (title, kind), one in zip(head.items(), row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
