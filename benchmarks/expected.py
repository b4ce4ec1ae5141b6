"""How a future may end while workers are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_exec import WorkerDiedError

if TYPE_CHECKING:
    from concurrent.futures import Future

RIGHT, DIED, FAILED, CANCELLED = "right", "worker died", "failed as it should", "cancelled"
UNRESOLVED = "unresolved"
FINE = (RIGHT, DIED, FAILED, CANCELLED)


class Expected:
    """A future that has this value, unless a worker was killed under the task of this name."""

    def __init__(self, future: Future[Any], name: int, value: Any) -> None:
        self.future = future
        self.name = name
        self.value = value

    def verdict(self) -> str:
        """Return in which way it ended: one of FINE, or what is wrong with it."""
        future = self.future
        if not future.done():
            return UNRESOLVED
        if future.cancelled():
            return CANCELLED if self.may_be_cancelled() else "cancelled by nobody"
        error = future.exception()
        if type(error) is WorkerDiedError:
            return DIED
        if error is not None:
            return FAILED if self.may_fail_with(error) else f"wrong error {error!r}"
        return RIGHT if self.is_right(future.result()) else f"wrong value {future.result()!r:.100}"

    def is_right(self, value: Any) -> bool:
        return bool(value == self.value)

    def may_fail_with(self, error: BaseException) -> bool:
        return False

    def may_be_cancelled(self) -> bool:
        return False

    def suspects(self) -> set[int]:
        """Return the names of the tasks of which one must have been running when it died."""
        return {self.name}
