"""Graphs: how far each has come, and what is left of its longest chain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape
from math import inf
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column

from scaler_cluster.wire import feed
from scaler_monitoring import texts, view
from scaler_monitoring.curve import Curve
from scaler_monitoring.dashboard import deeds
from scaler_monitoring.dashboard.bars import BARS_MAX, Bar, Bars
from scaler_monitoring.dashboard.links import function_url, graph_url
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.parts import (
    TIME,
    WHOLE,
    Column,
    Table,
    Tile,
    Tiles,
    as_number,
    as_time,
    panel,
    show,
    text,
)
from scaler_monitoring.dashboard.timeline import MARGIN, Timeline
from scaler_monitoring.figures import curves
from scaler_monitoring.layer_figure import LayerFigure
from scaler_monitoring.layers import Layers, layers_of, progress, short, waits_for
from scaler_monitoring.theme import FAILED, SERIES, look_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.dashboard.tab_view import View
    from scaler_monitoring.model import Model

ROWS_MAX = 200
"""Graphs that are listed, and remembered."""
OVER_MAX = 5
"""Bars of graphs that are over, if few are running."""
LAYERS_MAX = 60
"""Bars of layers: more are no overview."""
POINTS_MAX = 300
"""Of the curve of a graph. When there are more, each second one is left out."""
STATES = ("done", "assigned", "ready", "waiting", "failed", "cancelled")
CHAIN = ("ended", "left")
CURVES = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Point:
    """What had come of a graph at one moment."""

    clock: float
    done: int
    failed: int
    cancelled: int


@dataclass
class Known:
    """A graph, as it was seen last."""

    graph: feed.Graph
    begun_at: float | None = None
    """By the scheduler's clock; None: nobody has told."""
    over_at: float | None = None
    """None: it runs."""
    layers: Layers = field(default_factory=Layers)
    """As they were seen last."""
    curve: Curve[Point] = field(default_factory=lambda: Curve(POINTS_MAX))

    @property
    def name(self) -> str:
        """Return what it is called, as a line."""
        return texts.short(self.graph.name) or view.NO_NAME

    @property
    def state(self) -> str:
        """Return where it stands, in words."""
        if self.over_at is not None:
            return "over"
        return "running" if self.graph.is_whole else "still coming"

    def see(self, clock: float) -> None:
        """Add a point to its curve, unless there is one of this moment."""
        points = self.curve.points
        if not points or points[-1].clock < clock:
            self.curve.add(self._point(clock))

    def end(self, event: feed.GraphOver) -> None:
        """Take in that it is over."""
        self.over_at = event.at
        if event.done == event.nodes:
            self.layers = self.layers.ended()
        self.graph = replace(
            self.graph, nodes=event.nodes, is_whole=True, waiting=0, ready=0, assigned=0,
            done=event.done, failed=event.failed, cancelled=event.cancelled, chain_left=None,
        )  # fmt: skip
        points = self.curve.points
        if points and points[-1].clock < event.at:
            self.curve.end(self._point(event.at))

    def _point(self, clock: float) -> Point:
        return Point(clock, self.graph.done, self.graph.failed, self.graph.cancelled)


class Ledger:
    """The graphs that run, and those that ended lately, with what was seen of each."""

    def __init__(self) -> None:
        self.graphs: dict[str, Known] = {}
        """Those that run first, then the others, the last that ended first."""
        self.running: list[feed.Graph] = []
        """All that run."""
        self._of: Model | None = None
        """Where it was seen: a replay that goes back has another one."""

    def update(self, model: Model) -> None:
        """Take in what is known now."""
        assert model.snapshot is not None
        if model is not self._of:
            self._of, self.graphs = model, {}
        begun: dict[str, float] = {}
        over: dict[str, feed.GraphOver] = {}
        for event in model.news:
            if isinstance(event, feed.GraphBegun):
                begun[key_of(event)] = event.at
            elif isinstance(event, feed.GraphOver):
                over[key_of(event)] = event
        before, self.graphs = self.graphs, {}
        # Of some it was told that they are over since the snapshot was made; others run again, as
        # the scheduler died before their clients knew that they were over.
        clock = model.snapshot.clock
        for graph in model.snapshot.graphs:
            key = key_of(graph)
            if key in over and over[key].at < clock:
                del over[key]
        self.running = [one for one in model.snapshot.graphs if key_of(one) not in over]
        layers = layers_of(model.snapshot)
        for graph in self.running[:ROWS_MAX]:
            key = key_of(graph)
            known = self.graphs[key] = before.get(key) or Known(graph)
            known.graph, known.over_at = graph, None
            known.layers = layers.get((graph.session, graph.first), known.layers)
            known.see(clock)
        for key, last in reversed(over.items()):
            if len(self.graphs) == ROWS_MAX:
                break
            known = self.graphs[key] = before.get(key) or Known(_graph_of(last))
            if known.over_at is None:
                known.end(last)
        for key, known in self.graphs.items():
            known.begun_at = begun.get(key, known.begun_at)


def key_of(graph: feed.Graph | feed.GraphBegun | feed.GraphOver) -> str:
    """Return what tells a graph from all others of its scheduler."""
    return f"{graph.session}:{graph.first}"


def _graph_of(event: feed.GraphOver) -> feed.Graph:
    return feed.Graph(event.session, event.first, event.name)


class Graphs(Page):
    """All graphs, and one of them alone if it is chosen."""

    path = "/graphs"

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        self._ledger = Ledger()
        self._tiles = Tiles(theme)
        self._bars = Bars(STATES, theme)
        self._table = Table(
            _COLUMNS, theme, key="key", nothing="No graph runs, and none has ended lately."
        )
        self._table.on_choose(self._on_choose)
        self._one = _One(self.view)
        return column(
            self._tiles.root,
            panel(
                "Graphs", theme, self._bars.root, self._table.root,
                about="Those that run, and those that ended lately. Choose one to see it alone.",
            ),
            self._one.root,
            sizing_mode="stretch_width",
        )  # fmt: skip

    def update(self, model: Model) -> None:
        """Show what is known now."""
        assert model.snapshot is not None
        self._ledger.update(model)
        graphs = self._ledger.graphs
        running = self._ledger.running
        self._tiles.update(_tiles(running, model.snapshot.left_out.get("graphs", 0)))
        shown = min(max(len(running), OVER_MAX), BARS_MAX)
        self._bars.update([_bar(one, model) for one in list(graphs.values())[:shown]])
        clients = {one.session: texts.client_name(one) for one in model.snapshot.clients}
        self._table.update([_row(key, one, clients, model) for key, one in graphs.items()])
        self._show()

    def restore(self) -> None:
        """Show what the address says."""
        self._table.choose(self.view.address.get("graph"))
        self._show()

    def _on_choose(self, key: str) -> None:
        self.view.address.set(is_step=False, graph=key)
        self._show()

    def _show(self) -> None:
        self._one.update(self.view.model, self._ledger.graphs.get(self._table.chosen))


class _One:
    """A graph alone."""

    def __init__(self, tab: View) -> None:
        theme = tab.theme
        self._deeds = deeds.Deeds(tab)
        self._head = text("", theme, "h2 { font-size: 16px; margin: .8rem 0 .3rem; }")
        self._tiles = Tiles(theme)
        self._states = Bars(STATES, theme)
        self._chain = Bars(CHAIN, theme)
        self._timeline = Timeline(CURVES, inf)
        figure = curves(
            self._timeline.source, dict(zip(CURVES, CURVES, strict=True)), "tasks", theme,
            (SERIES[2], FAILED, SERIES[1]), height=220, margin=MARGIN,
        )  # fmt: skip
        figure.yaxis.axis_label = "nodes"
        self._curve = panel(
            "Nodes that have ended", theme, figure,
            about="Since this page saw the graph first.",
        )  # fmt: skip
        self._layers = Bars(STATES, theme)
        self._picture = LayerFigure(theme)
        self._parts = panel(
            "Layers", theme, self._picture.root, self._layers.root,
            about="Nodes by name, those that others depend on further left. Bold: the longest"
            " path of layers.",
        )  # fmt: skip
        self._above = [
            self._head, self._deeds.root, self._tiles.root, self._states.root, self._chain.root,
        ]  # fmt: skip
        self.root = column(*self._above, sizing_mode="stretch_width", visible=False)

    def update(self, model: Model, known: Known | None) -> None:
        """Show this one; nothing if there is none."""
        if known is not None:
            self._update(model, known)
        if self.root.visible is not (known is not None):
            self.root.visible = known is not None

    def _update(self, model: Model, known: Known) -> None:
        graph = known.graph
        show(self._head, f"<h2>{escape(known.name)}</h2>")
        self._deeds.update(deeds.of_graph(model, graph) if known.over_at is None else [])
        assert model.snapshot is not None
        until = model.snapshot.clock if known.over_at is None else known.over_at
        self._tiles.update(
            [
                Tile("state", known.state),
                Tile(
                    "running for" if known.over_at is None else "took",
                    "-" if known.begun_at is None else view.duration(until - known.begun_at),
                ),
                Tile("nodes", view.whole(graph.nodes)),
                *_state_tiles({state: getattr(graph, state) for state in STATES}),
            ]
        )
        self._states.update([replace(_bar(known, model), name="nodes")])
        self._chain.update(_chain(graph))
        self._timeline.update(
            model, known.curve.points, lambda one: (one.done, one.failed, one.cancelled),
            (key_of(graph), known.curve.stride),
        )  # fmt: skip
        layers = known.layers
        if layers.rows:
            self._picture.show(layers)
            bars = [_layer_bar(layers, name) for name in list(layers.rows)[:LAYERS_MAX]]
            more = len(layers.rows) - len(bars)
            said = f"{more} more layers are not shown." if more > 0 else ""
            self._layers.update(bars, said)
        has_curve = len(known.curve.points) > 1
        shown = [*self._above, *([self._parts] * bool(layers.rows)), *([self._curve] * has_curve)]
        if shown != self.root.children:
            self.root.children = shown


_COLUMNS = (
    Column("name", "graph", width=220),
    Column("client", "client", width=130),
    Column("session", "session", WHOLE, 75),
    Column("state", "state", width=90),
    Column("nodes", "nodes", WHOLE, 70),
    Column("done", "done", WHOLE, 70),
    Column("assigned", "assigned", WHOLE, 80),
    Column("ready", "ready", WHOLE, 70),
    Column("waiting", "waiting", WHOLE, 75),
    Column("failed", "failed", WHOLE, 70),
    Column("cancelled", "cancelled", WHOLE, 85),
    Column("chain", "longest chain", WHOLE, 110),
    Column("left", "left of it", WHOLE, 80),
    Column("begun", "begun", TIME, 80),
    Column("over", "over", TIME, 80),
)


def _tiles(graphs: Sequence[feed.Graph], left_out: int) -> list[Tile]:
    return [
        Tile("running graphs", view.whole(len(graphs) + left_out)),
        Tile("their nodes", view.whole(sum(one.nodes for one in graphs))),
        *_state_tiles({state: sum(getattr(one, state) for one in graphs) for state in STATES}),
    ]


def _state_tiles(counts: Mapping[str, int]) -> list[Tile]:
    return [
        Tile(state, view.whole(count), is_bad=state == "failed" and count > 0)
        for state, count in counts.items()
    ]


def _bar(known: Known, model: Model) -> Bar:
    graph = known.graph
    ended = graph.done + graph.failed + graph.cancelled
    note = f"{view.whole(ended)} of {view.whole(graph.nodes)} ended"
    if known.over_at is not None:
        note += f" at {view.clock_time(model, known.over_at)}"
    counts = {state: getattr(graph, state) for state in STATES}
    return Bar(known.name, counts, note, graph_url(key_of(graph)), look_of(graph.name).css)


def _layer_bar(layers: Layers, name: str) -> Bar:
    row = layers.rows[name]
    counts = {state: getattr(row, state) for state in STATES}
    note = waits_for(layers, name)
    if row.busy_s:
        note += f"{' · ' * bool(note)}{view.duration(row.busy_s)} of work"
    return Bar(
        f"{short(name)} {progress(row)}", counts, note, function_url(name), look_of(name).css
    )


def _chain(graph: feed.Graph) -> list[Bar]:
    """Return how far the longest chain has come, if that is known."""
    if graph.chain is None or graph.chain_left is None:
        return []
    ended = graph.chain - graph.chain_left
    note = f"{view.whole(ended)} of {view.whole(graph.chain)} nodes have ended"
    return [Bar("longest chain", {"ended": ended, "left": graph.chain_left}, note)]


def _row(key: str, known: Known, clients: Mapping[int, str], model: Model) -> dict[str, Any]:
    graph = known.graph
    return {
        "key": key,
        "name": known.name,
        "client": clients.get(graph.session, "gone"),
        "session": graph.session,
        "state": known.state,
        "nodes": graph.nodes,
        **{state: getattr(graph, state) for state in STATES},
        "chain": as_number(graph.chain),
        "left": as_number(graph.chain_left),
        "begun": as_time(known.begun_at, model),
        "over": as_time(known.over_at, model),
    }
