"""The workers: what each does, has and takes, and how those died that did."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column
from bokeh.models.widgets.inputs import TextInput

from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import deeds, html
from scaler_monitoring.dashboard.links import function_url, work_url, worker_url
from scaler_monitoring.dashboard.opened import Opened
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.pages.logs import link_to_logs
from scaler_monitoring.dashboard.parts import (
    BYTES,
    NUMBER,
    PERCENT,
    TIME,
    UNKNOWN,
    WHOLE,
    Column,
    Table,
    as_number,
    as_time,
    beside,
    controls,
    inputs_style,
    panel,
    show,
    text,
)
from scaler_monitoring.dashboard.timeline import Timeline, memory_curves
from scaler_monitoring.figures import curves
from scaler_monitoring.theme import SERIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Model
    from scaler_monitoring.samples import Sample
    from scaler_monitoring.work import Work

ROWS_MAX = 1000
"""Workers that are listed: more are found by searching."""
DEATHS_SHOWN = 8
LAST_TASKS = 12
LOOKED_THROUGH = 20_000
"""Pieces of work among which a worker's last ones are looked for."""

COLUMNS = (
    Column("worker", "worker", width=120, link="href"),
    Column("manager", "manager", width=90, is_minor=True),
    Column("task", "task", width=150, link="task_href"),
    Column("age", "age (s)", NUMBER, 65),
    Column("cpu", "cpu", PERCENT, 60),
    Column("rss", "rss", BYTES, 80),
    Column("limit", "limit", BYTES, 80, is_minor=True),
    Column("of_limit", "% of limit", PERCENT, 80),
    Column("sent", "sent", WHOLE, 50, is_minor=True),
    Column("queued", "queued", WHOLE, 70, is_minor=True),
    Column("free", "free", WHOLE, 55, is_minor=True),
    Column("given", "given", WHOLE, 70, is_minor=True),
    Column("suspended", "suspended", width=95, is_minor=True),
    Column("state", "state", width=75),
    Column("capabilities", "capabilities", width=100, is_minor=True),
    Column("up", "up (s)", WHOLE, 65, is_minor=True),
    Column("lag", "lag (s)", NUMBER, 60, is_minor=True),
    Column("itl", "ITL", width=45, is_minor=True),
    Column("agt_cpu", "agt_cpu", PERCENT, 75, is_minor=True),
    Column("agt_rss", "agt_rss", BYTES, 80, is_minor=True),
    Column("os_rss_free", "os_rss_free", BYTES, 100, is_minor=True),
    Column("restarts", "restarts", WHOLE, 75, is_minor=True),
)
"""Those of scaler_top, by the same names, and more."""
_ABOUT = (
    "Sent, queued, free and given count tasks. ITL: it is up, it has a task, it gets no more for "
    "now. Stalled: its task is long, and it gets no more until that has ended. Spare: it takes the "
    "place of one whose task waits for others. Leaving: it ends after its tasks, or is killed. "
    "Paused: an operator wants it to get none."
)
"""What words in the columns mean."""
DEATH_COLUMNS = (
    Column("worker", "worker", width=150, link="href"),
    Column("at", "died", TIME, 80),
    Column("how", "how", width=200),
    Column("task", "task", width=100, link="task_href"),
    Column("function", "function", width=180, link="function_href"),
    Column("peak", "peak rss", BYTES, 90),
    Column("printed", "last line that it printed", width=300),
)


class Workers(Page):
    """Who is there, and one of them closely."""

    path = "/workers"

    def build(self) -> UIElement:
        """Return its parts."""
        theme, settings = self.view.theme, self.view.settings
        css = inputs_style(theme)
        self._search = TextInput(
            title="Worker, machine, function, state or capability has in it", width=320,
            stylesheets=[css],
        )  # fmt: skip
        self._search.on_change("value_input", self._on_search)
        self._table = Table(COLUMNS, theme, key="key", label="Workers")
        self._table.on_order(lambda: self.view.address.set(is_step=False, sort=self._table.order))
        self._deaths = Table(
            DEATH_COLUMNS,
            theme,
            DEATHS_SHOWN,
            key="key",
            nothing=html.NO_DEATH,
            label="Workers that died",
        )
        for table in (self._table, self._deaths):
            table.on_choose(self._on_choose)
        self._said, self._facts, self._tasks = (text("", theme, html.STYLE) for _ in range(3))
        self._deeds = deeds.Deeds(self.view)
        self._timeline = Timeline(("cpu", "rss"), settings.window_s)
        source = self._timeline.source
        curve = curves(source, {"cpu": "busy"}, "CPUs", theme, SERIES)
        listed: list[UIElement] = [
            panel(
                "Workers",
                theme,
                controls(self._search),
                self._said,
                self._table.root,
                about=_ABOUT,
            ),
            panel("Workers that died", theme, self._deaths.root),
        ]
        alone: list[UIElement] = [
            self._facts,
            self._deeds.root,
            beside(
                panel("Its CPU", theme, curve),
                panel("Its memory", theme, memory_curves(source, {"rss": "rss"}, self.view)),
            ),
            self._tasks,
        ]
        self._opened = Opened(self.view, "worker", listed, alone)
        return column(*self._opened.roots, sizing_mode="stretch_width")

    def update(self, model: Model) -> None:
        """Show what is known now."""
        self._list(model)
        deaths = [_death_row(model, one) for one in reversed(model.deaths)]
        self._deaths.update(deaths)
        if self._opened.key:
            self._show_one(model, self._opened.key)

    def restore(self) -> None:
        """Show what the address says."""
        address = self.view.address
        self._search.value_input = self._search.value = address.get("search")
        self._table.sort(address.get("sort"))
        self._opened.restore()
        for table in (self._table, self._deaths):
            table.choose("")
        self.update(self.view.model)

    def _list(self, model: Model) -> None:
        snapshot = model.snapshot
        if snapshot is None:
            return
        wanted = self._search.value_input.strip().lower()
        found = [
            row for row in (_row(model, one) for one in view.worker_rows(snapshot))
            if not wanted or wanted in _words(row)
        ]  # fmt: skip
        self._table.update(found[:ROWS_MAX])
        self._table.root.visible = bool(found)
        show(self._said, _sentence(snapshot, len(found), bool(wanted)))

    def _on_search(self, name: str, old: object, new: str) -> None:
        self.view.address.set(is_step=False, search=new)
        self._list(self.view.model)

    # -- the one that is chosen ------------------------------------------------------------

    def _on_choose(self, key: str) -> None:
        if key:
            self.view.address.set(is_step=True, worker=key)
            self.restore()

    def _show_one(self, model: Model, key: str) -> None:
        assert model.snapshot is not None
        try:
            chosen = bytes.fromhex(key)
        except ValueError:
            chosen = b""
        rows = [row for row in view.worker_rows(model.snapshot) if row.worker.worker == chosen]
        deaths = [one for one in model.deaths if one.worker == chosen]
        if rows:
            facts = _facts(rows[0])
        elif deaths:
            facts = _death_facts(model, deaths[-1])
        else:
            facts = html.nothing("It is not there any more: it ended as it was to.")
        name = model.label(chosen) or key
        logs = html.link(link_to_logs(self.view, worker=name), "Logs of this worker")
        show(self._facts, f"{html.BACK}<h2>Worker {escape(name)}</h2>{facts}{logs}")
        self._deeds.update(deeds.of_worker(model, rows[0].worker) if rows else [])
        self._draw(model, chosen)
        works = islice(reversed(model.stream), LOOKED_THROUGH)
        last = list(islice((one for one in works if one.worker == chosen), LAST_TASKS))
        show(self._tasks, _last_tasks(model, last))

    def _draw(self, model: Model, chosen: bytes) -> None:
        def row(sample: Sample) -> tuple[float, float]:
            index = sample.keys.index(chosen)
            return sample.columns[0][index], sample.columns[1][index]

        samples = [one for one in model.worker_samples.taken if chosen in one.keys]
        self._timeline.update(model, samples, row, chosen)


def _words(row: dict[str, Any]) -> str:
    fields = ("worker", "manager", "task", "state", "suspended", "capabilities")
    return "\n".join(row[field] for field in fields).lower()


def _sentence(snapshot: feed.Snapshot, found: int, is_searched: bool) -> str:
    if not snapshot.workers:
        return html.nothing("No worker is there.")
    pending = view.pending_workers(snapshot)
    there = html.many(view.count_of(snapshot, "workers"), "worker")
    said = [f"{there}, {pending} more are starting" if pending else there]
    if is_searched:
        said.append(f"{view.whole(found)} of them match")
    if found > ROWS_MAX:
        said.append(f"the first {view.whole(ROWS_MAX)} are shown")
    return f"<p>{escape('; '.join(said))}.</p>"


def _state(worker: feed.Worker) -> str:
    """Return what is special about a worker."""
    special = {
        "leaving": worker.is_leaving,
        "stalled": worker.is_stalled,
        "spare": worker.is_spare,
        "paused": worker.is_paused,
    }
    return ", ".join(name for name, is_so in special.items() if is_so)


def _capabilities(worker: feed.Worker) -> str:
    return texts.short(
        ", ".join(
            name + ("" if value < 0 else f"={value:g}")
            for name, value in worker.capabilities.items()
        )
    )


def _row(model: Model, row: view.Row) -> dict[str, Any]:
    worker, machine = row.worker, row.machine
    rss, limit = worker.rss_bytes, worker.memory_limit_bytes
    return {
        "key": worker.worker.hex(),
        "href": worker_url(worker.worker),
        "task_href": work_url(worker.session, worker.task) if worker.tasks else "",
        "worker": model.label(worker.worker),
        "manager": row.manager,
        "task": texts.short(row.task),
        "age": as_number(row.age_s),
        "cpu": as_number(worker.cpu),
        "rss": as_number(rss),
        "limit": as_number(limit),
        "of_limit": rss / limit if rss is not None and limit else UNKNOWN,
        "sent": worker.tasks,
        "queued": row.queued,
        "free": worker.free,
        "given": worker.given,
        "suspended": "waits" if worker.is_blocked else "",
        "state": _state(worker),
        "capabilities": _capabilities(worker),
        "up": worker.up_s,
        "lag": as_number(machine.lag_s),
        "itl": row.itl,
        "agt_cpu": as_number(machine.agent_cpu),
        "agt_rss": as_number(machine.agent_rss_bytes),
        "os_rss_free": as_number(machine.free_bytes),
        "restarts": machine.restarts,
    }


def _death_row(model: Model, death: feed.WorkerDied) -> dict[str, Any]:
    return {
        "key": death.worker.hex(),
        "at": as_time(death.at, model),
        "worker": model.label(death.worker),
        "href": worker_url(death.worker),
        "task_href": work_url(death.session, death.task) if death.session else "",
        "function_href": function_url(death.function) if death.session else "",
        "how": view.cause(death),
        "task": view.task_name(death.session, death.task) if death.session else "",
        "function": texts.short(death.function),
        "peak": as_number(death.peak_rss_bytes),
        "printed": texts.short(view.last_words(death)),
    }


def _facts(row: view.Row) -> str:
    worker, machine = row.worker, row.machine
    died = html.many(machine.restarts, "worker")
    memory = view.binary(worker.rss_bytes)
    if worker.memory_limit_bytes:
        memory += f" of {view.binary(worker.memory_limit_bytes)}, where it is killed"
    waits = ", which waits for other tasks" if worker.is_blocked else ""
    runs: html.Text = "nothing"
    if worker.tasks:
        task = html.work_link(worker.session, worker.task)
        function = html.function_link(worker.function)
        runs = (task, " ", function, f", for {view.duration(worker.age_s)}{waits}")
    return html.facts(
        {
            "machine": row.manager + (f", {died} died there" if machine.restarts else ""),
            "runs": runs,
            "has": f"{html.many(worker.tasks, 'task')}, {view.duration(worker.backlog_s)} of work",
            "memory": memory,
            "offers": _capabilities(worker),
            "is": _state(worker),
            "up": view.duration(worker.up_s),
        }
    )


def _death_facts(model: Model, death: feed.WorkerDied) -> str:
    ran: html.Text = "nothing"
    if death.session:
        task = html.work_link(death.session, death.task)
        ran = (task, " ", html.function_link(death.function))
    return html.facts(
        {
            "died": f"at {view.clock_time(model, death.at)}",
            "of": view.cause(death),
            "ran": ran,
            "peak memory": view.binary(death.peak_rss_bytes),
            "machine": texts.plain(death.host),
        }
    ) + (
        html.printed("The last lines that it printed", death.stderr_tail)
        or html.nothing("It printed nothing.")
    )


def _last_tasks(model: Model, works: Iterable[Work]) -> str:
    rows = [
        (
            view.clock_time(model, one.end),
            html.work_link(one.session, one.first, one.count),
            html.function_link(one.function),
            one.state,
            view.duration(one.end - one.start),
            html.reason(one.reason, one.error),
        )
        for one in works
    ]
    if not rows:
        return html.nothing("None of its tasks has ended lately.")
    return "<h3>Its last tasks</h3>" + html.table(
        {"ended": "time", "task": "", "function": "", "state": "", "took": "number", "why": ""},
        rows,
    )
