"""Tells the scheduler what became of the inputs of graphs.

A future that is passed on is an *input*. Of one that has come back the result is sent as it came;
of one that is under way the scheduler takes the result, or asks for it if that is on its way here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.future import PLAIN, load
from scaler_cluster.errors import (
    MissingObjectsError,
    PayloadError,
    StorageFullError,
    StorageUnreachableError,
)
from scaler_cluster.pickling import payload as payloads
from scaler_cluster.pickling.exceptions import dumps_exception
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from scaler_cluster.client.call_pickler import CallPickler
    from scaler_cluster.client.connection import Connection
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.leader_follower import LeaderFollower


class InputSupplier:
    """Sends results that are here to the scheduler, each as that of the node that it is for."""

    def __init__(self, connection: Connection, pickler: CallPickler, lead: LeaderFollower) -> None:
        self.supplied_late = 0
        """How many inputs were supplied after their graph was submitted."""
        self._connection = connection
        self._pickler = pickler
        self._lead = lead

    def supply_when_done(self, task: int, future: ScalerFuture[Any]) -> None:
        """Send an input that the scheduler asks for, now or when it is there."""
        if future.done():
            self._supply_late(task, future)
        else:
            # It has arrived, but has not been settled yet by the thread that took it in.
            future.add_done_callback(partial(self._supply_late, task))

    def _supply_late(self, task: int, future: ScalerFuture[Any]) -> None:
        self.supply(task, future)
        self.supplied_late += 1
        self._lead.wake_io()

    def supply(self, task: int, future: ScalerFuture[Any]) -> None:
        """Send what became of a future, which is done, as that of the node that this task is."""
        if future.cancelled():
            self._connection.say(m.ProvideInputs(task, m.INPUT_CANCELLED, b""))
            return
        outcome = future._payload
        is_ours = future._session.connection is self._connection
        if hasattr(outcome, "objects") and not is_ours:
            # It lies where the scheduler of this client cannot have it from.
            outcome = None
        message = _as_it_came(task, outcome)
        if message is not None:
            self._connection.say(message)
        else:
            error = future.exception()
            self._send(task, None if error is not None else future.result(), error)

    def supply_outcome(self, task: int, outcome: object) -> None:
        """Send what became of a node that ran here, and that nobody here waits for."""
        message = _as_it_came(task, outcome)
        if message is not None:
            self._connection.say(message)
        else:
            self._send(task, *load(outcome))

    def _send(self, task: int, value: object, error: BaseException | None) -> None:
        """Pickle a value, or what was raised in its place, and send it."""
        held: list[bytes] = []
        try:
            data = b"" if error is not None else self._pickle(value, held)
        except (
            PayloadError,
            StorageFullError,
            StorageUnreachableError,
            MissingObjectsError,
        ) as failure:
            error = failure
        if error is not None:
            data, detail = dumps_exception(error, error.__traceback__)
            message = m.ProvideInputs(task, m.FAILED_EXCEPTION, data, (), detail)
        else:
            message = m.ProvideInputs(task, "", data, tuple(held))
        self._connection.say(message)
        self._pickler.release(held)

    def _pickle(self, value: object, held: list[bytes]) -> bytes:
        """Return a value's pickle; objects that were stored for it are added to ``held``."""
        if not self._pickler.stores:
            return payloads.dumps(value)
        collector = payloads.Collector()
        data = payloads.dumps_result(value, collector, None)
        held += self._pickler.hold(collector.buffers)
        return data


def _as_it_came(task: int, outcome: Any) -> m.ProvideInputs | None:
    """Return what sends a failure or a result on; None if that must be pickled for it."""
    if isinstance(outcome, m.Failed):
        return m.ProvideInputs(task, outcome.kind, outcome.payload, (), outcome.detail)
    if type(outcome) in PLAIN and len(outcome) < payloads.OBJECT_BYTES:
        return m.ProvideInputs(task, "", outcome)
    if hasattr(outcome, "objects"):
        return m.ProvideInputs(task, "", outcome.payload, outcome.objects)
    return None
