"""A worker that knows nothing but the protocol: ZeroMQ, msgpack, and what docs/protocol.md says.

``python worker_from_scratch.py tcp://127.0.0.1:8516`` joins a scheduler as one worker with its
supervisor, and runs single tasks and maps until the scheduler is gone. For an address that is no
loopback address, the second argument is a file of keys for workers, which ``scaler_keys`` made.
"""

from __future__ import annotations

import os
import pickle
import platform
import secrets
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
import zmq

HELLO, WELCOME, REFUSED, HEARTBEAT, GOODBYE, UNKNOWN = 1, 2, 3, 4, 5, 6
FUNCTION, FORGET = 10, 11
ASSIGN, REVOKE, REVOKED, ABORT, ABORTED, STARTED, DONE, ERRED = 20, 21, 22, 23, 24, 25, 26, 27
RETIRE, KILL = 29, 41
NOWHERE = ["", "", "", 0]
HEARTBEAT_S = 2.0
RESEND_S = 1.0
FRAME_BYTES = 8192
PROTOCOL = 12
PYTHON = ".".join(platform.python_version_tuple()[:2])


def read_keys(path: Path) -> tuple[str, str, str]:
    """Return the scheduler's public key, and the pair of the last line that has one."""
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("# ")]
    server = next(words[2] for words in lines if words[:1] == ["scheduler"])
    public, secret = next(words[2:4] for words in reversed(lines) if len(words) == 4)
    return server, public, secret


def loopback_keys() -> Path:
    """Return the file of the keys that this user has for loopback addresses."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "scaler" / "loopback.key"


class Peer:
    """One connection to the scheduler: what is sent arrives once, and in order."""

    def __init__(self, context: zmq.Context[Any], address: str, role: str, keys: Path) -> None:
        self.name = role.encode() + secrets.token_bytes(12)
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.ROUTING_ID, self.name)
        self.socket.setsockopt(zmq.LINGER, 500)
        if address.startswith("tcp://"):
            server, public, secret = read_keys(keys)
            self.socket.curve_serverkey = server.encode()
            self.socket.curve_publickey = public.encode()
            self.socket.curve_secretkey = secret.encode()
        self.socket.connect(address)
        self.seq = self.received = self.acknowledged = 0
        self.unacknowledged: dict[int, tuple[float, list[bytes]]] = {}

    def send(self, *messages: list[Any]) -> None:
        """Send messages, in which every large buffer becomes a frame of its own."""
        self.seq += 1
        frames: list[bytes] = [b""]
        body = [self._in_frames(message, frames) for message in messages]
        frames[0] = msgpack.packb([os.getpid(), 0, self.seq, self.received, *body])
        self.acknowledged = self.received
        self.unacknowledged[self.seq] = time.monotonic(), frames
        self.socket.send_multipart(frames)

    def _in_frames(self, value: Any, frames: list[bytes]) -> Any:
        if isinstance(value, list):
            return [self._in_frames(one, frames) for one in value]
        if isinstance(value, bytes) and len(value) >= FRAME_BYTES:
            frames.append(value)
            return len(frames) - 1
        return value

    def receive(self) -> list[tuple[list[Any], list[bytes]]]:
        """Return the messages that have arrived, each with the frames of its envelope."""
        found = []
        while self.socket.poll(0):
            frames = self.socket.recv_multipart()
            _, _, seq, ack, *messages = msgpack.unpackb(frames[0])
            for one in [one for one in self.unacknowledged if one <= ack]:
                del self.unacknowledged[one]
            if seq == self.received + 1:
                self.received = seq
            elif seq:
                # Repeated, or too early: then it will be repeated.
                continue
            found += [(message, frames) for message in messages]
        return found

    def tick(self) -> None:
        """Acknowledge what was received, and repeat what was not acknowledged."""
        if self.acknowledged < self.received:
            self.acknowledged = self.received
            self.socket.send(msgpack.packb([os.getpid(), 0, 0, self.received]))
        now = time.monotonic()
        for seq, (sent, frames) in self.unacknowledged.items():
            if now - sent >= RESEND_S:
                self.unacknowledged[seq] = now, frames
                self.socket.send_multipart(frames)
            break


class Worker:
    """Runs what it is given, and reports for the supervisor that it must have."""

    def __init__(self, address: str, keys: Path) -> None:
        context = zmq.Context()
        self.supervisor = Peer(context, address, "S", keys)
        self.worker = Peer(context, address, "W", keys)
        self.functions: dict[bytes, Any] = {}
        self.leaves = False
        self.heard = time.monotonic()
        self._join(self.supervisor, "supervisor", b"")

    def _join(self, peer: Peer, role: str, supervisor: bytes) -> None:
        me = [PROTOCOL, PYTHON, os.getpid(), platform.node()]
        rest = [NOWHERE, False, b"", "", [], 0, "", False, 0, b"", "", "", ""]
        peer.send([HELLO, role, *me, supervisor, 0, 1, *rest])

    def run(self) -> None:
        """Work until told to leave, or until the scheduler is silent."""
        beat = 0.0
        while not self.leaves and time.monotonic() < self.heard + 30:
            if time.monotonic() >= beat:
                beat = time.monotonic() + HEARTBEAT_S
                self.supervisor.send([HEARTBEAT])
            for message, _ in self.supervisor.receive():
                if message[0] == WELCOME:
                    self._join(self.worker, "worker", self.supervisor.name)
                self.leaves |= message[0] in (REFUSED, GOODBYE, UNKNOWN, KILL)
            for message, frames in self.worker.receive():
                self.heard = time.monotonic()
                self.handle(message[0], message[1:], frames)
            for peer in (self.supervisor, self.worker):
                peer.tick()
            self.worker.socket.poll(50)
        self.supervisor.send([GOODBYE, ""])

    def handle(self, tag: int, fields: list[Any], frames: list[bytes]) -> None:
        """Act on one message."""
        if tag == FUNCTION:
            name, payload, *_ = fields
            self.functions[name] = pickle.loads(_buffer(payload, frames))
        elif tag == FORGET:
            self.functions.pop(fields[0], None)
        elif tag == ASSIGN:
            self.run_tasks(fields, frames)
        elif tag == REVOKE:
            # What it was given has been run by now: all of it is kept.
            self.worker.send([REVOKED, *fields, fields[2]])
        elif tag == RETIRE:
            self.worker.send([GOODBYE, ""])
            self.leaves = True
        elif tag in (REFUSED, GOODBYE, UNKNOWN):
            self.leaves = True

    def run_tasks(self, fields: list[Any], frames: list[bytes]) -> None:
        """Run contiguous tasks, one after the other, and report each."""
        session, first, function, call, report_start, _, batch, *_ = fields
        for task, payload in enumerate(_payloads(batch, frames), first):
            if report_start:
                self.worker.send([STARTED, session, task])
            start = time.perf_counter()
            try:
                given = pickle.loads(payload)
                args, kwargs = given if call == 1 else (given, {})
                run = self.functions[function]
                value = [run(*one) for one in args] if call == 2 else run(*args, **kwargs)
                result = pickle.dumps(value)
            except Exception as error:
                took = time.perf_counter() - start
                detail = {"type": type(error).__name__, "message": str(error)}
                said = ["exception", pickle.dumps(error), detail]
                self.worker.send([ERRED, session, task, took, *said])
            else:
                took = time.perf_counter() - start
                ends = len(result).to_bytes(4, "little")
                self.worker.send([DONE, session, task, took, [ends, 0, result]])


def _buffer(value: Any, frames: list[bytes]) -> bytes:
    return value if isinstance(value, bytes) else frames[value]


def _payloads(batch: list[Any], frames: list[bytes]) -> list[bytes]:
    packed, base, data = _buffer(batch[0], frames), batch[1], _buffer(batch[2], frames)
    ends = [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]
    return [data[low - base : high - base] for low, high in pairwise([base, *ends])]


if __name__ == "__main__":
    Worker(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else loopback_keys()).run()
