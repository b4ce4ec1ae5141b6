"""Which lines of what tasks print somebody wants, and how they look. Pure."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_monitoring.texts import plain, worker_name
from scaler_monitoring.view import function_name, task_name

if TYPE_CHECKING:
    import re

    from scaler_cluster.wire import feed


@dataclass(frozen=True)
class LogFilter:
    """Which lines somebody wants; what is empty does not matter."""

    worker: str = ""
    """A part of its name, process id or host."""
    function: str = ""
    """A part of its name."""
    task: str = ""
    """As lines name it."""
    level: int = 0
    """Records of this level and above, and nothing that was printed."""
    pattern: re.Pattern[str] | None = None
    """Is found in the text, or in the name of the logger."""

    def takes(self, line: feed.LogLine) -> bool:
        """Return True for a line that is wanted; one that says what is missing always is."""
        if line.worker and self.worker and self.worker.lower() not in worker_of(line).lower():
            return False
        if not line.source:
            return True
        return (
            (not self.level or line.level >= self.level)
            and self.function.lower() in function_name(line.function).lower()
            and (not self.task or self.task == task_of(line))
            and (
                self.pattern is None
                or self.pattern.search(line.text) is not None
                or bool(line.level and self.pattern.search(line.source))
            )
        )


def worker_of(line: feed.LogLine) -> str:
    """Return what the worker of a line is called; empty: the line is of none."""
    return worker_name(line) if line.worker else ""


def task_of(line: feed.LogLine) -> str:
    """Return what the task of a line is called; empty: none ran."""
    return task_name(line.session, line.task) if line.session else ""


def kind_of(line: feed.LogLine) -> str:
    """Return the stream of a line, or the level and the logger of a record."""
    if not line.level:
        return line.source
    return f"{logging.getLevelName(line.level)} {plain(line.source)}"


def clock_of(at: float) -> str:
    """Return a moment, in seconds since 1970, as people say it, with milliseconds."""
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03}"


def text_lines(line: feed.LogLine) -> list[str]:
    """Return the text as lines that do nothing to a terminal."""
    return [plain(one.expandtabs()) for one in line.text.split("\n")]


def as_text(line: feed.LogLine) -> str:
    """Return a line of a tail with all that is known of it."""
    clock = clock_of(line.at)
    if not line.source:
        return " ".join(one for one in (clock, worker_of(line), f"[{line.text}]") if one)
    about = [clock, worker_of(line)]
    if line.session:
        about += [task_of(line), function_name(line.function)]
    first, *others = text_lines(line)
    return "\n".join(
        [f"{' '.join(about)} {kind_of(line)}: {first}", *(f"    {one}" for one in others)]
    )
