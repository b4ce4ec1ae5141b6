"""Lets what would run in other threads run at once, in the event loop's own.

From 3.10 on Bokeh runs what draws a page, and what answers a click, in threads. Both read the
model, which changes in the event loop meanwhile.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class AtOnce(ThreadPoolExecutor):
    """The default executor of the loop of a dashboard; it starts no thread.

    asyncio takes no executor that is not a ThreadPoolExecutor.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a function, and return the future of what it returned or raised."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
