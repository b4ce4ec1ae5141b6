"""Functions: how long their tasks take, which took longest, and how they failed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column
from bokeh.models.widgets.inputs import TextInput

from scaler_monitoring import view
from scaler_monitoring.dashboard import deeds, html
from scaler_monitoring.dashboard.links import failure_key, failure_url, function_url
from scaler_monitoring.dashboard.opened import Opened
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.parts import (
    FINE,
    NUMBER,
    WHOLE,
    Column,
    Table,
    Tile,
    Tiles,
    as_number,
    controls,
    inputs_style,
    panel,
    show,
    text,
)
from scaler_monitoring.ledger import FunctionTimes
from scaler_monitoring.memory_use import Made, by_function
from scaler_monitoring.theme import look_of

if TYPE_CHECKING:
    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.wire import feed
    from scaler_monitoring.durations import Durations
    from scaler_monitoring.model import Model

BARS_MAX = 24
COUNTS = ("done", "failed", "cancelled", "pending", "retried")
COLUMNS = (
    Column("function", "function", width=260, link="href", look="look"),
    *(Column(name, name, WHOLE, 80, is_minor=name in COUNTS[2:]) for name in COUNTS),
    Column("p50", "p50 (s)", FINE, 95),
    Column("p95", "p95 (s)", FINE, 95),
    Column("max", "max (s)", FINE, 95, is_minor=True),
    Column("busy", "in all (s)", NUMBER, 95),
)
_NONE = FunctionTimes()


class Functions(Page):
    """All functions, or one of them closely."""

    path = "/functions"

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        self._search = TextInput(
            title="Function has in it", width=280, stylesheets=[inputs_style(theme)]
        )
        self._search.on_change("value_input", self._on_search)
        self._table = Table(
            COLUMNS, theme, key="key", order="-busy", label="Functions",
            nothing="No function has been called yet.",
        )  # fmt: skip
        self._table.on_choose(self._on_choose)
        self._table.on_order(lambda: self.view.address.set(is_step=False, sort=self._table.order))
        self._head, self._more = (text("", theme, html.STYLE + _CSS) for _ in range(2))
        self._tiles = Tiles(theme)
        self._deeds = deeds.Deeds(self.view)
        self._opened = Opened(
            self.view,
            "name",
            [panel("Functions", theme, controls(self._search), self._table.root)],
            [self._head, self._deeds.root, self._tiles.root, self._more],
        )
        return column(*self._opened.roots, sizing_mode="stretch_width")

    def update(self, model: Model) -> None:
        """Show what is known now."""
        assert model.snapshot is not None
        rows = [_row(one, model) for one in model.snapshot.functions]
        wanted = self._search.value_input.strip().lower()
        self._table.update([row for row in rows if wanted in row["function"].lower()])
        if self._opened.key:
            self._show(model, self._opened.key)

    def restore(self) -> None:
        """Show what the address says."""
        address = self.view.address
        self._search.value_input = self._search.value = address.get("search")
        self._table.sort(address.get("sort"))
        self._opened.restore()
        self._table.choose("")
        self.update(self.view.model)

    def _on_search(self, name: str, old: object, new: str) -> None:
        self.view.address.set(is_step=False, search=new)
        self.update(self.view.model)

    def _on_choose(self, key: str) -> None:
        if key:
            self.view.address.set(is_step=True, name=key)
            self.restore()

    def _show(self, model: Model, name: str) -> None:
        assert model.snapshot is not None
        counts = next((one for one in model.snapshot.functions if one.name == name), None)
        times = model.ledger.functions.get(name, _NONE)
        show(self._head, f"{html.BACK}<h2>{escape(view.function_name(name))}</h2>")
        self._deeds.update(deeds.of_function(name) if counts is not None else [])
        made = by_function(model.snapshot.owners).get(name, Made())
        self._tiles.update(_tiles(counts, times.durations, made) if counts is not None else [])
        if counts is None:
            show(self._more, html.nothing("No function of this name has been called."))
            return
        parts = [
            _said(counts, times), histogram(times.durations), _slowest(model, times),
            _failures(model, name),
        ]  # fmt: skip
        show(self._more, "".join(parts))


def _row(one: feed.Function, model: Model) -> dict[str, Any]:
    durations = model.ledger.functions.get(one.name, _NONE).durations
    return {
        "key": one.name,
        "href": function_url(one.name),
        "look": look_of(one.name).css,
        "function": view.function_name(one.name),
        **{name: getattr(one, name) for name in COUNTS},
        "p50": as_number(durations.quantile(0.5)),
        "p95": as_number(durations.quantile(0.95)),
        "max": as_number(durations.max_s if durations.count else None),
        "busy": one.busy_s,
    }


def _tiles(counts: feed.Function, durations: Durations, made: Made) -> list[Tile]:
    return [
        Tile("done", view.whole(counts.done)),
        Tile("failed", view.whole(counts.failed), is_bad=counts.failed > 0),
        Tile("pending", view.whole(counts.pending)),
        Tile("p50", view.duration(durations.quantile(0.5))),
        Tile("p95", view.duration(durations.quantile(0.95))),
        Tile("max", view.duration(durations.max_s if durations.count else None)),
        Tile("mean", view.duration(counts.each_s), "of all"),
        Tile("in all", view.duration(counts.busy_s)),
        Tile("stored", view.binary(made.nbytes), html.many(made.objects, "object")),
    ]


def _said(counts: feed.Function, times: FunctionTimes) -> str:
    """Say what the durations are of, if that is not each task."""
    told, ended = times.durations.count, counts.done + counts.failed
    said = []
    if told < ended:
        said.append(
            f"Durations are of a sample: of {view.whole(told)} of {html.many(ended, 'task')}. "
            "Of the others no event was heard."
        )
    if times.is_grouped:
        said.append("Tasks that ran one after the other as one piece count with its mean.")
    return f"<p>{escape(' '.join(said))}</p>" if said else ""


def histogram(durations: Durations) -> str:
    """Return HTML of how many tasks took how long; the axis is logarithmic."""
    bars = durations.bars(BARS_MAX)
    if not bars:
        return html.nothing("No duration was heard of yet.")
    most = max(count for _, _, count in bars)
    drawn = "".join(
        f'<i style="height:{100 * count / most:.1f}%" '
        f'title="{view.duration(low)} to {view.duration(high)}: {html.many(count, "task")}"></i>'
        for low, high, count in bars
    )
    p50, p95 = (view.duration(durations.quantile(share)) for share in (0.5, 0.95))
    said = f"Durations of {html.many(durations.count, 'task')}: half up to {p50}, 95 % up to {p95}"
    return (
        f'<h3>Durations</h3><div class="histogram" role="img" aria-label="{escape(said)}">{drawn}'
        f'</div><div class="axis"><span>{view.duration(bars[0][0])}</span>'
        f"<span>{view.duration(bars[-1][1])}</span></div>"
    )


def _slowest(model: Model, times: FunctionTimes) -> str:
    rows = [
        (
            view.duration((one.end - one.start) / one.count),
            html.work_link(one.session, one.first, one.count),
            html.worker_link(model, one.worker),
            view.clock_time(model, one.end),
            one.state,
        )
        for one in times.slowest
    ]
    head = {"took": "number", "task": "", "worker": "", "ended": "time", "state": ""}
    return "<h3>Slowest tasks</h3>" + html.table(head, rows) if rows else ""


def _failures(model: Model, name: str) -> str:
    kinds = [one for (function, _), one in model.failures.items() if function == name]
    rows = [
        (
            view.clock_time(model, one.last.at),
            view.whole(one.count),
            html.Link(
                html.reason(one.last.reason, one.last.error),
                failure_url(failure_key(name, one.last.error or one.last.reason)),
            ),
            " ".join(one.last.message.split()),
        )
        for one in reversed(kinds)
    ]
    head = {"last": "time", "tasks": "number", "why": "name", "message of the last": ""}
    return "<h3>Failures</h3>" + html.table(head, rows) if rows else ""


_CSS = """
    .histogram { display: flex; align-items: flex-end; gap: 2px; height: 8rem; max-width: 50rem;
        border-bottom: 1px solid var(--muted); background: var(--panel); padding: .3rem .3rem 0; }
    .histogram i { flex: 1; background: var(--accent); min-height: 1px; }
    .axis { display: flex; justify-content: space-between; max-width: 50rem; color: var(--muted);
        font-size: 12px; margin-bottom: .6rem; }
"""
