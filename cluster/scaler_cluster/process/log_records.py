"""Log records of tasks, on their way to the loggers of the client's process."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from scaler_cluster.texts import TEXT_CHARS_MAX, sendable
from scaler_cluster.wire.checks import TEXT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM = "log"
"""The name of the stream on which records travel, beside ``stdout`` and ``stderr``."""
_formatter = logging.Formatter()
_senders: list[RecordSender] = []
"""The sender of the task that runs in this process; empty: records stay here."""


class RecordSender(logging.Handler):
    """A context in which records that reach the root logger, from a level on, go to a callback."""

    def __init__(self, send: Callable[[str, str], None], level: int) -> None:
        super().__init__(level)
        self.send = send
        self._others_level = 0

    def __enter__(self) -> None:
        """Begin; the root logger lets through records of the level."""
        _senders[:] = [self]
        root = logging.getLogger()
        self._others_level = root.level
        if root.level > self.level:
            root.setLevel(self.level)
        root.addHandler(self)

    def __exit__(self, *_: object) -> None:
        """End; if the task has set another level of the root logger, that level stays."""
        _senders.clear()
        root = logging.getLogger()
        root.removeHandler(self)
        if root.level == self.level < self._others_level:
            root.setLevel(self._others_level)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        try:
            text = _to_text(record)
        except Exception:
            self.handleError(record)
        else:
            self.send(STREAM, text)


def stop() -> None:
    """Let a forked child of a task keep its records to itself."""
    if _senders:
        _senders[0].__exit__()


def handle(text: str) -> None:
    """Hand a task's record on: to the client of the task that runs here, else to the loggers."""
    if _senders:
        _senders[0].send(STREAM, text)
        return
    record = logging.makeLogRecord(json.loads(text))
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def text_of(record: logging.LogRecord) -> str:
    """Return what a record says, with its traceback; raises what its arguments raise."""
    text, trace = record.getMessage(), _trace_of(record)
    return f"{text}\n{trace}" if trace else text


def _trace_of(record: logging.LogRecord) -> str | None:
    if record.exc_info and not record.exc_text:
        return _formatter.formatException(record.exc_info)
    return record.exc_text


def _to_text(record: logging.LogRecord) -> str:
    fields = dict(record.__dict__)
    fields["msg"] = record.getMessage()
    fields["exc_text"] = _trace_of(record)
    # The milliseconds since the start of this process mean nothing in another.
    for name in ("args", "exc_info", "relativeCreated"):
        del fields[name]
    for chars_max in (TEXT_CHARS_MAX, 1000):
        plain = {name: _plain(value, chars_max) for name, value in fields.items()}
        text = sendable(json.dumps(plain, ensure_ascii=False))
        if len(text) < TEXT_BYTES_MAX:
            return text
    raise ValueError("a log record has more attributes than can be sent")


def _plain(value: Any, chars_max: int) -> str | int | float | None:
    """Return what JSON can hold: other values, which ``extra`` may hold, become text."""
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value)[:chars_max]
