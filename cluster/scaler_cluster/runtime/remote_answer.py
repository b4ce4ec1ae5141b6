"""What a call that runs elsewhere is told of its task, and what comes back of it."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from scaler_cluster.core.worker.task_loop import Failure
from scaler_cluster.pickling.exceptions import lacking
from scaler_cluster.texts import TEXT_CHARS_MAX, sendable, show
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.runtime.profile import Took


class Told(NamedTuple):
    """What the call is told of its task."""

    address: str
    """How the scheduler is reached from there."""
    worker: bytes
    """Peer id of the worker that has the task, with its process and machine."""
    pid: int
    host: str
    depth: int
    prints: bool
    """What the task prints is to come back."""
    log_level: int
    """Records of its log from this level on are to come back; 0: none."""
    is_profiled: bool


class Answer(NamedTuple):
    """What came back of a call."""

    stage: str
    """Where it failed, one of the FAILED_* names; empty: it returned."""
    payload: bytes
    """The pickle of what it returned, or of what it raised; empty if that has none."""
    detail: dict[str, Any]
    """Of what it raised."""
    output: Sequence[tuple[str, str]]
    """What it printed and logged, as stream and text."""
    took: Took | None


class CallFailed(Exception):
    """A call failed where it ran."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def read_answer(answer: object, where: str) -> Answer:
    """Return what came back from ``where``; raises CallFailed if it is something else."""
    if isinstance(answer, tuple) and len(answer) == len(Answer._fields):
        return Answer(*answer)
    text = f"{where} answered what no call of this engine returns: a {type(answer).__name__}"
    raise CallFailed(Failure(m.FAILED_RESULT, b"", {"message": text}))


def value_of(answer: Answer, where: str) -> Any:
    """Return what a call returned; raises CallFailed if it did not, or if that does not come."""
    if not answer.stage:
        try:
            return pickle.loads(answer.payload)
        except BaseException as error:
            text = f"the proxy cannot unpickle the result: {show(error)}{lacking(error)}"
            raise CallFailed(Failure(m.FAILED_RESULT, b"", {"message": text})) from None
    detail = {key: sendable(str(value)[-TEXT_CHARS_MAX:]) for key, value in answer.detail.items()}
    stages = {
        m.FAILED_DESERIALIZE: "cannot unpickle the call",
        m.FAILED_RESULT: "cannot pickle the result",
    }
    if answer.stage in stages:
        about = f"{detail.get('type')}: {detail.get('message')}"
        detail["message"] = f"{where} {stages[answer.stage]}: {about}"
        raise CallFailed(Failure(answer.stage, b"", detail))
    raise CallFailed(Failure(m.FAILED_EXCEPTION, answer.payload, detail))
