"""Which connections to other machines a client keeps."""

from __future__ import annotations

import pytest

from scaler_cluster.objects import client_store
from scaler_cluster.objects.client_store import IDLE_S, ClientStore
from scaler_cluster.objects.remote_store import Incoming


class Storage:
    """What a connection to a storage looks like."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_open = True

    def fetch(self, incoming: Incoming, timeout: float | None = None) -> memoryview | None:
        assert self.is_open
        return memoryview(self.address.encode())

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def now(monkeypatch):
    """Return a clock that stands still: a list of the time."""
    time = [1_000.0]
    monkeypatch.setattr(client_store, "clock", lambda: time[0])
    return time


def test_a_connection_that_is_not_used_is_closed(now) -> None:
    """A client does not keep a connection to each machine that was ever there."""
    made: list[Storage] = []

    def connect(address: str) -> Storage:
        made.append(Storage(address))
        return made[-1]

    store = ClientStore((), iter(()), connect)
    for number in range(50):
        assert store.open(Incoming(b"one"), f"tcp://machine:{number}") is not None
        assert store.open(Incoming(b"one"), "tcp://stays:1") is not None
        now[0] += IDLE_S / 4

    assert len([one for one in made if one.is_open]) <= 6
    assert [one.is_open for one in made if one.address == "tcp://stays:1"] == [True]
    store.close()
    assert not any(one.is_open for one in made)


def test_a_store_that_is_abandoned_keeps_no_connection(now) -> None:
    """What a scheduler before has known is hardly asked for; if it is, there is a connection."""
    made: list[Storage] = []

    def connect(address: str) -> Storage:
        made.append(Storage(address))
        return made[-1]

    store = ClientStore((), iter(()), connect)
    for number in range(3):
        store.open(Incoming(b"one"), f"tcp://machine:{number}")
    now[0] += 1
    store.rest()

    assert not any(one.is_open for one in made)
    assert store.open(Incoming(b"one"), "tcp://machine:0") is not None
    assert [one.is_open for one in made] == [False, False, False, True]
