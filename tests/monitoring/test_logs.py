"""The tail of logs in a monitor: its bounds, what a filter takes, recordings and the page."""

from __future__ import annotations

import re

import pytest
from bokeh.document import Document
from bokeh.models.widgets.markups import Div

from scaler_cluster.wire import feed as f
from scaler_monitoring import last_lines, recording
from scaler_monitoring.dashboard.pages.logs import Logs, link_to_logs
from scaler_monitoring.dashboard.settings import Settings
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import links
from scaler_monitoring.dashboard.watch import Watch
from scaler_monitoring.last_lines import LastLines
from scaler_monitoring.log_view import LogFilter, as_text
from scaler_monitoring.logs import main
from scaler_monitoring.model import Model
from scaler_monitoring.recording import Recorder, read
from scaler_monitoring.theme import DARK


def line(text, *, worker=1, task=0, function="fit", source="stdout", level=0, **more):
    of = b"W%d" % worker, "host", worker, ""
    return f.LogLine(1.0, *of, 1, task, function, source, level, text, **more)


def missing(count):
    return f.LogLine(1.0, b"W1", "host", 1, text=f"{count} dropped", dropped=count)


def logs(*lines, seq=1, run="run", reason=""):
    return f.Logs(run, seq, 2.0, 1002.0, 0.5, reason, list(lines))


def heard(*messages):
    tail = LastLines()
    for message in messages:
        tail.apply(message)
    return tail


def texts(tail):
    return [one.text for one in tail.lines]


# -- the tail ------------------------------------------------------------------------------------


def test_lines_come_once_and_have_a_time():
    """A message that came already is ignored; lines know when they were printed."""
    tail = heard(logs(line("a")), logs(line("a")), logs(line("b"), missing(3), seq=2))

    assert texts(tail) == ["a", "b", "3 dropped"]
    assert {one.at for one in tail.lines} == {1001.0}
    assert (tail.added, tail.dropped, tail.forgotten) == (3, 3, 0)
    assert [one.text for one in tail.since(1)] == ["b", "3 dropped"]


def test_lines_of_several_workers_come_in_the_order_of_time():
    """Of one message, lines are sorted by time; those of the same moment stay as they were."""
    lines = [line(text, worker=worker) for worker, text in ((1, "b"), (1, "c"), (2, "a"))]
    lines[2].at -= 0.5

    assert texts(heard(logs(*lines))) == ["a", "b", "c"]


def test_it_is_bounded(monkeypatch):
    """The last lines are kept, by their number and by their size, and earlier ones counted."""
    monkeypatch.setattr(last_lines, "LINES_MAX", 5)
    monkeypatch.setattr(last_lines, "CHARS_MAX", 30)
    tail = heard(logs(*(line(str(n)) for n in range(9))), logs(line("x" * 27), seq=2))

    assert texts(tail) == ["6", "7", "8", "x" * 27]
    assert (tail.forgotten, len(tail.since(0))) == (6, 4)


def test_a_gap_is_told_unless_nobody_listened():
    """Messages that were missed leave a line; those while nobody listened do not."""
    tail = heard(logs(line("a")), logs(line("b"), seq=3))
    assert texts(tail)[1].startswith("lines are missing here")

    tail.left()
    tail.apply(logs(line("c"), seq=9))
    tail.apply(logs(line("d"), seq=1, run="another"))
    assert texts(tail)[2:] == ["b", "c", "d"]


# -- the filter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LogFilter(), ["a", "Bb", "warn", "3 dropped"]),
        (LogFilter(worker="2|HOST"), ["Bb"]),
        (LogFilter(worker="1|host", function="ED"), ["warn", "3 dropped"]),
        (LogFilter(task="1:4"), ["Bb", "3 dropped"]),
        (LogFilter(level=20), ["warn", "3 dropped"]),
        (LogFilter(level=40), ["3 dropped"]),
        (LogFilter(pattern=re.compile("^B")), ["Bb", "3 dropped"]),
        (LogFilter(pattern=re.compile("mod")), ["warn", "3 dropped"]),
    ],
)
def test_a_filter_takes_what_is_wanted(wanted, expected):
    """All conditions must hold; what is missing is told to all who want lines of its worker."""
    lines = [
        line("a"), line("Bb", worker=2, task=4, source="stderr"),
        line("warn", function="predict", source="mod", level=30), missing(3),
    ]  # fmt: skip

    assert [one.text for one in lines if wanted.takes(one)] == expected


def test_text_does_nothing_to_a_terminal():
    """Control characters are shown as such; further lines of a record are indented."""
    said = as_text(line("a\x1b[2J\nb", source="mod", level=30))

    assert said.endswith(" 1|host 1:0 fit WARNING mod: a?[2J\n    b")


# -- recordings ----------------------------------------------------------------------------------


def test_a_recording_keeps_lines_within_bounds(tmp_path, monkeypatch, capsys):
    """Lines are recorded until there are too many, which is then said once."""
    monkeypatch.setattr(recording, "LOGS_BYTES_MAX", 100)
    path = str(tmp_path / "feed.rec")
    with Recorder(path) as recorder:
        for seq in range(1, 6):
            recorder.apply(logs(line(f"line {seq}"), seq=seq), 0.0)
    kept = [
        one.text
        for _, message in read(path)
        if isinstance(message, f.Logs)
        for one in message.lines
    ]
    assert kept == ["line 1", recording.NO_ROOM]

    assert main(["--replay", path, "--grep", "line"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [one.rpartition(": ")[2] for one in shown[:1]] == ["line 1"]
    assert recording.NO_ROOM in shown[1]


def test_why_there_are_no_lines_is_told(tmp_path, capsys):
    """A scheduler that hides logs is told about as an error."""
    path = str(tmp_path / "feed.rec")
    with Recorder(path) as recorder:
        recorder.apply(logs(reason="they are hidden"), 0.0)

    assert main(["--replay", path]) != 0
    assert "they are hidden" in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["tcp://127.0.0.1:1", "--replay", "x"]])
def test_there_is_one_thing_to_show(given, capsys):
    """An address or a recording must be given, and not both."""
    assert main(given) != 0
    assert "monitor_address" in capsys.readouterr().err


# -- the page ------------------------------------------------------------------------------------


class Seen(Watch):
    """Knows what it was told, and counts who wants logs."""

    now = 100.0
    wanted = 0

    def want_logs(self):
        self.wanted += 1


@pytest.fixture
def page():
    """Return the page of a model that has heard a snapshot."""
    watch = Seen("by hand")
    watch.model = Model()
    watch.model.apply(f.Snapshot("run", 1, clock=1.0, time=1001.0, interval_s=1.0), 1.0)
    one = Logs(View(watch, DARK, Settings(), links(""), 50))
    Document().add_root(one.root)
    return one


def shown(page, *messages):
    for message in messages:
        page.view.model.apply(message, 2.0)
    page.update(page.view.model)
    return "\n".join(one.text for one in page.root.select({"type": Div}) if one.visible)


def test_the_page_shows_what_matches(page):
    """An open page asks for logs, and shows the lines that match, escaped."""
    assert "No task has printed or logged anything" in shown(page)
    assert page.view.watch.wanted == 1
    html = shown(page, logs(line("<b>a"), line("other", worker=2), missing(3)))
    assert "&lt;b&gt;a" in html
    assert "3 came too fast and were dropped" in html

    page._worker.value_input = "2|host"
    html = shown(page)
    assert "other" in html
    assert "&lt;b&gt;a" not in html


def test_a_page_that_pauses_stands_still(page):
    """While it pauses it shows nothing new; then it shows all that came meanwhile."""
    shown(page, logs(line("a")))
    page._pause.active = True
    assert "later" not in shown(page, logs(line("later"), seq=2))

    page._pause.active = False
    assert "later" in shown(page)


def test_links_say_what_is_wanted(page):
    """A link of a task or a worker leads to its lines."""
    assert link_to_logs(page.view, worker="1|host") == "/logs?worker=1%7Chost"
