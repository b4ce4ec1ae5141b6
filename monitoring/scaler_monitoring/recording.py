"""What a scheduler published, in a file, and out of it again.

A recording is a sequence of msgpack values: a map that says what it is, then for each message a
list of when it arrived, its topic and its compressed body, as :mod:`scaler_cluster.wire.feed_codec`
has them. Each stands for itself: a file that was cut off says all that it had been told.

A long one is a directory of parts, each a recording by itself: :mod:`scaler_monitoring.history`.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgpack

from scaler_cluster.errors import ConfigError, RemoteProtocolError
from scaler_cluster.ids import SNAPSHOT
from scaler_cluster.wire import feed
from scaler_cluster.wire.feed_codec import FEED_BYTES_MAX, decode, encode
from scaler_monitoring.past import Earlier

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
SUFFIX = ".rec"
"""Of the parts of a recording; what stands before it is when each began, in ms since 1970."""


@dataclass(frozen=True)
class Part:
    """One file of a recording."""

    path: str
    began: float = -inf
    """When its first message had arrived, in seconds since 1970; -inf: it is all that there is."""


class Recorder:
    """Writes messages to a file, which begins anew; raises ConfigError if it cannot be written.

    A part of a longer recording has at its head what schedulers before had counted, ``earlier``.
    """

    def __init__(self, path: str, earlier: Earlier | None = None, *, goes_on: bool = False) -> None:
        """Begin a file; or else, one that ``goes_on`` is whole up to its end."""
        try:
            self._file = Path(path).open("ab" if goes_on else "wb")  # noqa: SIM115
        except OSError as error:
            raise _unusable("write", path, error) from None
        self._path = path
        self._logs_bytes = 0
        """Written of what tasks print."""
        self._are_logs_full = False
        """The recording says that there are no more of them."""
        if goes_on:
            return
        head: dict[str, Any] = {"recording": NAME, "version": VERSION}
        if earlier is not None:
            counted = zlib.compress(encode(earlier.counted)[1])
            head["earlier"] = [earlier.restarts, earlier.shift_s, counted]
        self._write(head)

    @property
    def nbytes(self) -> int:
        """How long the file is."""
        return self._file.tell()

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


def parts_of(path: str) -> list[Part]:
    """Return the files of a recording, in their order; raises ConfigError if there are none."""
    if not Path(path).is_dir():
        return [Part(path)]
    names = sorted(one.name for one in Path(path).glob("*" + SUFFIX) if one.stem.isdigit())
    if not names:
        raise ConfigError(f"{path} is a directory without a recording")
    return [Part(str(Path(path) / name), int(name[: -len(SUFFIX)]) / 1000) for name in names]


def read(path: str) -> Iterator[tuple[float, Message]]:
    """Yield the messages of a recording, each after the moment in which it arrived.

    These are seconds of a clock of whoever recorded: given to :meth:`Model.apply`, they make the
    model that was there then. A recording that was cut off ends with its last whole message.
    Raises ConfigError if it is none, or damaged, or RemoteProtocolError if it is of a feed of
    another version.
    """
    for part in parts_of(path):
        for _, arrived_at, message in messages(part.path):
            yield arrived_at, message


def messages(path: str, offset: int = 0) -> Iterator[tuple[int, float, Message]]:
    """Yield the messages of one file, from an offset on, each after that of what follows it."""
    with _open(path) as file:
        values = _values(file, path, offset)
        if not offset:
            _check(next(values, (0, None))[1], path)
        for end, value in values:
            try:
                now, topic, body = value
                if not isfinite(now):
                    raise ValueError(now)  # noqa: TRY301
                message = decode([topic, _decompress(body)])
            except (TypeError, ValueError, zlib.error) as error:
                raise _damaged(path) from error
            yield end, now, message


def arrivals(path: str) -> Iterator[tuple[int, float]]:
    """Yield when the messages of one file arrived, each after where it ends; -inf: of its head.

    It does not look into them, which is much quicker than to read them. Raises as :func:`read`.
    """
    with _open(path) as file:
        is_head = True
        for end, value in _values(file, path):
            if is_head:
                _check(value, path)
                is_head = False
                yield end, -inf
            elif type(value) is list and value and type(value[0]) is float:
                yield end, value[0]
            else:
                raise _damaged(path)


def earlier_of(path: str) -> Earlier | None:
    """Return what schedulers had counted before those of one file; None: there were none."""
    with _open(path) as file:
        head = next(_values(file, path), (0, None))[1]
        told = _check(head, path).get("earlier")
        if told is None:
            return None
        try:
            restarts, shift_s, counted = told
            snapshot = decode([SNAPSHOT, _decompress(counted)])
        except (TypeError, ValueError, zlib.error) as error:
            raise _damaged(path) from error
        if type(restarts) is not int or type(shift_s) is not float:
            raise _damaged(path)
        assert isinstance(snapshot, feed.Snapshot)
        return Earlier(restarts, shift_s, snapshot)


def cut_off(path: str) -> float | None:
    """Let a file end with its last whole message; return when that had arrived, -inf if none had.

    None: the file has not even a head.
    """
    whole, arrived_at = 0, None
    for end, at in arrivals(path):
        whole, arrived_at = end, at
    try:
        os.truncate(path, whole)
    except OSError as error:
        raise _unusable("write", path, error) from None
    return arrived_at


def _open(path: str) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise _unusable("read", path, error) from None


def _values(file: BinaryIO, path: str, offset: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield all whole values of a file from an offset on, each after that of what follows it."""
    # What is damaged may claim to be of any size.
    values = msgpack.Unpacker(
        file,
        read_size=READ_BYTES,
        max_buffer_size=FEED_BYTES_MAX,
        max_array_len=3,
        max_map_len=3,
        max_ext_len=0,
    )
    try:
        file.seek(offset)
        for value in values:
            yield offset + values.tell(), value
    except OSError as error:
        raise _unusable("read", path, error) from None
    except (ValueError, msgpack.UnpackException) as error:
        raise _damaged(path) from error


def _check(head: Any, path: str) -> dict[str, Any]:
    if type(head) is not dict or head.get("recording") != NAME:
        raise ConfigError(f"{path} is no recording of a feed")
    if head.get("version") != VERSION:
        raise ConfigError(f"{path} was recorded by another version of scaler-exec")
    return head


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
