"""A task that runs in another system: there it is run as by a worker, and can submit tasks.

What it submits speaks as the worker that has the task: so it is nested in the task. While the task
waits for it, the worker counts as blocked and a spare one takes its place; and what has not started
meanwhile is run right there. So no task waits for ever for a place that its parents have.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from typing import TYPE_CHECKING, Any

import cloudpickle

from scaler_cluster.client import worker_context
from scaler_cluster.core.worker.work import FunctionEntry, Work
from scaler_cluster.errors import MissingObjectsError
from scaler_cluster.pickling.exceptions import dumps_exception
from scaler_cluster.runtime.nested import NestedSession
from scaler_cluster.runtime.output import Sender, TaskOutput
from scaler_cluster.runtime.profile import measured
from scaler_cluster.runtime.remote_answer import Told
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import WORKER
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.runtime.profile import Took


def run_here(call: bytes, told: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run a call; return the fields of an :class:`Answer`."""
    task = Told(*told)
    output: list[tuple[str, str]] = []
    took: list[Took] = []
    stage, payload = m.FAILED_DESERIALIZE, b""
    detail: dict[str, Any] = {}
    try:
        with _submitting(task), _printing(task, output):
            function, args, kwargs = pickle.loads(call)
            if task.is_profiled:
                function = measured(function, took.append)
            stage = m.FAILED_EXCEPTION
            value = function(*args, **kwargs)
            stage = m.FAILED_RESULT
            payload = cloudpickle.dumps(value)
            stage = ""
    except BaseException as error:
        trace = error.__traceback__
        payload, detail = dumps_exception(error, trace.tb_next if trace else None)
    return stage, payload, detail, output, took[0] if took else None


@contextlib.contextmanager
def _printing(task: Told, output: list[tuple[str, str]]) -> Iterator[None]:
    """Collect what is printed and logged, if it is to come back."""
    if not task.prints and not task.log_level:
        yield
        return

    def keep(stream: str, text: str) -> bool:
        output.append((stream, text))
        return True

    sender = Sender(keep, threading.RLock())
    with TaskOutput(sender, streams=task.prints, log_level=task.log_level):
        yield


@contextlib.contextmanager
def _submitting(task: Told) -> Iterator[None]:
    """Let clients that are made in here be those of the task."""
    sessions: list[NestedSession] = []
    opening = threading.Lock()

    def open_session() -> NestedSession:
        with opening:
            if not sessions:
                sessions.append(NestedSession(RemoteHost(task)))
            return sessions[0]

    worker_context.open_session = open_session
    try:
        yield
    finally:
        worker_context.open_session = None
        for session in sessions:
            session.end_task()
            session.close("the task has ended", abandon=True)


class RemoteHost:
    """Stands for the worker of a task that runs elsewhere; see :class:`TaskHost`."""

    def __init__(self, task: Told) -> None:
        self.address = task.address
        self.credentials = Credentials.of(WORKER)
        self.peer = task.worker
        self.process = task.pid, task.host
        self.where = f"the system that runs the tasks of a proxy on {task.host}"
        told = m.Assign(0, 0, b"", m.CALL_ARGS, False, task.prints, Batch.single(b""))
        told.depth, told.log_level = task.depth, task.log_level
        self._work = Work(told, FunctionEntry(b"", ()))

    def may_run(self, options: m.TaskOptions) -> bool:
        """Return True for tasks that demand nothing: what there is here, nobody knows.

        Nor can a task be stopped here whose time is over.
        """
        return options.is_for_any and options.timeout_s is None

    def enter_task(self) -> Work:
        """Return what stands for the work whose task runs."""
        return self._work

    def end_if_forked(self) -> None:
        """Do nothing: the process is not this engine's."""

    def map_segments(self, segments: tuple[bytes, ...]) -> list[memoryview]:
        """Raise MissingObjectsError if there are any: they lie on other machines."""
        if segments:
            raise MissingObjectsError("the objects of this node lie on another machine")
        return []

    def loaded_function(self, _digest: bytes) -> None:
        """Return None: nothing was sent here by the scheduler."""
