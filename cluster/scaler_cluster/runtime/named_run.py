"""One task of a worker that calls a named function: from MessagePack to MessagePack."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import TaskInterrupted
from scaler_cluster.pickling.named import pack, unpack_call
from scaler_cluster.wire.messages import (
    CALL_NAMED,
    FAILED_DESERIALIZE,
    FAILED_EXCEPTION,
    FAILED_RESULT,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.core.worker.task_loop import Outcome
    from scaler_cluster.runtime.output import TaskOutput
    from scaler_cluster.runtime.task_run import TaskEnd
    from scaler_cluster.wire.batch import Buffer


def make_named_run(
    call: Callable[..., Any], output: TaskOutput | None, end: TaskEnd
) -> Callable[[Buffer], Outcome]:
    """Return what runs a task, given its payload, as :func:`make_run` does for pickles."""
    interrupts = end.interrupts

    def run(payload: Buffer) -> Outcome:
        stage = FAILED_DESERIALIZE
        try:
            try:
                interrupts.in_task = True
                args, kwargs = unpack_call(payload)
                stage = FAILED_EXCEPTION
                with output or contextlib.nullcontext():
                    value = call(*args, **kwargs)
                stage = FAILED_RESULT
                result = pack(value)
                interrupts.in_task = False
                return result
            except TaskInterrupted:
                raise
            except BaseException as caught:
                error: BaseException | None = caught
                look = end.look_at(CALL_NAMED, (args, kwargs)) if stage == FAILED_EXCEPTION else ""
                interrupts.in_task = False
        except TaskInterrupted:
            interrupts.in_task = False
            return end.interrupted(output)
        assert error is not None
        try:
            return end.failed(stage, error, look)
        finally:
            # Its traceback holds this frame.
            error = None

    return run
