"""Where pages about single things are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def task_id(session: int, task: int) -> str:
    """Return what names a task in a link: unlike its label, it is unique for ever."""
    return f"{session}-{task}"


def task_url(hrefs: Mapping[str, str], task: str) -> str:
    """Return the link to a task, by its :func:`task_id`; ``hrefs`` are the links to all pages."""
    path, _, query = hrefs["/tasks"].partition("?")
    token = f"&{query}" if query else ""
    return f"{path.removesuffix('/tasks')}/task?id={task}{token}"
