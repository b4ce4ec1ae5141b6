"""What listens for a report: what it waits for, and for how long."""

from __future__ import annotations

import pytest

from scaler_cluster.errors import ConfigError, RemoteProtocolError
from scaler_cluster.wire import feed as f
from scaler_monitoring import report_process as module
from scaler_monitoring.period import Period


class Listener:
    """A feed that says these, and then nothing."""

    address = "tcp://10.0.0.1:8518"
    credentials = None

    def __init__(self, *messages):
        self.messages = list(messages)

    def next(self, timeout_s=0.0):
        return self.messages.pop(0) if self.messages else None

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def snapshot(seq, **fields):
    return f.Snapshot("run", seq, clock=float(seq), **fields)


def batch(seq):
    return f.Events("run", seq, 0.0, {}, [f.Done(0.0, b"W1")])


@pytest.fixture
def newcomer(monkeypatch):
    """Return what one who begins to listen hears; nobody waits long."""
    heard = Listener()
    monkeypatch.setattr(module, "Feed", lambda *_: heard)
    for name in ("FIRST_S", "LAST_S", "LAST_EVENTS_S"):
        monkeypatch.setattr(module, name, 0.05)
    return heard


def test_it_begins_with_a_snapshot(newcomer):
    """A report begins with the first snapshot, and takes in events that came before."""
    period = module._begin(Listener(batch(1), snapshot(1)))

    assert period.first == snapshot(1)


def test_a_scheduler_that_is_not_heard(newcomer):
    """A scheduler that is not heard is an error that names its address."""
    with pytest.raises(ConfigError, match="no scheduler is heard at tcp://10.0.0.1:8518"):
        module._begin(Listener())


def test_it_ends_after_a_snapshot_that_was_asked_for_at_the_end(newcomer):
    """A report ends with a snapshot that was made at its end, and with the events up to it."""
    newcomer.messages = [snapshot(3, events=1)]
    period = Period()
    listener = Listener(
        snapshot(2), batch(1), snapshot(3, events=1), batch(2), snapshot(4, events=2)
    )

    assert module._end(listener, period)
    assert period.last == snapshot(3, events=1)
    assert len(period.model.stream) == 2
    assert listener.messages == [snapshot(4, events=2)]


def test_nothing_happened_last(newcomer):
    """A report does not wait long for events that never come."""
    newcomer.messages = [snapshot(2)]

    assert module._end(Listener(snapshot(2)), Period())


def test_a_scheduler_that_is_gone(newcomer):
    """A report of a lost or silent scheduler ends without its last snapshot."""
    assert not module._end(Listener(snapshot(2)), Period())

    newcomer.messages = [snapshot(2)]
    assert not module._end(Listener(), Period())


def test_a_feed_that_cannot_be_understood(newcomer, monkeypatch, tmp_path):
    """A feed of another version is told as the reason why there is no page."""

    def refuse(*_):
        raise RemoteProtocolError("another version")

    monkeypatch.setattr(module, "_listen", refuse)
    path = tmp_path / "report.html"

    assert module._report(Listener(), Period(), str(path)) == "another version"
    assert not path.exists()
