"""How the failure of a task is told to its client."""

from __future__ import annotations

import os
from typing import Any

from scaler_cluster.errors import CodeError, MissingObjectsError, PayloadError, StorageFullError
from scaler_cluster.pickling.exceptions import dumps_exception, lacking
from scaler_cluster.texts import show
from scaler_cluster.wire import messages as m

MANAGERS = f"{os.sep}multiprocessing{os.sep}managers.py"
MANAGERS_HINT = (
    "; it was made by a multiprocessing.Manager(), whose server this worker must reach by its "
    "address, with the same multiprocessing.current_process().authkey: both are so in a cluster "
    "that the manager's program has started itself, elsewhere they are yours to see to"
)


def describe_failure(
    stage: str, error: BaseException, culprit: str, where: str
) -> tuple[str, bytes, dict[str, Any]]:
    """Return kind, payload and detail of a task's failure.

    ``culprit`` could not be unpickled, and ``where`` is this process, both for people.
    """
    trace = error.__traceback__
    if stage == m.FAILED_EXCEPTION and isinstance(error, ModuleNotFoundError):
        # Python shows it below the exception's own text, which stays what it is.
        notes = [*getattr(error, "__notes__", ()), lacking(error, where).removeprefix(". ")]
        vars(error)["__notes__"] = [*filter(None, notes)]
    payload, detail = dumps_exception(error, trace.tb_next if trace else None)
    if stage == m.FAILED_DESERIALIZE and isinstance(error, MissingObjectsError):
        # What a node needs was lost on the way: the scheduler may be able to have it made again.
        stage = m.FAILED_MISSING
        detail["message"] = str(error)
    elif stage == m.FAILED_DESERIALIZE:
        hint = MANAGERS_HINT if MANAGERS in detail["traceback"] else lacking(error, where)
        detail["message"] = f"the worker cannot unpickle {culprit}: {show(error)}{hint}"
    elif stage == m.FAILED_RESULT and isinstance(error, StorageFullError):
        stage = m.FAILED_EXCEPTION
    elif stage == m.FAILED_RESULT:
        cause = show(error, str if isinstance(error, PayloadError) else repr)
        detail["message"] = f"the worker cannot pickle the result: {cause}"
    return stage, payload if stage == m.FAILED_EXCEPTION else b"", detail


def describe_named_failure(
    stage: str, error: BaseException, where: str
) -> tuple[str, bytes, dict[str, Any]]:
    """Return the same for a call of a named function: texts alone, for whatever language."""
    kind, _, detail = describe_failure(stage, error, "", where)
    detail.pop("reason", None)
    if stage != m.FAILED_EXCEPTION:
        what = "read the arguments" if stage == m.FAILED_DESERIALIZE else "send the result"
        detail["message"] = f"the worker cannot {what}: {show(error, str)}"
    return kind, b"", detail


def describe_setup_failure(
    error: BaseException, what: str, where: str
) -> tuple[str, bytes, dict[str, Any]]:
    """Return kind, payload and detail of what all tasks of a work fail by.

    ``what`` the worker could not do.
    """
    _, detail = dumps_exception(error, error.__traceback__)
    text = show(error, str if isinstance(error, CodeError) else repr)
    detail["message"] = f"{what}: {text}{lacking(error, where)}"
    kind = m.FAILED_MISSING if isinstance(error, MissingObjectsError) else m.FAILED_DESERIALIZE
    return kind, b"", detail
