"""What waits until an exchange is over."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from scaler_cluster.process import interrupts
from scaler_cluster.process.interrupts import Deferral


def test_an_action_waits_until_the_outermost_is_left() -> None:
    """A postponed action is done once, by the thread that leaves the outermost deferral."""
    deferral, done = Deferral(), []
    with deferral:
        with deferral:
            assert deferral.postpone(lambda: done.append(1))
            assert deferral.is_awaited
        assert done == []

    assert done == [1]
    assert not deferral.is_awaited


def test_nothing_is_postponed_where_nobody_is() -> None:
    """An action is not postponed while no thread is within a deferral."""
    done: list[int] = []

    assert not Deferral().postpone(lambda: done.append(1))
    assert done == []


def test_control_c_waits_as_well() -> None:
    """A KeyboardInterrupt is raised when the outermost deferral is left."""
    deferral, reached = Deferral(), []
    with pytest.raises(KeyboardInterrupt), deferral:
        signal.raise_signal(signal.SIGINT)
        reached.append(1)

    assert reached == [1]


def test_control_c_at_the_last_moment(monkeypatch) -> None:
    """A KeyboardInterrupt that comes just before the handler is back is raised all the same."""
    give_back = signal.signal

    def interrupt_and_give_back(number: signal.Signals, handler: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        give_back(number, handler)

    with pytest.raises(KeyboardInterrupt), Deferral():
        monkeypatch.setattr(interrupts, "set_handler", interrupt_and_give_back)
