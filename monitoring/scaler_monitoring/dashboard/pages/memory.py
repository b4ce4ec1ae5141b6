"""Memory: what workers take, what is stored where and made by whom, and the largest objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bokeh.layouts import column

from scaler_monitoring import memory_use, texts, view
from scaler_monitoring.dashboard import html
from scaler_monitoring.dashboard.bars import BARS_MAX, Bar, Bars
from scaler_monitoring.dashboard.links import function_url, worker_url, workers_url
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.parts import (
    BYTES,
    PERCENT,
    UNKNOWN,
    WHOLE,
    Column,
    Table,
    Tile,
    Tiles,
    beside,
    panel,
)
from scaler_monitoring.dashboard.timeline import LINES, Largest, Timeline, memory_curves
from scaler_monitoring.forecast import machine_full_in_s, worker_full_in_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Figures, Model

ROWS_MAX = 500
_NO_MAKERS = "Of no object is known who made it."
FULL = 0.9
"""Of the memory for objects: what is more is spilled, or refused."""
TOTALS = {"workers_rss_bytes": "workers", "objects_bytes": "objects"}
FREE = {"free_bytes": "free", "memory_bytes": "there is"}
_FORECAST = "When it will be full is what it comes to at the pace of the last half minute."
_RSS, _STORED = 1, 0
"""Columns of the samples of workers and of stores."""


class Memory(Page):
    """Who holds the memory."""

    path = "/memory"

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        self._tiles = Tiles(theme)
        self._totals = Timeline(tuple(TOTALS | FREE), self.view.settings.window_s)
        totals = memory_curves(self._totals.source, TOTALS, self.view)
        times = totals.x_range
        free = memory_curves(self._totals.source, FREE, self.view, x_range=times)
        self._workers = Largest(self.view, _RSS, "bytes", times)
        self._stored = Largest(self.view, _STORED, "bytes", times)
        self._full_workers = Bars((memory_use.RESIDENT, memory_use.FREE), theme, "", view.binary)
        self._full_machines = Bars(
            (memory_use.OBJECTS, memory_use.OTHERS, memory_use.FREE), theme, "", view.binary
        )
        self._functions = Table(_FUNCTIONS, theme, nothing=_NO_MAKERS, label="Makers: functions")
        self._clients = Table(_CLIENTS, theme, nothing=_NO_MAKERS, label="Makers: clients")
        self._stores = Table(_STORES, theme, nothing="Nothing is stored yet.")
        self._moved = Table(
            _MOVED, theme, nothing="Nothing was copied from one machine to another.", label="Copied"
        )
        self._largest = Table(_LARGEST, theme, nothing="There are no objects.")
        return column(
            self._tiles.root,
            beside(
                panel("Used, in all", theme, totals),
                panel("Of the machines, in all", theme, free),
            ),
            beside(
                panel(
                    "Resident memory of workers", theme, self._workers.root,
                    about=f"Of the {LINES} that take most.",
                ),
                panel(
                    "Stored objects", theme, self._stored.root,
                    about=f"In the {LINES} places where most of them lie.",
                ),
            ),
            beside(
                panel(
                    "Workers and their limits", theme, self._full_workers.root,
                    about=(
                        f"The {BARS_MAX} fullest. What a worker has mapped of objects counts. "
                        f"{_FORECAST}"
                    ),
                ),
                panel(
                    "Machines", theme, self._full_machines.root,
                    about=(
                        f"The {BARS_MAX} fullest: objects in memory, and what all else takes. "
                        f"{_FORECAST}"
                    ),
                ),
            ),
            beside(
                panel("Objects by the function that made them", theme, self._functions.root),
                panel("Objects by client", theme, self._clients.root),
            ),
            beside(
                panel("Where objects lie", theme, self._stores.root),
                panel("Copied from place to place", theme, self._moved.root),
            ),
            panel("Largest objects", theme, self._largest.root),
            sizing_mode="stretch_width",
        )  # fmt: skip

    def update(self, model: Model) -> None:
        """Show what is known now."""
        snapshot = model.snapshot
        assert snapshot is not None
        places = store_names(snapshot)
        self._tiles.update(_tiles(snapshot, places))
        self._totals.update(model, model.history, _figures)
        self._workers.update(model, model.worker_samples, model.label)
        self._stored.update(
            model, model.store_samples, lambda machine: places.get(machine, machine.hex())
        )
        self._fill(model, snapshot)
        self._stores.update([_store(one, places) for one in snapshot.stores[:ROWS_MAX]])
        self._moved.update([_transfer(one, places) for one in snapshot.transfers[:ROWS_MAX]])
        clients = memory_use.client_names(snapshot)
        self._functions.update(_functions(snapshot)[:ROWS_MAX])
        self._clients.update(_clients(snapshot, clients)[:ROWS_MAX])
        self._largest.update([_object(one, clients) for one in snapshot.largest[:ROWS_MAX]])

    def _fill(self, model: Model, snapshot: feed.Snapshot) -> None:
        """Show how full workers and machines are."""
        machines = view.manager_names(snapshot.machines)
        workers = memory_use.workers_use(snapshot, BARS_MAX)
        room = memory_use.FREE
        self._full_workers.update(
            [
                Bar(
                    model.label(one.who),
                    one.parts,
                    # What all others of its machine take is not known of a worker without a limit.
                    _note(
                        one,
                        worker_full_in_s(model, one.who, one.parts[room]) if one.is_own else None,
                    ),
                    worker_url(one.who),
                )
                for one in workers
            ],
            "" if workers else "No worker has told of its memory yet.",
        )
        names = [(machines[one.who], one) for one in memory_use.machines_use(snapshot)[:BARS_MAX]]
        self._full_machines.update(
            [
                Bar(
                    name,
                    one.parts,
                    _note(one, machine_full_in_s(model, one.who, one.parts[room])),
                    workers_url(name),
                )
                for name, one in names
            ],
            "" if names else "No machine has told of its memory yet.",
        )


def store_names(snapshot: feed.Snapshot) -> dict[bytes, str]:
    """Return what the places are called in which objects lie."""
    machines = view.manager_names(snapshot.machines)
    return {
        one.machine: machines.get(one.machine) or texts.short(one.address) or "home"
        for one in snapshot.stores
    }


def _figures(figures: Figures) -> tuple[float | None, ...]:
    # No worker takes nothing: nobody has measured it yet.
    used = figures.workers_rss_bytes or None
    return used, figures.objects_bytes, figures.free_bytes, figures.memory_bytes


def _tiles(snapshot: feed.Snapshot, places: Mapping[bytes, str]) -> list[Tile]:
    tiles = [
        Tile("objects", view.whole(snapshot.objects), view.binary(snapshot.objects_bytes)),
        Tile(
            "resident memory of workers",
            view.binary(sum(one.rss_bytes or 0 for one in snapshot.workers)),
        ),
    ]
    tiles += [
        Tile(
            f"stored at {places[one.machine]}",
            view.binary(one.nbytes),
            f"of {view.binary(one.memory_limit)}" if one.memory_limit else "",
            is_bad=one.memory_limit > 0 and one.nbytes > FULL * one.memory_limit,
        )
        for one in sorted(snapshot.stores, key=lambda one: -one.nbytes)[:LINES]
    ]
    return tiles


def _note(use: memory_use.Use, full_s: float | None) -> str:
    """Return what stands below a bar; it will be full in ``full_s``, if that is soon."""
    limit = view.binary(use.limit)
    of = f"{limit}, its limit" if use.is_own else f"the {limit} of its machine"
    if memory_use.OBJECTS in use.parts:
        of = limit
    spilled = f", {view.binary(use.on_disk)} of objects on disk" if use.on_disk else ""
    soon = "" if full_s is None else f", full in {view.duration(full_s)}"
    return f"{use.share:.0%}: {view.binary(use.used)} of {of}{spilled}{soon}"


_FUNCTIONS = (
    Column("maker", "made by", width=200, link="href"),
    Column("objects", "objects", WHOLE, 80),
    Column("size", "size", BYTES, 80),
    Column("share", "share", PERCENT, 70),
)
_CLIENTS = (Column("client", "client", width=200), *_FUNCTIONS[1:])


def _maker(function: str) -> dict[str, str]:
    """Return what made an object, and where it has its page."""
    if not function:
        return {"maker": memory_use.STORED, "href": ""}
    return {"maker": view.function_name(function), "href": function_url(function)}


def _made(made: memory_use.Made, snapshot: feed.Snapshot) -> dict[str, Any]:
    share = made.nbytes / snapshot.objects_bytes if snapshot.objects_bytes else UNKNOWN
    return {"objects": made.objects, "size": made.nbytes, "share": share}


def _functions(snapshot: feed.Snapshot) -> list[dict[str, Any]]:
    found = memory_use.by_function(snapshot.owners)
    return [{**_maker(name), **_made(made, snapshot)} for name, made in found.items()]


def _clients(snapshot: feed.Snapshot, clients: Mapping[int, str]) -> list[dict[str, Any]]:
    found = memory_use.by_client(snapshot.owners)
    return [
        {"client": clients.get(session, memory_use.GONE), **_made(made, snapshot)}
        for session, made in found.items()
    ]


_STORES = (
    Column("place", "where", width=140),
    Column("address", "address", width=180),
    Column("objects", "objects", WHOLE, 80),
    Column("copies", "copies among them", WHOLE, 130),
    Column("size", "size", BYTES, 80),
    Column("limit", "limit", BYTES, 80),
    Column("used", "used", PERCENT, 70),
    Column("up", "is up", width=100),
)


def _store(store: feed.Store, places: Mapping[bytes, str]) -> dict[str, Any]:
    limit = store.memory_limit
    return {
        "place": places[store.machine],
        "address": texts.plain(store.address),
        "objects": store.objects,
        "copies": store.copies,
        "size": store.nbytes,
        "limit": limit or UNKNOWN,
        "used": store.nbytes / limit if limit else UNKNOWN,
        "up": "yes" if store.is_up else "no" if store.objects else "not needed yet",
    }


_MOVED = (
    Column("source", "from", width=140),
    Column("target", "to", width=140),
    Column("size", "bytes", BYTES, 80),
    Column("copies", "objects", WHOLE, 80),
    Column("failed", "failed", WHOLE, 60),
)


def _transfer(one: feed.Transfer, places: Mapping[bytes, str]) -> dict[str, Any]:
    return {
        "source": places.get(one.source, one.source.hex()),
        "target": places.get(one.target, one.target.hex()),
        "size": one.nbytes,
        "copies": one.copies,
        "failed": one.failed,
    }


_LARGEST = (
    Column("object", "object", width=150),
    Column("size", "size", BYTES, 80),
    Column("maker", "made by", width=160, link="href"),
    Column("client", "client", width=120),
    Column("users", "needed by", WHOLE, 90),
    Column("workers", "mapped by workers", WHOLE, 130),
    Column("stores", "lies in places", WHOLE, 110),
)


def _object(one: feed.LargeObject, clients: Mapping[int, str]) -> dict[str, Any]:
    return {
        "object": html.object_name(one.object),
        "size": one.nbytes,
        # Schedulers of earlier releases do not say who made it.
        **(_maker(one.function) if one.session else {"maker": "", "href": ""}),
        "client": clients.get(one.session, memory_use.GONE) if one.session else "",
        "users": one.users,
        "workers": one.workers,
        "stores": one.stores,
    }
