"""A hostile peer plays every hole that clusters had: it gets nothing, and nobody else notices.

The peer knows docs/protocol.md alone. Its keys are those of a user who was let in and went bad, of
a worker, of a monitor, or none.
"""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest

from scaler_cluster.security import key_files
from scaler_exec import Client
from tests.runtime import hostile_peer as h
from tests.runtime import hostile_plays as plays
from tests.runtime.helpers import BOUND_S, free_port, plant, wait_until
from tests.runtime.shell import Command, Shell

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1 << 20
GROWTH_MAX = 50 * MB
"""What an attack may make a process take at any moment."""
UNREAD = 16 * MB
CUSTOMIZE = f"""
import sys
if "scaler_cluster.runtime.scheduler" in sys.orig_argv:
    from scaler_cluster.runtime import scheduler_shell
    scheduler_shell.UNREAD_BYTES_MAX = {UNREAD}
"""
"""In ``sitecustomize.py``: the limit of results that nobody reads is 256 MiB, more than may be
taken here."""
USERS = {
    plays.long_names: ("", "mallory"),
    plays.another_storage: ("", "mallory", "worker"),
    plays.another_worker: ("", "mallory"),
    plays.another_function: ("mallory",),
    plays.another_array: ("mallory",),
    plays.print_elsewhere: ("mallory",),
    plays.another_name: ("mallory",),
    plays.another_session: ("mallory", "worker"),
    plays.the_end: ("", "monitor", "worker"),
    plays.other_segments: ("", "mallory"),
    plays.no_end: ("", "mallory"),
    plays.lists_of_nothing: ("", "mallory"),
    plays.far_ahead: ("mallory",),
    plays.never_read: ("mallory",),
    plays.large_hellos: ("", "mallory"),
    plays.a_million_tasks: ("mallory",),
    plays.a_million_nodes: ("mallory",),
    plays.names_of_nodes: ("mallory",),
    plays.many_demands: ("mallory",),
    plays.empty_envelopes: ("mallory",),
    plays.silent_connections: ("",),
    plays.subscriptions: ("monitor",),
    plays.knocks: ("",),
    plays.garbage: ("", "mallory"),
}
CASES = [(play, user) for play, users in USERS.items() for user in users]


def ask(client: Client) -> None:
    """See that a client gets what it asks for: a value, a large argument, a large result."""
    root, total = client.submit(math.sqrt, 4.0), client.submit(np.sum, plays.ARRAY)
    assert root.result(BOUND_S) == 2.0
    assert total.result(BOUND_S) == 19_999_900_000.0
    assert client.submit(np.ones, 100_000).result(BOUND_S).sum() == 100_000


class Asking(threading.Thread):
    """A client that asks all the time."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.rounds = 0
        self.trouble: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Ask until told to stop, or until an answer is wrong."""
        try:
            while not self.over.is_set():
                ask(self.client)
                self.rounds += 1
        except BaseException as error:
            self.trouble = error

    def wait(self) -> None:
        """Wait for a round that begins now and ends right."""
        seen = self.rounds
        wait_until(lambda: self.rounds > seen + 1 or self.trouble, "no answers come")
        assert self.trouble is None, self.trouble


@dataclass
class Stack:
    """A scheduler with its storage and two workers, started by the commands, and a client there."""

    directory: Path
    shared: Path
    shell: Shell
    address: str
    scheduler: Command
    cluster: Command
    client: Client = field(init=False)
    session: int = field(init=False)
    """Of that client."""
    storage: str = field(init=False)
    """The address of the storage."""
    workers: frozenset[int] = frozenset()

    def keys(self, user: str) -> Path:
        """Return the file of a user's keys."""
        return self.directory / f"{user}.key"

    def is_worker(self, keys: h.Keys) -> bool:
        """Return True for the key of a worker."""
        return keys.public == h.Keys(self.keys("worker")).public

    @property
    def feed(self) -> str:
        """Return the address for monitors."""
        return self.scheduler.address("monitor address")

    def another_client(self) -> Client:
        """Return a new client of an honest user."""
        return Client(self.address, keys=self.directory)

    def processes(self) -> dict[str, psutil.Process]:
        """Return those that a stranger is to harm in no way."""
        scheduler = found(self.scheduler.pid, "runtime.scheduler")
        return {
            "scheduler": scheduler,
            "storage": found(scheduler.pid, "runtime.storage"),
            # The command itself.
            "supervisor": psutil.Process(self.cluster.pid),
        }

    @contextmanager
    def asking(self) -> Iterator[Asking]:
        """Let the client ask all the time."""
        asking = Asking(self.client)
        asking.start()
        try:
            asking.wait()
            yield asking
        finally:
            asking.over.set()
            asking.join()

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """See that the processes stay the same, and take little more memory at any moment."""
        before = self.processes()
        taken = {name: one.memory_info().rss for name, one in before.items()}
        for one in before.values():
            Path(f"/proc/{one.pid}/clear_refs").write_text("5")
        yield
        assert self.processes() == before
        assert all(psutil.pid_exists(pid) for pid in self.workers)
        grown = {name: peak(one) - taken[name] for name, one in before.items()}
        assert max(grown.values()) < GROWTH_MAX, grown


def found(parent: int, module: str) -> psutil.Process:
    """Return the child of a process that runs this module."""
    children = psutil.Process(parent).children()
    (child,) = (one for one in children if f"scaler_cluster.{module}" in one.cmdline())
    return child


def peak(process: psutil.Process) -> int:
    """Return the most memory that a process had since that was set back."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


pytestmark = [pytest.mark.system]


@pytest.fixture(scope="module")
def stack(standing, tmp_path_factory):
    """Return a cluster for all tests of this module."""
    directory = tmp_path_factory.mktemp("hostile")
    keys, shared = directory / "keys", directory / "shared"
    shared.mkdir()
    key_files.make_cluster(keys)
    key_files.add(keys, "client", "mallory")
    plant(directory, CUSTOMIZE)
    shell = Shell(directory)
    address = f"tcp://127.0.0.1:{free_port(3)}"
    with pytest.MonkeyPatch.context() as patch, ExitStack() as ends:
        patch.setenv("SCALER_SHARED_MEMORY", str(shared))
        patch.setenv("TMPDIR", str(shared))
        patch.syspath_prepend(directory)
        ends.callback(shell.close)
        scheduler = shell.start(f"scaler_scheduler --keys {keys} {address}")
        scheduler.wait_for("monitor address")
        cluster = shell.start(f"scaler_cluster --keys {keys} -n 2 {address}")
        made = Stack(keys, shared, shell, address, scheduler, cluster)
        made.client = ends.enter_context(Client(address, keys=keys, stream_output=True))
        ask(made.client)
        with h.HostilePeer(address, h.Keys(made.keys("mallory"))) as peer:
            peer.say(h.hello())
            welcome = peer.hear(h.WELCOME)
            made.storage = welcome[3][0][0]
            made.session = welcome[1] - 1
            peer.say([h.GOODBYE, ""])
        process = found(scheduler.pid, "runtime.scheduler")
        # It is started once there is an object, and a moment later.
        wait_until(
            lambda: any(
                "scaler_cluster.runtime.storage" in one.cmdline() for one in process.children()
            ),
            "no storage is started",
        )
        supervisor = made.processes()["supervisor"]
        wait_until(lambda: len(workers_below(supervisor)) >= 2, "no workers are started")
        made.workers = workers_below(supervisor)
        standing |= {scheduler.pid, cluster.pid}
        yield made


def workers_below(supervisor: psutil.Process) -> frozenset[int]:
    """Return the workers of a machine: the children of its fork server."""
    return frozenset(one.pid for child in supervisor.children() for one in child.children())


@pytest.mark.parametrize(
    ("play", "user"),
    CASES,
    ids=[f"{play.__name__}-{user or 'no key'}" for play, user in CASES],
)
def test_a_hostile_peer_gets_nothing(stack, tmp_path, capsys, play, user) -> None:
    """The attack fails; an honest client gets what it asks for, during it and afterwards."""
    with stack.unharmed(), ExitStack() as ends:
        with stack.asking() as asking:
            play(plays.Attack(stack, user, tmp_path, ends))
            asking.wait()
        with stack.another_client() as fresh:
            ask(fresh)
            assert fresh.submit(math.log2, 8.0).result(BOUND_S) == 3.0
        stack.client.submit(print, "mine").result(BOUND_S)
    assert capsys.readouterr().out == "mine\n"


def test_a_flood_does_not_keep_a_scheduler_from_ending(stack) -> None:
    """R9: a scheduler that is told to end does so while envelopes come without end."""
    scheduler = stack.shell.start(
        f"scaler_scheduler --keys {stack.directory} tcp://127.0.0.1:{free_port(3)}"
    )
    address = scheduler.address("scheduler address")
    with h.HostilePeer(address, h.Keys(stack.keys("mallory"))) as peer:
        peer.say(h.hello())
        assert peer.hear(h.WELCOME)
        scheduler.process.terminate()
        while scheduler.process.poll() is None:
            for _ in range(1000):
                peer.throw(*peer.packed(0))
    assert scheduler.process.returncode == 0
