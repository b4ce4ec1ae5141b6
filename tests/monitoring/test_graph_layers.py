"""Layers of graphs: what waits for what in words, the plan of their picture, page and screen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.wire import feed as f
from scaler_monitoring import layer_figure
from scaler_monitoring.dashboard.links import graph_url
from scaler_monitoring.dashboard.pages import graphs
from scaler_monitoring.dashboard.pages.graphs import Graphs
from scaler_monitoring.layers import layers_of, plan, progress, state_of, told, waits_for
from tests.monitoring.test_dashboard_pages_cluster import EVIL, Tab, batch, busy, snapshot
from tests.monitoring.test_view import a_model, a_snapshot, page

ROWS = [
    f.Layer(1, 64, "load", 0, 0, 2, 10, busy_s=3.0),
    f.Layer(1, 64, "mean_chunk", 24, 2, 4, 6),
    f.Layer(1, 64, "sum", 3),
    f.Layer(1, 64, "idle", 0, 5),
    f.Layer(1, 64, "bad", 0, 0, 0, 1, 1),
]
LINKS = [
    f.LayerLink(1, 64, "load", "mean_chunk"), f.LayerLink(1, 64, "mean_chunk", "sum"),
    f.LayerLink(1, 64, "idle", "sum"), f.LayerLink(1, 64, "bad", "sum"),
    f.LayerLink(1, 64, "nowhere", "sum"), f.LayerLink(7, 7, "load", "sum"),
]  # fmt: skip


def seen(seq=1, layers=ROWS, links=LINKS):
    """Return a snapshot with one graph and its layers."""
    made = busy(seq)
    made.layers, made.links = list(layers), list(links)
    return made


def test_what_a_layer_waits_for_in_words():
    """Of layers that it depends on only those are named that have not ended."""
    (layers,) = layers_of(seen()).values()
    assert layers.links == [(one.source, one.target) for one in LINKS[:4]]
    assert {name: waits_for(layers, name) for name in layers.rows} == {
        "load": "runs",
        "mean_chunk": "waits for 2 of load",
        "sum": "waits for 30 of mean_chunk, 5 of idle",
        "idle": "waits for a worker",
        "bad": "",
    }
    assert [progress(row) for row in ROWS] == ["10/12", "6/36", "0/3", "0/5", "2/2"]
    states = ["assigned", "assigned", "waiting", "ready", "failed"]
    assert [state_of(row) for row in ROWS] == states
    assert state_of(f.Layer(done=1)) == "done"
    assert state_of(f.Layer(cancelled=1)) == "cancelled"


def test_a_sentence_names_few_layers():
    """The others are a number. What waits for nodes of its own name says so."""
    rows = [*(f.Layer(1, 1, f"n{n}", 0, 1) for n in range(5)), f.Layer(1, 1, "last", 2)]
    links = [f.LayerLink(1, 1, f"n{n}", "last") for n in range(5)]
    (layers,) = layers_of(f.Snapshot(layers=rows, links=links)).values()
    assert waits_for(layers, "last") == "waits for 1 of n0, 1 of n1, 1 of n2, 2 more"
    (alone,) = layers_of(f.Snapshot(layers=[f.Layer(1, 1, "tree", 3, 0, 1)])).values()
    assert waits_for(alone, "tree") == "waits for nodes of its own"


def test_a_plan_goes_from_left_to_right():
    """Each layer is right of what it depends on; the longest path leads to the last column."""
    made = plan("abcde", [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c"), ("e", "d"), ("a", "e")])
    assert made.places == {"a": (0, 0), "b": (1, 0), "c": (3, 0), "d": (2, 0), "e": (1, 1)}
    assert made.longest == ("a", "e", "d", "c")
    assert plan([], []).longest == ()


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))
        )
    )
)
def test_any_links_can_be_planned(drawn):
    """Circles as well, as names may have; without them every link leads to the right."""
    count, links = drawn
    names = [str(n) for n in range(count)]
    made = plan(names, [(str(a), str(b)) for a, b in links])
    assert made.places.keys() == set(names)
    assert len(set(made.places.values())) == count
    columns = {name: column for name, (column, _) in made.places.items()}
    assert len(made.longest) == max(columns.values()) + 1
    assert [columns[name] for name in made.longest] == list(range(len(made.longest)))
    forward = [(a, b) for a, b in links if a < b]
    for a, b in forward:
        placed = plan(names, [(str(one), str(other)) for one, other in forward]).places
        assert placed[str(a)][0] < placed[str(b)][0]


def test_the_page_shows_the_layers_of_a_graph():
    """Bars with numbers, what each waits for, a picture; the graph and the functions are links."""
    tab = Tab(Graphs).hear(seen())
    tab.page.view.address.set(is_step=False, graph="1:64")
    tab.page.restore()
    for text in ("mean_chunk 6/36", "waits for 2 of load", "functions?name=mean_chunk"):
        assert text in tab.html
    assert graph_url("1:64") == "graphs?graph=1:64"
    assert graph_url("1:64") in tab.html
    picture = tab.page._one._picture
    boxes = picture.boxes.data
    assert boxes["name"] == [row.name for row in ROWS]
    assert boxes["x"] == [0, 1, 2, 0, 0]
    assert boxes["says"][:2] == ["10/12 running", "6/36 running"]
    assert boxes["width"] == [4, 4, 4, 1.5, 1.5]
    assert picture.links.data["width"] == [3, 3, 1, 1]


def test_layers_of_a_graph_that_is_over():
    """They stay as they were seen last, and are done if all nodes are."""
    for done, wanted in ((10, "mean_chunk 36/36"), (9, "mean_chunk 6/36")):
        tab = Tab(Graphs).hear(seen())
        tab.page.view.address.set(is_step=False, graph="1:64")
        tab.page.restore()
        tab.hear(batch(1, f.GraphOver(2.0, 1, 64, "host", 10, done)))
        assert wanted in tab.html


def test_a_graph_that_ended_before_has_no_empty_figure():
    """A page that was opened later has not seen its curve, nor its layers."""
    tab = Tab(Graphs).hear(batch(1, f.GraphOver(2.0, 1, 64, "host", 10, 10)), snapshot(2))
    tab.page.view.address.set(is_step=False, graph="1:64")
    tab.page.restore()

    alone = tab.page._one
    assert alone.root.visible
    assert {alone._curve, alone._parts}.isdisjoint(alone.root.children)


def test_layers_that_are_shown_are_few(monkeypatch):
    """A graph may have 255 of them; the page says how many more there are. No name is a tag."""
    monkeypatch.setattr(graphs, "LAYERS_MAX", 2)
    monkeypatch.setattr(layer_figure, "DRAWN_MAX", 3)
    rows = [f.Layer(1, 64, f"{EVIL}{n}", 1) for n in range(9)]
    tab = Tab(Graphs).hear(seen(layers=rows))
    tab.page.view.address.set(is_step=False, graph="1:64")
    tab.page.restore()
    assert "7 more layers are not shown." in tab.html
    assert len(tab.page._one._picture.boxes.data["x"]) == 3
    assert "<img" not in tab.html


def test_a_graph_without_layers_has_no_panel():
    """An older scheduler tells of none."""
    tab = Tab(Graphs).hear(seen(layers=(), links=()))
    tab.page.view.address.set(is_step=False, graph="1:64")
    tab.page.restore()
    assert tab.page._one._parts not in tab.page._one.root.children


def test_the_screen_tells_of_what_has_not_ended():
    """As many as there is room for."""
    assert told(seen(), 2) == [
        ("load", "10/12", "runs"), ("mean_chunk", "6/36", "waits for 2 of load"),
    ]  # fmt: skip
    assert [name for name, *_ in told(seen(), 99)] == ["load", "mean_chunk", "sum", "idle"]


@pytest.mark.parametrize(("width", "height"), [(170, 45), (120, 45), (170, None)])
def test_scaler_top_shows_layers_if_there_is_room(width, height):
    """A page has as many lines as the terminal; a low one has room for what matters more."""
    shown = a_snapshot(layers=ROWS, links=LINKS)
    lines = page(a_model(shown), width, height)
    assert any("mean_chunk" in line and "6/36" in line and "waits for" in line for line in lines)
    if height is not None:
        assert len(lines) <= height
    low = page(a_model(shown), width, 24)
    assert len(low) <= 24
    assert not any("mean_chunk" in line for line in low)
    assert not any("layer" in line for line in page(a_model(), width, height))
