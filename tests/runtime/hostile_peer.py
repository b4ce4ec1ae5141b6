"""A hostile peer, written from docs/protocol.md: it knows ZeroMQ and msgpack, and nothing of ours.

It says what it likes, with a key that it was given, or with none.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import platform
import secrets
import time
from typing import TYPE_CHECKING, Any

import msgpack
import zmq
from zmq.utils.monitor import recv_monitor_message

if TYPE_CHECKING:
    from pathlib import Path

PROTOCOL = 12
PYTHON = ".".join(platform.python_version_tuple()[:2])
HELLO, WELCOME, REFUSED, HEARTBEAT, GOODBYE, UNKNOWN, SHUTDOWN = 1, 2, 3, 4, 5, 6, 7
FUNCTION, SUBMIT, RESULTS, FAILED, OUTPUT = 10, 12, 14, 15, 16
ASSIGN, DONE, PRINTED, WORKER_LOST = 20, 26, 28, 40
OBJECT, FETCH, PUT, PART, TRANSFERRED = 50, 57, 56, 58, 59
GAP, GRAPH, FAILED_RANGE, UNPLACED = 47, 60, 63, 64
FRAME_BYTES = 8192
NOWHERE = ["", "", "", 0]
BOUND_S = 30.0
"""A peer that is answered at all is answered within this, however busy the machine is."""
ENDS = int(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
"""How a handshake may end."""


class Keys:
    """A file of keys: whom it leads to, and the pair that it has."""

    def __init__(self, path: Path) -> None:
        lines = [line.split() for line in path.read_text().splitlines() if line[:1] != "#"]
        self.server = next(words[2] for words in lines if words[:1] == ["scheduler"])
        self.public, self.secret = next(words[2:4] for words in lines if len(words) == 4)


def show(socket: zmq.Socket[bytes], address: str, keys: Keys | None) -> str:
    """Let a socket show keys at an address; return the address without the key behind it."""
    place, _, server = address.partition("#")
    if keys is not None:
        socket.curve_serverkey = (server or keys.server).encode()
        socket.curve_publickey = keys.public.encode()
        socket.curve_secretkey = keys.secret.encode()
    return place


def hello(role: str = "client", *, host: str = "here", supervisor: bytes = b"", **more: Any) -> Any:
    """Return a Hello; ``more`` are its other fields by name."""
    fields: dict[str, Any] = {
        "protocol": PROTOCOL, "python": PYTHON, "pid": os.getpid(), "host": host,
        "supervisor": supervisor, "task_limit": 0, "workers": 1, "place": NOWHERE, "spare": False,
        "worker": b"", "name": "", "capabilities": [], "queue": 0, "pid_space": "",
        "is_stored": False, "resume": 0, "proof": b"", "manager": "", "unit": "",
        "release": "",
    }  # fmt: skip
    return [HELLO, role, *(fields | more).values()]


def digest(payload: bytes) -> bytes:
    """Return what names a function without buffers."""
    return hashlib.blake2b(b"\0" + payload, digest_size=16).digest()


def batch(*payloads: bytes) -> list[Any]:
    """Return payloads as one batch."""
    ends = itertools.accumulate(map(len, payloads))
    return [b"".join(end.to_bytes(4, "little") for end in ends), 0, b"".join(payloads)]


def submit(first: int, function: bytes, arguments: list[Any], **options: Any) -> list[Any]:
    """Return a Submit of tasks whose arguments are such a batch; ``options`` are TaskOptions."""
    fields: dict[str, Any] = {
        "priority": 0, "timeout_s": None, "retries": 0, "at_most_once": False,
        "stream_output": False, "profiling": False, "depth": 0, "capabilities": [], "workers": [],
        "log_level": 0, "cores": 1, "creates": "",
    }  # fmt: skip
    chosen = list((fields | options).values()) if options else None
    return [SUBMIT, first, function, 0, chosen, arguments, []]


class HostilePeer:
    """A DEALER at a port of a cluster, which counts and acknowledges as the protocol wants it.

    Args:
        address: Of a scheduler or a storage.
        keys: What it shows; None: it speaks without a key.
        letter: Of the role in its peer id.
        name: The whole peer id, if it takes another one's.
    """

    def __init__(
        self, address: str, keys: Keys | None, letter: bytes = b"C", name: bytes = b""
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.name = name or letter + secrets.token_bytes(12)
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.set_hwm(0)
        self.socket.setsockopt(zmq.ROUTING_ID, self.name)
        self._events = self.socket.get_monitor_socket(ENDS)
        self.socket.connect(show(self.socket, address, keys))
        self.life = secrets.randbits(62) + 1
        self.seq = self.received = 0
        self._heard: list[list[Any]] = []
        self._is_let_in: bool | None = None
        """None: its handshake is not over."""

    def __enter__(self) -> HostilePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.disable_monitor()
        self._events.close(0)
        self.socket.close()
        self.context.term()

    @property
    def alias(self) -> bytes:
        """Return what others know it by."""
        return self.name[:1] + hashlib.blake2b(self.name, digest_size=8).digest()

    def segment(self, number: int = 0) -> bytes:
        """Return the name of a segment that it may have written."""
        return f"{self.alias.hex()}-{number:x}z{secrets.token_hex(12)}".encode()

    def is_let_in(self) -> bool:
        """Wait for the end of the handshake; return True if it has come in."""
        if self._is_let_in is None:
            assert self._events.poll(BOUND_S * 1000), "nobody listens"
            event = recv_monitor_message(self._events)
            self._is_let_in = bool(event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED)
        return self._is_let_in

    def say(self, *messages: list[Any]) -> None:
        """Send messages in an envelope that is counted."""
        self.seq += 1
        self.throw(*self.packed(self.seq, *messages))

    def packed(self, seq: int, *messages: list[Any]) -> list[bytes]:
        """Return an envelope of this number."""
        frames = [b""]
        said = [_in_frames(one, frames) for one in messages]
        frames[0] = msgpack.packb([self.life, 0, seq, self.received, *said])
        return frames

    def throw(self, *frames: bytes) -> None:
        """Send frames as they are; after a refusal nobody takes them."""
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart(frames, zmq.NOBLOCK)

    def hear(self, *tags: int, bound_s: float = BOUND_S) -> list[Any]:
        """Return the next message of one of these kinds; empty: none has come.

        What comes before it is read, and not kept.
        """
        end = time.monotonic() + bound_s
        while True:
            while self._heard:
                one = self._heard.pop(0)
                if one[0] in tags:
                    return one
            if not self.socket.poll(max(end - time.monotonic(), 0) * 1000):
                return []
            frames = self.socket.recv_multipart()
            _, _, seq, _, *messages = msgpack.unpackb(frames[0], unicode_errors="surrogatepass")
            self._heard += messages
            if seq == self.received + 1:
                self.received = seq
                self.throw(*self.packed(0))

    def is_welcome(self) -> bool:
        """Say Hello as a client; return True if that is welcome."""
        self.say(hello())
        return bool(self.hear(WELCOME))

    def drain(self) -> None:
        """Take in what has come, and acknowledge none of it."""
        while self.socket.poll(0):
            self.socket.recv_multipart()

    def is_dropped(self) -> bool:
        """Speak once more; return True if it is told that nobody knows it."""
        self.throw(*self.packed(self.seq + 1, [HEARTBEAT]))
        return bool(self.hear(UNKNOWN))


def _in_frames(value: Any, frames: list[bytes]) -> Any:
    """Return a message in which large buffers are numbers of frames, which are added."""
    if isinstance(value, list):
        return [_in_frames(one, frames) for one in value]
    if isinstance(value, bytes) and len(value) >= FRAME_BYTES:
        frames.append(value)
        return len(frames) - 1
    return value
