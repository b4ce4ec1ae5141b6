"""Transfers from a storage that does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scaler_cluster.core.storage.transfer import SILENCE_S
from scaler_cluster.errors import StorageUnreachableError
from scaler_cluster.objects import remote_store
from scaler_cluster.objects.remote_store import GIVEN_UP_S, LOOK_S, PROBE_S, Incoming, RemoteStore
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence


class SilentSource:
    """A storage that says nothing until it is back; time passes only while it is waited for."""

    def __init__(self, address: str, scheduler: str, peer: bytes, passport: None) -> None:
        self.address = address
        self.now = 1000.0
        self.is_back = False
        self.is_new = False
        """It was started anew, and says so."""
        self._asked: list[m.Fetch] = []

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def send(self, messages: Sequence[m.Message]) -> None:
        """Note what is asked for: it arrives when somebody is there."""
        self._asked += [one for one in messages if isinstance(one, m.Fetch)]

    def turn(self) -> list[m.Message]:
        """Return what has arrived."""
        if self.is_new:
            self.is_new = False
            return [m.Unknown()]
        if not self.is_back:
            return []
        asked, self._asked = self._asked, []
        return [m.Part(one.segment, one.offset, 4, memoryview(b"data")) for one in asked]

    def wait(self, timeout_s: float) -> None:
        """Let time pass."""
        self.now += timeout_s

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def storage(monkeypatch) -> Any:
    """Return a storage and its source."""
    monkeypatch.setattr(remote_store, "Source", SilentSource)
    store = RemoteStore("tcp://gone:1", "tcp://scheduler:1", b"F1")
    monkeypatch.setattr(remote_store, "clock", store._source.clock)  # type: ignore[attr-defined]
    return store, store._source


def time_to_fail(store: RemoteStore, source: SilentSource) -> float:
    began = source.now
    with pytest.raises(StorageUnreachableError, match="has not answered for 30 s"):
        store.fetch(Incoming(b"%f" % began))
    return source.now - began


def test_a_storage_that_is_gone_is_waited_for_once(storage) -> None:
    """The first transfer waits; others fail at once, but for a short look now and then."""
    store, source = storage

    assert SILENCE_S < time_to_fail(store, source) <= SILENCE_S + LOOK_S
    assert [time_to_fail(store, source) for _ in range(3)] == [0, 0, 0]
    source.now += GIVEN_UP_S
    assert PROBE_S < time_to_fail(store, source) <= PROBE_S + LOOK_S
    assert time_to_fail(store, source) == 0


def test_a_storage_that_is_back_is_asked_as_ever(storage) -> None:
    """Once it has answered, silence is borne for as long as at first."""
    store, source = storage
    time_to_fail(store, source)
    source.now += GIVEN_UP_S
    source.is_back = True

    assert store.fetch(Incoming(b"last")) == b"data"

    source.is_back = False
    assert time_to_fail(store, source) > SILENCE_S


def test_a_storage_that_was_started_anew_is_asked_at_once(storage) -> None:
    """Who says that it has forgotten everything is there."""
    store, source = storage
    time_to_fail(store, source)
    source.is_new = source.is_back = True

    assert store.fetch(Incoming(b"last")) == b"data"


def test_a_connection_in_use_is_not_waited_for(storage) -> None:
    """Whoever uses a connection tends it."""
    store, _ = storage
    with store._lock:
        store.tend()
