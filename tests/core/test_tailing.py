"""The logs of tasks at the scheduler: who is asked when, what is told of the answers."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.scheduler import tailing
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import EVENTS, LOGS, SNAPSHOT, alias_of
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, function_id
from scaler_cluster.texts import LINE_CHARS_MAX, LINES_MAX
from scaler_cluster.wire import feed as f
from scaler_cluster.wire import messages as m

ASKED = f"TailLogs for {tailing.LEASE * tailing.INTERVAL_S:g} s, {LINES_MAX} lines"
END = "TailLogs for 0 s, 0 lines"


def lines(*texts, **fields):
    """Return what a worker says of lines that its task 0 of session 1 printed just now."""
    count = len(texts)
    columns = {
        "ages_ms": (0,) * count, "sessions": (1,) * count, "tasks": (0,) * count,
        "functions": (function_id("f"),) * count, "sources": ("stdout",) * count,
        "levels": (0,) * count, "texts": texts,
    }  # fmt: skip
    return m.LogLines(**columns | fields)


def logs(bench):
    """Return the messages of logs that were published since the last time."""
    bench.wait(tailing.BATCH_S)
    found = [one for one in bench.published if isinstance(one, f.Logs)]
    bench.published.clear()
    return found


def test_nobody_is_asked_while_nobody_listens(one):
    """Those who watch the rest of the feed do not make workers listen to their tasks."""
    one.watch(SNAPSHOT, EVENTS)

    assert "W1" not in one.wait(3.0)
    assert one.core.feed.monitor.tailing.ask_at == math.inf


def test_workers_are_asked_again_and_again(two):
    """All workers are asked at once, then every interval, as long as somebody listens."""
    two.watch(LOGS)
    first = two.wait(0.0)
    assert first["W1"] == first["W2"] == [f"{ASKED}, the first"]

    assert two.wait(tailing.INTERVAL_S)["W1"] == [ASKED]
    assert two.watch() == {"W1": [END], "W2": [END]}
    assert "W1" not in two.wait(3.0)


def test_many_workers_are_asked_for_fewer_lines_each(two, monkeypatch):
    """All workers together tell what one scheduler can pass on."""
    monkeypatch.setattr(tailing, "LINES_AT_ONCE", 7)
    two.watch(LOGS)
    said = two.wait(0.0)

    assert all(", 3 lines, the first" in said[worker][0] for worker in ("W1", "W2"))


def test_a_line_is_told_with_its_task_and_function(one):
    """What a worker says comes out with what the scheduler knows of it."""
    one.submit(0)
    one.watch(LOGS)
    one.wait(0.0)
    one.feed(b"W1", lines("a", "b", ages_ms=(1500, 0), levels=(0, 30), sources=("stderr", "mod")))
    at = one.now

    (message, *_) = logs(one)
    a, b = message.lines
    assert (a.worker, a.session, a.task, a.function) == (alias_of(b"W1"), 1, 0, "f")
    assert (a.source, a.level, a.text) == ("stderr", 0, "a")
    assert (b.source, b.level, b.text) == ("mod", 30, "b")
    assert (a.at, b.at) == (pytest.approx(at - 1.5), at)


def test_silence_is_told_as_well(one):
    """Whoever listens hears each interval that the scheduler is there."""
    one.watch(LOGS)
    one.wait(3 * tailing.INTERVAL_S)

    assert [one.lines for one in logs(one)][:3] == [[], [], []]


def test_what_was_dropped_is_told_in_its_place(one, monkeypatch):
    """Lines that a worker dropped, or for which a message has no room, are counted."""
    monkeypatch.setattr(tailing, "CHARS_MAX", 40)
    monkeypatch.setattr(tailing, "LINE_CHARS", 0)
    one.watch(LOGS)
    logs(one)
    for texts in (("x" * 20,), ("y", "z" * 30), ("z",)):
        one.feed(b"W1", lines(*texts, dropped=7 if len(texts[0]) == 20 else 0))

    found = [line for message in logs(one) for line in message.lines]
    assert [(line.source, line.dropped) for line in found] == [("", 7), ("stdout", 0), ("", 3)]
    assert found[0].at == found[1].at
    assert found[0].text == "7 more lines were dropped here"
    assert found[2].text == "3 more lines were dropped here"


@pytest.mark.parametrize(
    "answer",
    [
        lines(*"x" * (LINES_MAX + 1)),
        lines("x" * (LINE_CHARS_MAX + 1)),
        lines("x", sessions=()),
        lines("x", sources=("s" * (LINE_CHARS_MAX + 1),)),
    ],
)
def test_answers_that_are_too_large_are_refused(one, answer):
    """A worker that says more than there may be breaks the protocol."""
    one.watch(LOGS)

    with pytest.raises(RemoteProtocolError):
        one.feed(b"W1", answer)


def test_an_answer_after_the_last_listener_left_is_dropped(one):
    """What nobody asked for, or waits for any more, is not kept."""
    one.watch(LOGS)
    one.wait(0.0)
    one.watch()
    one.feed(b"W1", lines("late"))
    one.watch(LOGS)

    assert [line.text for message in logs(one) for line in message.lines] == []


def test_a_scheduler_may_hide_logs():
    """With hides_logs no worker is asked, and whoever listens is told why."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, hides_logs=True))
    bench.supervisor()
    bench.worker()

    assert "W1" not in bench.watch(LOGS)
    assert {message.reason for message in logs(bench)} == {tailing.HIDDEN}
