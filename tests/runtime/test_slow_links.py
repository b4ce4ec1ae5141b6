"""Links that are slow, or that break in the middle of a message: everything arrives, and once."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading

import numpy as np
import pytest

from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_exec import ScalerExecutor, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S
from tests.runtime.machines import Machine, can_make_machines, can_slow_down

needs_slow_cables = pytest.mark.skipif(
    not (can_make_machines() and can_slow_down()), reason="making slow cables needs root and tc"
)
LONG_S = 6 * BOUND_S


@pytest.fixture
def machine():
    """Return another machine, whose workers are the only ones."""
    machine = Machine()
    yield machine
    machine.stop()


@pytest.fixture
def executor(machine):
    """Return an executor whose only worker is on the other machine."""
    cluster = EmbeddedCluster(0, f"tcp://{machine.here}:0")
    machine.start_supervisor(cluster.address, 1)
    with ScalerExecutor(address=cluster.address) as executor:
        # Both storages run then, and know each other.
        assert executor.submit(np.sum, np.ones(100_000)).result(BOUND_S) == 100_000
        assert len(executor.submit(np.ones, 100_000).result(BOUND_S)) == 100_000
        yield executor
    cluster.stop()


@needs_slow_cables
@pytest.mark.system
def test_a_slow_cable_carries_everything_once(executor, machine) -> None:
    """Arguments and results go over a cable of 1 Mbit/s, for longer than silence may last, once."""
    machine.slow_down("1mbit")
    value = np.frombuffer(os.urandom(4_000_000), "u1")
    sent, received = machine.nbytes_sent_to, machine.nbytes_sent_from
    assert executor.submit(np.sum, value).result(LONG_S) == value.sum()
    assert value.nbytes < machine.nbytes_sent_to - sent < 1.15 * value.nbytes

    result = executor.submit(make, 1_000_000).result(LONG_S)
    assert len(result) == 1_000_000
    assert machine.nbytes_sent_from - received < 1.6 * 1_000_000


def make(nbytes):
    return np.frombuffer(os.urandom(nbytes), "u1")


@needs_slow_cables
@pytest.mark.system
def test_a_slow_cable_carries_many_small_tasks(executor, machine) -> None:
    """A megabyte of small arguments goes over a cable of 256 kbit/s once, and nobody is given up."""
    machine.slow_down("256kbit")
    values = [os.urandom(10_000) for _ in range(100)]
    sent = machine.nbytes_sent_to

    assert list(executor.map(len, values, timeout=LONG_S)) == [10_000] * 100
    assert machine.nbytes_sent_to - sent < 1.2 * 1_000_000


class Relay:
    """A way to an address that is cut again and again, after some number of bytes.

    Each connection is reset once so many bytes have passed, in the middle of whatever they are;
    each carries a little more than the one before, so that a message of any size gets through.
    """

    def __init__(self, address: str, nbytes: int) -> None:
        host, port = address.removeprefix("tcp://").split(":")
        self._target = host, int(port)
        self._nbytes = nbytes
        self.resets = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with near, socket.create_connection(self._target) as far:
                self._carry(near, far)
                for end in (near, far):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.resets += 1
            self._nbytes += self._nbytes // 4

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        left = self._nbytes
        while left > 0:
            for source in select.select([near, far], [], [])[0]:
                try:
                    data = source.recv(min(left, 4096))
                    (far if source is near else near).sendall(data)
                except OSError:
                    return
                if not data:
                    return
                left -= len(data)

    def close(self) -> None:
        """End the way."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def test_connections_that_are_reset_lose_nothing() -> None:
    """Each task comes back right though the client's connection is reset in the middle of frames."""
    with SchedulerClusterCombo(2, "tcp://127.0.0.1:0") as combo:
        relay = Relay(combo.get_address(), 10_000)
        with ScalerExecutor(address=relay.address) as executor:
            payloads = [bytes([number % 256]) * (100 * (number % 300)) for number in range(300)]
            futures = [executor.submit(len, one) for one in payloads]
            mapped = list(executor.map(bytes.upper, payloads, timeout=LONG_S))
            assert [future.result(LONG_S) for future in futures] == list(map(len, payloads))
            assert mapped == [one.upper() for one in payloads]
        relay.close()
    assert relay.resets >= 8
