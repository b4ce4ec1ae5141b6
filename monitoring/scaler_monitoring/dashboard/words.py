"""What pages say of tasks, workers and times: text, and HTML with all of it escaped."""

from __future__ import annotations

import time
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from scaler_monitoring import view
from scaler_monitoring.figures import NO_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Model

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def clock_time(model: Model, at: float) -> str:
    """Return a moment of the scheduler's clock as people say it, ``14:05:09``."""
    return time.strftime("%H:%M:%S", time.localtime(model.time_of(at)))


def task_name(session: int, first: int, count: int = 1) -> str:
    """Return what contiguous tasks are called in the whole cluster, ``3:17`` or ``3:17-20``."""
    return f"{session}:{first}-{first + count - 1}" if count > 1 else f"{session}:{first}"


def function_name(function: str) -> str:
    """Return the name of a function, on one line."""
    return view.plain(function) or NO_NAME


def amount(nbytes: float | None) -> str:
    """Return a number of bytes, as ``37.1 MiB``."""
    if nbytes is None:
        return "-"
    power = 0
    while nbytes >= 1000 and power < len(BYTE_UNITS) - 1:
        nbytes /= 1024
        power += 1
    return f"{nbytes:.1f} {BYTE_UNITS[power]}" if power else f"{nbytes:.0f} B"


def many(count: int, what: str) -> str:
    """Return a count with what was counted: ``1 task``, ``2,000 tasks``."""
    return f"{view.whole(count)} {what}{'s' * (count != 1)}"


def reason(why: str, error: str) -> str:
    """Return why tasks failed or are run again: the type of the exception, if there was one."""
    return view.plain(error or why)


def death(event: feed.WorkerDied) -> str:
    """Return how a worker died, and what it ran."""
    return view.plain(view.death(event))


def cause(event: feed.WorkerDied) -> str:
    """Return how a worker died."""
    return death(replace(event, session=0))


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
    @media (max-width: 40rem) {
        th, td { padding: .25rem .35rem; }
        td.name { max-width: 6.5rem; }
    }
"""
"""Of what is made here; see :func:`parts.text`."""


def nothing(sentence: str) -> str:
    """Return HTML that says why there is nothing."""
    return f'<p class="none">{escape(sentence)}</p>'


def facts(pairs: Mapping[str, str]) -> str:
    """Return HTML of names and what they are; what is empty is left out."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs.items() if value
    )
    return f'<dl class="facts">{rows}</dl>'


def printed(title: str, text: str) -> str:
    """Return HTML of lines that a program printed, under a heading; nothing if there are none."""
    if not text.strip():
        return ""
    # It can be reached by keyboard, as it scrolls.
    return f'<h3>{escape(title)}</h3><pre tabindex="0">{escape(text.rstrip())}</pre>'


def table(head: Mapping[str, str], rows: Iterable[Iterable[str]]) -> str:
    """Return HTML of a small table, of text; ``head`` has the class of each column by its title."""
    kinds = list(head.values())
    titles = "".join(
        f'<th class="{kind}" scope="col">{escape(title)}</th>' for title, kind in head.items()
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
