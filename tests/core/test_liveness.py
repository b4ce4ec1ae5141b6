"""When a client says that it lives, and when it gives its scheduler up."""

from __future__ import annotations

import pytest

from scaler_cluster.core.client.liveness import Liveness

NOW = 100.0


@pytest.fixture
def liveness():
    """One that beats every 2 s, and gives up after 10 s; it begins at 100 s."""
    return Liveness(2.0, 10.0, NOW)


def test_a_heartbeat_is_due_at_its_time(liveness) -> None:
    """A heartbeat is due at its time, and the next one an interval after it was sent."""
    assert liveness.beat(NOW + 1.999) is False
    assert liveness.beat(NOW + 2.0) is True
    assert liveness.heartbeat_at == NOW + 4.0
    assert liveness.beat(NOW + 3.0) is False
    assert liveness.beat(NOW + 4.5) is True
    assert liveness.heartbeat_at == NOW + 6.5


def test_a_silent_scheduler_is_given_up(liveness) -> None:
    """A scheduler is given up when it was silent for longer than the limit."""
    assert not liveness.is_silent(NOW + 5.0, NOW + 15.0)
    assert liveness.is_silent(NOW + 5.0, NOW + 15.001)


def test_a_scheduler_has_time_from_the_start(liveness) -> None:
    """A scheduler that was never heard is given up when the limit has passed since the start."""
    assert not liveness.is_silent(0.0, NOW + 10.0)
    assert liveness.is_silent(0.0, NOW + 10.001)


def test_our_own_lag_excuses_the_scheduler(liveness) -> None:
    """A client that was late by more than an interval gives the scheduler the limit anew."""
    liveness.beat(NOW + 30.0)

    assert not liveness.is_silent(NOW, NOW + 40.0)
    assert liveness.is_silent(NOW, NOW + 40.001)


def test_a_little_delay_excuses_nothing(liveness) -> None:
    """A client that was late by no more than an interval does not excuse the scheduler."""
    liveness.beat(NOW + 4.0)

    assert liveness.is_silent(NOW, NOW + 10.001)


@pytest.mark.parametrize(("heartbeat_s", "missed_s"), [(1.0, 5.0), (2.0, 5.0), (10.0, 20.0)])
def test_a_scheduler_is_missed_before_it_is_given_up(heartbeat_s, missed_s) -> None:
    """It is missed after some seconds, or two heartbeats, without an answer; our own lag is none."""
    liveness = Liveness(heartbeat_s, 300.0, NOW)

    assert not liveness.is_missed(NOW + 1.0, NOW + 1.0 + missed_s)
    assert liveness.is_missed(NOW + 1.0, NOW + 1.001 + missed_s)
    liveness.beat(NOW + 70.0)
    assert not liveness.is_missed(NOW + 1.0, NOW + 70.0)
