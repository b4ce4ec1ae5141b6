"""The last tasks, and what failed: which, why, and where in their code."""

from __future__ import annotations

from collections import deque
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column
from bokeh.models.widgets.buttons import Button, Toggle
from bokeh.models.widgets.inputs import Select, TextInput

from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import html
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.pages.logs import link_to_logs
from scaler_monitoring.dashboard.parts import (
    COLOUR,
    FINE,
    TIME,
    WHOLE,
    Column,
    Table,
    as_time,
    controls,
    inputs_style,
    panel,
    show,
    text,
)
from scaler_monitoring.model import CANCELLED, DONE, FAILED, RETRIED
from scaler_monitoring.theme import look_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Failures, Model, Work

ROWS_SHOWN = 300
"""Of the tasks that match; whoever looks for another types more of its name."""
KINDS_SHOWN = 6
"""Kinds of failures that are seen at once."""
ALL = "all"
STATES: list[Any] = [(ALL, "all"), *((one, one) for one in (DONE, FAILED, CANCELLED, RETRIED))]

FAILURE_COLUMNS = (
    Column("last", "last failed", TIME, 90),
    Column("colour", "", COLOUR, 12),
    Column("function", "function", width=200),
    Column("why", "why", width=160),
    Column("tasks", "tasks", WHOLE, 70),
    Column("message", "message of the last", width=380),
)
TASK_COLUMNS = (
    Column("ended", "ended", TIME, 80),
    Column("task", "task", width=150),
    Column("colour", "", COLOUR, 12),
    Column("function", "function", width=200),
    Column("tasks", "tasks", WHOLE, 60),
    Column("state", "state", width=80),
    Column("took", "took (s)", FINE, 95),
    Column("each", "each (s)", FINE, 95),
    Column("worker", "worker", width=150),
    Column("attempt", "attempt", WHOLE, 70),
    Column("why", "why", width=150),
)


class Tasks(Page):
    """What became of tasks. While one is chosen, the list of them stands still."""

    path = "/tasks"

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        css = inputs_style(theme)
        self._failures = Table(
            FAILURE_COLUMNS,
            theme,
            KINDS_SHOWN,
            key="key",
            nothing=html.NO_FAILURE,
        )
        self._failures.on_choose(self._on_failure)
        self._failure, self._count, self._detail = (text("", theme, html.STYLE) for _ in range(3))
        self._search = TextInput(
            title="Function, worker, state or error has in it", width=280, stylesheets=[css]
        )
        self._state = Select(title="State", options=STATES, value=ALL, width=120, stylesheets=[css])
        self._pause = Toggle(label="Pause", width=90, stylesheets=[css])
        self._close = Button(label="Close", width=90, visible=False, stylesheets=[css])
        self._table = Table(TASK_COLUMNS, theme, key="key")
        self._table.on_choose(self._on_task)
        self._search.on_change("value_input", self._on_filter)
        self._state.on_change("value", self._on_filter)
        self._close.on_click(self._on_close)
        self._found: deque[Work] = deque(maxlen=self.view.rows_max)
        """Those that match, in the order in which they ended."""
        self._shown: dict[str, Work] = {}
        """Those in the table, by their keys there."""
        self._streamed = 0
        self._restarts = -1
        return column(
            panel(
                "Failures",
                theme,
                self._failures.root,
                self._failure,
                about="By function and type of exception; one that is chosen shows its traceback.",
            ),
            panel(
                "Tasks",
                theme,
                controls(self._search, self._state, self._pause, self._close),
                self._count,
                self._table.root,
                self._detail,
            ),
            sizing_mode="stretch_width",
        )

    def update(self, model: Model) -> None:
        """Show what is known now."""
        rows = [_failure_row(model, key, one) for key, one in model.failures.items()]
        rows.sort(key=lambda row: (-row["tasks"], row["key"]))
        self._failures.update(rows)
        if not (self._pause.active or self._table.chosen):
            self._list(model)

    # -- the list of tasks -------------------------------------------------------------------

    def _list(self, model: Model) -> None:
        if model.restarts != self._restarts:
            self._restarts, self._streamed = model.restarts, 0
            self._found.clear()
        added, self._streamed = model.streamed_since(self._streamed), model.streamed
        self._found.extend(self._matching(model, added))
        oldest = model.stream[0].end if model.stream else float("inf")
        while self._found and self._found[0].end < oldest:
            self._found.popleft()
        last = list(islice(reversed(self._found), ROWS_SHOWN))
        rows = [_task_row(model, one) for one in last]
        self._shown = {row["key"]: one for row, one in zip(rows, last, strict=True)}
        self._table.update(rows)
        self._table.root.visible = bool(rows)
        show(self._count, self._sentence(model))

    def _matching(self, model: Model, works: Iterable[Work]) -> Iterable[Work]:
        wanted, state = self._search.value_input.strip().lower(), self._state.value
        for one in works:
            if state not in (ALL, one.state):
                continue
            if not wanted or wanted in _words(model, one):
                yield one

    def _sentence(self, model: Model) -> str:
        found, known = len(self._found), min(len(model.stream), self.view.rows_max)
        if not known:
            return html.nothing("No task has ended yet.")
        is_filtered = bool(self._search.value_input.strip()) or self._state.value != ALL
        of = f" of the last {view.whole(known)}" if is_filtered else ""
        shown = f" The last {ROWS_SHOWN} are shown." if found > ROWS_SHOWN else ""
        verb = "matches" if found == 1 else "match"
        about = (
            f"{view.whole(found)}{of} {verb}."
            if is_filtered
            else (
                f"{html.many(known, 'row')}, of a task or of several that ran one after the other."
            )
        )
        return f"<p>{escape(about + shown)}</p>"

    # -- what is chosen ----------------------------------------------------------------------

    def _on_filter(self, name: str, old: object, new: object) -> None:
        self._on_close()
        self._restarts = -1
        self._list(self.view.model)

    def _on_task(self, key: str) -> None:
        model = self.view.model
        work = self._shown[key] if key else None
        show(self._detail, task_detail(model, work) + self._logs(work) if work else "")
        self._close.visible = bool(key)

    def _logs(self, work: Work) -> str:
        """Return HTML of the link to what a task printed."""
        task = view.task_name(work.session, work.first)
        return html.link(link_to_logs(self.view, task=task), f"Logs of task {task}")

    def _on_close(self) -> None:
        self._table.choose("")
        self._on_task("")

    def _on_failure(self, key: str) -> None:
        model = self.view.model
        chosen = [one for kind, one in model.failures.items() if _key(kind) == key]
        show(self._failure, failure_detail(model, chosen[0]) if chosen else "")


def _words(model: Model, work: Work) -> str:
    """Return what is searched of a task."""
    worker = model.label(work.worker) if work.worker else ""
    return f"{work.function}\n{worker}\n{work.state}\n{work.error}\n{work.reason}".lower()


def _key(kind: tuple[str, str]) -> str:
    return "\0".join(kind)


def _failure_row(model: Model, key: tuple[str, str], failures: Failures) -> dict[str, Any]:
    last = failures.last
    return {
        "key": _key(key),
        "last": as_time(last.at, model),
        "colour": look_of(last.function).colour,
        "function": view.function_name(last.function),
        "why": html.reason(last.reason, last.error),
        "tasks": failures.count,
        "message": texts.short(" ".join(last.message.split())),
    }


def _task_row(model: Model, work: Work) -> dict[str, Any]:
    task, took_s = view.task_name(work.session, work.first, work.count), work.end - work.start
    return {
        "key": f"{task} {work.state} {work.attempt} {work.end}",
        "ended": as_time(work.end, model),
        "task": task,
        "colour": look_of(work.function).colour,
        "function": view.function_name(work.function),
        "tasks": work.count,
        "state": work.state,
        "took": took_s,
        "each": took_s / work.count,
        "worker": model.label(work.worker) if work.worker else "none",
        "attempt": work.attempt,
        "why": html.reason(work.reason, work.error),
    }


def failure_detail(model: Model, failures: Failures) -> str:
    """Return HTML of the last failure of a kind."""
    last = failures.last
    task = view.task_name(last.session, last.first, last.count)
    return _detail(model, last, {"the last": f"task {task}, at {view.clock_time(model, last.at)}"})


def task_detail(model: Model, work: Work) -> str:
    """Return HTML of all that is known of a task."""
    took_s = work.end - work.start
    each = f", {view.duration(took_s / work.count)} each" if work.count > 1 else ""
    about = {
        "task": view.task_name(work.session, work.first, work.count),
        "state": work.state,
        "when": f"{view.clock_time(model, work.start)} to {view.clock_time(model, work.end)}",
        "took": view.duration(took_s) + each,
    }
    return _detail(model, work, about)


def _detail(model: Model, one: Work | feed.Failed, about: dict[str, str]) -> str:
    """Return HTML of what is known of tasks, after what there is to say about them first."""
    more = {
        "function": view.function_name(one.function),
        "worker": model.label(one.worker) if one.worker else "none",
        "attempt": view.whole(one.attempt),
        "why": texts.plain(f"{one.reason} {one.error}".strip()),
    }
    return html.facts(about | more) + _said(model, one)


def _said(model: Model, failed: Work | feed.Failed) -> str:
    """Return HTML of its message and traceback, and of what its worker printed, if that died."""
    parts = [
        html.printed("Message", failed.message),
        html.printed("Remote traceback", failed.traceback),
    ]
    for death in model.deaths:
        if death.worker == failed.worker and failed.worker and failed.reason == "worker_died":
            parts.append(html.facts({"the worker died of": view.death(death)}))
            parts.append(html.printed("The worker's last lines", death.stderr_tail))
    if not any(parts) and failed.reason:
        parts.append(html.nothing("There is no message; those of long ago are forgotten."))
    return "".join(parts)
