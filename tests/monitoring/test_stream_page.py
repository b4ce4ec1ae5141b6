"""The task stream: what its layers have in them, and that it is whole and bounded."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest
from bokeh.document import Document
from bokeh.models import OpenURL, TapTool
from bokeh.models.widgets.markups import Div

from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard.links import task_pattern
from scaler_monitoring.dashboard.pages import stream
from scaler_monitoring.dashboard.pages.stream import CHIPS_MAX, WORKERS_MAX, Stream, chips
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.stream_figure import box
from scaler_monitoring.dashboard.stream_layers import BLOCKS_MAX, CELLS_MAX, WORKS_MAX
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.figures import axis_ms
from scaler_monitoring.theme import DARK, FAILED, look_of

WINDOWS = {"10": 10, "30": 30, "60": 60, "300": 300, "600": 600, "1800": 1800}


class Told(Watch):
    """Knows what it is told by hand, a second after the other."""

    def __init__(self, *workers, clock=100.0):
        super().__init__("by hand")
        self.clock = clock
        self._seq = {f.Snapshot: 0, f.Events: 0}
        self.workers = list(workers)
        self.hear()

    now = 100.0

    def _tell(self, kind, **fields):
        self._seq[kind] += 1
        message = kind(run="run", seq=self._seq[kind], clock=self.clock, **fields)
        self.model.apply(message, self.clock)

    def hear(self, *events, clock=None, **fields):
        """Hear a snapshot, then events until the same moment."""
        self.clock = clock or self.clock
        fields = {"workers": self.workers} | fields
        self._tell(f.Snapshot, time=1000.0 + self.clock, interval_s=1.0, **fields)
        self._tell(f.Events, events=list(events))


def worker(number=1, machine=b"M", **fields):
    return f.Worker(b"W%d" % number, machine, "host", pid=number, up_s=50.0, **fields)


def running(number=1, age_s=28.0, function="slow", **fields):
    return worker(number, tasks=1, session=1, task=7, function=function, age_s=age_s, **fields)


def done(at, busy_s=0.5, function="price", first=1, number=1, count=1):
    return f.Done(at, b"W%d" % number, 1, first, count, function, busy_s)


def failed(at, first=2, number=1):
    return f.Failed(at, b"W%d" % number, 1, first, 1, "load", 0.001, 1, "exception", "KeyError")


def opened(watch, window="60"):
    page = Stream(View(watch, DARK, Settings(), links("/x", "t" * 16), 1000))
    Document().add_root(page.root)
    page._window.value = window
    page.update(watch.model)
    return page


def html(page):
    return "\n".join(one.text for one in page.root.select({"type": Div}) if one.visible)


def seconds(page, watch, *, start=0.0):
    """Return how many busy seconds the cells show that end after a moment."""
    since = axis_ms(watch.model.time_of(start))
    return sum(
        busy * (right - left) / 1e3
        for source in (page._figure.past, page._figure.now)
        for left, right, busy in zip(*(source.data[x] for x in ("left", "right", "busy")))
        if right > since
    )


# -- what runs ---------------------------------------------------------------------------------


def test_running_tasks_are_growing_bars():
    """Two workers that run one task each have a bar each, which grows until their tasks end."""
    watch = Told(running(1), running(2))
    page = opened(watch)
    first = {name: list(values) for name, values in page._figure.running.data.items()}
    watch.workers = [running(1, 38.0), running(2, 38.0)]
    watch.hear(clock=110.0)
    page.update(watch.model)
    then = dict(page._figure.running.data)
    watch.workers = [worker(1), running(2, 40.0)]
    watch.hear(done(111.0, 39.0, "slow", 7), clock=112.0)
    page.update(watch.model)

    assert first["function"] == ["slow", "slow"]
    assert [b - a for a, b in zip(first["left"], first["right"])] == [28_000.0] * 2
    assert [b - a for a, b in zip(then["left"], then["right"])] == [38_000.0] * 2
    assert first["took"] == ["28.0s"] * 2
    assert page._figure.running.data["worker"] == ["2|host"]
    assert page._figure.works.data["task"] == ["1:7"]
    assert "slow <small>" in page._chips.text
    assert "1 running, for up to 40.0s" in page._chips.text


def test_waiting_is_shaded():
    """Time in which a task only waits for others is shaded, above its bar."""
    watch = Told(running(1, 20.0, is_blocked=True))
    page = opened(watch)
    shaded = page._figure.waits.data

    assert shaded["right"][0] - shaded["left"][0] == pytest.approx(20_000.0, abs=300)
    assert page._figure.running.data["state"] == ["waits for other tasks"]


def test_dead_workers_keep_their_rows_and_are_marked():
    """A worker that died is marked, with the reason, and its row stays where it was."""
    watch = Told(worker(1), worker(2))
    page = opened(watch)
    watch.workers = [worker(2), worker(3)]
    died = f.WorkerDied(100.4, b"W1", b"M", "host", 1, signal=9)
    watch.hear(f.WorkerJoined(100.5, b"W3", b"M", "host", 3), died, clock=100.6)
    page.update(watch.model)
    ends = page._figure.ends.data

    assert page._layers._names == ["1|host", "2|host", "3|host"]
    assert (ends["y"], ends["marker"], ends["why"]) == ([0], ["x"], ["died: signal 9"])
    assert ends["colour"] == [FAILED]


# -- cells -------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("count", [4, 40, 250])
def test_any_window_of_any_cluster_is_whole(window, count):
    """The cells of any window have all seconds that its workers were busy, and are bounded."""
    watch = Told(*map(worker, range(count)), clock=2000.0)
    step = WINDOWS[window] // 5
    for place in range(1, 6):
        at = 2000.0 + place * step
        watch.hear(*(done(at - 0.01, 0.75, number=n) for n in range(count)), clock=at)
    page = opened(watch, window)

    expected = 5 * 0.75 * min(count, WORKERS_MAX)
    assert seconds(page, watch, start=2000.0) == pytest.approx(expected, rel=0.02)
    assert len(page._figure.past.data["left"]) <= CELLS_MAX * 1.6
    assert len(page._figure.works.data["left"]) <= WORKS_MAX


def test_a_cell_has_the_look_of_what_took_most_of_it():
    """A bar of many tasks is as high as the worker was busy, and looks like its main function."""
    watch = Told(worker())
    events = [done(100.01 + n / 100, 0.004, "price" if n % 4 else "load") for n in range(100)]
    watch.hear(*events, clock=101.1)
    watch.hear(clock=102.0)
    page = opened(watch)
    data = page._figure.past.data
    look = look_of("price")

    assert set(data["function"]) == {"price"}
    assert (data["colour"][0], data["pattern"][0]) == (look.colour, look.pattern)
    assert max(data["busy"]) == pytest.approx(0.4, abs=0.05)
    assert min(data["top"]) == pytest.approx(box(0, 0.4)[1], abs=0.05)
    assert data["functions"][0] == 2
    assert data["part"][0] == pytest.approx(0.75, abs=0.05)


def test_only_new_cells_are_sent():
    """Cells that change no more are sent once, and no change sends nothing."""
    watch = Told(worker())
    page = opened(watch)
    for at in range(101, 104):
        watch.hear(done(at - 0.2, 0.5), clock=float(at))
    page.update(watch.model)
    sent: list[Any] = []
    page.root.document.on_change(sent.append)
    page.update(watch.model)
    nothing = list(sent)
    watch.hear(done(103.8, 0.5), clock=104.0)
    page.update(watch.model)
    streamed = [x for x in sent if getattr(x, "kind", "") == "ColumnsStreamed"]

    assert nothing == []
    # The browser draws once, when all of it is there.
    held = [getattr(x, "attr", "") == "hold_render" for x in sent]
    assert (held[0], held[-1], sum(held)) == (True, True, 2)
    assert [len(x.data["left"]) for x in streamed if "busy" in x.data] == [1]


def test_cells_are_made_anew_when_they_are_many(monkeypatch):
    """What a moving window gathers is bounded: it is then drawn anew, whole."""
    monkeypatch.setattr("scaler_monitoring.dashboard.stream_layers.BLOCKS_MAX", 20)
    watch = Told(worker())
    page = opened(watch)
    for at in range(101, 150):
        watch.hear(done(at - 0.2, 0.5), clock=float(at))
        page.update(watch.model)
        assert len(page._figure.past.data["left"]) <= 2 * 60
    assert BLOCKS_MAX > CELLS_MAX * 1.6
    assert seconds(page, watch) == pytest.approx(24.5, rel=0.02)


# -- single pieces of work ---------------------------------------------------------------------


def test_wide_work_is_a_bar_that_leads_to_its_task():
    """Work that is wide enough, or failed, has a bar of its own, which leads to its task."""
    watch = Told(worker(rss_bytes=7), worker(2))
    watch.hear(
        done(101.0, 0.9, first=(3 << 40) + 17), done(101.0, 0.001, number=2), failed(101.1),
        clock=101.5,
    )  # fmt: skip
    page = opened(watch)
    data, tap = page._figure.works.data, page._figure.root.select_one(TapTool)

    assert data["task"] == ["1:call 3, item 17", "1:2"]
    assert data["pattern"] == [look_of("price").pattern, "failed"]
    assert data["memory"] == [7.0, 7.0]
    assert data["right"][0] - data["left"][0] == pytest.approx(900.0)
    assert isinstance(tap.callback, OpenURL)
    assert tap.callback.url == "/x/tasks?task=@task&token=" + "t" * 16
    assert task_pattern(links(""), "task") == "/tasks?task=@task"


def test_memory_of_long_ago_is_not_known():
    """The memory of a worker before its first sample is shown as unknown."""
    watch = Told(worker(rss_bytes=7))
    watch.hear(done(99.0), clock=100.5)

    assert isnan(opened(watch)._figure.works.data["memory"][0])


def test_single_work_is_bounded_and_the_longest_stays():
    """The number of bars is bounded; the longest work stays, and cells show all of it."""
    watch = Told(worker(), worker(2))
    watch.hear(*(done(100.0 + n / 100, 0.35) for n in range(WORKS_MAX + 500)),
               done(130.0, 25.0, "long", number=2), clock=145.5)  # fmt: skip
    data = opened(watch)._figure.works.data

    assert len(data["left"]) == WORKS_MAX
    assert "long" in data["function"]


# -- which time and which workers --------------------------------------------------------------


def test_it_follows_what_happens_now():
    """The stream's right end is the newest time that is known, and its width stays the same."""
    watch = Told(worker())
    watch.hear(done(100.2), clock=100.25)
    page = opened(watch)
    end = page._range.end
    watch.hear(done(110.0), clock=110.0)
    page.update(watch.model)

    assert page._range.end - end == pytest.approx(9750.0)
    assert page._range.end - page._range.start == pytest.approx(60_000.0)


def test_who_looks_closer_is_left_in_peace():
    """A view that was moved stays, with what it shows, until it is to follow again."""
    watch = Told(worker())
    watch.hear(done(101.0, 0.9), clock=101.5)
    page = opened(watch)
    start, end = page._range.end - 3000.0, page._range.end
    page._range.update(start=start, end=end)
    page._look_there()
    narrow = page._layers.grid.width_s
    watch.hear(done(119.0, 0.9, "later"), clock=120.0)
    page.update(watch.model)

    assert (page._range.start, page._range.end) == (start, end)
    assert narrow <= 0.02
    assert "where you have moved it" in html(page)
    assert "later" not in page._figure.works.data["function"]

    page._resume()

    assert page._range.end > end
    assert "later" in page._figure.works.data["function"]


def test_a_pause_stops_everything():
    """A paused stream is sent nothing, and misses nothing when the pause is over."""
    watch = Told(worker())
    page = opened(watch)
    page._pause.active = True
    watch.hear(done(101.0, 0.9), clock=101.5)
    sent: list[Any] = []
    page.root.document.on_change(sent.append)
    page.update(watch.model)
    nothing = list(sent)
    page._pause.active = False

    assert nothing == []
    assert page._figure.works.data["function"] == ["price"]


def test_one_function_can_be_shown_alone():
    """A chosen function is shown alone; the choices are those of the snapshot."""
    watch = Told(worker())
    functions = [f.Function("price", 1, 1), f.Function("load", 1, 0, 1)]
    watch.hear(done(101.0), failed(101.2), clock=101.5, functions=functions)
    watch.hear(clock=102.0, functions=functions)
    page = opened(watch)
    page._function.value = "load"

    assert page._function.options == [("", "all"), ("load", "load"), ("price", "price")]
    assert set(page._figure.past.data["function"]) == {"load"}
    assert page._figure.works.data["function"] == ["load"]


def test_many_workers_are_shown_in_groups():
    """The stream shows a bounded number of workers; the others can be chosen."""
    watch = Told(*map(worker, range(1, 251)))
    page = opened(watch)
    first = list(page._layers._names)
    page._group.value = "2"

    assert len(first) == WORKERS_MAX
    assert [label for _, label in page._group.options] == [
        "1 to 100 of 250", "101 to 200 of 250", "201 to 250 of 250",
    ]  # fmt: skip
    assert page._layers._names[-1] == "250|host"


# -- what it says ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [stream.CROWD - 1, stream.CROWD])
def test_a_crowd_is_drawn_once_a_second(count):
    """Of few workers all is shown as it comes; of many, what came within a second goes together."""
    watch = Told(*(running(number, 1.0) for number in range(count)))
    page = opened(watch)
    drawn = []
    for step in range(1, 5):
        watch.workers = [running(number, 1.0 + step / 2) for number in range(count)]
        watch.hear(clock=100.0 + step / 2)
        page.update(watch.model)
        drawn.append(page._figure.running.data["right"][0] - axis_ms(1000.0 + 100.0))
    assert drawn == ([500.0, 1000.0, 1500.0, 2000.0] if count < stream.CROWD else
                     [0.0, 1000.0, 1000.0, 2000.0])  # fmt: skip


def test_a_sample_is_called_one():
    """The page says that it shows a sample if events were skipped, and nothing tells the rest."""
    watch = Told(worker())
    watch.hear(done(101.0), clock=101.5, skipped={"done": 1234})

    assert "Only a sample is drawn: 1,234" in html(opened(watch))


def test_failures_that_gave_way_to_later_ones_are_counted(monkeypatch):
    """Bars make room for later ones; of those that failed and are still in sight the page tells."""
    monkeypatch.setattr("scaler_monitoring.dashboard.stream_layers.WORKS_MAX", 3)
    watch = Told(worker())
    watch.hear(failed(101.0), failed(101.1), failed(101.2), clock=101.5)
    page = opened(watch)
    watch.hear(failed(101.7), failed(101.8), clock=102.0)
    page.update(watch.model)

    assert len(page._figure.works.data["left"]) == 3
    assert "2 more that failed, were cancelled or retried have no room." in html(page)


def test_an_estimate_is_called_one():
    """The page says for how much of the work only sums were told."""
    watch = Told(worker(), clock=100.0)
    for at in range(101, 105):
        watch.workers = [worker(busy_s=0.9 * (at - 100))]
        watch.hear(clock=float(at), skipped={"done": 9})

    assert "Of 3.6s of work" in html(opened(watch))


def test_the_legend_goes_by_time_and_never_misses_a_straggler():
    """Functions that took most are in the legend, and those that run for long; others count."""
    took = {f"f{n:02}": 100.0 - n for n in range(CHIPS_MAX + 5)}
    text = chips(took, {"straggler": [30.0, 2.0], "f16": [0.1]})

    assert text.count("<span") == CHIPS_MAX + 1
    assert "f00 <small>1m40s" in text
    assert "straggler <small>0us, 2 running, for up to 30.0s" in text
    assert "and 5 more" in text
    assert f"background:{look_of('f00').css}" in text
