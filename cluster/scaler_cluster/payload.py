"""Objects to bytes and back: the only place, beside the worker's loop, that ever unpickles.

C pickle first; cloudpickle for what it cannot do, and for what it would name as a member of
``__main__``, which is another module in another process.
"""

from __future__ import annotations

import functools
import pickle
import reprlib
import traceback
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import cloudpickle

from scaler_cluster import errors
from scaler_cluster.ids import FUNCTION_ID_BYTES
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import BATCH_BYTES_MAX, Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from scaler_cluster.wire.batch import Buffer

PROTOCOL = 5
TEXT_CHARS_MAX = 100_000
"""Tracebacks and messages are cut to this: an endless recursion's text must stay sendable."""

_describe = reprlib.Repr()
_describe.maxother = _describe.maxstring = 80


loads = pickle.loads
c_dumps = pickle.dumps


def dumps(value: object) -> bytes:
    """Pickle a value.

    Raises PayloadError, with the original error as its cause, if it cannot be pickled or is
    larger than a message may be.
    """
    try:
        data = pickle.dumps(value, PROTOCOL)
        if b"__main__" not in data:
            return _checked(data)
    except errors.PayloadError:
        raise
    except Exception:  # noqa: S110 - whatever C pickle stumbles over, cloudpickle may not
        pass
    try:
        return _checked(cloudpickle.dumps(value, PROTOCOL))
    except errors.PayloadError:
        raise
    except Exception as error:
        raise errors.PayloadError(f"cannot pickle {_name(value)}: {show(error, str)}") from error


def dumps_batch(values: Sequence[object]) -> Batch:
    """Pickle values one by one into a batch; raises PayloadError, naming no one.

    Values that C pickle would name as members of ``__main__`` go the longer way, each.
    """
    try:
        batch = Batch.of([pickle.dumps(value, PROTOCOL) for value in values])
        if b"__main__" not in batch.data:
            return batch
    except Exception:  # noqa: S110 - as in dumps
        pass
    parts = [dumps(value) for value in values]
    if sum(map(len, parts)) >= BATCH_BYTES_MAX:
        raise errors.PayloadError("these values are too large for one message")
    return Batch.of(parts)


def _checked(data: bytes) -> bytes:
    if len(data) >= BATCH_BYTES_MAX:
        raise errors.PayloadError(
            f"an object of {len(data)} pickled bytes is larger than a message may be "
            f"({BATCH_BYTES_MAX}): split it"
        )
    return data


def _name(value: object) -> str:
    try:
        return f"{type(value).__qualname__} {_describe.repr(value)}"
    except Exception:
        return type(value).__qualname__


def dumps_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bytes:
    """Pickle the arguments of one call; a PayloadError names the one at fault."""
    try:
        return dumps((args, kwargs) if kwargs else args)
    except errors.PayloadError as whole:
        named = [*((f"argument {i}", v) for i, v in enumerate(args)), *kwargs.items()]
        for name, value in named:
            try:
                dumps(value)
            except errors.PayloadError as error:
                raise errors.PayloadError(
                    f"{name} of {function_name(function)}: {error}"
                ) from error.__cause__
        raise whole from whole.__cause__


# -- functions -------------------------------------------------------------------------------


class FunctionPickler:
    """Pickles functions, each once as long as it lives.

    So a function that is changed in place after its first use (a closure's cell, a global of
    ``__main__``) keeps running as it was.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, tuple[bytes, bytes]] = WeakKeyDictionary()

    def __call__(self, function: Callable[..., Any]) -> tuple[bytes, bytes]:
        """Return the digest and the pickle of a function; raises PayloadError."""
        kind = type(function)
        cacheable = kind in _CACHEABLE or (
            kind is BuiltinFunctionType and type(function.__self__) is ModuleType  # type: ignore[attr-defined]
        )
        if cacheable:
            known = self._known.get(function)
            if known is not None:
                return known
        try:
            payload = dumps(function)
        except errors.PayloadError as error:
            raise errors.PayloadError(
                f"the function {function_name(function)}: {error}"
            ) from error.__cause__
        digest = blake2b(payload, digest_size=FUNCTION_ID_BYTES).digest()
        if cacheable:
            self._known[function] = digest, payload
        return digest, payload


# Not bound methods, of builtins neither, nor partials: what they hold may change between uses.
_CACHEABLE = (FunctionType, type)


def function_name(function: Any) -> str:
    """Return a function's name for people."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


# -- exceptions ------------------------------------------------------------------------------


def show(error: BaseException, to_text: Callable[[object], str] = repr) -> str:
    """Return an exception's text, whatever its ``__str__`` and ``__repr__`` do."""
    try:
        text = to_text(error)
    except Exception:
        text = f"{type(error).__qualname__} (its text cannot be made)"
    return sendable(text[:TEXT_CHARS_MAX])


def sendable(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot hold, written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


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
