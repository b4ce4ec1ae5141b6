"""The HTML around what Bokeh draws. Everything that is put into it is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from jinja2 import Template

    from scaler_monitoring.theme import Theme

LINKS = (
    ("/", "Overview"),
    ("/stream", "Task stream"),
    ("/tasks", "Tasks"),
    ("/workers", "Workers"),
    ("/graphs", "Graphs"),
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


def variables(prefix: str, name: str, theme: Theme, nonce: str, token: str = "") -> dict[str, Any]:
    """Return what every page needs: links to the others, colours, what its scripts must bear.

    A ``token`` is put into the links, for a page in a frame, which has no cookies.
    """
    query = f"?{urlencode({'token': token})}" if token else ""
    links = [(f"{prefix}{path}{query}", title, title == name) for path, title in LINKS]
    return {"links": links, "name": name, "theme": theme, "nonce": nonce}


def render(
    page: str, prefix: str, name: str, theme: Theme, nonce: str, token: str, **more: object
) -> str:
    """Return a page that Bokeh has no part in."""
    return template(page).render(**variables(prefix, name, theme, nonce, token), **more)
