"""What waits until an exchange is over."""

from __future__ import annotations

import signal

import pytest

from scaler_cluster.runtime.interrupts import Deferral


def test_an_action_waits_until_the_outermost_is_left() -> None:
    """It is done once, in the thread that leaves."""
    deferral, done = Deferral(), []
    with deferral:
        with deferral:
            assert deferral.postpone(lambda: done.append(1))
            assert deferral.is_awaited
        assert done == []

    assert done == [1]
    assert not deferral.is_awaited


def test_nothing_is_postponed_where_nobody_is() -> None:
    """Whoever asks does it at once then."""
    done: list[int] = []

    assert not Deferral().postpone(lambda: done.append(1))
    assert done == []


def test_control_c_waits_as_well() -> None:
    """It is raised when the outermost is left."""
    deferral, reached = Deferral(), []
    with pytest.raises(KeyboardInterrupt), deferral:
        signal.raise_signal(signal.SIGINT)
        reached.append(1)

    assert reached == [1]
