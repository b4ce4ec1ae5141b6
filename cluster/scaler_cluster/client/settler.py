"""What follows from the events of a client's core: futures are settled, texts printed."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from scaler_cluster.client.future import settle_all
from scaler_cluster.core.client.events import InputWanted, NodeRan, Profiled, Released, Settled
from scaler_cluster.errors import ClusterBrokenError, ClusterUnreachableError
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scaler_cluster.client.connection import Connection
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.input_supplier import InputSupplier
    from scaler_cluster.client.leader_follower import LeaderFollower
    from scaler_cluster.core.client.events import ClientEvent
    from scaler_cluster.errors import ScalerError

log = logging.getLogger("concurrent.futures")
"""For what the standard library's executors log as well: who listens for failing callbacks there
hears of them here."""
client_log = logging.getLogger("scaler_cluster.client")


class Settler:
    """Handles events, in whichever thread took them in; no lock is held.

    Callbacks of futures are left to the I/O thread, which calls :meth:`run_callbacks`.
    """

    def __init__(
        self, connection: Connection, lead: LeaderFollower, supplier: InputSupplier
    ) -> None:
        self.refused = ""
        """What the scheduler refused last, and why."""
        self.listed: m.WorkerList | None = None
        """The workers that the scheduler named last, to whoever asked for them."""
        self.io_thread: threading.Thread | None = None
        self._is_missing = False
        """True if the log says that the scheduler is silent, or has forgotten this client."""
        self._callbacks: deque[tuple[ScalerFuture[Any], list[Any]]] = deque()
        self._connection = connection
        self._lead = lead
        self._supplier = supplier

    def handle(self, events: list[ClientEvent]) -> None:
        """Do what follows from events, in their order."""
        for event in events:
            self._HANDLERS[type(event)](self, event)
        self._lead.wake_others()

    def settle(self, pairs: Iterable[tuple[Any, object]]) -> None:
        """Settle futures, and let their callbacks run in the I/O thread."""
        self.handle([Settled(list(pairs))])

    @property
    def has_callbacks(self) -> bool:
        """Return True if :meth:`run_callbacks` has something to do."""
        return bool(self._callbacks)

    def run_callbacks(self) -> None:
        """Call those who wanted to be called when a future is done."""
        while self._callbacks:
            future, callbacks = self._callbacks.popleft()
            for callback in callbacks:
                try:
                    callback(future)
                except BaseException:
                    # Even of a SystemExit: this thread has others to serve.
                    log.exception("exception calling callback for %r", future)

    def miss(self, silence_s: float, until_s: float) -> None:
        """Say once that the scheduler is silent, and how long this waits for it."""
        # A worker has many sessions of tasks, and its supervisor speaks for them.
        if not self._is_missing and not self._connection.worker:
            self._is_missing = True
            client_log.warning(
                "the scheduler at %s has not answered for %.1f s; it is given %g s to come back",
                self._connection.address,
                silence_s,
                until_s,
            )

    def is_back(self) -> None:
        """Say that the scheduler has come back, if it was said that it had gone."""
        if self._is_missing:
            self._is_missing = False
            client_log.warning("the scheduler at %s is back", self._connection.address)

    # -- events ------------------------------------------------------------------------------

    def _on_settled(self, event: Settled) -> None:
        called = settle_all(event.pairs)
        if called:
            self._callbacks.extend(called)
            if threading.current_thread() is not self.io_thread:
                self._lead.wake_io()

    def _on_profiled(self, event: Profiled) -> None:
        future: Any = event.waiter
        took = event.profile
        future._profiled(took.duration_s, took.cpu_time_s, took.memory_peak)

    def _on_output(self, _: m.Output) -> None:
        self._connection.printer.print_all()

    def _on_unplaced(self, event: m.Unplaced) -> None:
        client_log.warning(event.reason)

    def _on_notice(self, event: m.Notice) -> None:
        client_log.warning(event.text)

    def _on_worker_list(self, event: m.WorkerList) -> None:
        self.listed = event

    def _on_refused(self, event: m.Refused) -> None:
        self.refused = event.reason
        if not self._connection.welcome.session:
            where = self._connection.address
            self._fail(ClusterUnreachableError(f"the scheduler at {where} says: {event.reason}"))

    def _on_broken(self, event: m.Broken | m.Goodbye) -> None:
        self._fail(ClusterBrokenError(event.reason))

    def _on_unknown(self, _: m.Unknown) -> None:
        if self._connection.error is not None:
            # It was sent away, and knows why.
            return
        reason = (
            f"the scheduler at {self._connection.address} does not know this client any more: "
            "it was started anew, or had not heard from this client for too long"
        )
        if self._connection.starts_over:
            self._is_missing = True
            client_log.warning("%s; what has not come back is asked for again", reason)
        else:
            self._fail(ClusterUnreachableError(reason))

    def _on_welcome(self, _: m.Welcome) -> None:
        self.is_back()

    def _fail(self, error: ScalerError) -> None:
        """Nothing comes back any more; the first reason stays."""
        if self._connection.error is None:
            self._connection.error = error
            self._lead.wake_io()

    def _on_input_wanted(self, event: InputWanted) -> None:
        future: Any = event.waiter
        self._supplier.supply_when_done(event.task, future)

    def _on_node_ran(self, event: NodeRan) -> None:
        self._supplier.supply_outcome(event.task, event.outcome)

    def _on_released(self, event: Released) -> None:
        self._connection.stored().release(event.objects)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Settled: _on_settled,
        Profiled: _on_profiled,
        InputWanted: _on_input_wanted,
        NodeRan: _on_node_ran,
        Released: _on_released,
        m.Output: _on_output,
        m.Unplaced: _on_unplaced,
        m.Notice: _on_notice,
        m.WorkerList: _on_worker_list,
        m.Refused: _on_refused,
        m.Broken: _on_broken,
        m.Goodbye: _on_broken,
        m.Unknown: _on_unknown,
        m.Welcome: _on_welcome,
    }
