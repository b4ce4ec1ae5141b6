"""Sends what nodes of graphs returned, and their worker kept, to where others find it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.core.worker.kept_results import Pickled
from scaler_cluster.runtime.failures import describe_failure
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from scaler_cluster.core.worker.worker import WorkerCore
    from scaler_cluster.objects.worker_store import WorkerStore


class SharingHost(Protocol):
    """The worker whose results these are."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held by the thread that uses the core."""

    @property
    def where(self) -> str:
        """What the worker is called in errors."""


class Sharing:
    """Sends results that were kept; any thread may do it, beside others."""

    def __init__(self, host: SharingHost, core: WorkerCore, store: WorkerStore) -> None:
        self.threads = 0
        """How many threads send one at the moment."""
        self._host = host
        self._core = core
        self._store = store

    def send_all(self) -> None:
        """Send results that workers elsewhere need, and write out what has no room."""
        core, host = self._core, self._host
        while True:
            with host.lock:
                found = core.kept.take_to_share()
                is_excess = found is None
                if is_excess:
                    if core.kept.is_due:
                        core.kept.have_room(self._store.claim(core.kept.room_wanted()))
                    found = core.kept.take_excess()
                if found is None:
                    return
                self.threads += 1
            session, task, value = found
            kind, payload = m.FAILED_MISSING, b""
            segments: dict[bytes, int] = {}
            detail: dict[str, Any] = {}
            if value is not None:
                try:
                    kind = ""
                    payload, segments = self._store.store(value)
                except Exception as error:
                    kind, payload, detail = describe_failure(m.FAILED_RESULT, error, "", host.where)
            names, sizes = tuple(segments), tuple(segments.values())
            with host.lock:
                if not kind:
                    pickled = Pickled(payload, names)
                    if is_excess:
                        core.kept.written_out(session, task, pickled)
                    else:
                        core.kept.sent(session, task, pickled, sum(sizes))
                if not (is_excess and kind):
                    shared = m.Shared(session, task, kind, payload, names, sizes, detail)
                    core.reports.shared(shared)
                self._store.names.reported()
                if kind and (is_excess or core.leave is None):
                    core.kept.put_back(session, task)
                self.threads -= 1
