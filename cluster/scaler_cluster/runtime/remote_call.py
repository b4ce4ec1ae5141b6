"""A call that another system runs: what is sent there, and what comes back.

What is sent is a function of this module with its arguments, pickled by value: where it runs,
nothing but cloudpickle has to be installed. If this engine is, ``remote_task.py`` runs the call
there, as a worker would: then tasks can submit tasks, and what they print and log comes back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.runtime.remote_answer import Told

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pack(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], told: Told
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function and the arguments to send; raises whatever pickling the call raises."""
    return run_there, (cloudpickle.dumps((function, tuple(args), kwargs)), tuple(told))


def run_there(call: bytes, told: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run a call; return the fields of an :class:`Answer`."""
    try:
        from scaler_cluster.runtime.remote_task import run_here
    except ImportError:
        return run_alone(call, told)
    return run_here(call, told)


def run_alone(call: bytes, told: tuple[Any, ...]) -> tuple[Any, ...]:
    """Do the same where this engine is not installed."""
    import pickle
    import time
    import traceback

    import cloudpickle

    prints = "scaler_exec is not installed where this task ran: what it prints stays there\n"
    output = [("stderr", prints)] if told[5] or told[6] else []
    start, start_cpu = time.perf_counter(), time.process_time()
    stage, payload, detail = "deserialize", b"", {}
    try:
        function, args, kwargs = pickle.loads(call)
        stage = "exception"
        value = function(*args, **kwargs)
        stage = "result"
        stage, payload = "", cloudpickle.dumps(value)
    except BaseException as error:
        detail["type"] = type(error).__qualname__
        detail["traceback"] = traceback.format_exc()
        try:
            detail["message"] = str(error)
            payload = cloudpickle.dumps(error)
            pickle.loads(payload)
        except BaseException as failure:
            payload, detail["reason"] = b"", repr(failure)
    took = time.perf_counter() - start, time.process_time() - start_cpu, 0
    return stage, payload, detail, output, took


def run_chunk(function: Callable[..., Any], chunk: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Make several calls, one after the other."""
    return [function(*args) for args in chunk]
