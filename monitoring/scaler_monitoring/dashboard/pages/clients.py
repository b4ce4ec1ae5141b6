"""Clients: who asked for what, how far that is, and who came and left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bokeh.layouts import column

from scaler_cluster.wire import feed
from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import deeds
from scaler_monitoring.dashboard.bars import BARS_MAX, TASK_STATES, Bar, Bars
from scaler_monitoring.dashboard.links import worker_url
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.parts import (
    BYTES,
    NUMBER,
    TIME,
    WHOLE,
    Column,
    Table,
    Tile,
    Tiles,
    as_time,
    panel,
)
from scaler_monitoring.memory_use import Made, by_client

if TYPE_CHECKING:
    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.model import Model

ROWS_MAX = 500
COUNTS = ("submitted", "done", "failed", "cancelled", "pending")


class Clients(Page):
    """All clients, those with most to do first."""

    path = "/clients"

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        self._tiles = Tiles(theme)
        self._bars = Bars(TASK_STATES, theme)
        self._deeds = deeds.RowDeeds(self.view, "client")
        self._table = Table(
            _COLUMNS, theme, key=self._deeds.key, nothing="No client is there.", label="Clients"
        )
        self._table.on_choose(lambda _: self._show(self.view.model))
        self._moves = Table(_MOVES, theme, nothing="No client has come or left lately.")
        return column(
            self._tiles.root,
            panel("Clients", theme, self._bars.root, self._table.root, self._deeds.root),
            panel("Came and left", theme, self._moves.root),
            sizing_mode="stretch_width",
        )

    def update(self, model: Model) -> None:
        """Show what is known now."""
        snapshot = model.snapshot
        assert snapshot is not None
        clients = sorted(snapshot.clients, key=lambda one: (-one.pending, one.session))
        self._tiles.update(_tiles(snapshot))
        self._bars.update([_bar(one) for one in clients[:BARS_MAX] if one.submitted])
        made = by_client(snapshot.owners)
        self._table.update(
            [_row(one, model, made.get(one.session, Made())) for one in clients[:ROWS_MAX]]
        )
        self._moves.update(_moves(model))
        self._show(model)

    def _show(self, model: Model) -> None:
        """Show what can be done to the client that is chosen."""
        assert model.snapshot is not None
        chosen = [one for one in model.snapshot.clients if str(one.session) == self._table.chosen]
        self._deeds.show([deed for one in chosen for deed in deeds.of_client(model, one)])


def _tiles(snapshot: feed.Snapshot) -> list[Tile]:
    clients = snapshot.clients
    nested = sum(bool(one.worker) for one in clients)
    return [
        Tile("clients", view.whole(view.count_of(snapshot, "clients"))),
        Tile("of them inside of tasks", view.whole(nested)),
        Tile("their tasks", view.whole(sum(one.submitted for one in clients))),
        Tile("pending", view.whole(sum(one.pending for one in clients))),
    ]


def _bar(client: feed.Client) -> Bar:
    ended = client.submitted - client.pending
    return Bar(
        texts.client_name(client),
        {state: getattr(client, state) for state in TASK_STATES},
        f"{view.whole(ended)} of {view.whole(client.submitted)} ended",
    )


_COLUMNS = (
    Column("session", "session", WHOLE, 75),
    Column("client", "client", width=140),
    Column("inside", "inside of a task on", width=150, link="inside_href"),
    *(Column(name, name, WHOLE, 85) for name in COUNTS),
    Column("graphs", "graphs", WHOLE, 75),
    Column("functions", "functions", WHOLE, 85),
    Column("objects", "objects", WHOLE, 75),
    Column("stored", "stored", BYTES, 80),
    Column("silent", "silent for (s)", NUMBER, 95),
)


def _row(client: feed.Client, model: Model, made: Made) -> dict[str, Any]:
    return {
        "key": str(client.session),
        "session": client.session,
        "client": texts.client_name(client),
        **_inside(client.worker, model),
        **{name: getattr(client, name) for name in COUNTS},
        "graphs": client.graphs,
        "functions": client.functions,
        "objects": client.objects,
        "stored": made.nbytes,
        "silent": round(client.silent_s, 1),
    }


_MOVES = (
    Column("at", "when", TIME, 80),
    Column("what", "what", width=70),
    Column("session", "session", WHOLE, 75),
    Column("client", "client", width=160),
    Column("inside", "inside of a task on", width=160, link="inside_href"),
)


def _moves(model: Model) -> list[dict[str, Any]]:
    """Return who came and left, the last one first."""
    told = [one for one in model.news if isinstance(one, feed.ClientJoined | feed.ClientLeft)]
    workers = {one.session: one.worker for one in told if isinstance(one, feed.ClientJoined)}
    return [
        {
            "at": as_time(one.at, model),
            "what": "came" if isinstance(one, feed.ClientJoined) else "left",
            "session": one.session,
            "client": texts.client_name(one),
            **_inside(workers.get(one.session, b""), model),
        }
        for one in reversed(told[-ROWS_MAX:])
    ]


def _inside(worker: bytes, model: Model) -> dict[str, str]:
    """Return which worker a client is inside of, if it is."""
    if not worker:
        return {"inside": "", "inside_href": ""}
    return {"inside": model.label(worker), "inside_href": worker_url(worker)}
