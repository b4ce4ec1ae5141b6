"""What a client is given: that it has its effect, and goes along where the client goes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pickle
import re
import signal
import socket
import threading
import time

import cloudpickle
import numpy as np
import pytest

from scaler_cluster.client.serializer import DefaultSerializer
from scaler_cluster.core.client import liveness
from scaler_cluster.objects.remote_store import RemoteStore
from scaler_cluster.objects.sent import SentObjects
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_exec import (
    Client,
    ClusterUnreachableError,
    ConfigError,
    SchedulerClusterCombo,
    Serializer,
)
from tests.runtime.helpers import BOUND_S, cluster_process, free_port, wait_until
from tests.runtime.test_storage_servers import Server

MB = 1_000_000


@pytest.fixture
def cluster():
    with SchedulerClusterCombo(1) as made:
        yield made


class Upper(Serializer):
    """Shows that it was used: texts come out in capitals."""

    @staticmethod
    def serialize(obj):
        return cloudpickle.dumps(obj)

    @staticmethod
    def deserialize(payload):
        value = pickle.loads(payload)
        return value.upper() if isinstance(value, str) else value


def use_client(client, text: str):
    """Submit through a client that came as an argument; return what a task took, too."""
    future = client.submit(str.lower, text)
    return future.result(), future.profiling_info().duration_s >= 0, client.identity


# -- going elsewhere -------------------------------------------------------------------------


def test_a_pickled_client_keeps_what_it_was_given(cluster) -> None:
    """A pickled client keeps its settings, here and in a task."""
    given = {"profiling": True, "timeout_seconds": 20, "heartbeat_interval_seconds": 3,
             "serializer": Upper, "stream_output": True, "reconnect_timeout_seconds": 40}  # fmt: skip
    with Client(cluster.get_address(), **given) as client:
        copy = pickle.loads(pickle.dumps(client))
        assert copy._settings == client._settings
        # What a serializer does to results shows that both have it.
        assert use_client(copy, "Text") == ("TEXT", True, copy.identity)
        assert copy.identity != client.identity
        copy.disconnect()
        text, is_measured, identity = client.submit(use_client, client, "Text").result(BOUND_S)
        assert (text, is_measured) == ("TEXT", True)
        assert identity != client.identity


def test_clients_have_names(cluster) -> None:
    """No two clients have the same name, not even two of one task."""
    with Client(cluster.get_address()) as one, Client(cluster.get_address()) as other:
        there = one.submit(name_two).result(BOUND_S)

        assert len({one.identity, other.identity, *there}) == 4
        assert all(type(name) is bytes for name in there)


def name_two() -> tuple[bytes, bytes]:
    return Client().identity, Client().identity


def test_our_own_serializer_is_no_detour(cluster) -> None:
    """DefaultSerializer, class or instance, changes nothing."""
    for serializer in (DefaultSerializer, DefaultSerializer()):
        with Client(cluster.get_address(), serializer=serializer) as client:
            assert client._serialization is None
            assert client.submit(abs, -1).result(BOUND_S) == 1


def test_nothing_is_said_after_goodbye(monkeypatch, capfd) -> None:
    """A client that leaves says nothing of what it lets go of, which the scheduler frees."""
    with SchedulerClusterCombo(1) as cluster:
        client = Client(cluster.get_address())
        futures = [client.submit(np.ones, MB)]
        wait_until(futures[0].done, "the task does not come back")
        monkeypatch.setattr(SentObjects, "keep_results", lambda self: futures.clear())
        client.disconnect()
        with Client(cluster.get_address()) as other:
            assert other.submit(abs, -1).result(BOUND_S) == 1

    assert not futures
    assert capfd.readouterr().err == ""


# -- time ------------------------------------------------------------------------------------


def test_a_scheduler_that_is_not_there(monkeypatch) -> None:
    """A client waits for a scheduler as long as it was told to, and names the address."""
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(ClusterUnreachableError, match=rf"at {address} within 0.2 s"):
        Client(address, timeout_seconds=0.2)


def test_a_scheduler_that_falls_silent() -> None:
    """What is pending fails once the scheduler was silent for the time that it was given."""
    with SchedulerClusterCombo(0) as cluster:
        given = {"reconnect_timeout_seconds": 1, "heartbeat_interval_seconds": 5}
        client = Client(cluster.get_address(), **given)
        scheduler = cluster_process("scheduler")
        os.kill(scheduler.pid, signal.SIGSTOP)
        try:
            error = client.submit(abs, -1).exception(BOUND_S)
        finally:
            os.kill(scheduler.pid, signal.SIGCONT)
        client.disconnect()

    assert isinstance(error, ClusterUnreachableError)
    assert "has not answered for 1 s" in str(error)


@pytest.mark.slow
def test_a_scheduler_that_comes_back(monkeypatch, caplog, tmp_path) -> None:
    """A scheduler may be stopped for long: the client says when it waits, and when that is over."""
    monkeypatch.setattr(liveness, "MISSED_S", 0.3)
    gate = tmp_path / "gate"
    with SchedulerClusterCombo(1) as cluster, Client(
        cluster, timeout_seconds=1, heartbeat_interval_seconds=0.1
    ) as client:  # fmt: skip
        future = client.submit(wait_for_file, str(gate))
        scheduler = cluster_process("scheduler")
        os.kill(scheduler.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: "has not answered for" in caplog.text, "the client says nothing")
            other = client.submit(abs, -1)
            began = time.monotonic()
            # Longer than it waits for a scheduler at first.
            wait_until(lambda: time.monotonic() > began + 1.5, "time stands still")
        finally:
            os.kill(scheduler.pid, signal.SIGCONT)
        gate.touch()

        assert (future.result(BOUND_S), other.result(BOUND_S)) == (str(gate), 1)
        wait_until(lambda: "is back" in caplog.text, "the client does not say that it is over")
    said = [record.message for record in caplog.records if record.name == "scaler_cluster.client"]
    # On a busy machine the scheduler may be silent for so long once more.
    at = re.escape(cluster.get_address())
    silent = r"has not answered for \d+\.\d s; it is given 300 s to come back"
    pair = rf"the scheduler at {at} {silent}\nthe scheduler at {at} is back\n"
    assert re.fullmatch(f"({pair})+", "\n".join([*said, ""]))


def wait_for_file(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.01)
    return path


@pytest.mark.parametrize(
    "name", ["timeout_seconds", "heartbeat_interval_seconds", "reconnect_timeout_seconds"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_times_are_positive(name, value) -> None:
    """Times that are not positive are refused before any connection is made."""
    with pytest.raises(ConfigError, match=f"{name} must be greater than 0"):
        Client("tcp://127.0.0.1:1", **{name: value})


def test_an_address_is_needed_outside_of_tasks() -> None:
    """The error of a missing address says what to give, in the words programs look for."""
    with pytest.raises(ValueError, match="No scheduler address provided.*worker context"):
        Client()


# -- object storage --------------------------------------------------------------------------


class Forwarder:
    """Another address for a port of this machine, as a gateway has it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.nbytes = 0
        self.turned_away = 0
        """Connections that were accepted while nobody was there for them."""
        self._sockets = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, call, *args) -> None:
        self._threads.append(threading.Thread(target=call, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                self.turned_away += 1
                near.close()
                continue
            self._sockets += near, far
            self._start(self._forward, near, far)
            self._start(self._forward, far, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.nbytes += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(BOUND_S)


@pytest.fixture
def server():
    one = Server(f"tcp://127.0.0.1:{free_port()}")
    yield one
    assert one.stop() == 0


@pytest.fixture
def forwarder(server):
    one = Forwarder(int(server.address.rpartition(":")[2]))
    yield one
    one.close()


@pytest.fixture
def is_blind(monkeypatch):
    """Let clients of this process see no files of the cluster, as in a container."""
    monkeypatch.setattr(StorageDirs, "is_here", property(lambda _: False))


def test_a_storage_that_is_reached_elsewhere(server, forwarder, is_blind) -> None:
    """Objects are stored and fetched by the storage address that the client was given."""
    with SchedulerClusterCombo(1, object_storage_address=server.address) as cluster:
        settings = {"object_storage_address": forwarder.address}
        with Client(cluster.get_address(), **settings) as client:
            assert client.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB
            sent = forwarder.nbytes
            assert sent > 8 * MB
            assert float(client.submit(np.ones, MB).result(BOUND_S).sum()) == MB
            assert forwarder.nbytes > sent + 8 * MB
        with pytest.raises(ConfigError, match="1 storages: name as many addresses"):
            Client(cluster.get_address(), object_storage_address=["tcp://a:1", "tcp://b:2"])


def test_an_idle_connection_to_a_storage_is_tended(server, is_blind, monkeypatch) -> None:
    """What becomes of a connection that nobody uses is taken note of: else that would pile up."""
    tended = threading.Event()
    tend = RemoteStore.tend

    def note(store: RemoteStore) -> None:
        tend(store)
        tended.set()

    combo = SchedulerClusterCombo(1, object_storage_address=server.address)
    with combo as cluster, Client(cluster.get_address(), heartbeat_interval_seconds=0.1) as client:
        assert client.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB
        server.process.send_signal(signal.SIGSTOP)
        try:
            monkeypatch.setattr(RemoteStore, "tend", note)
            assert tended.wait(BOUND_S)
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert client.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB


def test_a_result_is_fetched_within_the_timeout(server, is_blind) -> None:
    """result(timeout) gives up on a slow storage in time, and a later call goes on."""
    combo = SchedulerClusterCombo(1, object_storage_address=server.address)
    with combo as cluster, Client(cluster.get_address()) as client:
        future = client.submit(np.ones, 4 * MB)
        wait_until(future.done, "the task does not come back")
        server.process.send_signal(signal.SIGSTOP)
        try:
            for timeout in (0, 0.05, 0.1):
                with pytest.raises(concurrent.futures.TimeoutError):
                    future.result(timeout)
            assert future.done()
        finally:
            server.process.send_signal(signal.SIGCONT)

        assert float(future.result(BOUND_S).sum()) == 4 * MB
        assert int(client.submit(len, np.ones(MB)).result(BOUND_S)) == MB
