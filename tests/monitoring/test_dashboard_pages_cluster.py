"""What the pages of the cluster show of what is known: graphs, memory, clients and machines."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from math import isnan, nan
from typing import Any

import pytest
from bokeh.document import Document
from bokeh.models.sources import ColumnDataSource
from bokeh.models.widgets.markups import Div

from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard.bars import BARS_MAX, Bar, Bars
from scaler_monitoring.dashboard.pages import clients, graphs, machines, memory
from scaler_monitoring.dashboard.pages.clients import Clients
from scaler_monitoring.dashboard.pages.graphs import Graphs
from scaler_monitoring.dashboard.pages.machines import Machines
from scaler_monitoring.dashboard.pages.memory import Memory
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.timeline import LINES, Timeline, places_of
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.model import Model
from scaler_monitoring.theme import DARK, LIGHT

PAGES = (Graphs, Memory, Clients, Machines)
EVIL = "<img src=x onerror=alert(1)>\n$$x$$"
MIB = 1 << 20


def snapshot(seq=1, run="run", **fields):
    """Return one of each second."""
    return f.Snapshot(run, seq, clock=float(seq), time=1000.0 + seq, interval_s=1.0, **fields)


def batch(seq, *events, run="run"):
    return f.Events(run, seq, float(seq), {}, list(events))


def busy(seq=1, name="host", **fields):
    """Return a snapshot with some of everything."""
    return snapshot(
        seq,
        scheduler=f.Process(name, 7, "1.2", "3.11", "tcp://x", 60.0, 0.25, 8 * MIB, 9 * MIB, 0.01),
        workers=[
            f.Worker(b"W1", b"S1", name, "one", 11, tasks=3, rss_bytes=100 * MIB),
            f.Worker(b"W2", b"S1", name, "", 12, rss_bytes=50 * MIB),
        ],
        machines=[
            f.Machine(
                b"S1", name, 3, 2, 1, 1.5, 0.002, cpus=4, cpu=1.0, memory_bytes=1000,
                free_bytes=250, agent_cpu=0.1, agent_rss_bytes=5 * MIB, restarts=7,
            )
        ],
        clients=[
            f.Client(1, name, 21, b"", 10, 4, 1, 1, 1, 2, 3, 4, 1.5),
            f.Client(2, name, 22, b"W1", 50, 10),
        ],
        graphs=[f.Graph(1, 64, name, 10, True, 2, 3, 1, 3, 1, 0, 6, 2)],
        stores=[f.Store(b"S1", "tcp://store", 2, 25 * MIB, 100 * MIB, 1, True)],
        objects=2,
        objects_bytes=30 * MIB,
        largest=[f.LargeObject(b"\x01\xff", 20 * MIB, 2, 3, 1), f.LargeObject(b"ab-1", 9)],
        managers=[
            f.Manager(
                name, "host", "slurm", 9, 7, 0, 20, 3, 2, 1, 4, f"no room for {name}", 5400.0, 61.7
            ),
            f.Manager("cloud", "host", "aws_ec2", most=1 << 32),
        ],
        sent={"Assign": 10},
        received={"Done": 20},
        **fields,
    )  # fmt: skip


class Tab:
    """A page in a document, without a browser."""

    def __init__(self, kind, theme=LIGHT, **settings):
        watch = Watch("by hand")
        self.model = watch.model
        self.page = kind(View(watch, theme, Settings(**settings), links(""), 1000))
        self.document = Document()
        self.document.add_root(self.page.root)

    def hear(self, *messages):
        for message in messages:
            self.model.apply(message, 0.0)
        self.page.update(self.model)
        return self

    def rows(self, table="_table"):
        data = getattr(self.page, table).source.data
        return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]

    @property
    def html(self):
        shown: list[Any] = list(self.document.select({"type": Div}))
        return "\n".join(one.text for one in shown)

    @property
    def everything(self):
        """All that is shown in texts, tables and figures."""
        return "\n".join([self.html, *(str(one.data) for one in self.sources)])

    @property
    def sources(self):
        return list(self.document.select({"type": ColumnDataSource}))

    @contextmanager
    def nothing_sent(self):
        events: list[object] = []
        self.document.on_change(events.append)
        yield
        assert events == []


# -- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        (Graphs, ["No graph runs, and none has ended lately."]),
        (
            Memory,
            [
                "Nothing is stored yet.",
                "Nothing was copied from one machine to another.",
                "There are no objects.",
                "No worker has told of its memory yet.",
                "No machine has told of its memory yet.",
            ],
        ),
        (Clients, ["No client is there.", "No client has come or left lately."]),
        (Machines, ["No machine is there.", "It has neither sent nor received any."]),
    ],
)
@pytest.mark.parametrize(("theme", "scale"), [(LIGHT, "linear"), (DARK, "log")])
def test_a_cluster_of_nothing_is_shown(kind, sentences, theme, scale):
    """Each page of an empty cluster shows a sentence in place of each empty table."""
    tab = Tab(kind, theme, scale=scale).hear(snapshot())
    shown = [one.text for one in tab.document.select({"type": Div}) if one.visible]

    assert [one for one in sentences if f"<p>{one}</p>" not in shown] == []


@pytest.mark.parametrize("kind", PAGES)
def test_what_is_known_already_is_not_sent_again(kind):
    """An update without news sends nothing, also while a row is chosen."""
    tab = Tab(kind).hear(busy(1), batch(1, f.ClientLeft(1.0, 9), f.GraphOver(1.0, 1, 9)), busy(2))
    if kind is Graphs:
        tab.page._table.choose("1:64")
        tab.page.update(tab.model)
    with tab.nothing_sent():
        tab.page.update(tab.model)


@pytest.mark.parametrize("kind", PAGES)
def test_names_of_users_are_text(kind):
    """Names of users are shown as text, whatever HTML or mathematics is in them."""
    gone = batch(1, f.GraphOver(1.0, 1, 9, EVIL), f.ClientLeft(1.0, 9, EVIL))
    tab = Tab(kind).hear(busy(1, EVIL), gone)
    if kind is Graphs:
        tab.page._table.choose("1:9")
        tab.page.update(tab.model)

    assert "<img" not in tab.html
    assert all(one.disable_math for one in tab.document.select({"type": Div}))


@pytest.mark.parametrize("kind", PAGES)
def test_another_scheduler_goes_on(kind):
    """A page that is told of another scheduler goes on with what it has shown."""
    gone = f.GraphOver(1.0, 1, 9, "former graph"), f.ClientLeft(1.0, 9, "former client")
    tab = Tab(kind).hear(busy(1), busy(2), batch(1, *gone))
    tab.model.apply(busy(1, run="other"), 1.0)
    tab.page.update(tab.model)
    curves = [one.data["time"] for one in tab.sources if one.data.get("time")]

    assert [len(times) for times in curves] == [3] * len(curves)
    assert bool(curves) == (kind in {Memory, Machines})
    assert ("former graph" in tab.everything) == (kind is Graphs)
    assert ("former client" in tab.everything) == (kind is Clients)


@pytest.mark.parametrize("kind", PAGES)
def test_rows_are_bounded(kind, monkeypatch):
    """Every table shows at most ROWS_MAX rows."""
    for module in clients, graphs, machines, memory:
        monkeypatch.setattr(module, "ROWS_MAX", 3)
    names = [b"%03d" % n for n in range(40)]
    full = snapshot(
        1,
        workers=[f.Worker(one, rss_bytes=1) for one in names],
        machines=[f.Machine(one, cpu=1.0) for one in names],
        clients=[f.Client(n, submitted=9) for n in range(40)],
        graphs=[f.Graph(1, n, nodes=1) for n in range(40)],
        stores=[f.Store(one) for one in names],
        largest=[f.LargeObject(one) for one in names],
        owners=[f.Owner(n, str(n), 1, 1) for n in range(40)],
        managers=[f.Manager(f"m{n}") for n in range(40)],
    )
    tab = Tab(kind).hear(full, batch(1, *[f.ClientLeft(1.0, n) for n in range(40)]))

    assert max(len(column) for one in tab.sources for column in one.data.values()) == 3


# -- graphs ------------------------------------------------------------------------------------


def test_a_graph_is_a_row():
    """The row of a graph has its nodes by state, and its longest chain."""
    tab = Tab(Graphs).hear(batch(1, f.GraphBegun(0.5, 1, 64, "host")), busy(1))

    (row,) = tab.rows()
    assert {name: row[name] for name in (*graphs.STATES, "nodes", "chain", "left")} == {
        "done": 3, "assigned": 1, "ready": 3, "waiting": 2, "failed": 1, "cancelled": 0,
        "nodes": 10, "chain": 6, "left": 2,
    }  # fmt: skip
    assert (row["name"], row["client"], row["state"]) == ("host", "21|host", "running")
    assert isnan(row["over"])


def test_graphs_that_ended_come_last():
    """Graphs that ended stand below the others, the last one first, with what became of them."""
    tab = Tab(Graphs).hear(
        batch(1, f.GraphOver(1.0, 1, 5, "old", 9, 9), f.GraphOver(2.0, 7, 6, "new", 8, 7, 1)),
        busy(3),
    )

    assert [(row["name"], row["state"], row["done"], row["failed"]) for row in tab.rows()] == [
        ("host", "running", 3, 1), ("new", "over", 7, 1), ("old", "over", 9, 0),
    ]  # fmt: skip
    assert [row["client"] for row in tab.rows()] == ["21|host", "gone", "21|host"]
    assert "8 of 8 ended at " in tab.html


def test_a_graph_that_has_just_ended_does_not_run():
    """A graph that has ended is not shown as running, though an older snapshot has it."""
    tab = Tab(Graphs).hear(busy(1), batch(1, f.GraphOver(1.5, 1, 64, "host", 10, 10)))

    assert [(row["state"], row["done"]) for row in tab.rows()] == [("over", 10)]
    assert '<dt>running graphs</dt><dd class="good">0' in tab.html


def test_a_graph_may_run_again():
    """A graph runs again if the scheduler died before its client knew that it was over."""
    tab = Tab(Graphs).hear(busy(1), batch(1, f.GraphOver(1.5, 1, 64, "host", 10, 10)))
    tab.model.apply(busy(1, run="other"), 2.0)
    tab.page.update(tab.model)
    assert [(row["state"], row["done"]) for row in tab.rows()] == [("running", 3)]

    tab.hear(batch(1, f.GraphOver(1.5, 1, 64, "host", 10, 9, 1), run="other"))
    assert [(row["state"], row["done"]) for row in tab.rows()] == [("over", 9)]


def test_a_chosen_graph_is_shown_alone():
    """A chosen graph is shown with its longest chain and its curve, also when it is over."""
    tab = Tab(Graphs).hear(busy(1)).hear(busy(2))
    alone = tab.page._one
    assert not alone.root.visible
    tab.page.view.address.set(is_step=False, graph="1:64")
    tab.page.restore()

    assert alone.root.visible
    assert "4 of 6 nodes have ended" in tab.html
    assert alone._timeline.source.data["done"] == [3, 3]

    tab.hear(
        batch(1, f.GraphOver(3.0, 1, 64, "host", 10, 9, 1), f.GraphOver(3.5, 1, 99)), snapshot(6)
    )
    assert tab.page._table.chosen == "1:64"
    assert alone._timeline.source.data["done"] == [3, 3, 9]
    assert "nodes have ended" not in tab.html

    tab.page._table.source.tags = [*tab.page._table.source.tags[:3], "1:99"]
    assert tab.page.view.address.get("graph") == "1:99"


def test_the_curve_of_a_graph_is_bounded(monkeypatch):
    """A curve with too many points leaves out each second one."""
    monkeypatch.setattr(graphs, "POINTS_MAX", 8)
    tab = Tab(Graphs).hear(busy(1))
    tab.page._table.choose("1:64")
    for seq in range(2, 100):
        tab.hear(busy(seq))

    times = tab.page._one._timeline.source.data["time"]
    assert len(times) <= 8
    assert len({b - a for a, b in pairwise(times)}) == 1


def test_bars_of_graphs_are_few():
    """Bars show the graphs that run, and some of those that are over if there is room."""
    over = [f.GraphOver(1.0, 1, n, f"over{n}") for n in range(30)]
    tab = Tab(Graphs).hear(batch(1, *over), busy(2))
    assert tab.page._bars.root.text.count('class="bar"') == graphs.OVER_MAX

    running = [f.Graph(1, 100 + n, nodes=1) for n in range(30)]
    tab.hear(snapshot(3, graphs=running))
    assert tab.page._bars.root.text.count('class="bar"') == BARS_MAX


# -- memory ------------------------------------------------------------------------------------


def test_memory_is_told():
    """The page tells the memory of workers, objects and machines, and how full each place is."""
    tab = Tab(Memory).hear(busy(1))

    assert "150.0 MiB" in tab.html
    assert "30.0 MiB" in tab.html
    (store,) = tab.rows("_stores")
    assert (store["place"], store["address"], store["up"]) == ("host", "tcp://store", "yes")
    assert (store["size"], store["limit"], store["used"]) == (25 * MIB, 100 * MIB, 0.25)
    assert [(row["object"], row["size"], row["workers"]) for row in tab.rows("_largest")] == [
        ("01ff", 20 * MIB, 3), ("ab-1", 9, 0),
    ]  # fmt: skip
    # The scheduler is of a release that does not say more.
    assert {(row["maker"], row["client"]) for row in tab.rows("_largest")} == {("", "")}
    totals = tab.page._totals.source.data
    assert totals["workers_rss_bytes"] == [150 * MIB]
    assert (totals["free_bytes"], totals["memory_bytes"]) == ([250], [1000])


def test_it_is_told_when_memory_is_full():
    """Below the bar of a worker or machine that fills, if that is soon and it may be told."""

    def filling(seq, step):
        rss, free = (500 + step) * MIB, (300 - step) * MIB
        worker = {"name": "host", "rss_bytes": rss}
        return snapshot(
            seq,
            workers=[
                f.Worker(b"W1", b"S1", **worker, memory_limit_bytes=1000 * MIB),
                # What else its machine holds may grow faster, or shrink.
                f.Worker(b"W2", b"S1", **worker),
            ],
            machines=[f.Machine(b"S1", "host", memory_bytes=1000 * MIB, free_bytes=free)],
        )

    tab = Tab(Memory).hear(*(filling(seq, 10 * seq) for seq in range(1, 7)))
    workers, machines = tab.page._full_workers.root.text, tab.page._full_machines.root.text
    assert workers.count("full in") == 1
    assert "560.0 MiB of 1.0 GiB, its limit, full in 44.0s" in workers
    assert "760.0 MiB of 1.0 GiB, full in 24.0s" in machines

    # What shrinks, or would take longer than ten minutes, is no danger.
    for step in (-10, 0.01):
        tab = Tab(Memory).hear(*(filling(seq, step * seq) for seq in range(1, 7)))
        assert "full in" not in tab.html


def test_each_worker_has_a_line():
    """Each worker has a line with its name, the largest first."""
    tab = Tab(Memory).hear(busy(1), busy(2))

    lines = tab.page._workers
    data = lines._timeline.source.data
    assert (data["line0"], data["line1"]) == ([100 * MIB] * 2, [50 * MIB] * 2)
    assert all(map(isnan, data["line2"]))
    assert [item.label.value for item in lines._items if item.visible] == ["one|11", "12|host"]
    assert [name for name, _ in lines._hover.tooltips] == ["at", "one|11", "12|host"]


def test_what_nobody_measured_is_not_nought():
    """A value that nobody measured is a gap in a curve, and a dash in a table."""
    tab = Tab(Memory).hear(snapshot(1, stores=[f.Store(b"", "", 1, 10)], workers=[f.Worker(b"W")]))

    assert isnan(tab.page._totals.source.data["workers_rss_bytes"][0])
    (store,) = tab.rows("_stores")
    assert isnan(store["limit"])
    assert isnan(store["used"])


def test_what_moves_between_machines_is_told():
    """From where to where, how much, and how often it failed; a place that is gone has its id."""
    stores = [f.Store(b"", "", 1, 10), f.Store(b"M", "tcp://m", 1, 10)]
    machines = [f.Machine(b"M", "north")]
    transfers = [f.Transfer(b"", b"M", 3, 900, 1), f.Transfer(b"M", b"\x0f", 1, 5, 0)]
    tab = Tab(Memory).hear(snapshot(1, stores=stores, machines=machines, transfers=transfers))

    assert [tuple(row.values()) for row in tab.rows("_moved")] == [
        ("home", "north", 900, 3, 1), ("north", "0f", 5, 1, 0),
    ]  # fmt: skip


def owned(seq=1, name="load"):
    """Return a snapshot with objects that a client stored, and others that tasks returned."""
    return snapshot(
        seq,
        clients=[f.Client(1, name, 21), f.Client(2, "laptop", 22)],
        objects=9,
        objects_bytes=200,
        owners=[f.Owner(2, "", 3, 100), f.Owner(1, name, 2, 50), f.Owner(2, name, 1, 30),
                f.Owner(9, "price", 3, 20)],
        largest=[f.LargeObject(b"a", 60, 1, 0, 1, 2, ""), f.LargeObject(b"b", 30, 1, 0, 1, 9, name)],
    )  # fmt: skip


def test_objects_are_told_by_who_made_them():
    """By function and by client, with their share of all; each large object names both."""
    tab = Tab(Memory).hear(owned())

    rows = tab.rows("_functions")
    assert [tuple(row.values()) for row in rows] == [
        ("(stored by clients)", 3, 100, 0.5, ""),
        ("load", 3, 80, 0.4, "functions?name=load"),
        ("price", 3, 20, 0.1, "functions?name=price"),
    ]  # fmt: skip
    assert [tuple(row.values()) for row in tab.rows("_clients")] == [
        ("22|laptop", 4, 130, 0.65), ("21|load", 2, 50, 0.25), ("gone", 3, 20, 0.1),
    ]  # fmt: skip
    assert [(row["maker"], row["client"]) for row in tab.rows("_largest")] == [
        ("(stored by clients)", "22|laptop"), ("load", "gone"),
    ]  # fmt: skip


def test_makers_of_objects_are_text():
    """Whatever HTML is in the names of functions and hosts."""
    tab = Tab(Memory).hear(owned(1, EVIL))

    assert "<img" not in tab.html
    assert all("\n" not in row["maker"] for row in tab.rows("_functions"))


def test_memory_is_told_against_its_limits():
    """Workers beside their limits, machines with what objects take, the fullest first."""
    workers = [
        f.Worker(b"W%d" % n, b"S1", "host", pid=n, rss_bytes=n * MIB, memory_limit_bytes=20 * MIB)
        for n in range(1, BARS_MAX + 3)
    ]
    workers.append(f.Worker(b"W", b"S1", "host", pid=99, rss_bytes=90 * MIB))
    machine = f.Machine(b"S1", "host", memory_bytes=100 * MIB, free_bytes=25 * MIB)
    stores = [f.Store(b"S1", "tcp://x", 2, 60 * MIB, 50 * MIB)]
    tab = Tab(Memory).hear(snapshot(workers=workers, machines=[machine], stores=stores))
    full, machines = tab.page._full_workers.root.text, tab.page._full_machines.root.text

    assert full.count('class="bar"') == BARS_MAX
    assert full.index("99|host") < full.index("14|host") < full.index("4|host")
    assert ">3|host" not in full
    assert "90%: 90.0 MiB of the 100.0 MiB of its machine" in full
    assert "70%: 14.0 MiB of 20.0 MiB, its limit" in full
    assert 'aria-label="14.0 MiB resident, 6.0 MiB free"' in full
    assert f'href="workers?worker={b"W14".hex()}"' in full
    assert 'aria-label="50.0 MiB objects, 25.0 MiB others, 25.0 MiB free"' in machines
    assert "75%: 75.0 MiB of 100.0 MiB, 10.0 MiB of objects on disk" in machines


def test_a_full_store_is_marked():
    """A store is marked shortly before it is full."""
    tab = Tab(Memory).hear(snapshot(1, stores=[f.Store(b"", "", 1, 95, 100)]))

    assert 'class="bad"' in tab.html


# -- clients -----------------------------------------------------------------------------------


def test_clients_are_counted():
    """The client with most to do comes first; one inside of a task names its worker."""
    tab = Tab(Clients).hear(busy(1))

    nested, first = tab.rows()
    assert (nested["client"], nested["inside"], nested["pending"]) == ("22|host", "one|11", 40)
    assert (nested["inside_href"], first["inside_href"]) == (f"workers?worker={b'W1'.hex()}", "")
    assert (first["client"], first["inside"], first["pending"]) == ("21|host", "", 4)
    counted = [first[name] for name in ("submitted", "done", "failed", "cancelled")]
    assert counted == [10, 4, 1, 1]
    assert [first[name] for name in ("graphs", "functions", "objects", "silent")] == [2, 3, 4, 1.5]
    assert "6 of 10 ended" in tab.html


def test_clients_have_what_they_stored():
    """By themselves, or by their tasks, as long as it is there."""
    tab = Tab(Clients).hear(owned())

    assert [(row["client"], row["stored"]) for row in tab.rows()] == [
        ("21|load", 50), ("22|laptop", 130),
    ]  # fmt: skip


def test_clients_that_left_are_told():
    """Clients that left are listed, the last one first, with where those of tasks were."""
    came = f.ClientJoined(1.0, 5, "a", 1, b"W1")
    left = f.ClientLeft(2.0, 5, "a", 1)
    tab = Tab(Clients).hear(busy(1), batch(1, came, left))

    assert [(row["what"], row["client"], row["inside"]) for row in tab.rows("_moves")] == [
        ("left", "1|a", "one|11"), ("came", "1|a", "one|11"),
    ]  # fmt: skip


# -- machines ----------------------------------------------------------------------------------


def test_machines_are_rows():
    """The row of a machine has what its workers do, and what is left of its resources."""
    tab = Tab(Machines).hear(busy(1))

    (row,) = tab.rows()
    counted = ("name", "workers", "wanted", "spares", "restarts", "busy", "idle", "queued")
    assert [row[name] for name in counted] == ["host", 2, 3, 1, 7, 1, 1, 2]
    assert row["href"] == "workers?search=host"
    assert [row[name] for name in ("cpus", "cpu", "memory", "free", "used")] == [
        4, 0.25, 1000, 250, 0.75,
    ]  # fmt: skip
    assert [row[name] for name in ("agent_cpu", "agent_rss", "lag", "silent")] == [
        0.1, 5 * MIB, 2.0, 1.5,
    ]  # fmt: skip
    assert tab.page._cpu._timeline.source.data["line0"] == [1.0]
    assert tab.page._free._timeline.source.data["line0"] == [250]


def test_a_machine_that_told_nothing_yet_has_dashes():
    """A machine that has told nothing yet is shown with dashes, not with noughts."""
    (row,) = Tab(Machines).hear(snapshot(1, machines=[f.Machine(b"S1", "a")])).rows()

    assert all(isnan(row[name]) for name in ("cpu", "memory", "free", "used", "agent_cpu", "lag"))


def many_machines(seq, count, cpu=1.0):
    """Return a snapshot with so many machines, each busier than the one before."""
    return snapshot(
        seq,
        machines=[
            f.Machine(b"S%d" % n, f"m{n}", cpus=64, cpu=cpu * n, free_bytes=1000 - n)
            for n in range(1, count + 1)
        ],
    )


def test_many_machines_are_a_band():
    """From the least to the most of them, whose names are told, with the median between."""
    tab = Tab(Machines).hear(many_machines(1, 9), many_machines(5, 9, 2.0))
    figure = tab.page._cpu
    data = figure._timeline.source.data

    assert [data[name] for name in ("least", "median", "most")] == [[1, 2], [5, 10], [9, 18]]
    assert (data["least_of"], data["most_of"]) == (["m1"] * 2, ["m9"] * 2)
    assert all(map(isnan, data["line0"]))
    assert [item.label.value for item in figure._items if item.visible] == [
        "median", "least to most",
    ]  # fmt: skip
    assert [name for name, _ in figure._hover.tooltips] == ["at", "most", "median", "least"]
    free = tab.page._free._timeline.source.data
    assert (free["least"], free["least_of"]) == ([991] * 2, ["m9"] * 2)


def test_a_few_machines_have_a_curve_each():
    """Each has its name in the legend; the fifth makes a band of them, from the beginning on."""
    tab = Tab(Machines).hear(many_machines(1, 4))
    figure = tab.page._cpu

    def shown():
        return [item.label.value for item in figure._items if item.visible]

    assert shown() == ["m1", "m2", "m3", "m4"]
    assert [figure._timeline.source.data[f"line{n}"] for n in range(4)] == [[1], [2], [3], [4]]
    assert isnan(figure._timeline.source.data["median"][0])

    tab.hear(many_machines(5, 5))
    assert shown() == ["median", "least to most"]
    assert figure._timeline.source.data["median"] == [2.5, 3.0]

    tab.hear(many_machines(9, 2))
    assert shown() == ["m1", "m2"]
    assert figure._timeline.source.data["line1"] == [2, 2, 2]


def test_a_band_leaves_out_what_nobody_measured():
    """Machines that have told nothing count neither as least nor as most."""
    silent = [f.Machine(b"T%d" % n, f"t{n}") for n in range(5)]
    tab = Tab(Machines).hear(snapshot(1, machines=silent))
    assert isnan(tab.page._cpu._timeline.source.data["most"][0])

    told = many_machines(5, 1)
    told.machines += silent
    tab.hear(told)
    data = tab.page._cpu._timeline.source.data
    assert [data[name][1] for name in ("least", "median", "most", "most_of")] == [1, 1, 1, "m1"]


def test_managers_are_rows():
    """The row of a manager has its workers, its units, what they cost, and what went wrong."""
    first, second = Tab(Machines).hear(busy(1)).rows("_managers")

    assert list(first.values()) == [
        "host", "slurm", 9, 7, 20, 3, 2, 1, 4, 1.5, 61, "no room for host",
    ]  # fmt: skip
    assert isnan(second["most"])


def test_without_managers_there_is_no_table_of_them():
    """It comes with the first manager, and goes with the last one."""
    tab = Tab(Machines)
    shown = [
        tab.hear(one).page._managed.visible for one in (snapshot(1), busy(2), snapshot(3), busy(4))
    ]

    assert shown == [False, True, False, True]


def test_what_a_manager_costs_is_sent_when_it_is_seen_to_change():
    """A tenth of a second more of idling or a second more of a unit is not sent."""
    tab = Tab(Machines).hear(busy(1))
    (first, second) = tab.model.snapshot.managers
    with tab.nothing_sent():
        first.unit_s += 1.0
        first.idle_s += 0.1
        tab.page.update(tab.model)
    second.failed += 1
    tab.page.update(tab.model)

    assert [row["failed"] for row in tab.rows("_managers")] == [4, 1]


def test_messages_of_the_scheduler_are_counted():
    """Messages are counted by kind, the most common first, with their number per second."""
    tab = Tab(Machines).hear(
        snapshot(1, sent={"Assign": 10}), snapshot(2, sent={"Assign": 14}, received={"Done": 50})
    )

    rows = tab.rows("_messages")
    assert [(row["way"], row["kind"], row["count"], row["per_s"]) for row in rows] == [
        ("received", "Done", 50, 50.0), ("sent", "Assign", 14, 4.0),
    ]  # fmt: skip


def test_the_scheduler_is_described():
    """The page says where the scheduler runs, its version, and what it takes."""
    html = Tab(Machines).hear(busy(1)).html

    assert all(text in html for text in ("process 7", "1.2", "Python 3.11", "25.0%", "8.0 MiB"))


# -- timelines and bars ------------------------------------------------------------------------


def test_each_point_is_sent_once():
    """A new point is added to a curve, and points that left the window go."""
    timeline = Timeline(["done"], 2.0)
    sent: list[object] = []
    model = Model()
    document = Document()
    document.add_root(timeline.source)
    document.on_change(sent.append)
    for seq in range(1, 6):
        model.apply(snapshot(seq), 0.0)
        timeline.update(model, model.history, lambda one: [one.clock])

    assert timeline.source.data["done"] == [3.0, 4.0, 5.0]
    assert [type(one).__name__ for one in sent][1:] == ["ColumnsStreamedEvent"] * 4


def test_lines_keep_their_places():
    """A worker takes the smallest one's line only if it is much larger."""
    before = [b"a", b"b"]

    def after(**sizes):
        return places_of(
            before, {key.encode(): size for key, size in sizes.items()}, lambda _: True
        )

    assert after(a=1.0, b=2.0, c=1.1) == [b"a", b"b"]
    assert after(a=1.0, b=2.0, c=1.5) == [b"c", b"b"]
    assert after(a=nan, b=2.0, c=1.5) == [b"c", b"b"]


def test_lines_of_the_gone_stay_until_their_place_is_needed():
    """The line of a lost worker stays until it leaves the window or its place is needed."""
    sizes = {b"b": 2.0}
    assert places_of([b"a", b"b"], sizes, lambda _: True) == [b"a", b"b"]
    assert places_of([b"a", b"b"], sizes, lambda _: False) == [None, b"b"]
    assert places_of([b"a", b"b"], sizes | {b"c": 0.1}, lambda _: True) == [b"c", b"b"]


def test_the_largest_get_the_lines():
    """Where there are more workers than lines, the largest ones get them."""
    sizes = {b"%d" % n: float(n) for n in range(100)}
    places = places_of([None] * LINES, sizes, lambda _: False)

    assert set(places) == {b"%d" % n for n in range(100 - LINES, 100)}


def test_bars_say_what_they_show():
    """A bar says in words what it shows, and leaves out parts that are empty."""
    bars = Bars(("done", "failed", "left"), LIGHT)
    assert not bars.root.visible
    bars.update([Bar("<b>", {"done": 1500, "failed": 0, "left": 1}, "note")])

    assert bars.root.visible
    assert 'aria-label="1,500 done, 1 left"' in bars.root.text
    assert "&lt;b&gt;" in bars.root.text
    assert bars.root.text.count("flex-grow") == 2
