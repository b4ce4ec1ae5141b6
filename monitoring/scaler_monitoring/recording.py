"""What a scheduler published, in a file, and out of it again.

A recording is a sequence of msgpack values: a map that says what it is, then for each message a
list of when it arrived, its topic and its compressed body, as :mod:`scaler_cluster.wire.feed_codec`
has them. Each stands for itself: a file that was cut off says all that it had been told.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from scaler_cluster.errors import ConfigError, RemoteProtocolError
from scaler_cluster.wire import feed
from scaler_cluster.wire.feed_codec import FEED_BYTES_MAX, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

    from scaler_cluster.wire.feed_codec import Message

LOGS_BYTES_MAX = 1 << 28
"""Of the file, for what tasks print: a loop that prints must not fill the disk within a night."""
NO_ROOM = "no further lines are recorded: what tasks printed fills 256 MiB of this recording"
NAME, VERSION = "scaler-exec feed", 1
READ_BYTES = 1 << 20


class Recorder:
    """Writes messages to a file, which begins anew; raises ConfigError if it cannot be written."""

    def __init__(self, path: str) -> None:
        try:
            self._file = Path(path).open("wb")  # noqa: SIM115
        except OSError as error:
            raise _unusable("write", path, error) from None
        self._path = path
        self._logs_bytes = 0
        """Written of what tasks print."""
        self._are_logs_full = False
        """The recording says that there are no more of them."""
        self._write({"recording": NAME, "version": VERSION})

    def apply(self, message: Message, now: float) -> None:
        """Write a message that arrived at this moment, as :meth:`Model.apply` is told of it.

        Whoever is killed afterwards leaves it in the file. Raises ConfigError if there is no room.
        """
        is_logs = isinstance(message, feed.Logs)
        if isinstance(message, feed.Logs) and self._logs_bytes >= LOGS_BYTES_MAX:
            if self._are_logs_full:
                return
            self._are_logs_full = True
            message = replace(message, lines=[feed.LogLine(message.clock, text=NO_ROOM)])
        topic, body = encode(message)
        packed = zlib.compress(body)
        if is_logs:
            self._logs_bytes += len(packed)
        self._write([now, topic, packed])

    def _write(self, value: Any) -> None:
        try:
            self._file.write(msgpack.packb(value))
            self._file.flush()
        except OSError as error:
            # It would try again to write what found no room.
            with suppress(OSError):
                self._file.close()
            raise _unusable("write", self._path, error) from None

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of the file."""
        self.close()


def read(path: str, skipped: int = 0) -> Iterator[tuple[float, Message]]:
    """Yield the messages of a recording, each after the moment in which it arrived.

    So many at its beginning are ``skipped``: nobody looks at what they say.

    These are seconds of a clock of whoever recorded: given to :meth:`Model.apply`, they make the
    model that was there then. A recording that was cut off ends with its last whole message.
    Raises ConfigError if it is none, or damaged, or RemoteProtocolError if it is of a feed of
    another version.
    """
    try:
        file = Path(path).open("rb")  # noqa: SIM115
    except OSError as error:
        raise _unusable("read", path, error) from None
    with file:
        # What is damaged may claim to be of any size.
        values = iter(
            msgpack.Unpacker(
                file,
                read_size=READ_BYTES,
                max_buffer_size=FEED_BYTES_MAX,
                max_array_len=3,
                max_map_len=2,
                max_ext_len=0,
            )
        )
        head = _next(values, path)
        if type(head) is not dict or head.get("recording") != NAME:
            raise ConfigError(f"{path} is no recording of a feed")
        if head.get("version") != VERSION:
            raise ConfigError(f"{path} was recorded by another version of scaler-exec")
        for _ in range(skipped):
            _next(values, path)
        while (value := _next(values, path)) is not None:
            try:
                now, topic, body = value
                if not isfinite(now):
                    raise ValueError(now)  # noqa: TRY301
                message = decode([topic, _decompress(body)])
            except (TypeError, ValueError, zlib.error) as error:
                raise _damaged(path) from error
            yield now, message


def _next(values: Iterator[Any], path: str) -> Any:
    """Return the next value; None: there is no other whole one."""
    try:
        return next(values, None)
    except OSError as error:
        raise _unusable("read", path, error) from None
    except (ValueError, msgpack.UnpackException) as error:
        raise _damaged(path) from error


def _decompress(body: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(body, FEED_BYTES_MAX)
    if not unpacker.eof:
        raise RemoteProtocolError("a message that is too large")
    return text


def _unusable(what: str, path: str, error: OSError) -> ConfigError:
    return ConfigError(f"cannot {what} {path}: {error.strerror}")


def _damaged(path: str) -> ConfigError:
    return ConfigError(f"{path} is damaged, or no recording of a feed")
