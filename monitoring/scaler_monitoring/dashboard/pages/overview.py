"""At a glance: is it busy, what does it do, what is stuck or failing, who holds the memory."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bokeh.layouts import column
from bokeh.models import HoverTool

from scaler_monitoring import memory_use, texts, view
from scaler_monitoring.dashboard import html
from scaler_monitoring.dashboard.links import failure_key, failure_url
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.pages.progress import Progress
from scaler_monitoring.dashboard.parts import Tile, Tiles, beside, not_on_phones, panel, show, text
from scaler_monitoring.dashboard.timeline import Timeline, memory_curves
from scaler_monitoring.figures import curves
from scaler_monitoring.theme import SERIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Figures, Model

FAILURES_MAX = 5
"""Kinds of failures, and deaths, that are told here: there are pages for all of them."""
MESSAGE_CHARS_MAX = 160
NEWS_MAX = 12
HOLDERS_MAX = 6
"""Workers, and objects, of which it is said what memory they hold."""


def _used_bytes(figures: Figures) -> int | None:
    if figures.memory_bytes is None or figures.free_bytes is None:
        return None
    return figures.memory_bytes - figures.free_bytes


COLUMNS: dict[str, Callable[[Figures], float | None]] = {
    "done": lambda x: x.done_per_s,
    "failed": lambda x: x.failed_per_s,
    "waiting": lambda x: x.tasks.waiting,
    "ready": lambda x: x.tasks.ready,
    "assigned": lambda x: x.tasks.assigned,
    "running": lambda x: x.tasks.running,
    "workers_cpu": lambda x: x.workers_cpu,
    "machines_cpu": lambda x: x.machines_cpu,
    "cpus": lambda x: x.machines_cpus or None,
    "workers_rss": lambda x: x.workers_rss_bytes,
    "used": _used_bytes,
    "memory": lambda x: x.memory_bytes,
    "objects": lambda x: x.objects_bytes,
    "scheduler_cpu": lambda x: x.scheduler_cpu,
    "lag": lambda x: x.lag_s,
}
"""Of the curves, by what snapshots counted."""


def _row(figures: Figures) -> list[float | None]:
    return [of(figures) for of in COLUMNS.values()]


CURVES = (
    ("Tasks per second", "tasks/s", {"done": "done", "failed": "failed"}),
    (
        "Tasks that have not ended",
        "tasks",
        {"waiting": "waiting", "ready": "ready", "assigned": "assigned", "running": "running"},
    ),
    (
        "CPUs of the cluster",
        "CPUs",
        {"workers_cpu": "workers", "machines_cpu": "in use", "cpus": "there are"},
    ),
    (
        "Memory of the cluster",
        "bytes",
        {
            "workers_rss": "workers",
            "objects": "objects",
            "used": "in use",
            "memory": "there is",
        },
    ),
    ("CPU of the scheduler", "CPUs", {"scheduler_cpu": "busy"}),
    ("Lag of the scheduler", "s", {"lag": "late by at most"}),
)


ON_PHONES = ("Tasks per second",)
"""A phone shows these curves alone, so that the page has three screens at most."""
ROWS_ON_PHONES = 3
_FEW = f"""
    @media (max-width: 40rem) {{
        tbody tr:nth-child(n + {ROWS_ON_PHONES + 1}) {{ display: none; }}
        td:last-child {{ display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2;
            overflow: hidden; }}
    }}
"""


class Overview(Page):
    """The first page."""

    path = "/"

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        self._tiles = Tiles(theme)
        self._failed, self._died, self._holders, self._news = (
            text("", theme, html.STYLE + _FEW) for _ in range(4)
        )
        self._progress = Progress(theme)
        self._timeline = Timeline(list(COLUMNS), self.view.settings.window_s)
        return column(
            self._tiles.root,
            beside(
                panel("Failures", theme, self._failed),
                panel("Workers that died", theme, self._died),
            ),
            panel("Functions", theme, self._progress.root),
            beside(*self._curves()),
            beside(
                not_on_phones(panel("Who holds the memory", theme, self._holders)),
                panel("News", theme, self._news),
            ),
            sizing_mode="stretch_width",
        )

    def _curves(self) -> list[UIElement]:
        theme, source = self.view.theme, self._timeline.source
        panels = []
        for title, unit, series in CURVES:
            if unit == "bytes":
                figure = memory_curves(source, series, self.view)
            else:
                figure = curves(source, series, unit, theme, SERIES)
            # They show how it is: to look closer at a moment there are other pages, and whoever
            # scrolls past means the page.
            figure.tools = [tool for tool in figure.tools if isinstance(tool, HoverTool)]
            figure.toolbar_location = None
            shown = panel(title, theme, figure)
            panels.append(shown if title in ON_PHONES else not_on_phones(shown))
        return panels

    def update(self, model: Model) -> None:
        """Show what is known now."""
        snapshot = model.snapshot
        assert snapshot is not None
        self._tiles.update(tiles(model, snapshot))
        show(self._failed, failed(model, self.view.links["/tasks"]))
        show(self._died, died(model, self.view.links["/workers"]))
        self._progress.update(model)
        self._timeline.update(model, model.history, _row)
        show(self._holders, holders(model, snapshot))
        show(self._news, news(model))


def tiles(model: Model, snapshot: feed.Snapshot) -> list[Tile]:
    """Return what there is to count."""
    tasks, per_s, process = snapshot.tasks, model.rates.tasks, snapshot.scheduler
    figures = model.history[-1]
    workers = snapshot.workers
    busy, there = sum(one.tasks > 0 for one in workers), view.count_of(snapshot, "workers")
    lasting = figures.machines_cpus
    cpu = f"of {html.many(lasting, 'CPU')}" if lasting else "CPUs"
    return [
        Tile("Done", view.whole(tasks.done), _per_s(per_s.get("done"))),
        Tile("Failed", view.whole(tasks.failed), _per_s(per_s.get("failed")), bool(model.failures)),
        Tile("Cancelled", view.whole(tasks.cancelled), _per_s(per_s.get("cancelled"))),
        Tile("Running", view.whole(tasks.running), "tasks"),
        Tile("Assigned", view.whole(tasks.assigned), "behind what runs"),
        Tile("Ready", view.whole(tasks.ready), "for a worker"),
        Tile("Waiting", view.whole(tasks.waiting), "for other tasks"),
        Tile("Workers busy", view.whole(busy), f"of {view.whole(there)}"),
        Tile(
            "Workers died",
            view.whole(snapshot.worker_deaths),
            "since the start",
            bool(model.deaths),
        ),
        Tile("CPUs of workers", f"{figures.workers_cpu:.1f}", cpu),
        Tile("Memory of workers", view.binary(figures.workers_rss_bytes), "resident"),
        Tile(
            "Large objects",
            view.binary(snapshot.objects_bytes),
            html.many(snapshot.objects, "object"),
        ),
        Tile("Clients", view.whole(view.count_of(snapshot, "clients")), "with nested ones"),
        Tile(
            "Scheduler", view.percent(process.cpu), f"of a CPU, lag {view.duration(process.lag_s)}"
        ),
    ]


def _per_s(rate: float | None) -> str:
    """Return a rate, as small as it may be."""
    if not rate:
        return ""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def failed(model: Model, href: str) -> str:
    """Return HTML of the kinds of failures, the latest first."""
    if not model.failures:
        return html.nothing(f"{html.NO_FAILURE} {html.failed_before(model)}".rstrip())
    kinds = list(reversed(model.failures.values()))
    rows = [
        (
            view.clock_time(model, one.last.at),
            view.whole(one.count),
            html.function_link(one.last.function),
            html.Link(
                clipped(f"{one.last.error or one.last.reason}: {one.last.message}".rstrip(": ")),
                failure_url(failure_key(one.last.function, one.last.error or one.last.reason)),
            ),
        )
        for one in kinds[:FAILURES_MAX]
    ]
    head = {"last": "time", "tasks": "number", "function": "name", "why": ""}
    return html.table(head, rows) + _more(len(kinds), "Their tracebacks", "Tasks", href)


def died(model: Model, href: str) -> str:
    """Return HTML of the last workers that died."""
    if not model.deaths:
        return html.nothing(html.NO_DEATH)
    rows = [
        (
            view.clock_time(model, one.at),
            html.worker_link(model, one.worker),
            view.death(one),
        )
        for one in list(reversed(model.deaths))[:FAILURES_MAX]
    ]
    head = {"at": "time", "worker": "name", "how": ""}
    return html.table(head, rows) + _more(len(model.deaths), "What they printed", "Workers", href)


def _more(count: int, about: str, page: str, href: str) -> str:
    # How many of them are shown depends on the screen.
    shown = f"{view.whole(count)} in all. " if count > ROWS_ON_PHONES else ""
    return f'<p class="none">{shown}{about}: <a href="{escape(href)}">{page}</a></p>'


def clipped(message: str) -> str:
    """Return the beginning of a message, on one line."""
    return texts.short(" ".join(message.split()), MESSAGE_CHARS_MAX)


def holders(model: Model, snapshot: feed.Snapshot) -> str:
    """Return HTML of the workers and objects that are largest."""
    held = [one for one in snapshot.workers if one.rss_bytes]
    held.sort(key=lambda one: -(one.rss_bytes or 0))
    rows: list[tuple[html.Text, ...]] = [
        (html.worker_link(model, one.worker), view.binary(one.rss_bytes), _does(one))
        for one in held[:HOLDERS_MAX]
    ]
    clients = memory_use.client_names(snapshot)
    rows += [
        (
            f"object {html.object_name(one.object)}",
            view.binary(one.nbytes),
            ", ".join(filter(None, (memory_use.maker(one, clients), _needed(one)))),
        )
        for one in snapshot.largest[:HOLDERS_MAX]
    ]
    if not rows:
        return html.nothing("Nobody yet: no worker has told of any.")
    return html.table({"who": "name", "holds": "number", "what": ""}, rows)


def _needed(one: feed.LargeObject) -> str:
    return f"{html.many(one.users, 'user')}, mapped by {html.many(one.workers, 'worker')}"


def _does(worker: feed.Worker) -> html.Text:
    limit = worker.memory_limit_bytes
    share = f"{(worker.rss_bytes or 0) / limit:.0%} of its limit, " if limit else ""
    if not worker.tasks:
        return f"{share}runs nothing"
    return (f"{share}runs ", html.function_link(worker.function))


def news(model: Model) -> str:
    """Return HTML of what happened last."""
    lines = [
        texts.short(line, MESSAGE_CHARS_MAX).split(" ", 1) for line in view.news(model, NEWS_MAX)
    ]
    if not lines:
        return html.nothing("None yet: no task has failed, nobody came or left.")
    return html.table({"at": "time", "what": ""}, lines)
