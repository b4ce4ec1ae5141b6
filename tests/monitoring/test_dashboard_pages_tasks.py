"""What the pages of work show of what is known: the overview, the stream, tasks and workers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
from bokeh.document import Document
from bokeh.models.widgets.inputs import TextInput
from bokeh.models.widgets.markups import Div

from scaler_cluster.wire import feed as f
from scaler_monitoring import model as model_module
from scaler_monitoring.activity import Activity
from scaler_monitoring.dashboard.address import Address
from scaler_monitoring.dashboard.bars import BARS_MAX
from scaler_monitoring.dashboard.html import many, printed
from scaler_monitoring.dashboard.pages.functions import Functions
from scaler_monitoring.dashboard.pages.overview import Overview
from scaler_monitoring.dashboard.pages.stream import Stream
from scaler_monitoring.dashboard.pages.tasks import Tasks
from scaler_monitoring.dashboard.pages.workers import Workers
from scaler_monitoring.dashboard.parts import ROWS_SENT
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.status import Status
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.model import Model
from scaler_monitoring.theme import DARK

EVIL = "<img src=x onerror=alert(1)>"
ESCAPED = "&lt;img src=x onerror=alert(1)&gt;"
NO_FAILURE = "No failure was heard of in the last half hour."
NO_DEATH = "No death was heard of in the last half hour."
W1, W2 = b"W1", b"W2"
PAGES = (Overview, Stream, Functions, Tasks, Workers)


class Seen(Watch):
    """Knows what it was told."""

    now = 100.0

    def __init__(self, model):
        super().__init__("by hand")
        self.model = model
        self.activity = model.activity


def workers(count=2, **fields):
    return [
        f.Worker(b"W%d" % (n + 1), b"M", "host", pid=n + 1, **fields) for n in range(count)
    ]  # fmt: skip


class Told(Model):
    """A model with what follows it, as a watch has both."""

    def __init__(self):
        self.activity = Activity()
        super().__init__(follower=self.activity)


def known(*events, clock=100.0, seq=1, batch=None, model=None, **fields):
    """Return a model that has heard a snapshot, then these events."""
    model = model or Told()
    fields = {"workers": workers()} | fields
    model.apply(f.Snapshot("run", seq, clock=clock, time=1000.0 + clock, interval_s=1.0, **fields),
                clock)  # fmt: skip
    if events:
        model.apply(f.Events("run", batch or seq, clock, {}, list(events)), clock)
    return model


def opened(kind, model, *, rows_max=50_000, address=None, **settings):
    """Return a page in a document, that shows this."""
    view = View(Seen(model), DARK, Settings(**settings), links(""), rows_max, address or Address())
    page = kind(view)
    Document().add_root(page.root)
    page.update(model)
    return page


def choose(table, row):
    """Choose a row as the browser does."""
    table.source.tags = [*table.source.tags[:3], table.source.data["key"][row]]


def html(page):
    """Return all HTML that a page shows."""
    return "\n".join(one.text for one in page.root.select({"type": Div}) if one.visible)


def search(page, wanted):
    """Type into the only text field of a page."""
    page.root.select_one({"type": TextInput}).value_input = wanted


@contextmanager
def nothing_sent(page):
    """What a page does within sends nothing to the browser."""
    events: list[object] = []
    page.root.document.on_change(events.append)
    yield
    assert events == []


def done(first, *, at=99.0, worker=W1, function="price", count=1, busy_s=0.5):
    return f.Done(at, worker, 1, first, count, function, busy_s)


def failed(first, *, function="load", error="KeyError", message="USD", at=99.5, worker=W1):
    return f.Failed(at, worker, 1, first, 1, function, 0.25, 1, "exception", error, message,
                    f"Traceback of {first}\n{error}: {message}")  # fmt: skip


# -- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        (Overview, [NO_FAILURE, NO_DEATH, "No function has been called yet."]),
        (Stream, ["No worker was busy in this time."]),
        (Functions, ["No function has been called yet."]),
        (Tasks, ["No task has ended yet.", NO_FAILURE]),
        (Workers, ["1 worker.", NO_DEATH]),
    ],
)
def test_a_cluster_that_has_done_nothing_is_shown(kind, sentences):
    """Each page of a cluster in which nothing has run says so where a table would be empty."""
    page = opened(kind, known(workers=workers(1)))

    assert [one for one in sentences if f"{one}</p>" not in html(page)] == []


@pytest.mark.parametrize("kind", PAGES)
def test_what_did_not_change_is_not_sent(kind):
    """A second update from the same model changes no property of the document."""
    death = f.WorkerDied(99.0, W2, pid=2, host="host", signal=9)
    model = known(done(1), failed(2), death, functions=[f.Function("price", 1, 1)])
    page = opened(kind, model)

    with nothing_sent(page):
        page.update(model)


@pytest.mark.parametrize("kind", PAGES)
def test_names_of_users_are_text(kind):
    """Markup in a user's name or message is escaped wherever HTML is made."""
    hostile = workers(1, function=EVIL, tasks=1, rss_bytes=9, name=EVIL, capabilities={EVIL: -1})
    death = f.WorkerDied(99.0, W2, pid=2, name=EVIL, session=1, function=EVIL, reason=EVIL,
                         stderr_tail=EVIL)  # fmt: skip
    fails = failed(2, function=EVIL, error=EVIL, message=EVIL)
    model = known(
        done(1, function=EVIL), fails, death, workers=hostile,
        functions=[f.Function(EVIL, 3, 1)], demands=[f.Demand(EVIL, 2, 5.0)],
        refused=EVIL,
    )  # fmt: skip
    page = opened(kind, model)
    if isinstance(page, Tasks):
        choose(page._table, 0)
    if isinstance(page, Workers):
        choose(page._deaths, 0)
    if isinstance(page, Functions):
        choose(page._table, 0)

    assert "<img" not in html(page)
    assert ESCAPED in html(page)


@pytest.mark.parametrize("kind", PAGES)
def test_another_scheduler_leaves_what_was_shown(kind):
    """A page that hears another scheduler goes on showing what was told by the one before."""
    death = f.WorkerDied(99.0, W2, pid=2, host="host", signal=9)
    model = known(done(1, function="before"), failed(2, function="before"), death)
    page = opened(kind, model)
    model.apply(f.Snapshot("other", 1, clock=5.0, time=2000.0, workers=workers(1)), 105.0)
    page.update(model)

    if isinstance(page, Overview):
        assert "the scheduler was started again" in html(page)
        assert "KeyError: USD" in html(page)
    if isinstance(page, Tasks):
        assert len(page._table.source.data["key"]) == 2
        assert len(page._failures.source.data["key"]) == 1
    if isinstance(page, Workers):
        assert len(page._deaths.source.data["key"]) == 1
    if isinstance(page, Stream):
        assert {"before"} == {
            *page._figure.past.data["function"],
            *page._figure.now.data["function"],
        }


# -- overview ----------------------------------------------------------------------------------


def test_the_overview_counts_as_the_scheduler_does():
    """Tiles have the totals of the snapshot."""
    tasks = f.Tasks(waiting=1, ready=2, assigned=3, running=4, done=12345, failed=6, cancelled=7)
    text = html(opened(Overview, known(tasks=tasks, objects=3, objects_bytes=2048)))

    for name, value in (
        ("Done", "12,345"), ("Failed", "6"), ("Cancelled", "7"), ("Running", "4"),
        ("Assigned", "3"), ("Ready", "2"), ("Waiting", "1"), ("Large objects", "2.0 KiB"),
    ):  # fmt: skip
        assert f"<dt>{name}</dt>" in text
        assert f">{value} " in text.split(f"<dt>{name}</dt>")[1][:60]


def test_each_function_has_a_bar_and_counts():
    """The most active functions have bars and counts, and the others are counted."""
    functions = [
        f.Function(f"f{n}", 10, 6, 1, 1, busy_s=7.0 * n, mean_s=0.25) for n in range(BARS_MAX + 3)
    ]
    text = html(opened(Overview, known(functions=functions)))

    assert text.count('class="bar"') == BARS_MAX
    assert f"{BARS_MAX + 3} functions in all" in text
    assert "6 of 10 done" in text
    assert "1 failed" in text
    assert "2 pending" in text
    # Not what the latest took, by which the scheduler judges: these are long at the end of a map.
    assert "3.0s each" in text
    assert "250ms" not in text
    assert "f0<" not in text


def test_a_function_that_had_tasks_lately_comes_first():
    """A function that had tasks lately comes first for a minute."""
    model = known(functions=[f.Function("old", 9, 9, busy_s=99.0), f.Function("new", 1)])
    page = opened(Overview, model)
    text = html(page)
    over = [f.Function("old", 9, 9, busy_s=99.0), f.Function("new", 1, 1, busy_s=1.0)]
    known(model=model, seq=2, clock=130.0, functions=over)
    page.update(model)
    then = html(page)
    known(model=model, seq=3, clock=200.0, functions=over)
    page.update(model)

    assert text.index(">new<") < text.index(">old<")
    assert then.index(">new<") < then.index(">old<")
    assert html(page).index(">new<") > html(page).index(">old<")


@pytest.mark.parametrize(
    ("now", "said"),
    [(100.0, "<b>Connected</b> to by hand"), (900.0, "by hand was heard 13m20s ago")],
)
def test_the_line_above_says_how_it_is(now, said):
    """The status line says whether the scheduler is heard, and what is wrong."""
    model = known(
        demands=[f.Demand(EVIL, 2, 65.0), f.Demand("cpu", 3)],
        machines=[f.Machine(b"M", EVIL, silent_s=9.0)],
    )
    seen = Seen(model)
    seen.now = now
    status = Status(View(seen, DARK, Settings(), links(""), 1000))
    status.update()

    assert said in status.root.text
    if now == 100.0:
        tasks = f"2 tasks wait for a worker with {ESCAPED}: there has been none for 1m05s"
        assert f'<p class="bad" role="status"><b>Alarm</b>: {tasks}</p>' in status.root.text
        assert f"the machine {ESCAPED} was heard 9.0s ago" in status.root.text
    assert EVIL not in status.root.text
    assert "with cpu" not in status.root.text


def test_failures_are_grouped():
    """Failures are grouped by function and exception, with their number and last message."""
    events = [failed(n, error=f"E{n % 7}", message=f"m{n}") for n in range(21)]
    text = html(opened(Overview, known(*events)))

    assert "E6: m20" in text
    assert "E6: m13" not in text
    assert "7 in all." in text


def test_who_holds_the_memory_is_said():
    """The overview names the largest worker, with its share of the limit, and object."""
    fields = {"rss_bytes": 3 * 2**20, "memory_limit_bytes": 4 * 2**20}
    held = workers(2, tasks=1, function="price", **fields)
    largest = [f.LargeObject(b"\x01\x02", 2**30, 2, 3, 1, 7, "load")]
    text = html(opened(Overview, known(workers=held, largest=largest)))

    assert "3.0 MiB" in text
    assert "75% of its limit" in text
    assert "object 0102" in text
    assert "load for gone, 2 users, mapped by 3 workers" in text
    assert 'runs <a href="functions?name=price">' in text
    assert "1.0 GiB" in text


def test_curves_have_a_point_for_each_snapshot():
    """Each snapshot adds a point to the curves, and points older than the window go."""
    model = known()
    page = opened(Overview, model, window="60")
    data = page._timeline.source.data
    for seq in range(2, 102):
        known(model=model, seq=seq, clock=99.0 + seq)
        page.update(model)

    assert len(data["time"]) == 61


# -- tasks -------------------------------------------------------------------------------------


def test_the_last_tasks_are_listed():
    """The last tasks are listed, the newest first, with their numbers in the whole cluster."""
    page = opened(Tasks, known(done(1, count=4, busy_s=2.0), failed(9)))
    data = page._table.source.data

    assert data["task"] == ["1:9", "1:1-4"]
    assert data["state"] == ["failed", "done"]
    assert data["each"] == [0.25, 0.5]
    assert data["why"] == ["KeyError", ""]


def test_rows_of_tasks_are_bounded():
    """Bounded numbers of rows are shown and searched, and the page says how many there are."""
    model = known(*(done(n) for n in range(2000)))
    page = opened(Tasks, model, rows_max=1500)

    assert len(page._table.source.data["key"]) == ROWS_SENT
    assert "1,500 rows" in html(page)


@pytest.mark.parametrize(
    ("wanted", "tasks"),
    [("PRI", ["1:1"]), ("2|host", ["1:2"]), ("keyerr", ["1:2"]), ("failed", ["1:2"]), ("zzz", [])],
)
def test_tasks_are_found_by_what_they_have_in_them(wanted, tasks):
    """A search finds tasks by function, worker, error or state, in upper or lower case."""
    page = opened(Tasks, known(done(1), failed(2, worker=W2)))
    search(page, wanted)

    assert page._table.source.data["task"] == tasks


def test_a_filter_holds_for_what_comes_later():
    """Tasks that come later are shown if they match the filter."""
    model = known(done(1), failed(2))
    page = opened(Tasks, model)
    page._state.value = "failed"
    known(done(3), failed(4), model=model, seq=2, clock=101.0)
    page.update(model)

    assert page._table.source.data["task"] == ["1:4", "1:2"]
    assert "2 of the last 4 match." in html(page)


def test_a_chosen_task_is_shown_until_it_is_closed():
    """A chosen task is shown alone, and stands in the address; Back leads to the list."""
    model = known(done(1), failed(2))
    page = opened(Tasks, model)
    choose(page._table, 0)
    known(done(3), model=model, seq=2, clock=101.0)
    page.update(model)

    assert page.view.address.get("task") == "1:2"
    assert "Traceback of 2" in html(page)
    assert not page._tasks.roots[0].visible

    page.view.address.root.tags = ["", "visited"]
    page.restore()

    assert page._table.source.data["task"] == ["1:3", "1:2", "1:1"]
    assert "Traceback of 2" not in html(page)


def test_the_row_that_was_seen_is_opened():
    """Who chooses a row while others come above it opens the one that was there."""
    model = known(done(1), done(2))
    page = opened(Tasks, model)
    seen = page._table.source.data["key"][0]
    known(done(3), model=model, seq=2, clock=101.0)
    page.update(model)
    page._table.source.tags = [*page._table.source.tags[:3], seen]

    assert page.view.address.get("task") == "1:2"


def test_a_kind_of_failure_is_shown_with_its_last():
    """A chosen failure is shown with the traceback of the last, and with all of its kind."""
    model = known(failed(1, function="a"), failed(2, function="b"))
    page = opened(Tasks, model)
    choose(page._failures, 0)
    known(*(failed(n, function="b") for n in (3, 4)), model=model, seq=2, clock=101.0)
    page.update(model)

    assert page._failures.source.data["function"] == ["b", "a"]
    assert page._failures.source.data["tasks"] == [3, 1]
    assert page.view.address.get("failure") == "a~KeyError"
    assert "Traceback of 1" in html(page)
    assert page._alike.source.data["task"] == ["1:1"]

    page.view.address.root.tags = ["failure=b~KeyError", "visited"]
    page.restore()
    assert page._alike.source.data["task"] == ["1:4", "1:3", "1:2"]
    choose(page._alike, 1)
    assert page.view.address.get("task") == "1:3"


def test_tasks_are_found_by_their_number():
    """A task is found by its number, in a run of several as well, and by its failure's message."""
    page = opened(Tasks, known(done(1), done(10, count=5), failed(2)))
    found = {}
    for wanted in ("1:12", "1:1", "usd", "1:15"):
        search(page, wanted)
        found[wanted] = list(page._table.source.data["task"])

    assert found == {"1:12": ["1:10-14"], "1:1": ["1:1"], "usd": ["1:2"], "1:15": []}


def test_failed_tasks_are_listed_after_many_others(monkeypatch):
    """A failed task is found when so many were done since that the stream has lost it."""
    monkeypatch.setattr(model_module, "STREAM_MAX", 50)
    page = opened(Tasks, known(failed(7, at=90.0), *(done(n, at=99.0) for n in range(10, 90))))
    page._state.value = "failed"

    assert page._table.source.data["task"] == ["1:7"]


def test_all_tasks_are_sorted_not_those_that_are_shown():
    """The slowest of all tasks comes first, also if hundreds ended since."""
    slow = done(1, busy_s=40.0, at=50.0)
    page = opened(Tasks, known(slow, *(done(n) for n in range(2, 900))))
    assert "1:1" not in page._table.source.data["task"]
    page._table.source.tags = ["took", True, ROWS_SENT, ""]

    assert page._table.source.data["task"][0] == "1:1"
    assert page.view.address.get("sort") == "-took"


def test_what_an_address_says_is_shown():
    """Search, state and order of an address are those of the page, as if they were chosen there."""
    model = known(done(1), failed(2), failed(3, function="other"))
    page = opened(Tasks, model, address=Address("search=load&state=failed&sort=task"))
    page.restore()

    assert page._table.source.data["task"] == ["1:2"]
    assert page._table.order == "task"
    assert page.view.address.get("search") == "load"


def test_what_an_address_says_wrong_is_nothing():
    """An address that names nothing that there is leads to a page that says so."""
    for kind, query, said in (
        (Tasks, "task=9:9&state=odd&sort=-odd", "No event told of it"),
        (Tasks, "task=nonsense", "That is no number of a task"),
        (Tasks, "failure=nonsense", "No such failure was heard of"),
        (Functions, "name=nonsense", "No function of this name"),
        (Workers, "worker=nonsense", "It is not there any more"),
    ):
        page = opened(kind, known(done(1)), address=Address(query))
        page.restore()
        assert said in html(page)


def test_a_task_has_its_stages_and_attempts():
    """A task is shown with when it was assigned, ran and ended, in each of its attempts."""
    model = known(
        f.Assigned(97.0, W1, 1, 5, 1, "price"),
        f.Retried(98.0, W1, 1, 5, "price", 1, "exception", "KeyError", "USD", 0.5),
        f.Done(99.0, W2, 1, 5, 1, "price", 0.25, 2),
    )
    page = opened(Tasks, model, address=Address("task=1:5"))
    page.restore()
    text = html(page)

    assert text.index("Attempt 2: done") < text.index("Attempt 1: retried")
    assert "500ms before it began" in text
    assert 'href="functions?name=price"' in text
    assert f'href="workers?worker={W2.hex()}"' in text


def test_arguments_are_shown_if_they_were_told():
    """The page of a task that failed, and that of its kind of failure, have them as text."""
    why = {"function": "price", "error": "KeyError", "arguments": "'<b>', rate=0.5"}
    model = known(f.Failed(98.0, W1, 1, 5, **why), failed(6))
    page = opened(Tasks, model, address=Address("task=1:5"))
    page.restore()
    assert "Arguments" in html(page)
    assert "&lt;b&gt;" in html(page)
    assert "rate=0.5" in html(page)
    assert "<b>" not in html(page)

    for query, is_told in (("failure=price~KeyError", True), ("task=1:6", False)):
        page = opened(Tasks, model, address=Address(query))
        page.restore()
        assert ("Arguments" in html(page)) == is_told


def test_a_function_is_shown_with_how_long_it_takes():
    """A function has quantiles, a histogram, its slowest tasks and failures; a sample says so."""
    works = [done(n, busy_s=n / 100) for n in range(1, 101)]
    counts = [f.Function("price", 500, 400), f.Function("load", 1, 0, 1)]
    page = opened(
        Functions, known(*works, failed(200), functions=counts), address=Address("name=price")
    )
    page.restore()
    text = html(page)
    rows = page._table.source.data
    index = rows["key"].index("price")

    assert rows["p50"][index] == pytest.approx(0.5, rel=0.03)
    assert rows["p95"][index] == pytest.approx(0.95, rel=0.03)
    assert "Durations are of a sample: of 100 of 400 tasks." in text
    assert 'role="img" aria-label="Durations of 100 tasks' in text
    assert text.index('href="tasks?task=1:100"') < text.index('href="tasks?task=1:99"')

    page.view.address.set(is_step=True, name="load")
    page.restore()
    assert 'href="tasks?failure=load~KeyError"' in html(page).replace("%7E", "~")


def test_a_function_has_what_it_stored():
    """How much of what is stored its tasks made, for all clients."""
    owners = [f.Owner(1, "load", 2, 2**20), f.Owner(2, "load", 3, 2**20), f.Owner(1, "", 9, 9)]
    page = opened(Functions, known(functions=[f.Function("load", 9, 9)], owners=owners))
    page.view.address.set(is_step=True, name="load")
    page.restore()

    assert "<dt>stored</dt>" in html(page)
    assert "2.0 MiB <small>5 objects</small>" in html(page)


def test_failures_that_are_only_counted_are_said():
    """Of failures before the last half hour, or before a scheduler was started again."""
    page = opened(Tasks, known(tasks=f.Tasks(failed=973)))
    assert "973 tasks failed before." in html(page)

    page = opened(Tasks, known(failed(1), tasks=f.Tasks(failed=973)))
    assert "failed before" not in html(page)


def test_states_of_workers_are_explained():
    """Each word of the column says on the page what it means."""
    text = html(opened(Workers, known()))

    assert all(f"{word}: " in text for word in ("ITL", "Stalled", "Spare", "Leaving", "Paused"))


def test_a_task_whose_worker_died_says_of_what():
    """The details of a task whose worker died have the worker's last lines."""
    fails = f.Failed(99.0, W2, 1, 5, 1, "die", 0.1, 1, "worker_died")
    death = f.WorkerDied(99.0, W2, pid=2, signal=9, stderr_tail="Segmentation fault")
    page = opened(Tasks, known(death, fails))
    choose(page._table, 0)

    assert "signal 9" in html(page)
    assert "Segmentation fault" in html(page)


# -- workers -----------------------------------------------------------------------------------


def test_workers_are_listed_as_in_scaler_top():
    """Workers are listed as in scaler_top, with the figures of their machine, and more."""
    one = f.Worker(
        W1, b"M", "host", pid=1, tasks=3, free=0, given=9, function="price", age_s=2.5, cpu=0.5,
        rss_bytes=50, memory_limit_bytes=200, capabilities={"gpu": 2.0, "cpu": -1}, up_s=60.0,
        is_spare=True, is_leaving=True,
    )  # fmt: skip
    machine = f.Machine(b"M", "host", lag_s=0.001, agent_cpu=0.25, agent_rss_bytes=7, free_bytes=8,
                        restarts=4)  # fmt: skip
    data = opened(Workers, known(workers=[one], machines=[machine]))._table.source.data
    row = {name: values[0] for name, values in data.items()}

    assert row == {
        "key": W1.hex(), "worker": "1|host", "manager": "host", "task": "price", "age": 2.5,
        "cpu": 0.5, "rss": 50, "limit": 200, "of_limit": 0.25, "sent": 3, "queued": 2, "free": 0,
        "given": 9, "suspended": "", "state": "leaving, spare", "capabilities": "gpu=2, cpu",
        "up": 60.0, "lag": 0.001, "itl": "111", "agt_cpu": 0.25, "agt_rss": 7, "os_rss_free": 8,
        "restarts": 4, "href": f"workers?worker={W1.hex()}", "task_href": "tasks?task=0:0",
    }  # fmt: skip


def test_only_cells_that_changed_are_sent():
    """A new figure of a worker is sent as one cell."""
    model = known(workers=workers(200, cpu=0.0))
    page = opened(Workers, model)
    sent: list[Any] = []
    page.root.document.on_change(sent.append)
    changed = workers(200, cpu=0.0)
    changed[7].cpu = 1.0
    known(model=model, seq=2, clock=101.0, workers=changed)
    page.update(model)
    patches = [one.patches for one in sent if getattr(one, "kind", "") == "ColumnsPatched"]

    assert patches == [{"cpu": [(7, 1.0)]}]


def test_a_chosen_worker_is_shown_until_it_is_closed():
    """A chosen worker's curves and last tasks stay, also when it has died."""
    model = known(done(1, worker=W2), workers=workers(2, rss_bytes=7, cpu=0.5))
    page = opened(Workers, model)
    choose(page._table, 1)

    assert "Worker 2|host" in html(page)
    assert "1:1" in html(page)
    assert page._timeline.source.data["rss"] == [7.0]

    death = f.WorkerDied(101.0, W2, pid=2, host="host", exit_code=3, stderr_tail="no memory left")
    known(death, model=model, seq=2, clock=101.0, workers=workers(1))
    page.update(model)

    assert page._table.source.data["worker"] == ["1|host"]
    assert page._table.chosen == ""
    assert "exit code 3" in html(page)
    assert "no memory left" in html(page)

    page.view.address.root.tags = ["", "visited"]
    page.restore()

    assert not page._opened.roots[1].visible


def test_workers_that_died_are_reported():
    """Deaths are listed, the last first, with their cause, task and last printed line."""
    deaths = [
        f.WorkerDied(98.0, b"D1", pid=7, host="h", signal=9),
        f.WorkerDied(99.0, b"D2", pid=8, host="h", session=1, task=5, function="f",
                     out_of_memory=True, peak_rss_bytes=10, stderr_tail="a\nb\nExtension modules: x (total: 1)\n"),
    ]  # fmt: skip
    data = opened(Workers, known(*deaths))._deaths.source.data

    assert data["worker"] == ["8|h", "7|h"]
    assert data["how"] == ["out of memory, with 10 B", "signal 9"]
    assert data["task"] == ["1:5", ""]
    assert data["printed"] == ["b", ""]
    assert data["peak"][0] == 10


def test_workers_are_found_by_what_they_have_in_them():
    """A search finds workers by name, function or capability."""
    some = workers(3)
    some[1].function, some[1].tasks = "price", 1
    some[2].capabilities = {"gpu": 1.0}
    page = opened(Workers, known(workers=some))
    found = {}
    for wanted in ("PRICE", "gpu", "1|", "zzz"):
        search(page, wanted)
        found[wanted] = list(page._table.source.data["worker"])

    assert found == {"PRICE": ["2|host"], "gpu": ["3|host"], "1|": ["1|host"], "zzz": []}


# -- words -------------------------------------------------------------------------------------


def test_words():
    """Numbers on pages stand with what they count."""
    assert many(1, "task") == "1 task"
    assert many(2000, "task") == "2,000 tasks"
    assert printed("Title", " \n") == ""
