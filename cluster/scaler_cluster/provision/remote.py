"""The interface of all that runs single calls elsewhere, for the workers of a proxy."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster.errors import RemoteCallError, TaskInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable


class RemoteCall:
    """A call that a system is to run: ``function(*args)``; ``name`` is for people.

    A thread waits for it, and another one says what came of it.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], name: str) -> None:
        self.function = function
        self.args = args
        self.name = name
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._answer = b""
        self._error: BaseException | None = None

    def complete(self, answer: bytes) -> None:
        """It returned what this is the pickle of."""
        self._end(answer, None)

    def fail(self, error: BaseException) -> None:
        """It did not run to its end; unless something was said of it before."""
        self._end(b"", error)

    def _end(self, answer: bytes, error: BaseException | None) -> None:
        with self._lock:
            if not self._over.is_set():
                self._answer, self._error = answer, error
                self._over.set()

    def interrupt(self) -> None:
        """Let whoever waits for it raise TaskInterrupted: nobody wants the answer any more."""
        self.fail(TaskInterrupted())

    @property
    def is_over(self) -> bool:
        """Return True once it is known what came of it, or nobody wants to know."""
        return self._over.is_set()

    def wait(self) -> object:
        """Wait, and return what it returned; raises what it failed with, or TaskInterrupted."""
        self._over.wait()
        if self._error is not None:
            raise self._error
        try:
            return pickle.loads(self._answer)
        except Exception as error:
            text = f"what came back is no answer: {type(error).__name__}: {error}"
            raise RemoteCallError(text) from None


class RemoteRunner(Protocol):
    """Has calls run by a system. All threads may call it at once, and each method may block."""

    def submit(self, call: RemoteCall) -> None:
        """Have a call run; what comes of it is told to the call. Raises RemoteCallError."""

    def cancel(self, call: RemoteCall) -> None:
        """Stop a call, or forget it if the system cannot stop one; it was submitted."""

    def close(self) -> None:
        """Let go of the system; no call is under way."""
