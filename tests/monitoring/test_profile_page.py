"""What the page Profile shows of what was sampled, without a browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from bokeh.document import Document
from bokeh.models.widgets.markups import Div

from scaler_cluster.call_tree import CallTree, Frame
from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard.links import function_url, work_url
from scaler_monitoring.dashboard.pages.profile import NOT_RECORDED, NOTHING, WAITING, Profile
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.profiled import BUCKET_S, Profiled
from scaler_monitoring.theme import LIGHT

EVIL = "<img src=x onerror=alert(1)>\n$$x$$"
NOW = 10_000.0


class StandIn:
    """Has been told of samples, and notes who wants more."""

    def __init__(self):
        self.profiled = Profiled()
        self.refusal = ""
        self.wanted: list[float] = []

    def want(self, for_s):
        self.wanted.append(for_s)


class Shown(Watch):
    """A watch whose moment stands still."""

    now = NOW

    def time_of(self, now):
        return 1e9 + now


class Tab:
    """A page in a document."""

    def __init__(self, *, is_live=True):
        watch = Shown("by hand")
        self.profiling = StandIn()
        self.watch = watch
        watch.is_live = is_live
        watch.profiled = self.profiling.profiled
        if is_live:
            stand_in: Any = self.profiling
            watch.profiling = stand_in
        watch.model.apply(f.Snapshot("run", 1, clock=1.0, time=1000.0, interval_s=1.0), 0.0)
        self.model = watch.model
        self.page = Profile(View(watch, LIGHT, Settings(), links("/at", "secret"), 1000))
        self.document = Document()
        self.document.add_root(self.page.root)

    def update(self):
        self.page._drawn_at = 0.0
        self.page.update(self.model)
        return self

    @property
    def html(self):
        shown: list[Any] = list(self.document.select({"type": Div}))
        return "\n".join(one.text for one in shown if one.visible)

    @property
    def said(self):
        return self.page._said.text

    @property
    def bars(self):
        return list(self.page._figure.source.data["name"])

    def tap(self, name):
        self.page._figure.source.selected.indices = [self.bars.index(name)]


def samples(function, *stacks, running=(), count=1):
    """Return what a scheduler publishes of one worker."""
    tree = CallTree()
    for stack, us in stacks:
        tree.add([Frame(name, f"/home/one/{name}.py", 7) for name in stack], us)
    return f.Samples(
        sampled=[f.Sampled(b"W", function, count, tree.packed())], running=list(running)
    )


@pytest.fixture
def tab():
    """Return a page that has heard of two functions, one of them a while ago."""
    one = Tab()
    one.profiling.profiled.add(samples("old", ("k", 1_000_000), count=50), NOW - 200)
    one.profiling.profiled.add(
        samples("f", ("gh", 3_000_000), ("g", 1_000_000), count=100), NOW - 9
    )
    return one.update()


def test_it_says_what_is_missing():
    """A recording may have no samples, and an idle cluster no tasks."""
    assert NOT_RECORDED in Tab(is_live=False).update().said
    one = Tab().update()
    assert WAITING in one.said
    one.profiling.profiled.add(f.Samples(), NOW)
    assert NOTHING in one.update().said
    one.profiling.refusal = "not with <this> key"
    assert "not with &lt;this&gt; key" in one.update().said


def test_a_recording_shows_the_samples_of_its_moment():
    """What was recorded up to the moment is shown, by the time of day of then; nobody is asked."""
    one = Tab(is_live=False)
    was = f.Running(b"W", session=1, task=7, function="f", age_s=1.5, stack="was_here")
    one.profiling.profiled.add(samples("f", ("g", 1_000_000), running=[was], count=100), NOW - 9)
    one.page.update(one.model)
    assert one.bars == ["f", "g"]
    assert one.said.startswith("<p>100 samples of 1.0s of tasks.")
    assert "was_here" in str(one.page._running.source.data)
    start = NOW - 9 - (NOW - 9) % BUCKET_S
    assert one.page._seen_figure.source.data["left"] == [pytest.approx((1e9 + start) * 1e3)]

    # Another moment has other samples, however soon after the one before it is shown.
    other = one.watch.profiled = Profiled()
    other.add(samples("f", ("h", 1_000_000)), NOW - 100)
    other.add(samples("f", ("k", 1_000_000)), NOW - 9)
    one.page.update(one.model)
    assert one.bars == ["f", "k"]
    one.page._on_range((NOW - 105, NOW - 95))
    assert one.bars == ["f", "h"]
    one.watch.profiled = Profiled()
    one.page.update(one.model)
    assert NOT_RECORDED in one.said
    assert one.profiling.wanted == []


def test_samples_are_wanted_while_it_is_open_and_not_paused(tab):
    """Each update has tasks sampled for a while, but those of a paused page."""
    assert tab.profiling.wanted == [8.0]
    tab.page._pause.active = True
    tab.profiling.profiled.add(samples("f", ("gz", 1_000_000)), NOW - 1)
    tab.update()

    assert tab.profiling.wanted == [8.0]
    assert tab.bars == ["f", "g", "h"]


def test_the_latest_are_shown(tab):
    """The flame graph has what was seen in the time that is shown, and says how sure it is."""
    assert tab.bars == ["f", "g", "h"]
    assert "100 samples of 4.0s of tasks. A share is off by less than 10.0 points" in tab.html
    rows = tab.page._functions.source.data
    assert list(rows["function"]) == ["h", "g"]
    assert list(rows["where"]) == ["one/h.py:7", "one/g.py:7"]
    assert (list(rows["own"]), list(rows["whole"])) == ([0.75, 0.25], [0.75, 1.0])
    tab.page._window.value = "300"
    assert tab.bars == ["f", "old", "g", "k", "h"]


def test_a_bar_is_zoomed_into_and_out_of(tab):
    """A bar that is chosen has the whole width; its callers lead back."""
    tab.page._window.value = "300"
    tab.tap("g")
    assert tab.bars == ["f", "g", "h"]
    assert tab.page._function.value == "f"
    assert list(tab.page._functions.source.data["whole"]) == [0.75, 1.0]
    tab.tap("f")
    assert tab.bars == ["f", "g", "h"]
    assert tab.page._out.visible
    tab.page._zoom(())
    assert tab.bars == ["f", "old", "g", "k", "h"]
    assert (tab.page._function.value, tab.page._out.visible) == ("", False)


def test_a_function_of_tasks_can_be_chosen(tab):
    """The list of functions zooms into one, and keeps it in times that have nothing of it."""
    tab.page._window.value = "300"
    tab.page._function.value = "old"
    assert tab.bars == ["old", "k"]
    tab.page._window.value = "60"
    assert tab.page._function.value == "old"
    assert ("old", "old") in tab.page._function.options


def test_a_range_of_time_is_chosen(tab):
    """A box over the bars of time shows the graph of that time, until somebody follows."""
    tab.page._on_range((NOW - 200 - BUCKET_S, NOW - 190))
    assert tab.bars == ["old", "k"]
    tab.update()
    assert tab.bars == ["old", "k"]
    assert "start=" in tab.html
    tab.page._on_range(None)
    assert tab.bars == ["f", "g", "h"]
    assert not tab.page._follow.visible


def test_the_file_has_the_token_of_a_page_in_a_frame(tab):
    """The link to the file has what the other links have."""
    (href,) = re.findall(r'href="([^"]*speedscope[^"]*)"', tab.html)

    assert href == "/at/profile.speedscope.json?last=60&amp;token=secret"


def test_a_task_that_runs_shows_its_stack(tab):
    """A task that is chosen shows its stack, or why it has none, until it has ended."""
    stack = f'  File "x.py", line 3, in {EVIL}\n    wait()\n'
    running = [
        f.Running(b"W", "host", 7, "", 1, 5, EVIL, 12.5, stack),
        f.Running(b"V", "host", 8, "", 1, 6, "hung", 99.0, "", "it does not answer"),
    ]
    tab.profiling.profiled.add(samples("f", running=running), NOW)
    tab.update()
    rows = tab.page._running.source.data
    assert (list(rows["task"]), list(rows["age"])) == (["1:6", "1:5"], [99, 12])
    assert list(rows["at"]) == ["it does not answer", "wait()"]
    assert (rows["task_href"][0], rows["function_href"][0]) == (
        work_url(1, 6),
        function_url("hung"),
    )
    tab.page._running.choose(rows["key"][1])
    tab.update()
    assert "in &lt;img src=x" in tab.html
    assert "<img" not in tab.html
    tab.page._running.choose(rows["key"][0])
    tab.update()
    assert "it does not answer" in tab.html
    tab.profiling.profiled.add(samples("f"), NOW)
    assert "it does not answer" not in tab.update().html


def test_an_update_without_news_sends_nothing(tab):
    """What is known already is not sent again."""
    events: list[object] = []
    tab.document.on_change(events.append)
    tab.update()

    assert events == []
