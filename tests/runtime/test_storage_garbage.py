"""What strangers send to an object storage: it hurts nobody but them."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import ExitStack

import msgpack
import numpy as np
import zmq

from scaler_cluster.ids import alias_of
from scaler_cluster.objects.segments import Segments
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.process import PYTHON_VERSION
from scaler_cluster.process.process_config import StorageProcessConfig
from scaler_cluster.runtime.storage import StorageShell
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import decode, encode
from scaler_exec import Client, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, cluster_process, free_port, show_keys, wait_until
from tests.runtime.machines import find_storage
from tests.runtime.test_storage_servers import Server

MB = 1_000_000
NAME = b"0a" * 13 + b"-1"


class Stranger:
    """A peer made by hand."""

    def __init__(self, address: str, number: int) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.ROUTING_ID, b"stranger%d" % number)
        self.socket.linger = 0
        show_keys(self.socket, address)
        self.socket.connect(address)
        self._sent = 0

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.context.term()

    def say(self, *messages: m.Message) -> None:
        """Send messages."""
        self._sent += 1
        self.socket.send_multipart(encode(7, self._sent, 0, messages), copy=True)

    def hear(self) -> list[m.Message]:
        """Return the messages of the next envelope that has some."""
        while True:
            assert self.socket.poll(BOUND_S * 1000)
            if messages := list(decode(self.socket.recv_multipart()).messages):
                return messages


def greeting(role: str = m.CLIENT) -> m.Hello:
    return m.Hello(role, m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), "here")


def packed(*fields: object) -> list[bytes]:
    """Return an envelope of one message, as no honest peer writes it."""
    return [msgpack.packb([7, 0, 2, 0, list(fields)])]


def garbage() -> list[list[bytes]]:
    """Return what follows a Hello."""
    return [
        [b"garbage"],
        [os.urandom(5000), os.urandom(100)],
        [b"x"] * 500,
        packed(m.Fetch.tag, b"a-" + b"1" * 300, 0, 1 << 20),
        packed(m.Put.tag, b"a-" + b"1" * 300),
        packed(m.Fetch.tag, b"a-" + b"1" * 60, 0, 1 << 20),
        packed(m.Fetch.tag, b"../../etc/passwd", 0, 1 << 62),
        packed(m.Fetch.tag, NAME, 1 << 62, 1 << 62),
        packed(m.Put.tag, b"usage"),
        packed(m.Part.tag, NAME, 1 << 62, 1 << 62, b""),
        packed(m.Release.tag, [NAME]),
        packed(m.Purge.tag, b"", []),
        packed(m.Goodbye.tag, "over"),
        packed(m.Transferred.tag, b"a-" + b"1" * 300, ""),
        packed(m.Hello.tag, "scheduler", 1, "3", 1, "", b"", b"", []),
        packed(255),
    ]


def throw(address: str) -> None:
    """Send all the garbage there, and see that the storage still answers strangers after each."""
    for number, frames in enumerate(garbage()):
        with Stranger(address, number) as stranger:
            stranger.say(greeting(), m.Fetch(NAME, 0, 1))
            assert type(stranger.hear()[0]) is m.Transferred
            stranger.socket.send_multipart(frames)
            # What is stored begins so: a size that no file system has.
            stranger.say(m.Put(NAME))
        with Stranger(address, 1000 + number) as stranger:
            stranger.say(greeting(), m.Put(NAME.replace(b"1", b"%d" % (10 + number))))
            (fetch,) = stranger.hear()
            assert type(fetch) is m.Fetch
            stranger.say(m.Part(fetch.segment, 0, 1 << 62, bytes(fetch.nbytes)))
            (end,) = stranger.hear()
            assert isinstance(end, m.Transferred)
            assert end.error
    host, port = address.removeprefix("tcp://").split(":")
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x01\x7f" + bytes(range(256))):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(data)


def test_garbage_does_not_end_a_storage_server() -> None:
    """A storage server outlives what strangers send, and keeps what it has."""
    server = Server(f"tcp://127.0.0.1:{free_port()}")
    with SchedulerClusterCombo(1, None, server.address) as combo:
        with Client(combo.get_address()) as client:
            kept = client.send_object(np.ones(MB))
            throw(server.address)

            assert client.submit(np.sum, kept).result(BOUND_S) == MB
            assert client.submit(np.sum, np.full(MB, 2.0)).result(BOUND_S) == 2 * MB
        assert server.process.poll() is None
    assert server.stop() == 0


def test_garbage_does_not_end_the_storage_beside_a_scheduler() -> None:
    """The storage of a scheduler is the same process after what strangers sent."""
    with SchedulerClusterCombo(1, f"tcp://127.0.0.1:{free_port(3)}") as combo:
        with Stranger(combo.get_address(), 0) as stranger:
            stranger.say(greeting())
            (welcome,) = stranger.hear()
        assert isinstance(welcome, m.Welcome)
        with Client(combo.get_address()) as client:
            kept = client.send_object(np.ones(MB))

            def storage():
                return find_storage(cluster_process("scheduler").pid)

            wait_until(storage, "no storage is started")
            before = storage().pid
            throw(welcome.homes[0].address)

            assert client.submit(np.sum, kept).result(BOUND_S) == MB
            assert storage().pid == before


def test_what_one_peer_causes_is_for_that_peer_alone(tmp_path, monkeypatch, caplog) -> None:
    """An error that a peer causes in the storage drops this peer; the storage serves the next."""
    opened = Segments.open

    def open_(self, name, *, writable=False):
        if name == NAME:
            raise OSError(5, "Input/output error")
        return opened(self, name, writable=writable)

    monkeypatch.setattr(Segments, "open", open_)
    lifeline, end = os.pipe()
    dirs = ClusterDirs(str(tmp_path), StorageDirs(disk=str(tmp_path)))
    address = f"tcp://127.0.0.1:{free_port()}"
    shell = StorageShell(StorageProcessConfig(dirs=dirs, serve=address), lifeline)
    thread = threading.Thread(target=shell.run)
    thread.start()
    with ExitStack() as stack:
        stack.callback(os.close, lifeline)
        stack.callback(thread.join)
        stack.callback(os.close, end)
        with Stranger(address, 0) as stranger, caplog.at_level(logging.ERROR, "scaler.storage"):
            stranger.say(greeting(), m.Fetch(NAME, 0, 1))
            # What the storage takes in together with that is answered.
            answer: type[m.Message] = m.Transferred
            while answer is m.Transferred:
                stranger.say(m.Fetch(NAME + b"1", 0, 1))
                answer = type(stranger.hear()[0])
            assert answer is m.Unknown
        with Stranger(address, 1) as stranger:
            stranger.say(greeting(), m.Fetch(NAME + b"1", 0, 1))
            assert type(stranger.hear()[0]) is m.Transferred

    assert alias_of(b"stranger0").hex() in caplog.text
