"""ZMTP 3.0 without keys, which ZeroMQ's sockets speak: frames to bytes and back.

See https://rfc.zeromq.org/spec/23: a greeting, a READY command from each side, then frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.wire.batch import Buffer

MORE, LONG, COMMAND = 1, 2, 4
"""Flags of a frame: others follow in its message; its size has 8 bytes; it is a command."""
SHORT_BYTES_MAX = 255
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
VERSION_AT, MECHANISM = 10, slice(12, 32)
COMMAND_BYTES_MAX = 4096
"""Longer commands break the protocol: the longest here has the id of a peer."""
LARGE_BYTES = 16 * 1024
"""A longer frame of which a part has not arrived yet is read where it will lie."""


def opening(kind: bytes, peer: bytes) -> bytes:
    """Return what a socket of a kind, such as ``b"DEALER"``, says first, with its peer id."""
    body = b"\x05READY" + _property(b"Socket-Type", kind) + _property(b"Identity", peer)
    return GREETING + bytes((COMMAND, len(body))) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def encode(frames: Sequence[Buffer]) -> list[Buffer]:
    """Return the bytes of a message, in buffers; large frames are passed on, not copied."""
    if len(frames) == 1 and len(frames[0]) <= SHORT_BYTES_MAX:
        return [bytes((0, len(frames[0]))) + frames[0]]
    buffers: list[Buffer] = []
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = MORE if index < last else 0
        size = len(frame)
        if size <= SHORT_BYTES_MAX:
            buffers.append(bytes((flags, size)))
        else:
            buffers.append(bytes((flags | LONG,)) + size.to_bytes(8, "big"))
        buffers.append(frame)
    return buffers


class Reader:
    """Makes messages of what comes from the other side of a connection.

    Frames longer than ``bytes_max`` break the protocol.
    """

    def __init__(self, bytes_max: int) -> None:
        self.peer: bytes | None = None
        """The id that the other side gave itself; None: it has not said READY."""
        self.answer = b""
        """What is to be sent back; who sends it empties this."""
        self._bytes_max = bytes_max
        self._has_greeted = False
        self._rest: bytes = b""
        self._frames: list[Buffer] = []
        """Of a message of which more frames follow."""
        self.large: memoryview | None = None
        """A large frame of which a part has arrived."""
        self._filled = 0
        self._flags = 0

    @property
    def target(self) -> memoryview:
        """Where the next bytes of the large frame are to be put."""
        assert self.large is not None
        return self.large[self._filled :]

    def filled(self, count: int) -> list[list[Buffer]]:
        """So many bytes were put into the target; return the messages that are whole now."""
        assert self.large is not None
        self._filled += count
        if self._filled < len(self.large):
            return []
        frame, self.large = self.large.toreadonly(), None
        messages: list[list[Buffer]] = []
        self._take(self._flags, frame, messages)
        return messages

    def feed(self, data: Buffer) -> list[list[Buffer]]:
        """Take in bytes that have come; return the messages that are whole now.

        Raises RemoteProtocolError if they are no ZMTP, or a version or mechanism that is not this.
        """
        if self._rest:
            data = self._rest + bytes(data)
            self._rest = b""
        if not self._has_greeted:
            if len(data) < len(GREETING):
                self._rest = bytes(data)
                return []
            _check_greeting(bytes(data[: len(GREETING)]))
            self._has_greeted = True
            data = data[len(GREETING) :]
        messages: list[list[Buffer]] = []
        at, stop = 0, len(data)
        while stop - at >= 2:
            flags = data[at]
            if flags & LONG:
                start = at + 9
                if start > stop:
                    break
                size = int.from_bytes(data[at + 1 : start], "big")
            else:
                start, size = at + 2, data[at + 1]
            end = start + size
            if end > stop:
                is_command = flags & COMMAND or self.peer is None
                if size > (COMMAND_BYTES_MAX if is_command else self._bytes_max):
                    raise RemoteProtocolError(f"a frame of {size} bytes")
                if size > LARGE_BYTES:
                    self._begin_large(flags, size, data[start:])
                    return messages
                break
            if flags:
                self._take(flags, bytes(data[start:end]), messages)
            elif self.peer is None:
                raise RemoteProtocolError("a message before READY")
            elif self._frames:
                self._take(flags, bytes(data[start:end]), messages)
            else:
                messages.append([bytes(data[start:end])])
            at = end
        self._rest = bytes(data[at:])
        return messages

    def _begin_large(self, flags: int, size: int, start: Buffer) -> None:
        self.large = memoryview(bytearray(size))
        self.large[: len(start)] = start
        self._filled, self._flags = len(start), flags

    def _take(self, flags: int, body: Buffer, messages: list[list[Buffer]]) -> None:
        if flags & COMMAND:
            self._obey(bytes(body))
            return
        if self.peer is None:
            raise RemoteProtocolError("a message before READY")
        if not self._frames and not isinstance(body, bytes):
            # The first frame is read as a whole.
            body = bytes(body)
        self._frames.append(body)
        if not flags & MORE:
            messages.append(self._frames)
            self._frames = []

    def _obey(self, body: bytes) -> None:
        end = 1 + body[0] if body else 0
        name, rest = body[1:end], body[end:]
        if name == b"READY":
            self.peer = _properties(rest).get(b"identity", b"")
        elif name == b"PING":
            # The time to live of this connection, then a context to send back.
            answer = b"\x04PONG" + rest[2:]
            self.answer += bytes((COMMAND, len(answer))) + answer
        elif name == b"ERROR":
            raise RemoteProtocolError(f"the other side says {rest!r:.200}")


def _check_greeting(data: bytes) -> None:
    is_zmtp = data[0] == GREETING[0] and data[9] == GREETING[9]
    if not is_zmtp or data[VERSION_AT] < GREETING[VERSION_AT]:
        raise RemoteProtocolError("no ZMTP 3")
    if data[MECHANISM] != GREETING[MECHANISM]:
        raise RemoteProtocolError("another mechanism than NULL")


def _properties(data: bytes) -> dict[bytes, bytes]:
    found, at = {}, 0
    while at < len(data):
        start = at + 1 + data[at]
        name, size = data[at + 1 : start], int.from_bytes(data[start : start + 4], "big")
        at = start + 4 + size
        if at > len(data):
            raise RemoteProtocolError("a property that is cut off")
        found[name.lower()] = data[start + 4 : at]
    return found
