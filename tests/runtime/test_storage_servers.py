"""Object storages that run by themselves: one or several, found, shared, killed, replaced."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.storage.storage import UPSTREAM
from scaler_cluster.errors import ConfigError
from scaler_cluster.links import zmq_link
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.process_config import StorageProcessConfig
from scaler_cluster.runtime import storage_process
from scaler_cluster.runtime.storage import StorageShell
from scaler_cluster.runtime.storage_process import listen_beside, listen_towards
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import STORAGE
from scaler_cluster.wire import messages as m
from scaler_exec import Client, MissingObjectsError, SchedulerClusterCombo
from tests.runtime.helpers import (
    BOUND_S,
    cluster_process,
    environment,
    free_port,
    wait_gone,
    wait_until,
)

MB = 1_000_000
COMMAND = "from scaler_cluster.cli.storage import main; raise SystemExit(main())"


class Server:
    """``scaler_object_storage_server`` at an address of this machine."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.process = start(address)
        assert self.process.stdout is not None
        assert "logging to" in self.process.stdout.readline()
        line = self.process.stdout.readline()
        self.directories = [Path(word.rstrip(",")) for word in line.split() if word[0] == "/"]

    def segments(self) -> list[str]:
        """Return the names of what it keeps."""
        files = [path for place in self.directories for path in place.glob("*-*")]
        return [path.name for path in files]

    def stop(self) -> int:
        """End it as Ctrl-C does; return its exit status."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=BOUND_S)
        assert errors == ""
        assert not any(place.exists() for place in self.directories)
        return self.process.returncode


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


@pytest.fixture
def make_server():
    """Return what starts servers; each must end by Ctrl-C, and leave nothing."""
    servers: list[Server] = []

    def make(address: str | None = None) -> Server:
        servers.append(Server(address or f"tcp://127.0.0.1:{free_port()}"))
        return servers[-1]

    yield make
    assert all(server.stop() == 0 for server in servers if server.process.returncode is None)


@pytest.fixture
def make_combo():
    """Return what makes clusters."""
    combos: list[SchedulerClusterCombo] = []

    def make(*addresses: str, scheduler: str | None = None) -> SchedulerClusterCombo:
        storages = addresses[0] if len(addresses) == 1 else addresses
        combos.append(SchedulerClusterCombo(2, scheduler, storages))
        return combos[-1]

    yield make
    for combo in combos:
        combo.shutdown()


def describe(value) -> tuple[int, bool]:
    """Return the sum of an array and whether it can be written to."""
    return int(value.sum()), value.flags.writeable


def test_a_cluster_stores_in_a_server(make_server, make_combo) -> None:
    """Workers on a storage server's machine map its objects, and it keeps none in the end."""
    server = make_server()
    with Client(make_combo(server.address).get_address()) as client:
        value = np.ones(MB)
        assert client.map(describe, [value] * 10) == [(MB, False)] * 10
        assert len(server.segments()) == 1
        result = client.submit(np.ones, MB).result(BOUND_S)
        assert int(result.sum()) == MB
        del value, result
        wait_until(lambda: not server.segments(), "objects were left in the server")


@pytest.mark.parametrize("sees", [True, False])
def test_several_servers_share_the_objects(make_server, make_combo, monkeypatch, sees) -> None:
    """An object's id chooses its server, whether a client sees the servers' files or not."""
    servers = [make_server(), make_server()]
    combo = make_combo(*(server.address for server in servers))
    if not sees:
        monkeypatch.setattr(StorageDirs, "is_here", property(lambda self: False))
    with Client(combo.get_address()) as client:
        values = [np.full(MB // 8, float(number)) for number in range(16)]
        assert client.map(np.sum, values) == [MB // 8 * number for number in range(16)]
        kept = [len(server.segments()) for server in servers]
        # The workers map what one of them keeps, and copy there what the other one has.
        assert min(kept) > 0
        assert sum(kept) in range(16, 33)
        results = client.map(np.full, [MB // 8] * 4, range(4))
        assert [float(result.sum()) for result in results] == [MB // 8 * n for n in range(4)]
        del values, results
        wait_until(lambda: not any(s.segments() for s in servers), "objects were left")


def test_a_server_serves_one_scheduler_after_the_other(make_server, make_combo) -> None:
    """A server serves one scheduler at a time, and forgets the objects of the one before."""
    server = make_server()
    first = make_combo(server.address)
    with Client(first.get_address()) as client:
        client.send_object(np.ones(MB))
        with pytest.raises(ConfigError, match="it serves another scheduler"):
            make_combo(server.address)
    first.shutdown()

    with Client(make_combo(server.address).get_address()) as client:
        assert client.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB


def test_a_scheduler_that_cannot_start_lets_go_of_a_server(
    make_server, make_combo, monkeypatch
) -> None:
    """A server serves the next scheduler at once after one that could not start."""
    server, taken = make_server(), make_server()
    make_combo(taken.address)
    with pytest.raises(ConfigError, match="it serves another scheduler"):
        make_combo(server.address, taken.address)
    with pytest.raises(ConfigError, match="cannot bind"):
        make_combo(server.address, scheduler=taken.address)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/nowhere")
        with pytest.raises(ConfigError, match="cannot make /nowhere"):
            make_combo(server.address)

    with Client(make_combo(server.address).get_address()) as client:
        assert client.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB


def test_a_scheduler_that_was_killed_is_followed_by_another(make_server, make_combo) -> None:
    """A server serves the scheduler that takes a killed one's place, and keeps what it has."""
    server = make_server()
    with Client(make_combo(server.address).get_address()) as client:
        reference = client.send_object(np.ones(MB))
        result = client.submit(np.full, MB, 3.0)
        wait_until(result.done, "the first task does not end")
        cluster_process("scheduler").kill()

        assert client.submit(np.sum, reference).result(BOUND_S) == MB
        assert client.submit(np.sum, np.full(MB, 2.0)).result(BOUND_S) == 2 * MB
        assert result.result(BOUND_S).sum() == 3 * MB


def test_a_server_that_was_killed_takes_its_objects_along(make_server, make_combo) -> None:
    """Tasks that need a killed server's objects fail, others run, and a new server is used."""
    server = make_server()
    with Client(make_combo(server.address).get_address()) as client:
        reference = client.send_object(np.ones(MB))
        server.process.kill()
        server.process.communicate()
        make_server(server.address)

        def is_lost() -> bool:
            return isinstance(
                client.submit(np.sum, reference).exception(BOUND_S), MissingObjectsError
            )

        def is_used() -> bool:
            # What is stored before the scheduler has met the new server is lost as well.
            with contextlib.suppress(MissingObjectsError):
                return client.submit(np.sum, np.ones(2 * MB)).result(BOUND_S) == 2 * MB
            return False

        wait_until(is_lost, "an object is there that was lost")
        assert client.submit(abs, -3).result(BOUND_S) == 3
        wait_until(is_used, "the new server is not used")


def test_where_nothing_listens_the_cluster_has_its_own(make_combo) -> None:
    """A cluster starts its own storage at a single free address; of several, all must answer."""
    address = f"tcp://127.0.0.1:{free_port()}"
    with Client(make_combo(address).get_address()) as client:
        assert client.submit(np.sum, np.ones(MB)).result(BOUND_S) == MB
        assert client._session.connection.welcome.homes[0].address == address
    others = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    with pytest.raises(ConfigError, match=f"no object storage answers at {others[0]}"):
        make_combo(*others)
    with pytest.raises(ConfigError, match="must begin with tcp:// or ipc://.* not 'here'"):
        make_combo("here")


@pytest.mark.parametrize("address", ["localhost", "tcp://127.0.0.1:no", "tcp://203.0.113.1:1", ""])
def test_a_server_says_why_it_cannot_start(address) -> None:
    """A server that cannot start says why in one line, with a status."""
    process = start(address)
    _, errors = process.communicate(timeout=BOUND_S)

    assert process.returncode == 2
    assert errors.startswith("scaler_object_storage_server: ")
    assert errors.count("\n") == 1


def test_an_address_is_taken_once(make_server) -> None:
    """A second server at an address is told so, and the first one goes on."""
    server = make_server()
    process = start(server.address)

    assert "it is in use" in process.communicate(timeout=BOUND_S)[1]
    assert server.process.poll() is None


def test_sigterm_ends_a_server(make_server) -> None:
    """SIGTERM ends a server as Ctrl-C does."""
    server = make_server()
    server.process.terminate()

    assert server.process.communicate(timeout=BOUND_S) == ("", "")
    assert server.process.returncode == 0
    wait_gone(server.process.pid)


def test_what_comes_while_a_storage_sends_is_seen(tmp_path, monkeypatch) -> None:
    """A storage sees what arrives while it sends, though the signal of that was taken."""
    hub = zmq_link.bind("tcp://127.0.0.1:0")
    exchange = Exchange(os.getpid())
    lifeline, end = os.pipe()
    dirs = ClusterDirs(str(tmp_path), StorageDirs(disk=str(tmp_path)))
    open_ = Credentials(role=STORAGE, is_insecure=True)
    config = StorageProcessConfig(scheduler=hub.address, dirs=dirs, credentials=open_)
    shell = StorageShell(config, lifeline)
    core, link = shell._core, shell._link
    assert link is not None
    fd, tick, select_ = link.fd, core.tick, shell._selector.select
    heard: list[str] = []
    slept_over: list[bool] = []

    def is_readable() -> bool:
        return bool(select.select([fd], [], [], 0)[0])

    def say(message: m.Message) -> None:
        (frames,) = shell._exchange.send(UPSTREAM, [message], time.perf_counter())
        shell._send(UPSTREAM, frames)

    def is_taken() -> bool:
        say(m.Heartbeat())
        return not is_readable()

    def tick_once(now: float) -> None:
        """Let something arrive where a turn has looked for it already, and send."""
        tick(now)
        monkeypatch.setattr(core, "tick", tick)
        say(m.Heartbeat())
        assert hub.wait(BOUND_S)
        [(peer, frames), *_] = hub.receive(1)
        exchange.receive(peer, frames, now)
        (frames,) = exchange.send(peer, [m.Release((b"gone",))], now)
        hub.send(peer, frames)
        wait_until(is_readable, "nothing arrives")
        wait_until(is_taken, "the signal stays")

    def receive(peer: bytes, messages: list[m.Message], now: float) -> None:
        heard.extend(type(message).__name__ for message in messages)
        os.close(end)

    def sleep(timeout_s: float) -> list:
        # After a long turn it looks at its other descriptors, and goes on at once.
        if timeout_s > 0:
            slept_over.append(link.readable())
        return select_(timeout_s)

    monkeypatch.setattr(core, "tick", tick_once)
    monkeypatch.setattr(core, "receive", receive)
    monkeypatch.setattr(shell._selector, "select", sleep)
    shell.run()
    hub.close(0)
    os.close(lifeline)

    assert heard == ["Release"]
    assert not any(slept_over)


def test_a_machine_beside_its_scheduler_can_have_a_storage_of_its_own() -> None:
    """Also where the scheduler is at a Unix socket: the storage is at the loopback address."""
    with listen_towards("ipc:///tmp/scheduler") as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_storage_waits_until_its_predecessor_has_let_go_of_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predecessor = listen_towards("ipc:///tmp/scheduler")
    address = storage_process.address_of(predecessor)
    waits = []

    def sleep(pause_s: float) -> None:
        waits.append(pause_s)
        predecessor.close()

    monkeypatch.setattr(storage_process, "sleep", sleep)
    listener = listen_beside("ipc:///tmp/scheduler", address)
    assert listener is not None
    with listener:
        assert storage_process.address_of(listener) == address
    assert len(waits) == 1


def test_a_storage_says_which_port_is_never_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(pause_s: float) -> None:
        now[0] += pause_s

    monkeypatch.setattr(storage_process, "sleep", sleep)
    monkeypatch.setattr(storage_process, "clock", lambda: now[0])
    with listen_towards("ipc:///tmp/scheduler") as taken:
        address = storage_process.address_of(taken)
        with pytest.raises(ConfigError, match=f"cannot listen at {address}, .*it is in use"):
            listen_beside("ipc:///tmp/scheduler", address)
    assert now[0] >= storage_process.PREDECESSOR_S
