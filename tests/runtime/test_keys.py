"""Keys at every port of a cluster: who comes in, who is refused, and that nothing else notices."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import psutil
import pytest
import zmq

from scaler_cluster.ids import EVENTS, SNAPSHOT
from scaler_cluster.links.curve import KeyPair, new_key_pair
from scaler_cluster.process.process import make_peer_id
from scaler_cluster.security import key_files
from scaler_cluster.security.keys import Keys
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import encode
from scaler_exec import (
    Client,
    ClusterBrokenError,
    ClusterUnreachableError,
    ConfigError,
    ScalerExecutor,
)
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, Flags, cluster_process, free_port, wait_until
from tests.runtime.test_cluster import hello

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.shell import Command, Shell

pytestmark = [pytest.mark.system]
READ = "keys read again"
HEARD_S = 2.0
"""A peer that is let in is answered within this, also on a busy machine; longer is not waited for
an answer that must not come."""


def address_of_this_machine() -> str:
    """Return an address of this machine that others may reach, or a loopback one."""
    for places in psutil.net_if_addrs().values():
        for place in places:
            if place.family == socket.AF_INET and not place.address.startswith("127."):
                return place.address
    return "127.0.0.1"


HOST = address_of_this_machine()


@dataclass
class Stack:
    """A scheduler with its storage, and a machine that has a storage of its own."""

    directory: Path
    shell: Shell
    port: int
    scheduler: Command
    addresses: dict[str, str] = field(default_factory=dict)
    """Of the ports, by what they are."""

    @cached_property
    def removed(self) -> KeyPair:
        """Return a pair that was let in from the start, and is not any more."""
        pair = key_files.read_keys(self.keys("mallory")).pair
        with self.read_again():
            key_files.remove(self.directory, "mallory")
        return pair

    @property
    def address(self) -> str:
        """Return the address of the scheduler."""
        return self.addresses["scheduler"]

    def keys(self, name: str) -> Path:
        """Return the file of a key."""
        return self.directory / f"{name}.key"

    @contextlib.contextmanager
    def read_again(self):
        """Wait until the scheduler has read its file again, after the body has changed that."""
        before = self.scheduler.out.count(READ)
        yield
        wait_until(lambda: self.scheduler.out.count(READ) > before, "not read again")


@pytest.fixture
def stack(tmp_path, shell):
    """Return a cluster whose ports all need the keys of a directory."""
    directory = tmp_path / "keys"
    key_files.make_cluster(directory)
    key_files.add(directory, "client", "mallory")
    key_files.make_cluster(tmp_path / "others")
    port = free_port(3)
    scheduler = shell.start(f"scaler_scheduler --keys {directory} tcp://{HOST}:{port}")
    scheduler.wait_for("monitor address")
    shell.start(f"scaler_cluster --keys {directory} -n 1 tcp://{HOST}:{port}").wait_for("started")
    names = {"scheduler": port, "object storage": port + 1, "monitor address": port + 2}
    made = {name: f"tcp://{HOST}:{number}" for name, number in names.items()}
    return Stack(directory, shell, port, scheduler, made)


class Peer:
    """A hostile peer at a port, made by hand."""

    def __init__(
        self,
        address: str,
        pair: KeyPair | None,
        server: str,
        *,
        kind: int = zmq.DEALER,
        name: bytes = b"",
    ) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger = 0
        if pair is not None:
            self.socket.curve_serverkey = server.encode()
            self.socket.curve_publickey = pair.public.encode()
            self.socket.curve_secretkey = pair.secret.encode()
        if kind == zmq.DEALER:
            self.socket.setsockopt(zmq.ROUTING_ID, name or make_peer_id("C"))
        else:
            self.socket.subscribe(SNAPSHOT)
            self.socket.subscribe(EVENTS)
        self.socket.connect(address)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.context.term()

    def is_answered(self, *messages: m.Message) -> bool:
        """Return True if something comes back."""
        if messages:
            self.socket.send_multipart(encode(1, 1, 0, messages), copy=True)
        return bool(self.socket.poll(HEARD_S * 1000))


GREETINGS = {
    "scheduler": (hello(m.CLIENT),),
    "object storage": (hello(m.CLIENT), m.Fetch(b"a-1", 0, 1)),
    "monitor address": (),
}
WRONG_ROLE = {"scheduler": "monitor", "object storage": "monitor", "monitor address": "worker"}


def shown(stack: Stack, port: str, how: str) -> tuple[KeyPair | None, str]:
    """Return a pair to show, and the server's key to expect."""
    others = stack.directory.parent / "others"
    right = key_files.read_keys(stack.keys("client"))
    server = right.server("scheduler")
    if how == "plain":
        return None, ""
    if how == "wrong key":
        return new_key_pair(), server
    if how == "wrong role":
        return key_files.read_keys(stack.keys(WRONG_ROLE[port])).pair, server
    if how == "another cluster":
        other = key_files.read_keys(others / "client.key")
        return other.pair, other.server("scheduler")
    if how == "key of another cluster":
        return key_files.read_keys(others / "client.key").pair, server
    if how == "removed":
        return stack.removed, server
    assert how == "right"
    return right.pair, server


@pytest.mark.parametrize(
    "how",
    ["plain", "wrong key", "wrong role", "another cluster", "key of another cluster", "removed"],
)
def test_who_has_no_right_key_is_refused_at_every_port(stack, how) -> None:
    """No port answers; the log names the address; an honest client notices nothing."""
    with ScalerExecutor(address=stack.address, keys=stack.directory) as executor:
        futures = [executor.submit(tasks.square, n) for n in range(100)]
        for port, greeting in GREETINGS.items():
            kind = zmq.SUB if port == "monitor address" else zmq.DEALER
            pair, server = shown(stack, port, how)
            with Peer(stack.addresses[port], pair, server, kind=kind) as peer:
                assert not peer.is_answered(*greeting), port
        assert [one.result(BOUND_S) for one in futures] == [n * n for n in range(100)]

        # It knocks again and again: on a busy machine, one is gone before its address is looked at.
        pair, server = shown(stack, "scheduler", how)
        with Peer(stack.addresses["scheduler"], pair, server):
            refused = f"refused a connection from {HOST}"
            wait_until(lambda: refused in stack.scheduler.out, "nothing is logged")


def test_who_has_the_right_key_comes_in_at_every_port(stack) -> None:
    """The same peer, with a right key: so the test above would fail if any key did."""
    for port, greeting in GREETINGS.items():
        kind = zmq.SUB if port == "monitor address" else zmq.DEALER
        with Peer(stack.addresses[port], *shown(stack, port, "right"), kind=kind) as peer:
            assert peer.is_answered(*greeting), port


def test_a_pickled_client_finds_its_keys_from_another_directory(stack, monkeypatch) -> None:
    """A path that was relative where the client was made leads to the same file."""
    monkeypatch.chdir(stack.directory.parent)
    with Client(stack.address, keys="keys") as client:
        pickled = pickle.dumps(client)
        monkeypatch.chdir("/")
        with pickle.loads(pickled) as another:
            assert another.submit(abs, -7).result(timeout=BOUND_S) == 7


def test_a_recorded_handshake_opens_nothing(stack) -> None:
    """Bytes that a right client sent are of no use to whoever sends them again."""
    sent: list[bytes] = []
    relay = socket.create_server(("127.0.0.1", 0))

    def pass_on() -> None:
        near, _ = relay.accept()
        with near, socket.create_connection((HOST, stack.port)) as far:
            back = threading.Thread(target=pump, args=(far, near, []))
            back.start()
            pump(near, far, sent)
            back.join()

    def pump(source: socket.socket, goal: socket.socket, kept: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                kept.append(data)
                goal.sendall(data)
        with contextlib.suppress(OSError):
            goal.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=pass_on)
    thread.start()
    address = f"tcp://127.0.0.1:{relay.getsockname()[1]}"
    with Client(address, keys=stack.directory) as client:
        assert client.submit(tasks.square, 3).result(BOUND_S) == 9
    thread.join()
    relay.close()

    with socket.create_connection((HOST, stack.port)) as again:
        again.settimeout(BOUND_S)
        for data in sent:
            with contextlib.suppress(OSError):
                again.sendall(data)
        heard = b""
        with contextlib.suppress(ConnectionError):
            while data := again.recv(65536):
                heard += data
    # Its greeting and the welcome of the handshake, and then the end of the connection.
    assert len(heard) < 500


def test_a_client_that_is_refused_says_why(stack) -> None:
    """Each wrong key has its sentence, long before the timeout is over."""
    others = stack.directory.parent / "others"
    stranger = Keys.new("client", "x", *key_files.read_keys(stack.keys("client")).known)
    path = stack.directory / "stranger.key"
    key_files.write_text(path, stranger.file_text())

    with pytest.raises(ClusterUnreachableError, match="it does not let this key in"):
        Client(stack.address, keys=path)
    with pytest.raises(
        ClusterUnreachableError, match="it does not let this key in, is another cluster's"
    ):
        Client(stack.address, keys=others)
    with pytest.raises(ClusterUnreachableError, match="it asks for a key"):
        Client(stack.address, keys="insecure")
    with pytest.raises(ConfigError, match="has the keys of a worker"):
        Client(stack.address, keys=stack.keys("worker"))


def test_a_removed_key_is_out_at_once(stack, tmp_path) -> None:
    """Its sessions end, and their tasks; those of other keys go on."""
    with stack.read_again():
        path = key_files.add(stack.directory, "client", "alice")
    kept = tmp_path / "alice.key"
    key_files.write_text(kept, key_files.read_keys(path).file_text())
    flags = Flags(tmp_path)
    with (
        Client(stack.address, keys=stack.directory) as other,
        Client(stack.address, keys=kept) as client,
    ):
        running = client.submit(tasks.hold, flags.path("begun"), flags.path("go"))
        flags.wait("begun")

        key_files.remove(stack.directory, "alice")

        with pytest.raises(ClusterBrokenError, match="its key was removed"):
            running.result(BOUND_S)
        assert other.submit(tasks.square, 4).result(BOUND_S) == 16
    with pytest.raises(ClusterUnreachableError, match="does not let this key in"):
        Client(stack.address, keys=kept)


def test_a_new_key_of_a_name_is_not_the_one_before(stack) -> None:
    """Whoever has the key that was replaced is out, also on a connection that is open."""
    with stack.read_again():
        old = key_files.read_keys(key_files.add(stack.directory, "client", "alice"))
    server = old.server("scheduler")
    with Peer(stack.address, old.pair, server) as peer:
        assert peer.is_answered(hello(m.CLIENT))
        with stack.read_again():
            # At once: the name is never missing when the scheduler looks.
            keys = key_files.read_keys(stack.keys("scheduler")).without("alice")
            new = Keys.new("client", "alice", *old.known)
            key_files.write_text(stack.keys("scheduler"), keys.knowing(new.own).file_text())
        # The last word to it may still be under way.
        while peer.is_answered():
            peer.socket.recv_multipart()

        assert not peer.is_answered(hello(m.CLIENT))
    with Peer(stack.address, new.pair, server) as peer:
        assert peer.is_answered(hello(m.CLIENT))


def test_a_removed_key_stays_out_when_the_scheduler_is_started_again(stack) -> None:
    """What the command has read at its start does not count for the next scheduler."""
    pair, server = shown(stack, "scheduler", "removed")
    cluster_process("scheduler", stack.scheduler.pid).kill()

    stack.scheduler.wait_for("another one takes its place")
    with Peer(stack.address, *shown(stack, "scheduler", "right")) as peer:
        assert peer.is_answered(hello(m.CLIENT))
    with Peer(stack.address, pair, server) as peer:
        assert not peer.is_answered(hello(m.CLIENT))


@pytest.mark.parametrize("how", ["--insecure", "--keys insecure", "SCALER_KEYS"])
def test_whom_nobody_knows_does_not_end_the_cluster(shell, monkeypatch, how) -> None:
    """Without keys, whichever way that was said, no client may end the cluster."""
    option = "" if how == "SCALER_KEYS" else how
    if not option:
        monkeypatch.setenv("SCALER_KEYS", "insecure")
    address = f"tcp://{HOST}:{free_port(3)}"
    shell.start(f"scaler_scheduler {option} {address}").wait_for("monitor address")

    with pytest.raises(ValueError, match="protected mode"):
        Client(address, keys="insecure").shutdown()


def test_nobody_is_taken_for_a_storage_by_its_name(shell, tmp_path) -> None:
    """A client that calls itself as a storage that runs by itself takes nothing from that."""
    directory = tmp_path / "keys"
    key_files.make_cluster(directory)
    key_files.add(directory, "client", "mallory")
    port = free_port(4)
    address, at = f"tcp://{HOST}:{port}", f"tcp://{HOST}:{port + 3}"
    shell.start(f"scaler_object_storage_server --keys {directory} {at}").wait_for("up to")
    option = f"--keys {directory} --object-storage-address {at}"
    scheduler = shell.start(f"scaler_scheduler {option} {address}")
    scheduler.wait_for("monitor address")
    shell.start(f"scaler_cluster --keys {directory} -n 1 {address}").wait_for("started")
    mallory = key_files.read_keys(directory / "mallory.key")
    with Client(address, keys=directory) as client:
        kept = client.send_object(b"x" * 1_000_000)
        named = f"{at}#{key_files.read_keys(directory / 'storage.key').own.public}".encode()
        server = mallory.server("scheduler")
        with Peer(address, mallory.pair, server, name=named) as peer:
            assert not peer.is_answered(hello(m.CLIENT))

        assert client.submit(len, kept).result(BOUND_S) == 1_000_000
    assert "by the address of a storage" in scheduler.out


def test_every_port_off_loopback_asks_for_keys(stack) -> None:
    """What listens where others can reach it answers nobody who shows no key."""
    pids = {process.pid for one in stack.shell.commands for process in tree(one.pid)}
    ports = {
        one.laddr.port
        for one in psutil.net_connections("tcp")
        if one.pid in pids and one.status == "LISTEN"
    }

    assert ports >= {stack.port, stack.port + 1, stack.port + 2}
    for port in ports:
        with socket.create_connection((HOST, port)) as probe:
            probe.settimeout(BOUND_S)
            assert greeting_of(probe)[12:32].rstrip(b"\0") == b"CURVE", port


def tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def greeting_of(probe: socket.socket) -> bytes:
    """Return how a peer greets, which says by which mechanism others may speak to it."""
    # Only the version: one that is told of another mechanism closes the connection.
    probe.sendall(b"\xff" + bytes(8) + b"\x7f" + b"\x03")
    heard = b""
    while len(heard) < 32:
        data = probe.recv(64)
        assert data
        heard += data
    return heard
