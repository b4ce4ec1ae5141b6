"""Threads that wait for results: one of them reads the socket for all."""

from __future__ import annotations

import contextlib
import threading
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import SessionClosedError, SessionForkedError
from scaler_cluster.process.interrupts import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scaler_cluster.client.connection import Connection
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.leader_follower import LeaderFollower
    from scaler_cluster.client.settler import Settler

LOOK_S = 1.0
"""A thread that waits for results looks after its connection this often at least."""
FOLLOW_S = 0.05
"""The I/O thread, waiting inside a callback for another thread's lead, looks after this."""


class Waiter:
    """Lets threads wait; see :class:`LeaderFollower`."""

    def __init__(self, connection: Connection, lead: LeaderFollower, settler: Settler) -> None:
        self._connection = connection
        self._lead = lead
        self._settler = settler

    def wait(
        self,
        done: Callable[[], bool],
        future: ScalerFuture[Any] | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Wait until ``done()``, at most ``timeout`` seconds; return what it returned last.

        ``future`` is the one that is waited for, if it is one alone.
        """
        deadline = None if timeout is None else clock() + timeout
        while not done():
            if self._connection.forked:
                raise SessionForkedError("the parent of this forked process waits for this, not I")
            if self._connection.closed and not done():
                raise SessionClosedError("this was closed before the result came")
            if self._lead.is_mine:
                with deferred:
                    self._take_in(done, deadline)
            elif self._lead.acquire():
                try:
                    with deferred:
                        self._lead_until(done, deadline)
                finally:
                    self._lead.release()
            else:
                self._follow(done, future, deadline)
            if deadline is not None and clock() >= deadline:
                return done()
        return True

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Keep the I/O thread asleep while this thread submits and takes in much.

        What it submits is sent when it waits, or at the end.
        """
        if not self._lead.acquire():
            yield
            return
        try:
            self._lead.begin()
            yield
        finally:
            self._end_lead()
            self._lead.release()

    def _end_lead(self) -> None:
        self._lead.end()
        if self._settler.has_callbacks or self._connection.has_unsent:
            self._lead.wake_io()

    def _lead_until(self, done: Callable[[], bool], deadline: float | None) -> None:
        self._lead.begin()
        try:
            self._take_in(done, deadline)
        finally:
            self._end_lead()

    def _take_in(self, done: Callable[[], bool], deadline: float | None) -> None:
        connection, lead, settler = self._connection, self._lead, self._settler
        arrived = connection.has_unsent
        deferred.tell(lead.nudge_pipe)
        while not connection.closed and not deferred.is_awaited:
            if arrived:
                settler.handle(connection.pump())
            if done():
                return
            arrived = connection.spin()
            if arrived:
                continue
            now = clock()
            if deadline is not None and now >= deadline:
                return
            until = connection.deadline if deadline is None else deadline
            lead.wait(min(max(until - now, 0.0), LOOK_S))
            arrived = True

    def _follow(
        self, done: Callable[[], bool], future: ScalerFuture[Any] | None, deadline: float | None
    ) -> None:
        left = None if deadline is None else max(deadline - clock(), 0.0)
        if threading.current_thread() is self._settler.io_thread:
            left = FOLLOW_S if left is None else min(left, FOLLOW_S)
        self._lead.follow(done, future._condition if future is not None else None, left)
