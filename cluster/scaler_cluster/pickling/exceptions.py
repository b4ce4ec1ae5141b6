"""Exceptions of tasks: to bytes on the worker, and back where their futures are."""

from __future__ import annotations

import builtins
import contextlib
import copyreg
import io
import pickle
import sys
import traceback
from types import BuiltinFunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster import errors
from scaler_cluster.pickling.by_value import HEAP_TYPE, PROTOCOL
from scaler_cluster.pickling.cloud import CloudPickler
from scaler_cluster.pickling.payload import dumps
from scaler_cluster.pickling.unpicklable import why
from scaler_cluster.texts import TEXT_CHARS_MAX, how_it_died, kind_of, look_of, sendable, show
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from types import TracebackType

    from scaler_cluster.wire.batch import Buffer

    State: TypeAlias = tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]
    """What an exception holds: its args, what is in its dict, and what is elsewhere."""
    Remains: TypeAlias = dict[int, tuple[BaseException, State | None]]
    """Exceptions by their ids, and what of each can be pickled; None until that is known."""

GROUPS: tuple[Any, ...] = tuple(filter(None, [getattr(builtins, "BaseExceptionGroup", None)]))
"""Since Python 3.11."""


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
        return _pickled(error), detail
    except errors.TaskInterrupted:
        raise
    except BaseException as failure:
        detail["reason"] = show(failure, str)
    return b"", detail


def _pickled(error: BaseException) -> bytes:
    """Return an exception's pickle, which was tried; raises whatever pickling it raises."""
    try:
        payload = dumps(error)
        if _came_back(pickle.loads(payload), error):
            return payload
        reason: BaseException = errors.PayloadError("it is unpickled to another one")
    except errors.TaskInterrupted:
        raise
    except BaseException as failure:
        reason = failure
    try:
        for leaves_out in (False, True):
            try:
                payload = Rebuilder.dumps(error, {} if leaves_out else None)
                if type(pickle.loads(payload)) is type(error):
                    return payload
            except errors.TaskInterrupted:
                raise
            except BaseException:  # noqa: S110 - the first reason is the one that people know
                pass
        raise reason
    finally:
        # Its traceback holds this frame, and so what the task had in its hands.
        del reason


def _came_back(made: object, error: BaseException) -> bool:
    """Return True if what an exception was unpickled to is as good as the exception.

    Its own ``__reduce__`` is believed. The one that all inherit calls the class with ``args``,
    which suits the parameters of ``__init__``, or does not, or seems to.
    """
    if reduces_itself(error) or not isinstance(made, BaseException):
        return isinstance(made, BaseException)
    is_same = type(made) is type(error) and fields_of(made).keys() == fields_of(error).keys()
    return is_same and bool(made.args == error.args)


def loads_exception(payload: Buffer, detail: dict[str, Any]) -> BaseException:
    """Return a remote exception, or what stands in for it; the remote traceback is its cause."""
    error: BaseException | None = None
    reason = detail.get("reason")
    text = f"{detail.get('type')}: {detail.get('message')}"
    if len(payload):
        try:
            error = pickle.loads(payload)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            reason = f"it cannot be unpickled here: {show(failure)}{lacking(failure)}"
    if not len(payload) and reason is None:
        # It never was an object here: a named function raised it.
        error = errors.RemoteError(text)
    elif not isinstance(error, BaseException):
        error = errors.RemoteError(
            f"{text} (the exception itself did not come back: {reason or 'it is none'}. Its class "
            "can say in __reduce__ how to make it anew)"
        )
    # Not by an assignment: an exception that is a frozen dataclass would refuse it.
    cause = errors.RemoteTraceback(str(detail.get("traceback", "")))
    BaseException.__setattr__(error, "__cause__", cause)
    return error


# -- exceptions that are made anew without their __init__ -----------------------------------------


class Rebuilder(CloudPickler):
    """Pickles exceptions, wherever they are, such that no ``__init__`` is called to make them anew.

    Those that say themselves how they are pickled are left alone. Not so with ``remains``: then
    what cannot be pickled of an exception is left out, and a note of the exception says so.
    """

    def __init__(self, stream: io.BytesIO, remains: Remains | None) -> None:
        super().__init__(stream, PROTOCOL)
        self._remains = remains

    @classmethod
    def dumps(cls, value: object, remains: Remains | None) -> bytes:
        """Pickle a value; raises PayloadError if it is too large, and whatever pickling raises."""
        stream = io.BytesIO()
        cls(stream, remains).dump(value)
        if stream.tell() >= BATCH_BYTES_MAX:
            raise errors.PayloadError("it is larger than a message may be")
        return stream.getvalue()

    def reducer_override(self, obj: Any) -> Any:
        """Return what an exception is made from."""
        if not issubclass(type(obj), BaseException):
            return super().reducer_override(obj)
        if reduces_itself(obj):
            if self._remains is None:
                return NotImplemented
            # Who refuses to be pickled, by raising there, is not.
            obj.__reduce_ex__(PROTOCOL)
        state: State = (obj.args, dict(vars(obj)), fields_of(obj))
        if self._remains is not None:
            state = self._remains_of(self._remains, obj, state)
        made = (obj.message, obj.exceptions) if isinstance(obj, GROUPS) else ()
        return new_exception, (type(obj), made), state, None, None, fill_exception

    def _remains_of(self, remains: Remains, error: BaseException, state: State) -> State:
        """Return what an exception holds without what cannot be pickled, with notes that say so."""
        known = remains.get(id(error))
        if known is not None:
            if known[1] is None:
                raise pickle.PicklingError("it holds the exception that holds it")
            return known[1]
        remains[id(error)] = error, None
        args, attributes, fields = state
        notes = []
        kept = list(args)
        for index, one in enumerate(args):
            if reason := self._reason_against(one):
                kept[index] = look_of(one) or kind_of(one)
                notes.append(f"Argument {index} of this exception came as a text: {reason}")
        for held in (attributes, fields):
            for name, one in list(held.items()):
                if reason := self._reason_against(one):
                    del held[name]
                    notes.append(f"The attribute {name} of this exception did not come: {reason}")
        if notes:
            attributes["__notes__"] = [*attributes.get("__notes__", ()), *notes]
        state = tuple(kept), attributes, fields
        remains[id(error)] = error, state
        return state

    def _reason_against(self, value: object) -> str:
        """Return why a value cannot be pickled and unpickled; empty if it can."""
        try:
            pickle.loads(Rebuilder.dumps(value, self._remains))
        except errors.TaskInterrupted:
            raise
        except BaseException as failure:
            return why(value, failure)
        return ""


def reduces_itself(error: BaseException) -> bool:
    """Return True if somebody said how exceptions of this type are pickled."""
    kind = type(error)
    own = (vars(base) for base in kind.__mro__ if base.__flags__ & HEAP_TYPE)
    reducer = copyreg.dispatch_table.get(kind)
    # What tblib says, wherever distributed is imported, is said of all types, and fits few of them.
    is_said = reducer is not None and not str(reducer.__module__).startswith("tblib.")
    return is_said or any("__reduce__" in names or "__reduce_ex__" in names for names in own)


def fields_of(error: BaseException) -> dict[str, object]:
    """Return what an exception holds in slots and in fields of C, where they are set."""
    fields = {}
    for base in type(error).__mro__:
        # What an AttributeError was raised about is not known to ordinary pickling either.
        members = () if base is BaseException else vars(base).items()
        for name, member in members:
            if isinstance(member, MemberDescriptorType) and name != "obj":
                value = getattr(error, name, None)
                # Python would show a None that it did not put there itself.
                if value is not None or (base.__flags__ & HEAP_TYPE and hasattr(error, name)):
                    fields[name] = value
    return fields


def new_exception(kind: type[BaseException], made: tuple[Any, ...]) -> BaseException:
    """Return a new exception, by the first ``__new__`` of C that makes such ones."""
    for base in kind.__mro__:
        new = vars(base).get("__new__")
        if isinstance(new, BuiltinFunctionType):
            # Of two bases, one alone may know how.
            with contextlib.suppress(TypeError):
                error: BaseException = new(kind, *made)
                return error
    raise TypeError(f"cannot make a {kind.__qualname__} without calling it")


def fill_exception(error: BaseException, state: State) -> None:
    """Give an exception what it held."""
    args, attributes, fields = state
    BaseException.__setattr__(error, "args", args)
    vars(error).update(attributes)
    for name, value in fields.items():
        # Those that cannot be set were given when it was made.
        with contextlib.suppress(AttributeError, TypeError):
            BaseException.__setattr__(error, name, value)


# -- what futures raise ----------------------------------------------------------------------


def failure_to_exception(failure: m.Failed) -> BaseException:
    """Return the exception that a failed task's future raises."""
    kind, detail = failure.kind, failure.detail
    if kind == m.FAILED_EXCEPTION:
        return loads_exception(failure.payload, detail)
    if kind == m.FAILED_TIMEOUT:
        return errors.TaskTimeoutError(f"the task ran longer than {detail.get('timeout_s')} s")
    if kind in (m.FAILED_WORKER_DIED, m.FAILED_ACTOR):
        fields = {k: v for k, v in detail.items() if k in errors.Death.__dataclass_fields__}
        death, more = errors.Death(**fields), str(detail.get("message", ""))
        if kind == m.FAILED_WORKER_DIED:
            return errors.WorkerDiedError(describe_death(death, more), death)
        actor = str(detail.get("actor", ""))
        how = describe_death(death, of_actor=True) if death.pid else more
        return errors.ActorDiedError(f"the actor {label_of(actor)} is gone: {how}", death, actor)
    if kind == m.FAILED_LOST:
        return errors.TaskLostError(
            f"the task was lost with the machine or worker that held it ({detail.get('losses')} "
            f"times) and may not be started again{_more(detail)}"
        )
    if kind == m.FAILED_MISSING:
        return errors.MissingObjectsError(
            str(detail.get("message", "the task names an object that this client does not have"))
        )
    if kind == m.FAILED_QUOTA:
        return errors.QuotaExceededError(f"the scheduler takes no {detail.get('message', 'more')}")
    if kind == m.FAILED_UNPLACED:
        return errors.NoSuitableWorkerError(
            str(detail.get("message", "no worker could run the task"))
        )
    cls = (
        errors.DeserializeObjectError
        if kind == m.FAILED_DESERIALIZE
        else errors.UnpicklableResultError
    )
    error = cls(str(detail.get("message", "")))
    error.__cause__ = errors.RemoteTraceback(str(detail.get("traceback", "")))
    return error


def _more(detail: dict[str, Any]) -> str:
    return f"; {detail['message']}" if "message" in detail else ""


def label_of(actor: str) -> str:
    """Return what people call an actor: its class, and the start of what is only its own."""
    _, _, rest = actor.partition(m.ACTOR)
    name, _, own = rest.rpartition(":")
    return f"{name} ({own[:8]})"


def describe_death(death: errors.Death, more: str = "", *, of_actor: bool = False) -> str:
    """Return a death's diagnosis as a sentence, ``more`` of it, and the last lines of stderr."""
    text = how_it_died(death, more, of_actor=of_actor)
    if death.stderr_tail:
        text += f"; the end of its stderr:\n{death.stderr_tail}"
    return text


def lacking(error: BaseException, where: str = "") -> str:
    """Return sentences that name the module that was missing where something was unpickled.

    They follow what was raised there, and are empty if no module was the reason. ``where`` is the
    process for people; default: this one.
    """
    import platform  # not at the start: it is slow to import, and seldom needed

    where = where or f"this process on {platform.node()}"
    python = f"(Python {platform.python_version()}, {sys.executable})"
    if isinstance(error, ImportError) and error.name:
        top = error.name.partition(".")[0]
        what = "is missing" if isinstance(error, ModuleNotFoundError) else "cannot be imported"
        return (
            f". The module {error.name} {what} in {where} {python}. Install it there, or put its "
            "directory on the PYTHONPATH of scaler_cluster; for workers that your program starts, "
            "on its sys.path before that. Of a module of your own, scaler_exec.code sends the file "
            "(upload_file; for an actor before it is made), or its functions by value: "
            f"register_pickle_by_value({top})"
        )
    if isinstance(error, AttributeError) and str(error).startswith("Can't get attribute "):
        return (
            f". This module is another version in {where} {python}: install the same one there, "
            "or restart the workers if it was changed after they imported it"
        )
    return ""
