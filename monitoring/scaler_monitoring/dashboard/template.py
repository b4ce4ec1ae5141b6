"""The HTML around what Bokeh draws. Everything that is put into it is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

    from scaler_monitoring.theme import Theme

LINKS = (
    ("/", "Overview"),
    ("/stream", "Task stream"),
    ("/functions", "Functions"),
    ("/tasks", "Tasks"),
    ("/workers", "Workers"),
    ("/logs", "Logs"),
    ("/graphs", "Graphs"),
    ("/profile", "Profile"),
    ("/memory", "Memory"),
    ("/clients", "Clients"),
    ("/machines", "Machines"),
    ("/settings", "Settings"),
)
"""All pages: where they are, and their names."""


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("scaler_monitoring.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
    )


def template(name: str) -> Template:
    """Return a template of this package."""
    return _environment().get_template(name)


def links(prefix: str, token: str = "") -> dict[str, str]:
    """Return the link to each page, by its path.

    A ``token`` is put into them, for a page in a frame, which has no cookies.
    """
    query = f"?{urlencode({'token': token})}" if token else ""
    return {path: f"{prefix}{path}{query}" for path, _ in LINKS}


def variables(hrefs: Mapping[str, str], path: str, theme: Theme, nonce: str) -> dict[str, Any]:
    """Return what the page at a path needs: links, colours, what its scripts must bear."""
    return {
        "links": [(hrefs[where], title, where == path) for where, title in LINKS],
        "name": dict(LINKS)[path],
        "theme": theme,
        "nonce": nonce,
        "settings_link": hrefs["/settings"],
    }
