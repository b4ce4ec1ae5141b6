"""The connection of the tasks of a worker: what they submit is held here for a moment."""

from __future__ import annotations

from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from scaler_cluster.client.connection import Connection
from scaler_cluster.core.worker.nested import NestedCore
from scaler_cluster.runtime.callback_watch import CallbackWatch

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Sequence

    from scaler_cluster.client.client_map import ClientMap
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.core.client.events import ClientEvent
    from scaler_cluster.core.worker.subtasks import OwnGraph, Subtask
    from scaler_cluster.objects.client_store import ClientStore
    from scaler_cluster.runtime.task_host import TaskHost
    from scaler_cluster.wire import messages as m


class NestedConnection(Connection):
    """A connection that sends away what has been held for long enough."""

    starts_over = False

    def __init__(
        self,
        host: TaskHost,
    ) -> None:
        self.callbacks = CallbackWatch()
        self._nested = NestedCore(host.may_run)
        super().__init__(host.address, host.credentials, self._nested, host.peer)
        self.process = host.process

    @property
    def deadline(self) -> float:
        """When :meth:`pump` has something to send, or the I/O thread something to look after."""
        return min(super().deadline, self._nested.deadline, self.callbacks.look_at)

    def pump(self) -> list[ClientEvent]:
        """See :class:`Connection`."""
        self._sweep()
        with self._lock:
            self._nested.send_away(clock())
            return self._pump()

    def _make_store(self) -> ClientStore:
        from scaler_cluster.objects.nested_store import NestedStore

        where = self.welcome.homes, self._segment_names, self._connect
        return NestedStore(*where, self._nested.views)

    # -- what tasks submit -------------------------------------------------------------------

    def hold(self, child: Subtask, future: ScalerFuture[Any]) -> float:
        """Take in a single task; return in how many seconds something else was due."""
        with self._lock:
            self.check_usable()
            now = clock()
            due_s = self._nested.held.deadline - now
            future._task = self._nested.hold(child, future, now)
            return due_s

    def hold_piece(self, child: Subtask, first: int) -> float:
        """Take in a piece of a map; return in how many seconds something else was due."""
        with self._lock:
            self.check_usable()
            now = clock()
            due_s = self._nested.held.deadline - now
            self._nested.hold_piece(child, first, now)
            return due_s

    def own_graph(self, graph: OwnGraph, tasks: Iterable[int]) -> None:
        """Note a graph that was submitted, and which of its nodes are waited for."""
        with self._lock:
            self._nested.own_graph(graph, tasks)

    def open_nested_call(self, call: ClientMap, owner: int) -> int:
        """Take the map of a task in; return the id that its first task will have."""
        with self._lock:
            self.check_usable()
            return self._nested.open_nested_call(call, owner)

    @property
    def has_untold(self) -> bool:
        """Return True if something ran here that the I/O thread does not know to tell of."""
        return self._nested.inlined.is_unseen

    @property
    def is_idle(self) -> bool:
        """Return True if no task has anything here."""
        return self._nested.is_idle

    # -- waiting -----------------------------------------------------------------------------

    def is_pending(self, task: int) -> bool:
        """Return True if a single task has not come back, or something of its map has not."""
        return self._nested.is_pending(task)

    def with_needs(self, tasks: deque[int]) -> list[int]:
        """Return tasks, each after those that it takes the results of and that are pending."""
        if self._nested.graphs.is_empty:
            return list(tasks)
        with self._lock:
            return self._nested.with_needs(tasks)

    def is_held(self, tasks: Iterable[int]) -> bool:
        """Return True if one of these may run here."""
        return self._nested.is_any_held(list(tasks))

    def claim(self, tasks: deque[int]) -> Subtask | None:
        """Take out the first of these tasks that may run here."""
        with self._lock:
            return self._nested.claim_first(tasks)

    def send(self, child: Subtask) -> None:
        """Let others run what was claimed after all."""
        with self._lock:
            self._nested.send(child)

    def send_now(self, tasks: Iterable[int]) -> None:
        """Let others run these tasks."""
        with self._lock:
            self._nested.send_now(tasks)

    def recall(self, tasks: Sequence[int], turn: int) -> None:
        """Ask for the first of these tasks, and for some of the others in turn."""
        with self._lock:
            self._nested.recall_some(tasks, turn)

    def count_waiting(self, change: int) -> bool:
        """Count threads that wait for what runs elsewhere; return True if that is to be said."""
        with self._lock:
            return self._nested.count_waiting(change)

    def settle(
        self, child: Subtask, outcome: object, took_s: float, profile: m.Profile | None
    ) -> list[ClientEvent]:
        """A claimed task ended here; see :class:`NestedCore`."""
        with self._lock:
            self._nested.settle(child, outcome, took_s, profile)
            return self._nested.events.take()

    # -- tasks that submit -------------------------------------------------------------------

    def tasks_of(self, owner: int) -> list[int]:
        """Return what a task submitted that has not come back."""
        with self._lock:
            return list(self._nested.owned.get(owner, ()))

    def owns(self, owner: int) -> bool:
        """Return True if something that a task submitted has not come back."""
        with self._lock:
            nested = self._nested
            return owner in nested.owned or nested.coordination.owns(owner)

    def give_up_of(self, owner: int, error: BaseException) -> list[Any]:
        """A task ended: cancel what it submitted; return who waited for that."""
        with self._lock:
            return self._nested.give_up(owner, error)

    def view(self, one: bytes) -> memoryview:
        """Return the bytes of an object that a task stored."""
        return self._nested.views[one]
