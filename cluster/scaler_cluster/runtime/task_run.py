"""One task of a worker: from its pickle to the pickle of its result."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.core.worker.task_loop import Failure, Outcome, Stored, Unfinished
from scaler_cluster.errors import TaskInterrupted
from scaler_cluster.pickling.by_value import PROTOCOL
from scaler_cluster.pickling.nodes import NotReturned
from scaler_cluster.pickling.payload import c_dumps, failing_argument
from scaler_cluster.runtime.failed_arguments import FailedArguments
from scaler_cluster.runtime.failures import describe_failure, describe_named_failure
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.messages import FAILED_DESERIALIZE, FAILED_EXCEPTION, FAILED_RESULT

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.worker.reports import Kept
    from scaler_cluster.objects.worker_store import WorkerStore
    from scaler_cluster.runtime.output import TaskOutput
    from scaler_cluster.wire.batch import Buffer

TINY_BYTES = 24
"""A smaller pickle names nothing of ``__main__``: header, module and name alone take 28 bytes."""


def make_run(
    loads: Callable[[Any], Any],
    call: Callable[..., Any],
    kind: int,
    objects: tuple[bytes, ...],
    output: TaskOutput | None,
    end: TaskEnd,
    keep_result: Callable[[Any], Kept | None] | None = None,
) -> Callable[[Buffer], Outcome]:
    """Return what runs a task, given its payload: unpickles, calls and pickles.

    ``loads`` makes the call of a payload; ``keep_result`` keeps what a node returned, unless that
    must be pickled. What each task does costs about 0.7 us; what is rare is left to ``end``.
    """
    interrupts, store = end.interrupts, end.store
    keep, buffers, large, pickle_slowly = store.keep, store.buffers, store.large, store.pickle

    def run(payload: Buffer) -> Outcome:
        stage = FAILED_DESERIALIZE
        try:
            try:
                interrupts.in_task = True
                args = loads(payload)
                stage = FAILED_EXCEPTION
                if output is None:
                    value = call(*args)
                else:
                    with output:
                        value = call(*args)
                stage = FAILED_RESULT
                if keep_result is not None and (kept := keep_result(value)) is not None:
                    interrupts.in_task = False
                    return kept
                if type(value) is bytes and len(value) >= large:
                    result = pickle_slowly(value)
                else:
                    result = c_dumps(value, PROTOCOL, buffer_callback=keep)
                    if len(result) >= TINY_BYTES:
                        # Not "in", which raises a TypeError for bytes and drops it: 0.1 us.
                        if result.find(b"__main__") >= 0:
                            result = pickle_slowly(value)
                        elif len(result) >= large:
                            result = pickle_slowly(value, result)
                interrupts.in_task = False
                if not buffers:
                    return result
                error: BaseException | None = None
            except TaskInterrupted:
                raise
            except BaseException as caught:
                error, about = caught, ""
                if stage == FAILED_EXCEPTION:
                    about = end.look_at(kind, args)
                elif stage == FAILED_RESULT:
                    result, error = end.pickle_again(value)
                else:
                    about = end.find_culprit(kind, objects, payload)
                interrupts.in_task = False
        except TaskInterrupted:
            interrupts.in_task = False
            error = None
            return end.interrupted(output)
        if error is None:
            return end.returned(result)
        try:
            return end.raised(stage, error, about)
        finally:
            error = None  # its traceback holds this frame

    return run


class EndHost(Protocol):
    """The worker whose task has ended; see :class:`TaskHost`."""

    @property
    def where(self) -> str:
        """What this process is called in errors."""

    def end_if_forked(self) -> None:
        """End the process if a task forked it and it came back from the task."""


class Interruptible(Protocol):
    """What must know when a thread is in a task; see :class:`TaskInterrupts`."""

    in_task: bool


class TaskEnd:
    """What a task comes to if it does not simply return something small."""

    def __init__(self, host: EndHost, store: WorkerStore, interrupts: Interruptible) -> None:
        self.store = store
        self.interrupts = interrupts
        self._host = host

    def pickle_again(self, value: object) -> tuple[bytes, BaseException | None]:
        """Pickle what C pickle cannot; return the error if nothing can."""
        try:
            return self.store.pickle(value), None
        except TaskInterrupted:
            raise
        except BaseException as error:
            return b"", error

    def look_at(self, kind: int, args: tuple[Any, ...]) -> str:
        """Return what the arguments of a task that raised look like; empty: nobody is to know."""
        looks = FailedArguments.active
        return "" if looks is None else looks.text(kind, args)

    def find_culprit(self, kind: int, objects: tuple[bytes, ...], payload: Any) -> str:
        """Return what of a call cannot be unpickled."""
        if kind == m.CALL_ARGS:
            with contextlib.suppress(Exception):
                index = failing_argument(payload, self.store.map(objects), TaskInterrupted)
                if index is not None:
                    return f"argument {index}"
        return "the arguments"

    def interrupted(self, output: TaskOutput | None) -> Outcome:
        """The task was interrupted, perhaps while its output was diverted or its result pickled."""
        if output is not None:
            # Its end may have been interrupted.
            output.__exit__()
        self._drop_buffers()
        return Unfinished.INTERRUPTED

    def returned(self, result: bytes) -> Outcome:
        """The task returned; store the large buffers of its result, if there are any."""
        if not self.store.buffers:
            return result
        self._host.end_if_forked()
        try:
            return Stored(*self.store.write(result))
        except Exception as error:
            return Failure(*describe_failure(FAILED_RESULT, error, "", self._host.where))

    def raised(self, stage: str, error: BaseException, about: str) -> Outcome:
        """The task raised, or it cannot be unpickled, or its result cannot be pickled.

        Its arguments look like what is said ``about`` it, or that cannot be unpickled.
        """
        self._drop_buffers()
        if isinstance(error, NotReturned) and stage == FAILED_DESERIALIZE:
            return Unfinished.SKIPPED
        failure = Failure(*describe_failure(stage, error, about, self._host.where))
        return _with_look(failure, stage, about)

    def failed(self, stage: str, error: BaseException, look: str) -> Outcome:
        """The call of a named function raised, or its arguments or result are no such values."""
        failure = Failure(*describe_named_failure(stage, error, self._host.where))
        return _with_look(failure, stage, look)

    def _drop_buffers(self) -> None:
        if self.store.buffers:
            self._host.end_if_forked()
            self.store.buffers.clear()


def _with_look(failure: Failure, stage: str, look: str) -> Failure:
    """Return a failure that tells what the arguments look like, if the task raised and may tell."""
    if look and stage == FAILED_EXCEPTION:
        failure.detail["arguments"] = look
    return failure
