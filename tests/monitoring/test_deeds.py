"""What operators may do to what a page shows, and what the dashboard makes of a request for it."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

import pytest
from bokeh.models.widgets.markups import Div

from scaler_cluster.errors import ClusterUnreachableError, OperationRefusedError
from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard import deeds
from scaler_monitoring.dashboard.acting import WAITING_MAX, Acting, Asked, asked_in
from scaler_monitoring.dashboard.pages import PAGES
from scaler_monitoring.dashboard.pages.clients import Clients
from scaler_monitoring.dashboard.pages.functions import Functions
from scaler_monitoring.dashboard.pages.graphs import Graphs
from scaler_monitoring.dashboard.pages.machines import Machines
from scaler_monitoring.dashboard.pages.tasks import Tasks
from scaler_monitoring.dashboard.pages.workers import Workers
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.theme import LIGHT
from tests.monitoring.feeds import fed

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.deeds import Deed

EVIL = '"><img src=x onerror=alert(1)>'
EPOCH = 7 << 24
"""What a later scheduler adds to the numbers of its sessions."""


def snapshot(**fields):
    """Return a cluster of two machines, with names that say nothing or too much."""
    whole = {
        "workers": [
            f.Worker(b"W1", b"S1", "one", "red", 11, is_paused=True),
            f.Worker(b"W2", b"S1", "one", "same", 12),
            f.Worker(b"W3", b"S2", "two", "same", 13),
        ],
        "machines": [f.Machine(b"S1", "one"), f.Machine(b"S2", "two"), f.Machine(b"S3", "two")],
        "clients": [f.Client(EPOCH + 3, "home", 21), f.Client(4, "home", 22)],
        "functions": [f.Function("train", 3)],
        "graphs": [f.Graph(3, 64, "train", 2)],
    }
    return f.Snapshot("run", 1, 1.0, 1.0, 1.0, **whole | fields)


def names(found: list[Deed]) -> dict[str, str]:
    """Return by which name each button acts."""
    return {one.word: one.name for one in found}


def test_workers_are_named_so_that_only_one_is_meant():
    """By a name that no other worker has, or else by the id."""
    model = fed(snapshot())
    red, same, _ = model.snapshot.workers

    assert names(deeds.of_worker(model, red)) == dict.fromkeys(
        ("Resume", "Drain", "Restart", "Restart by force"), "red"
    )
    assert names(deeds.of_worker(model, same)) == dict.fromkeys(
        ("Pause", "Drain", "Restart", "Restart by force"), b"W2".hex()
    )
    assert [one.is_forced for one in deeds.of_worker(model, red)] == [False, False, False, True]


def test_machines_are_named_so_that_only_one_is_meant():
    """By their host, or else by the id."""
    model = fed(snapshot())
    one, two, _ = model.snapshot.machines

    words = ("Pause", "Resume", "Drain", "Restart")
    assert names(deeds.of_machine(model, one)) == dict.fromkeys(words, "one")
    assert names(deeds.of_machine(model, two)) == dict.fromkeys(words, b"S2".hex())


def test_clients_are_named_so_that_only_one_is_meant():
    """As pages call them, unless another client is called the same."""
    model = fed(snapshot())
    client = model.snapshot.clients[0]
    graph = f.Graph(EPOCH + 3, 64, "train")

    assert [one.name for one in deeds.of_client(model, client)] == ["3"]
    assert [one.name for one in deeds.of_graph(model, graph)] == ["3:64"]
    assert [one.name for one in deeds.of_task(model, "3:17")] == ["3:17"]
    assert [one.name for one in deeds.of_task(model, "3:call 2, item 5")] == [f"3:{(2 << 40) + 5}"]
    assert deeds.of_task(model, "nonsense") == []

    model = fed(snapshot(clients=[client, f.Client(3, "home", 23)]))

    assert [one.name for one in deeds.of_client(model, client)] == [str(EPOCH + 3)]
    assert [one.name for one in deeds.of_graph(model, graph)] == [f"{EPOCH + 3}:64"]
    # Nobody knows whose it is.
    assert deeds.of_task(model, "3:17") == []


def test_functions_without_a_name_have_no_button():
    """The scheduler finds none by no name."""
    assert names(deeds.of_function("train")) == {"Cancel all its tasks": "train"}
    assert deeds.of_function("") == []


def test_what_users_named_is_text():
    """Nothing gets out of the attribute that it stands in."""
    (deed,) = deeds.of_function(EVIL)

    assert "<img" not in deed.html
    assert f'data-name="{EVIL}"' in unescape(deed.html)


OPEN = {"worker": b"W1".hex(), "name": "train", "task": "3:17", "failure": "x", "graph": "3:64"}
"""Something to be open on each page that opens anything."""


def shown(kind, *, may_act: bool, chosen: str = "") -> str:
    """Return all HTML of a page that shows the cluster."""
    watch = Watch("by hand")
    watch.model.apply(snapshot(), 0.0)
    view = View(watch, LIGHT, Settings(), links(""), 1000, may_act=may_act)
    view.address.set(is_step=False, **OPEN)
    page = kind(view)
    page.update(watch.model)
    page.restore()
    if chosen:
        page._table.source.tags = [*page._table.source.tags[:3], chosen]
    return "\n".join(one.text for one in page.root.select({"type": Div}))


@pytest.mark.parametrize("kind", PAGES)
def test_who_only_looks_sees_no_button(kind):
    """Whatever is open."""
    html = shown(kind, may_act=False)

    assert 'class="deed"' not in html
    assert "to act on it" not in html


def test_operators_see_buttons():
    """Of what has a page of its own."""
    for kind, name in ((Workers, "red"), (Functions, "train"), (Tasks, "3:17"), (Graphs, "3:64")):
        assert f'data-name="{name}"' in shown(kind, may_act=True)


def test_operators_see_buttons_of_a_row_that_is_chosen():
    """Of what has no page; nobody else does, whatever a tab says was chosen."""
    for kind, chosen, name in (
        (Clients, str(EPOCH + 3), "3"), (Machines, b"S1".hex(), "one")
    ):  # fmt: skip
        assert "to act on it" in shown(kind, may_act=True)
        assert f'data-name="{name}"' in shown(kind, may_act=True, chosen=chosen)
        assert 'class="deed"' not in shown(kind, may_act=True, chosen="gone")
        assert 'class="deed"' not in shown(kind, may_act=False, chosen=chosen)


def body(**changes):
    whole = {"action": "pause", "kind": "worker", "name": "red", "force": False, "trial": True}
    return json.dumps(whole | changes).encode()


def test_a_request_says_what_is_to_be_done():
    """All of it, and nothing else."""
    assert asked_in(body()) == Asked("pause", "worker", "red", is_forced=False, is_trial=True)
    forced = asked_in(body(action="restart", force=True, trial=False))
    assert forced == Asked("restart", "worker", "red", is_forced=True, is_trial=False)


@pytest.mark.parametrize(
    "wrong",
    [b"", b"{", b"[]", b"null", b"\xff", b"{}", body(more=1), body(name=""), body(name=7),
     body(action="close"), body(action=["pause"]), body(kind="function"), body(action="cancel"),
     body(kind="__class__"), body(force=True), body(trial=1), body(force="false")],
)  # fmt: skip
def test_what_cannot_be_done_is_not_asked_for(wrong):
    """Whoever sends it."""
    assert asked_in(wrong) is None


class Held(Acting):
    """Threads wait until they are let go."""

    def __init__(self, watch, error=None):
        super().__init__(watch, "a.key")
        self.go = threading.Event()
        self.asked: list[tuple[str, Asked]] = []
        self._error = error

    def _ask(self, address, asked):
        self.asked.append((address, asked))
        self.go.wait(30)
        if self._error is not None:
            raise self._error
        return "1 worker"


PAUSE = Asked("pause", "worker", "red", is_forced=False, is_trial=False)


def watching(address: str = "tcp://0.0.0.0:8516") -> Watch:
    """Return what has heard a scheduler at this address."""
    watch = Watch("tcp://head:8518")
    watch.model.apply(snapshot(scheduler=f.Process(address=address)), 0.0)
    return watch


def test_a_scheduler_that_does_not_answer_holds_up_few():
    """Others are told so at once, and what was begun goes on."""

    async def play():
        acting = Held(watching())
        begun = [asyncio.ensure_future(acting.act(PAUSE)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(OperationRefusedError, match="try again"):
            await acting.act(PAUSE)
        acting.go.set()
        assert await asyncio.gather(*begun) == ["1 worker"] * WAITING_MAX
        assert await acting.act(PAUSE) == "1 worker"
        acting.close()
        return acting.asked

    # It listens everywhere: where it is heard.
    assert set(asyncio.run(play())) == {("tcp://head:8516", PAUSE)}


def test_nobody_acts_before_a_scheduler_is_heard():
    """Nobody knows where it is."""
    acting = Held(Watch("tcp://head:8518"))
    with pytest.raises(OperationRefusedError, match="no scheduler was heard yet"):
        asyncio.run(acting.act(PAUSE))
    assert acting.asked == []


@pytest.mark.parametrize("is_trial", [True, False])
def test_a_deed_without_an_answer_may_have_been_done(is_trial):
    """That is said, unless it was a trial."""
    acting = Held(watching(), ClusterUnreachableError("nobody answered"))
    acting.go.set()
    with pytest.raises(ClusterUnreachableError) as told:
        asyncio.run(acting.act(replace(PAUSE, is_trial=is_trial)))
    more = "" if is_trial else "; it may have been done all the same"
    assert str(told.value) == f"nobody answered{more}"
    acting.close()
