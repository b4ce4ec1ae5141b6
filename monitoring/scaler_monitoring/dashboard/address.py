"""The query of a tab's URL: what is chosen, searched and sorted, so that a link shows the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from bokeh.models.widgets.markups import Div

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "address"
"""By which the script of the page finds it."""
OPENED, PUSH, REPLACE, VISITED = "opened", "push", "replace", "visited"
"""What the page was asked for with; a new entry of the browser's history, the same entry; what the
browser went back to."""
CHARS_MAX = 4000
"""Of a query: the longest that a browser and all proxies let through."""


class Address:
    """What stands behind ``?`` in the URL of a tab."""

    def __init__(self, query: str = "") -> None:
        self._values = _parsed(query)
        self._visitors: list[Callable[[], None]] = []
        self._is_ours = False
        tags: list[Any] = [query, OPENED]
        self.root = Div(name=NAME, visible=False, tags=tags)
        self.root.on_change("tags", self._on_tags)

    def get(self, name: str) -> str:
        """Return a value; empty: there is none."""
        return self._values.get(name, "")

    def set(self, *, is_step: bool, **values: str) -> None:
        """Change some values; empty ones go. After a step, the browser's Back leads to before."""
        changed = {**self._values, **values}
        changed = {name: value for name, value in changed.items() if value}
        if changed == self._values:
            return
        self._values = changed
        self._is_ours = True
        try:
            tags: list[Any] = [urlencode(changed, safe=":"), PUSH if is_step else REPLACE]
            self.root.tags = tags
        finally:
            self._is_ours = False

    def on_visit(self, told: Callable[[], None]) -> None:
        """Let ``told`` know when the browser went back, or forward, to another query."""
        self._visitors.append(told)

    def _on_tags(self, name: str, old: object, new: list[Any]) -> None:
        if self._is_ours or len(new) != 2 or new[1] != VISITED:
            return
        self._values = _parsed(str(new[0]))
        for told in self._visitors:
            told()


def _parsed(query: str) -> dict[str, str]:
    return dict(parse_qsl(query.lstrip("?")[:CHARS_MAX]))
