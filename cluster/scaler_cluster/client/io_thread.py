"""The thread of a client that looks after its connection while no other thread does."""

from __future__ import annotations

import threading
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.errors import ClusterBrokenError, ClusterUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.client.connection import Connection
    from scaler_cluster.client.leader_follower import LeaderFollower
    from scaler_cluster.client.settler import Settler
    from scaler_cluster.core.client.liveness import Liveness
    from scaler_cluster.errors import ScalerError


class IoThread:
    """Sends heartbeats, takes in what comes, runs callbacks, and ends the session.

    Args:
        connection: What it looks after.
        lead: Tells it when.
        settler: Handles what happens.
        liveness: When to say that this client lives, and when to give the scheduler up.
        dead_child: Says why nothing can come back, if a process of this cluster has died.
        look: Called after callbacks were run.
        finish: Called at the end.

    """

    def __init__(
        self,
        connection: Connection,
        lead: LeaderFollower,
        settler: Settler,
        liveness: Liveness,
        dead_child: Callable[[], str],
        look: Callable[[], None],
        finish: Callable[[], None],
    ) -> None:
        self.finished = threading.Event()
        """Set when everything has ended."""
        self._connection = connection
        self._lead = lead
        self._settler = settler
        self._liveness = liveness
        # In its arguments, which go with the thread: else a session would outlive its end.
        self._thread = threading.Thread(
            target=self._run, args=(dead_child, look, finish), name="scaler-io", daemon=True
        )
        settler.io_thread = self._thread
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Return True if the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def fail_all(self, error: ScalerError) -> None:
        """Fail everything that is pending: nothing will come back any more."""
        self._connection.error = error
        waiters = self._connection.give_up(error)
        self._settler.settle((waiter, error) for waiter in waiters)

    def _run(
        self, dead_child: Callable[[], str], look: Callable[[], None], finish: Callable[[], None]
    ) -> None:
        try:
            self._serve(dead_child, look)
        except Exception as error:
            # A bug of ours must not leave anybody waiting.
            failure = ClusterBrokenError(f"the I/O thread failed: {error!r}")
            failure.__cause__ = error
            self.fail_all(failure)
        try:
            self._settler.run_callbacks()
            finish()
        finally:
            self.finished.set()

    def _serve(self, dead_child: Callable[[], str], look: Callable[[], None]) -> None:
        connection, settler = self._connection, self._settler
        while True:
            due = min(connection.deadline, self._liveness.heartbeat_at)
            self._lead.wait_as_io(max(due - clock(), 0.0))
            now = clock()
            if self._liveness.beat(now):
                connection.beat()
                if connection.error is None:
                    self._check_cluster(now, dead_child())
            settler.handle(connection.pump())
            if connection.error is not None:
                self.fail_all(connection.error)
            settler.run_callbacks()
            look()
            if connection.is_drained:
                return

    def _check_cluster(self, now: float, death: str) -> None:
        connection = self._connection
        if death:
            connection.error = ClusterBrokenError(death)
        elif self._liveness.is_silent(connection.heard_at, now):
            silence_s = self._liveness.silence_s
            connection.error = ClusterUnreachableError(
                f"the scheduler at {connection.address} has not answered for {silence_s:g} s"
            )
        elif self._liveness.is_missed(connection.heard_at, now):
            self._settler.miss(
                self._liveness.silence_s_of(connection.heard_at, now), self._liveness.silence_s
            )
        elif connection.welcome.session:
            self._settler.is_back()
