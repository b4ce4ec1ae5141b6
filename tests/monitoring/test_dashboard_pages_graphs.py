"""Pages of graphs, memory, clients and machines, made of messages by hand: no server, no browser."""

from __future__ import annotations

from math import isnan

import pytest
from bokeh.document import Document

from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard.page import View
from scaler_monitoring.dashboard.pages import graphs as graphs_module
from scaler_monitoring.dashboard.pages.clients import Clients
from scaler_monitoring.dashboard.pages.graphs import POINTS_MAX, ROWS_MAX, Graphs, Ledger
from scaler_monitoring.dashboard.pages.machines import Machines
from scaler_monitoring.dashboard.pages.memory import Memory, object_name
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.timeline import LINES, places_of
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.model import Model
from scaler_monitoring.theme import DARK, LIGHT

PAGES = (Graphs, Memory, Clients, Machines)
HOSTILE = "<img src=x onerror=alert(1)>\n$$x$$"
MIB = 1 << 20


def snapshot(seq=1, clock=None, run="run", **fields):
    clock = float(seq) if clock is None else clock
    return f.Snapshot(run, seq, clock=clock, time=1000.0 + clock, interval_s=1.0, **fields)


def busy(seq=1, name="price", **fields):
    """Return a snapshot with some of everything."""
    return snapshot(
        seq,
        workers=[
            f.Worker(b"W1", b"S1", "one", name, 11, tasks=3, rss_bytes=100 * MIB),
            f.Worker(b"W2", b"S1", "one", name, 12, rss_bytes=50 * MIB),
        ],
        machines=[
            f.Machine(
                b"S1", name, 2, 2, cpus=4, cpu=1.0, memory_bytes=1000, free_bytes=250,
                agent_cpu=0.1, agent_rss_bytes=5 * MIB, lag_s=0.002, restarts=7,
            )
        ],
        clients=[
            f.Client(1, name, 21, b"", 10, 4, 1, 1, 0, 2, 3, 4, 1.5),
            f.Client(2, name, 22, b"W1", 50, 10),
        ],
        graphs=[f.Graph(1, 64, name, 10, True, 2, 3, 1, 3, 1, 0, 6, 2)],
        stores=[f.Store(b"", "", 2, 30 * MIB, 100 * MIB, 1, True)],
        objects=2,
        objects_bytes=30 * MIB,
        largest=[f.LargeObject(b"\x01\xff", 20 * MIB, 2, 3, 1), f.LargeObject(b"ab-1", 9)],
        sent={"Assign": 10},
        received={"Done": 20},
        **fields,
    )  # fmt: skip


class Tab:
    """A page in a document, without a browser."""

    def __init__(self, kind, theme=LIGHT, **settings):
        watch = Watch("tcp://here")
        self.model = watch.model
        self.page = kind(View(watch, theme, Settings(**settings), 1000))
        self.document = Document()
        self.document.add_root(self.page.root)

    def hear(self, *messages):
        for message in messages:
            self.model.apply(message, 0.0)
        self.page.update(self.model)
        return self

    def rows(self, name="_table"):
        data = getattr(self.page, name).source.data
        return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]

    def html(self):
        return "".join(one.text for one in self.document.select({"type": Div}))


from bokeh.models.widgets.markups import Div  # noqa: E402


def batch(seq, *events, run="run"):
    return f.Events(run, seq, float(seq), {}, list(events))


# -- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAGES)
@pytest.mark.parametrize(("theme", "scale"), [(LIGHT, "linear"), (DARK, "log")])
def test_a_page_of_nothing_is_made(kind, theme, scale):
    """There is no worker, nothing has run yet, and a sentence says so instead of a table."""
    tab = Tab(kind, theme, scale=scale).hear(snapshot(1))

    assert tab.document.validate() is None
    assert all(not rows for rows in tab.page._table.source.data.values()) if hasattr(tab.page, "_table") else True


@pytest.mark.parametrize("kind", PAGES)
def test_what_is_known_already_is_not_sent_again(kind):
    """An update without news changes nothing."""
    tab = Tab(kind).hear(busy(1), busy(2), batch(1, f.ClientLeft(1.0, 9), f.GraphOver(1.0, 1, 9)))
    changes = []
    tab.document.on_change(changes.append)
    tab.page.update(tab.model)

    assert changes == []


@pytest.mark.parametrize("kind", PAGES)
def test_names_of_users_are_text(kind):
    """Whatever HTML there is in them; each is one line."""
    over = f.GraphOver(1.0, 1, 9, HOSTILE)
    left = f.ClientLeft(1.0, 9, HOSTILE)
    tab = Tab(kind).hear(busy(1, HOSTILE), batch(1, over, left))
    if kind is Graphs:
        tab.page._table.choose("1:9")
        tab.page.update(tab.model)

    assert "<img" not in tab.html()
    assert all(one.disable_math for one in tab.document.select({"type": Div}))


@pytest.mark.parametrize("kind", PAGES)
def test_another_scheduler_begins_anew(kind):
    """Curves and rows of the one before are gone."""
    tab = Tab(kind).hear(busy(1), busy(2), busy(3)).hear(snapshot(1, run="other"))

    for source in tab.document.select({"type": ColumnDataSource}):
        assert len(source.data.get("time", ())) <= 1


from bokeh.models.sources import ColumnDataSource  # noqa: E402
