"""What tasks print and log, as it comes: the last lines, by worker, task, function and text."""

from __future__ import annotations

import logging
import re
from collections import deque
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bokeh.layouts import column
from bokeh.models.widgets.buttons import Toggle
from bokeh.models.widgets.inputs import Select, TextInput

from scaler_cluster.config.shared_settings import LEVELS
from scaler_monitoring import log_view, view
from scaler_monitoring.dashboard import html
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.parts import controls, inputs_style, panel, show, text
from scaler_monitoring.log_view import LogFilter

if TYPE_CHECKING:
    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.wire import feed
    from scaler_monitoring.dashboard.tab_view import View
    from scaler_monitoring.last_lines import LastLines
    from scaler_monitoring.model import Model

LINES_SHOWN = 400
"""Of those that match: as many as one scrolls through."""
CHARS_SHOWN = 200_000
ALL = "everything"
OPTIONS: list[Any] = [(ALL, ALL), *((one, f"{one} or above") for one in LEVELS)]
ABOUT = (
    "Lines begin when a page like this one is opened: before that, the workers keep none. What "
    "tasks print still goes where it always went."
)
CSS = """
    div.lines { display: flex; flex-direction: column-reverse; height: 34rem; max-height: 70vh;
        overflow: auto; background: var(--panel); border: 1px solid var(--grid);
        border-radius: 4px; font: 12.5px/1.45 ui-monospace, monospace; }
    div.lines > div { margin-bottom: auto; }
    div.lines p { margin: 0; padding: .05rem .6rem; white-space: pre-wrap;
        overflow-wrap: anywhere; }
    div.lines p:hover { background: var(--background); }
    div.lines span { color: var(--muted); }
    p.bad b, p.missing { color: var(--bad); }
    p.missing { font-style: italic; }
"""


def link_to_logs(view: View, **wanted: str) -> str:
    """Return the link to the page, with what its inputs begin with: worker, function, task."""
    link = view.links[Logs.path]
    return f"{link}{'&' if '?' in link else '?'}{urlencode(wanted)}"


class Logs(Page):
    """The last lines. While it is open, and not in a recording, workers tell what tasks print."""

    path = "/logs"
    is_quick = True

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        css = inputs_style(theme)

        def field(name: str, title: str, width: int) -> TextInput:
            value = self.view.address.get(name) or ""
            made = TextInput(title=title, value=value, width=width, stylesheets=[css])
            made.value_input = made.value
            made.on_change("value_input", self._on_filter)
            return made

        self._worker = field("worker", "Worker has in it", 170)
        self._function = field("function", "Function has in it", 170)
        self._task = field("task", "Task is", 110)
        self._text = field("text", "Text has in it", 220)
        self._level = Select(title="Show", options=OPTIONS, value=ALL, width=170, stylesheets=[css])
        self._level.on_change("value", self._on_filter)
        self._pause = Toggle(label="Pause", width=90, stylesheets=[css])
        self._pause.on_change("active", self._on_pause)
        self._said = text("", theme, html.STYLE)
        self._lines = text("", theme, CSS)
        self._found: deque[feed.LogLine] = deque(maxlen=LINES_SHOWN)
        """Those that match."""
        self._seen = 0
        """How many lines there were when it was looked last."""
        self._is_new = True
        """What is shown is not what matches."""
        self._tail: LastLines | None = None
        """What it is shown of."""
        return column(
            panel(
                "Logs",
                theme,
                controls(
                    self._worker, self._function, self._task, self._text, self._level, self._pause
                ),
                self._said,
                self._lines,
                about=ABOUT,
            ),
            sizing_mode="stretch_width",
        )

    def update(self, model: Model) -> None:
        """Show what is known now."""
        self.view.watch.want_logs()
        if not self._pause.active:
            self._list(model.logs)

    def _list(self, tail: LastLines) -> None:
        if tail is not self._tail:
            self._tail = tail
            self._begin()
        wanted = self._filter()
        added, self._seen = tail.since(self._seen), tail.added
        before = len(self._found)
        matching = [line for line in added if wanted.takes(line)]
        self._found.extend(matching)
        if matching or self._is_new:
            self._is_new = not before and not matching
            show(self._lines, _lines_html(list(self._found)))
        show(self._said, _sentence(tail, len(self._found)))

    def _begin(self) -> None:
        self._found.clear()
        self._seen, self._is_new = 0, True

    def _filter(self) -> LogFilter:
        wanted, level = self._text.value_input.strip(), self._level.value
        return LogFilter(
            self._worker.value_input.strip(),
            self._function.value_input.strip(),
            self._task.value_input.strip(),
            0 if level == ALL else int(getattr(logging, level)),
            re.compile(re.escape(wanted), re.IGNORECASE) if wanted else None,
        )

    def _on_filter(self, name: str, old: object, new: object) -> None:
        self._begin()
        self._list(self.view.model.logs)

    def _on_pause(self, name: str, old: object, new: object) -> None:
        if not self._pause.active:
            self._list(self.view.model.logs)


def _sentence(tail: LastLines, found: int) -> str:
    if tail.reason:
        return html.nothing(f"There is nothing to see: {tail.reason}.")
    if not tail.added:
        return html.nothing("No task has printed or logged anything since somebody looked.")
    said = [f"{view.whole(found)} of {html.many(len(tail.lines), 'line')} match"]
    if found >= LINES_SHOWN:
        said = [f"The last {view.whole(found)} lines that match"]
    if tail.forgotten:
        said.append(f"{view.whole(tail.forgotten)} earlier ones are forgotten")
    if tail.dropped:
        said.append(f"{view.whole(tail.dropped)} came too fast and were dropped")
    return f"<p>{escape('; '.join(said))}.</p>"


def _lines_html(lines: list[feed.LogLine]) -> str:
    """Return HTML of the last lines, with an element that is scrolled to its end by itself."""
    parts: deque[str] = deque()
    left = CHARS_SHOWN
    for line in reversed(lines):
        left -= len(line.text)
        if left < 0:
            break
        parts.appendleft(_line_html(line))
    # It can be reached by keyboard, as it scrolls.
    shown = f'<div class="lines" tabindex="0"><div>{"".join(parts)}</div></div>'
    return shown if parts else ""


def _line_html(line: feed.LogLine) -> str:
    about = [log_view.clock_of(line.at), log_view.worker_of(line)]
    said = escape("\n".join(log_view.text_lines(line)))
    if not line.source:
        return f'<p class="missing"><span>{escape(" ".join(about))}</span> {said}</p>'
    if line.session:
        about += [log_view.task_of(line), view.function_name(line.function)]
    kind = "bad" if line.level >= logging.ERROR else "plain"
    of = f"<b>{escape(log_view.kind_of(line))}</b>"
    return f'<p class="{kind}"><span>{escape(" ".join(about))}</span> {of} {said}</p>'
