"""Machines: what they do and have left, who starts them, and what the scheduler itself does."""

from __future__ import annotations

from math import floor
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column
from toolz import groupby

from scaler_cluster.wire.messages import MOST_MAX
from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import deeds
from scaler_monitoring.dashboard.links import workers_url
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.parts import (
    BYTES,
    NUMBER,
    PERCENT,
    UNKNOWN,
    WHOLE,
    Column,
    Table,
    Tile,
    Tiles,
    as_number,
    beside,
    panel,
)
from scaler_monitoring.dashboard.spread import ABOUT, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Model

ROWS_MAX = 1000
_CPU, _FREE = 0, 1
"""Columns of the samples of machines."""


class Machines(Page):
    """The machines, and the scheduler."""

    path = "/machines"

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        self._deeds = deeds.RowDeeds(self.view, "machine")
        self._table = Table(
            _COLUMNS, theme, key=self._deeds.key, nothing="No machine is there.", label="Machines"
        )
        self._table.on_choose(lambda _: self._show(self.view.model))
        self._managers = Table(_MANAGERS, theme)
        self._managed = panel("Worker managers", theme, self._managers.root)
        self._managed.visible = False
        self._cpu = Spread(self.view, _CPU, "CPUs")
        self._free = Spread(self.view, _FREE, "bytes", self._cpu.root.x_range)
        self._tiles = Tiles(theme)
        self._messages = Table(_MESSAGES, theme, nothing="It has neither sent nor received any.")
        return column(
            panel("Machines", theme, self._table.root, self._deeds.root),
            self._managed,
            beside(
                panel("CPUs that are busy", theme, self._cpu.root, about=ABOUT),
                panel("Free memory", theme, self._free.root, about=ABOUT),
            ),
            panel("The scheduler", theme, self._tiles.root),
            panel("Its messages", theme, self._messages.root),
            sizing_mode="stretch_width",
        )

    def update(self, model: Model) -> None:
        """Show what is known now."""
        snapshot = model.snapshot
        assert snapshot is not None
        names = view.manager_names(snapshot.machines)
        workers = groupby(attrgetter("machine"), snapshot.workers)
        self._table.update(
            [
                _row(one, names[one.machine], workers.get(one.machine, ()))
                for one in snapshot.machines[:ROWS_MAX]
            ]
        )
        self._managers.update([_manager_row(one) for one in snapshot.managers[:ROWS_MAX]])
        if self._managed.visible is not bool(snapshot.managers):
            self._managed.visible = bool(snapshot.managers)
        for lines in self._cpu, self._free:
            lines.update(model, model.machine_samples, lambda one: names.get(one, one.hex()))
        self._tiles.update(_scheduler(snapshot.scheduler))
        self._messages.update(_messages(model))
        self._show(model)

    def _show(self, model: Model) -> None:
        """Show what can be done to the machine that is chosen."""
        assert model.snapshot is not None
        machines, key = model.snapshot.machines, self._table.chosen
        chosen = [one for one in machines if one.machine.hex() == key]
        self._deeds.show([deed for one in chosen for deed in deeds.of_machine(model, one)])


_COLUMNS = (
    Column("name", "machine", width=120, link="href"),
    Column("workers", "workers", WHOLE, 75),
    Column("wanted", "wanted", WHOLE, 70),
    Column("spares", "spares", WHOLE, 65),
    Column("busy", "busy", WHOLE, 50),
    Column("idle", "idle", WHOLE, 50),
    Column("queued", "queued", WHOLE, 70),
    Column("restarts", "restarts", WHOLE, 75),
    Column("paused", "paused", WHOLE, 70),
    Column("cpus", "CPUs", WHOLE, 55),
    Column("cpu", "CPU used", PERCENT, 70),
    Column("memory", "memory", BYTES, 80),
    Column("free", "free", BYTES, 80),
    Column("used", "used", PERCENT, 60),
    Column("agent_cpu", "supervisor CPU", PERCENT, 100),
    Column("agent_rss", "supervisor memory", BYTES, 100),
    Column("lag", "lag (ms)", NUMBER, 75),
    Column("silent", "silent for (s)", NUMBER, 80),
)


def _row(one: feed.Machine, name: str, workers: Sequence[feed.Worker]) -> dict[str, Any]:
    used = UNKNOWN
    tasks = [worker.tasks for worker in workers]
    if one.memory_bytes and one.free_bytes is not None:
        used = 1 - one.free_bytes / one.memory_bytes
    return {
        "key": one.machine.hex(),
        "name": name,
        "href": workers_url(name),
        "workers": one.workers,
        "wanted": one.wanted,
        "spares": one.spares,
        "busy": sum(count > 0 for count in tasks),
        "idle": sum(count == 0 for count in tasks),
        "queued": sum(max(count - 1, 0) for count in tasks),
        "restarts": one.restarts,
        "paused": sum(worker.is_paused for worker in workers),
        "cpus": one.cpus,
        "cpu": one.cpu / one.cpus if one.cpu is not None and one.cpus else UNKNOWN,
        "memory": as_number(one.memory_bytes),
        "free": as_number(one.free_bytes),
        "used": used,
        "agent_cpu": as_number(one.agent_cpu),
        "agent_rss": as_number(one.agent_rss_bytes),
        "lag": UNKNOWN if one.lag_s is None else round(one.lag_s * 1e3, 3),
        "silent": round(one.silent_s, 1),
    }


_MANAGERS = (
    Column("name", "manager", width=120),
    Column("system", "type", width=110),
    Column("wanted", "wanted", WHOLE, 70),
    Column("workers", "workers", WHOLE, 75),
    Column("most", "at most", WHOLE, 65),
    Column("running", "units running", WHOLE, 100),
    Column("coming", "coming", WHOLE, 70),
    Column("ending", "ending", WHOLE, 65),
    Column("failed", "failed", WHOLE, 60),
    Column("unit_h", "unit hours", NUMBER, 80),
    Column("idle_s", "idle workers (s)", WHOLE, 115),
    Column("reason", "why it gets no workers", width=260),
)


def _manager_row(one: feed.Manager) -> dict[str, Any]:
    return {
        "name": texts.short(one.name),
        "system": texts.short(one.system),
        "wanted": one.wanted,
        "workers": one.workers,
        "most": one.most if one.most < MOST_MAX else UNKNOWN,
        "running": one.running,
        "coming": one.coming,
        "ending": one.ending,
        "failed": one.failed,
        "unit_h": round(one.unit_s / 3600, 2),
        "idle_s": floor(one.idle_s),
        "reason": texts.plain(one.reason),
    }


def _scheduler(process: feed.Process) -> list[Tile]:
    return [
        Tile("runs on", texts.plain(process.host), f"process {process.pid}"),
        Tile("release", texts.plain(process.release), f"Python {texts.plain(process.python)}"),
        Tile("up", view.duration(process.up_s)),
        Tile("CPU", view.percent(process.cpu), "of one"),
        Tile("lag", view.duration(process.lag_s), "at most"),
        Tile("memory", view.binary(process.rss_bytes)),
        Tile("free memory", view.binary(process.free_bytes)),
    ]


_MESSAGES = (
    Column("way", "sent or received", width=120),
    Column("kind", "message", width=140),
    Column("count", "since its start", WHOLE, 110),
    Column("per_s", "per second", NUMBER, 90),
)


def _messages(model: Model) -> list[dict[str, Any]]:
    """Return how many of each kind, the most common ones first."""
    assert model.snapshot is not None
    rates = model.rates
    rows = [
        {
            "way": way,
            "kind": texts.plain(kind),
            "count": count,
            "per_s": round(per_s.get(kind, 0.0), 1),
        }
        for way, counts, per_s in (
            ("sent", model.snapshot.sent, rates.sent),
            ("received", model.snapshot.received, rates.received),
        )
        for kind, count in counts.items()
    ]
    return sorted(rows, key=lambda row: -row["count"])
