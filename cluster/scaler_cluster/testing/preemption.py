"""Another thread that acts between any two lines of a function, in a simulation of one thread."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType


@contextlib.contextmanager
def preempted(code: CodeType, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` before each line of this code that is run inside."""

    def on_line(_frame: FrameType, event: str, _value: object) -> Any:
        if event == "line":
            act()
        return on_line

    def on_call(frame: FrameType, _event: str, _value: object) -> Any:
        return on_line if frame.f_code is code else None

    others = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(others)
