"""Where things have their pages: links from one page to another, wherever the dashboard begins."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from scaler_monitoring import view

if TYPE_CHECKING:
    from collections.abc import Mapping


def function_url(name: str) -> str:
    """Return the link to a function, relative to any page."""
    return f"functions?{urlencode({'name': name})}"


def task_url(task: str) -> str:
    """Return the link to a task, by what :func:`view.task_name` calls it: ``3:17``, ``3:17-20``."""
    return f"tasks?{urlencode({'task': task}, safe=':')}"


def task_pattern(hrefs: Mapping[str, str], column: str) -> str:
    """Return the link to a task for Bokeh, which puts its name in; ``hrefs`` are those of pages."""
    path, _, query = hrefs["/tasks"].partition("?")
    return f"{path}?task=@{column}{'&' * bool(query)}{query}"


def work_url(session: int, first: int) -> str:
    """Return the link to a task, by its numbers."""
    return task_url(view.task_name(session, first))


def worker_url(worker: bytes) -> str:
    """Return the link to a worker, by its id; one that is gone is found as long as it is known."""
    return f"workers?{urlencode({'worker': worker.hex()})}"


def workers_url(wanted: str) -> str:
    """Return the link to the workers that have a text in them, as the name of their machine."""
    return f"workers?{urlencode({'search': wanted})}"


def graph_url(graph: str) -> str:
    """Return the link to a graph, by its session and its first task: ``3:64``."""
    return f"graphs?{urlencode({'graph': graph}, safe=':')}"


def failure_url(kind: str) -> str:
    """Return the link to a kind of failures, by what :func:`failure_key` returns."""
    return f"tasks?{urlencode({'failure': kind})}"


def failure_key(function: str, why: str) -> str:
    """Return what a kind of failures is called in links."""
    return f"{function}~{why}"
