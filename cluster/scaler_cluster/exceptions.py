"""Exceptions of tasks: to bytes on the worker, and back where their futures are."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING, Any

from scaler_cluster import errors
from scaler_cluster.payload import dumps
from scaler_cluster.texts import TEXT_CHARS_MAX, sendable, show
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from types import TracebackType

    from scaler_cluster.wire.batch import Buffer


def dumps_exception(
    error: BaseException, trace: TracebackType | None
) -> tuple[bytes, dict[str, Any]]:
    """Return an exception's pickle (empty if it has none) and its description in plain text."""
    text = "".join(traceback.format_exception(type(error), error, trace))
    detail = {
        "type": type(error).__qualname__,
        "message": show(error, str),
        "traceback": sendable(text[-TEXT_CHARS_MAX:]),
    }
    try:
        payload = dumps(error)
        pickle.loads(payload)
    except BaseException:
        payload = b""
    return payload, detail


def loads_exception(payload: Buffer, detail: dict[str, Any]) -> BaseException:
    """Return a remote exception, or what stands in for it; the remote traceback is its cause."""
    error: BaseException | None = None
    if len(payload):
        try:
            error = pickle.loads(payload)
        except KeyboardInterrupt:
            raise
        except BaseException:
            error = None
    if not isinstance(error, BaseException):
        error = errors.RemoteException(
            f"{detail.get('type')}: {detail.get('message')} "
            "(the exception itself could not be pickled, or not unpickled here)"
        )
    # Not by an assignment: an exception that is a frozen dataclass would refuse it.
    cause = errors.RemoteTraceback(str(detail.get("traceback", "")))
    BaseException.__setattr__(error, "__cause__", cause)
    return error


def failure_to_exception(failure: m.Failed) -> BaseException:
    """Return the exception that a failed task's future raises."""
    kind, detail = failure.kind, failure.detail
    if kind == m.FAILED_EXCEPTION:
        return loads_exception(failure.payload, detail)
    if kind == m.FAILED_TIMEOUT:
        return errors.TaskTimeout(f"the task ran longer than {detail.get('timeout_s')} s")
    if kind == m.FAILED_WORKER_DIED:
        fields = {k: v for k, v in detail.items() if k in errors.Death.__dataclass_fields__}
        death = errors.Death(**fields)
        return errors.WorkerDied(describe_death(death), death)
    if kind == m.FAILED_LOST:
        return errors.TaskLost(
            f"the task was lost with the machine or worker that held it ({detail.get('losses')} "
            "times) and may not be started again"
        )
    if kind == m.FAILED_MISSING:
        return errors.MissingObjects(
            str(detail.get("message", "the task names an object that this client does not have"))
        )
    if kind == m.FAILED_UNPLACED:
        return errors.NoSuitableWorker(str(detail.get("message", "no worker could run the task")))
    cls = (
        errors.DeserializeObjectError if kind == m.FAILED_DESERIALIZE else errors.ResultUnpicklable
    )
    error = cls(str(detail.get("message", "")))
    error.__cause__ = errors.RemoteTraceback(str(detail.get("traceback", "")))
    return error


def describe_death(death: errors.Death) -> str:
    """Return a death's diagnosis as a sentence and the last lines of stderr."""
    if death.signal is not None:
        how = f"was killed by signal {death.signal}"
    else:
        how = f"exited with code {death.exit_code}"
    if death.reason:
        how += f" ({death.reason})"
    text = (
        f"the worker process {death.pid} on {death.host} {how} while it ran this task; "
        f"peak memory {death.peak_rss_bytes / 1e6:.0f} MB"
    )
    if death.stderr_tail:
        text += f"; the end of its stderr:\n{death.stderr_tail}"
    return text
