"""Workers tell what the arguments of a task that raised look like: if they are to, and in short."""

from __future__ import annotations

import threading

import pytest

from scaler_cluster.pickling.nodes import run_chain
from scaler_cluster.runtime import failed_arguments
from scaler_cluster.runtime.failed_arguments import CHARS_MAX, FailedArguments
from scaler_cluster.wire import feed, feed_codec
from scaler_cluster.wire import messages as m
from scaler_exec import Client, NamedFunction, SchedulerClusterCombo
from scaler_monitoring.feed import Feed


class Loud:
    """Raises whatever happens."""

    def __repr__(self):
        raise SystemExit(3)


class Many(list):
    """Would have a long text."""


def inc(x):
    return x + 1


@pytest.mark.parametrize(
    ("kind", "args", "text"),
    [
        (m.CALL_ARGS, (1, "two", [3.5, None]), "1, 'two', [3.5, None]"),
        (m.CALL_ARGS, (), ""),
        (m.CALL_KWARGS, ((1,), {"rate": 0.5}), "1, rate=0.5"),
        (m.CALL_NAMED, ([1], {"rate": 0.5}), "1, rate=0.5"),
        (m.CALL_CHUNK, ((1, 2), (3, 4)), "(1, 2), (3, 4)"),
        (m.CALL_NODE, (inc, [1], {"y": 2}), "1, y=2"),
        (m.CALL_NODE, (run_chain, ([(inc, [1], None, ()), (inc, [2], {"y": 3}, ())],), {}),
         "inc(1), inc(2, y=3)"),
        (m.CALL_ARGS, (Loud(), 7), "<Loud>, 7"),
        (m.CALL_ARGS, (bytes(1 << 20),), repr(bytes(80)) + "..."),
        (m.CALL_ARGS, (Many(range(1001)), Many([1])), "<Many of 1001>, [1]"),
        (m.CALL_ARGS, ("a\nb", "\ud800"), r"'a\nb', '\ud800'"),
    ],
)  # fmt: skip
def test_what_is_told(kind, args, text):
    """A call of each kind is told as somebody would write it, whatever its arguments do."""
    if len(text) > CHARS_MAX:
        text = text[: CHARS_MAX - 3] + "..."
    assert FailedArguments().text(kind, args) == text


def test_it_is_short():
    """However much there is, it is cut; what would not be seen any more is not looked at."""
    told = FailedArguments().text(m.CALL_ARGS, ("x" * 1000,) * 10**6)
    assert len(told) == CHARS_MAX
    assert told.endswith("...")


def test_what_takes_long_is_not_waited_for(monkeypatch):
    """The arguments before it are told, and its type is never asked again."""
    until, calls = threading.Event(), []

    class Slow:
        def __repr__(self):
            calls.append(1)
            until.wait()
            return "at last"

    told = FailedArguments()
    assert told.text(m.CALL_ARGS, (1, Slow(), 2)) == "1, ... (the others take too long)"
    monkeypatch.setattr(failed_arguments, "WAIT_S", 60.0)
    assert told.text(m.CALL_ARGS, (1, Slow(), 2)) == f"1, <{Slow.__qualname__}>, 2"
    assert calls == [1]
    until.set()


def divide(x, y=0):
    return x / y


def failures(cluster, count):
    """Have tasks fail in each way of calling; return so many events of that."""
    found: list[feed.Failed] = []
    with Client(cluster.get_address()) as client, Feed(cluster.get_monitor_address()) as listener:
        while not isinstance(listener.next(60.0), feed.Snapshot):
            pass
        futures = [
            client.submit(divide, 41),
            client.submit(divide, 42, y=0),
            client.submit(NamedFunction("operator.truediv"), 43, 0),
        ]
        assert all(one.exception(60.0) for one in futures)
        with pytest.raises(ZeroDivisionError):
            client.get({"node": (divide, 44)}, ["node"])
        while len(found) < count:
            message = listener.next(60.0)
            assert message is not None
            if isinstance(message, feed.Events):
                found += [one for one in message.events if isinstance(one, feed.Failed)]
    return found


def test_workers_tell_if_they_are_to():
    """With the setting, those who watch see the arguments; without it, nobody does."""
    for is_on, expected in ((True, ["41", "42, y=0", "43, 0", "44"]), (False, [""] * 4)):
        with SchedulerClusterCombo(n_workers=1, failed_arguments=is_on) as cluster:
            told = failures(cluster, 4)
        assert sorted(one.arguments for one in told) == expected
        assert all(one.traceback for one in told)
        message = feed.Events("run", 1, 1.0, {}, [*told])
        assert feed_codec.decode(feed_codec.encode(message)) == message
