"""The last tasks, and what failed: which, why, and where in their code."""

from __future__ import annotations

from collections import deque
from heapq import nlargest, nsmallest
from html import escape
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column
from bokeh.models.widgets.buttons import Toggle
from bokeh.models.widgets.inputs import Select, TextInput

from scaler_cluster.ids import session_label
from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import deeds, html
from scaler_monitoring.dashboard.links import failure_key, function_url, task_url, worker_url
from scaler_monitoring.dashboard.opened import Opened
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.pages.logs import link_to_logs
from scaler_monitoring.dashboard.pages.task import failure_detail, task_detail
from scaler_monitoring.dashboard.parts import (
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
from scaler_monitoring.theme import look_of
from scaler_monitoring.work import CANCELLED, DONE, FAILED, RETRIED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.model import Failures, Model
    from scaler_monitoring.work import Work

KINDS_SHOWN = 6
"""Kinds of failures that are seen at once."""
ALL = "all"
STATES: list[Any] = [(ALL, "all"), *((one, one) for one in (DONE, FAILED, CANCELLED, RETRIED))]
NEWEST = "-ended"
"""The order in which tasks end, the last one first."""
NEXT = "~"
"""Between the parts of a row's key, of which the last is the name of its task."""

FAILURE_COLUMNS = (
    Column("last", "last failed", TIME, 90),
    Column("function", "function", width=200, link="function_href", look="look"),
    Column("why", "why", width=160),
    Column("tasks", "tasks", WHOLE, 70),
    Column("message", "message of the last", width=380),
)
TASK_COLUMNS = (
    Column("task", "task", width=150, link="task_href"),
    Column("ended", "ended", TIME, 80),
    Column("function", "function", width=200, link="function_href", look="look"),
    Column("tasks", "tasks", WHOLE, 60, is_minor=True),
    Column("state", "state", width=80),
    Column("took", "took (s)", FINE, 95),
    Column("each", "each (s)", FINE, 95, is_minor=True),
    Column("worker", "worker", width=150, link="worker_href"),
    Column("attempt", "attempt", WHOLE, 75, is_minor=True),
    Column("why", "why", width=150),
)


class Tasks(Page):
    """What became of tasks: all of them, one alone, or the last of a kind of failures."""

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
            label="Failures",
        )
        self._failures.on_choose(lambda key: self._open("failure", key))
        self._before, self._count, self._failure, self._task = (
            text("", theme, html.STYLE) for _ in range(4)
        )
        self._search = TextInput(
            title="Number, function, worker, state or error has in it", width=300,
            stylesheets=[css],
        )  # fmt: skip
        self._state = Select(title="State", options=STATES, value=ALL, width=120, stylesheets=[css])
        self._pause = Toggle(label="Pause", width=90, stylesheets=[css])
        self._table = Table(TASK_COLUMNS, theme, key="key", order=NEWEST, label="Tasks")
        self._alike = Table(
            TASK_COLUMNS, theme, key="key", order=NEWEST, label="Tasks that failed so"
        )
        for table in (self._table, self._alike):
            table.on_choose(lambda key: self._open("task", key.rpartition(NEXT)[2]))
        self._table.on_order(self._on_order)
        self._search.on_change("value_input", self._on_filter)
        self._state.on_change("value", self._on_filter)
        self._found: deque[Work] = deque(maxlen=self.view.rows_max)
        """Those of the stream that match, in the order in which they ended."""
        self._streamed = 0
        self._of: object = None
        """The model, and how often the scheduler had restarted, that the list is of."""
        self._is_restoring = False
        listed = column(
            panel(
                "Failures",
                theme,
                self._failures.root,
                self._before,
                about="By function and type of exception; one that is chosen shows its traceback.",
            ),
            panel(
                "Tasks",
                theme,
                controls(self._search, self._state, self._pause),
                self._count,
                self._table.root,
            ),
            sizing_mode="stretch_width",
        )
        self._kinds = Opened(self.view, "failure", [listed], [self._failure, self._alike.root])
        self._deeds = deeds.Deeds(self.view)
        alone = [self._task, self._deeds.root]
        self._tasks = Opened(self.view, "task", self._kinds.roots, alone)
        return column(*self._tasks.roots, sizing_mode="stretch_width")

    def update(self, model: Model) -> None:
        """Show what is known now."""
        rows = [_failure_row(model, one) for one in model.failures.values()]
        rows.sort(key=lambda row: (-row["tasks"], row["key"]))
        self._failures.update(rows)
        before = html.failed_before(model)
        show(self._before, html.nothing(before) if before else "")
        if not self._pause.active:
            self._list(model)
        self._show(model)

    def restore(self) -> None:
        """Show what the address says."""
        address = self.view.address
        self._is_restoring = True
        try:
            self._search.value_input = self._search.value = address.get("search")
            state = address.get("state")
            self._state.value = state if state in dict(STATES) else ALL
            self._table.sort(address.get("sort"))
        finally:
            self._is_restoring = False
        for opened, table in ((self._tasks, self._table), (self._kinds, self._failures)):
            opened.restore()
            table.choose("")
        self._alike.choose("")
        self._of = None
        self.update(self.view.model)

    # -- the list of tasks -------------------------------------------------------------------

    def _list(self, model: Model) -> None:
        if self._of != (model, model.restarts):
            self._of, self._streamed = (model, model.restarts), 0
            self._found.clear()
        added, self._streamed = model.streamed_since(self._streamed), model.streamed
        self._found.extend(self._matching(model, added))
        oldest = model.stream[0].end if model.stream else float("inf")
        while self._found and self._found[0].end < oldest:
            self._found.popleft()
        older = list(self._matching(model, model.ledger.older_failures(model.stream)))
        found = len(older) + len(self._found)
        rows = [_task_row(model, one) for one in self._first(model, older)]
        self._table.update(rows, found)
        self._table.root.visible = bool(rows)
        show(self._count, self._sentence(model, found))

    def _first(self, model: Model, older: list[Work]) -> list[Work]:
        """Return the first of all that match, in the order that was asked for."""
        order, limit = self._table.order, self._table.limit
        if order == NEWEST:
            return list(islice(chain(reversed(self._found), reversed(older)), limit))
        value = _values(model)[order.lstrip("-")]
        pick = nlargest if order.startswith("-") else nsmallest
        return pick(limit, chain(older, self._found), key=value)

    def _matching(self, model: Model, works: Iterable[Work]) -> Iterable[Work]:
        wanted, state = self._search.value_input.strip().lower(), self._state.value
        number = view.task_number(wanted)
        for one in works:
            if state not in (ALL, one.state):
                continue
            if number is not None:
                label, task = number
                if session_label(one.session) == label and one.holds(one.session, task):
                    yield one
            elif not wanted or wanted in _words(model, one):
                yield one

    def _sentence(self, model: Model, found: int) -> str:
        known = min(len(model.stream), self.view.rows_max)
        if not known:
            return html.nothing("No task has ended yet.")
        is_filtered = bool(self._search.value_input.strip()) or self._state.value != ALL
        of = f" of the last {view.whole(known)}" if is_filtered else ""
        verb = "matches" if found == 1 else "match"
        about = (
            f"{view.whole(found)}{of} {verb}."
            if is_filtered
            else (
                f"{html.many(known, 'row')}, of a task or of several that ran one after the other."
            )
        )
        return f"<p>{escape(about)}</p>"

    # -- what is chosen ----------------------------------------------------------------------

    def _on_filter(self, name: str, old: object, new: object) -> None:
        if self._is_restoring:
            return
        state = self._state.value
        self.view.address.set(
            is_step=False, search=self._search.value_input, state="" if state == ALL else state
        )
        self._of = None
        self._list(self.view.model)

    def _on_order(self) -> None:
        if self._is_restoring:
            return
        order = self._table.order
        self.view.address.set(is_step=False, sort="" if order == NEWEST else order)
        self._list(self.view.model)

    def _open(self, name: str, key: str) -> None:
        if key:
            self.view.address.set(is_step=True, **{name: key})
            self.restore()

    def _logs(self, task: str) -> str:
        """Return HTML of the link to what a task printed."""
        return html.link(link_to_logs(self.view, task=task), f"Logs of task {task}")

    def _show(self, model: Model) -> None:
        """Bring what is open up to date."""
        key = self._tasks.key
        show(self._task, html.BACK + task_detail(model, key) + self._logs(key) if key else "")
        self._deeds.update(deeds.of_task(model, key))
        key = self._kinds.key
        kinds = [one for one in model.failures.values() if _key(one) == key]
        gone = html.nothing("No such failure was heard of in the last half hour.")
        said = failure_detail(model, kinds[0]) if kinds else gone
        show(self._failure, html.BACK + said if key else "")
        rows = [_task_row(model, one) for one in _failed_so(model, key)] if key else []
        self._alike.update(rows)
        self._alike.root.visible = bool(rows)


def _words(model: Model, work: Work) -> str:
    """Return what is searched of a task."""
    worker = model.label(work.worker) if work.worker else ""
    task = view.task_name(work.session, work.first, work.count)
    found = (task, work.function, worker, work.state, work.error, work.reason, work.message)
    return "\n".join(found).lower()


def _key(failures: Failures) -> str:
    return failure_key(failures.last.function, failures.last.error or failures.last.reason)


def _failed_so(model: Model, key: str) -> list[Work]:
    """Return what is kept of a kind of failures, the last that failed first."""
    return [
        one
        for one in reversed(model.ledger.failed)
        if one.state == FAILED and failure_key(one.function, one.error or one.reason) == key
    ]


def _failure_row(model: Model, failures: Failures) -> dict[str, Any]:
    last = failures.last
    return {
        "key": _key(failures),
        "last": as_time(last.at, model),
        "look": look_of(last.function).css,
        "function": view.function_name(last.function),
        "function_href": function_url(last.function),
        "why": html.reason(last.reason, last.error),
        "tasks": failures.count,
        "message": texts.short(" ".join(last.message.split())),
    }


def _values(model: Model) -> dict[str, Callable[[Work], Any]]:
    """Return by what tasks are sorted."""
    return {
        "": lambda one: one.end,
        "ended": lambda one: one.end,
        "task": lambda one: (session_label(one.session), one.first),
        "function": lambda one: view.function_name(one.function),
        "tasks": lambda one: one.count,
        "state": lambda one: one.state,
        "took": lambda one: one.end - one.start,
        "each": lambda one: (one.end - one.start) / one.count,
        "worker": lambda one: model.label(one.worker) if one.worker else "none",
        "attempt": lambda one: one.attempt,
        "why": lambda one: html.reason(one.reason, one.error),
    }


def _task_row(model: Model, work: Work) -> dict[str, Any]:
    task, took_s = view.task_name(work.session, work.first, work.count), work.end - work.start
    return {
        # A task has a row for each attempt.
        "key": NEXT.join((work.state, str(work.attempt), str(work.end), task)),
        "ended": as_time(work.end, model),
        "task": task,
        "task_href": task_url(task),
        "look": look_of(work.function).css,
        "function": view.function_name(work.function),
        "function_href": function_url(work.function),
        "tasks": work.count,
        "state": work.state,
        "took": took_s,
        "each": took_s / work.count,
        "worker": model.label(work.worker) if work.worker else "none",
        "worker_href": worker_url(work.worker) if work.worker else "",
        "attempt": work.attempt,
        "why": html.reason(work.reason, work.error),
    }
