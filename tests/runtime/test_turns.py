"""A peer that never stops sending: the loops of scheduler and storage come to what else is due."""

from __future__ import annotations

import asyncio
import itertools
import os

from scaler_cluster.core.delivery.channel import PROBE_AFTER_S
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.scheduler import SchedulerCore
from scaler_cluster.ids import TOPICS
from scaler_cluster.links import feed_link, zmq_link
from scaler_cluster.links.curve import AllowList
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.process_config import SCHEDULERS_OWN, StorageProcessConfig
from scaler_cluster.runtime import scheduler_shell, storage
from scaler_cluster.runtime.key_watch import KeyWatch
from scaler_cluster.runtime.roster_file import RosterFile
from scaler_cluster.runtime.scheduler_shell import SchedulerShell
from scaler_cluster.runtime.storage import StorageShell
from scaler_cluster.runtime.storage_process import StorageProcess
from scaler_cluster.testing.bench import PYTHON, hello, submission
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import encode

TURNS_MAX = 1000
"""A loop that takes in more, and does nothing else, never ends."""


class Flood:
    """An endless number of envelopes, each a millisecond after the one before."""

    def __init__(self) -> None:
        self.now = 100.0
        self.count = 0

    def receive(self, limit: int) -> list[tuple[bytes, list[bytes]]]:
        """Return what a stranger sent."""
        self.now += 0.001
        self.count += 1
        assert self.count < TURNS_MAX, "nothing else had its turn"
        return [(b"X", [bytes(encode(1, 2, 0, [m.Heartbeat()])[0])])]

    def clock(self) -> float:
        """Return the time."""
        return self.now


def make_shell(link: zmq_link.ZmqLink, tmp_path: object, now: float) -> SchedulerShell:
    """Return a shell that asyncio runs."""
    publisher = feed_link.publish(link, f"ipc://{tmp_path}/feed", TOPICS)
    core = SchedulerCore(SchedulerConfig(PYTHON), now)
    watch = KeyWatch(SCHEDULERS_OWN, AllowList({}))
    return SchedulerShell(link, core, None, None, publisher, RosterFile(str(tmp_path)), watch)


def test_a_flood_leaves_the_scheduler_its_signals_and_timers(tmp_path, monkeypatch) -> None:
    """While messages come without end, asyncio comes to all else, again and again."""
    flood = Flood()
    monkeypatch.setattr(scheduler_shell, "clock", flood.clock)

    async def run() -> int:
        link = zmq_link.bind(f"ipc://{tmp_path}/scheduler")
        shell = make_shell(link, tmp_path, flood.now)
        with monkeypatch.context() as patch:
            patch.setattr(link, "receive", flood.receive)
            patch.setattr(link, "spin", lambda _: True)
            shell._turn()
            for _ in range(3):
                await asyncio.sleep(0)
        seen = flood.count
        shell.close()
        await asyncio.sleep(0)
        return seen

    seen = asyncio.run(run())
    # It went on by itself, though no descriptor said so.
    assert scheduler_shell.TURN_S / 0.001 < seen < TURNS_MAX


def test_a_flood_does_not_keep_a_storage_alive(tmp_path, monkeypatch) -> None:
    """While messages come without end, a storage sees that its parent is gone, and ends."""
    flood = Flood()
    hub = zmq_link.bind(f"ipc://{tmp_path}/scheduler")
    lifeline, end = os.pipe()
    dirs = ClusterDirs(str(tmp_path), StorageDirs(disk=str(tmp_path)))
    shell = StorageShell(StorageProcessConfig(scheduler=hub.address, dirs=dirs), lifeline)
    assert shell._link is not None
    monkeypatch.setattr(storage, "clock", flood.clock)
    monkeypatch.setattr(shell._link, "receive", flood.receive)
    os.close(end)
    shell.run()
    hub.close(0)
    os.close(lifeline)
    assert shell.is_orphan


def test_a_storage_that_cannot_start_holds_up_nothing(tmp_path, monkeypatch, caplog) -> None:
    """Without descriptors for a new storage, peers still get what is sent again, and one line."""
    now = itertools.count(100.0, PROBE_AFTER_S + 1.0)
    monkeypatch.setattr(scheduler_shell, "clock", now.__next__)
    sent: list[bytes] = []

    def no_descriptors(_: float) -> bool:
        raise OSError(24, "Too many open files")

    async def run() -> None:
        link = zmq_link.bind(f"ipc://{tmp_path}/scheduler")
        shell = make_shell(link, tmp_path, 100.0)
        dirs = ClusterDirs(str(tmp_path), StorageDirs())
        beside = StorageProcess(link.address, dirs, None, credentials=SCHEDULERS_OWN)
        beside.look_at = 1.0
        monkeypatch.setattr(beside, "look_after", no_descriptors)
        monkeypatch.setattr(shell, "_needs_storage", lambda: True)
        shell._storage = beside
        monkeypatch.setattr(link, "send", lambda peer, _frames: sent.append(peer))
        shell._take_in(b"C1", encode(7, 1, 0, [hello(m.CLIENT)]), 100.0)
        for _ in range(3):
            shell._turn()
        shell._storage = None
        shell.close()

    asyncio.run(run())
    # The Welcome, and again as nobody acknowledges it.
    assert sent.count(b"C1") >= 2
    lines = [one.getMessage() for one in caplog.records if "object storage" in one.getMessage()]
    assert "cannot start the object storage: [Errno 24] Too many open files" in lines[0]
    assert not any(one.exc_info for one in caplog.records)


def test_what_takes_long_is_taken_in_by_fewer_at_once(tmp_path, monkeypatch) -> None:
    """A flood of costly envelopes does not keep the answers to others; a cheap one goes faster."""
    limits: list[int] = []
    costs_s = 0.0001
    now = 100.0

    def receive(limit: int) -> list[tuple[bytes, list[bytes]]]:
        assert len(limits) < TURNS_MAX
        limits.append(limit)
        return [(b"X", [b"garbage"])] * limit

    def take_in(*_: object) -> None:
        nonlocal now
        now += costs_s

    async def run() -> None:
        nonlocal costs_s
        link = zmq_link.bind(f"ipc://{tmp_path}/scheduler")
        shell = make_shell(link, tmp_path, now)
        with monkeypatch.context() as patch:
            patch.setattr(scheduler_shell, "clock", lambda: now)
            patch.setattr(shell, "_take_in", take_in)
            patch.setattr(link, "receive", receive)
            shell._turn()
            assert limits[0] == scheduler_shell.DRAIN_LIMIT
            assert limits[-1] == scheduler_shell.DRAIN_LEAST
            costs_s = 0.000001
            shell._turn()
            assert limits[-1] == scheduler_shell.DRAIN_LIMIT
        shell.close()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_garbage_of_a_stranger_ends_nothing(tmp_path, monkeypatch, caplog) -> None:
    """What a peer sends that nobody knows costs no look for what it might have here."""
    lost: list[bytes] = []

    async def run() -> None:
        link = zmq_link.bind(f"ipc://{tmp_path}/scheduler")
        shell = make_shell(link, tmp_path, 100.0)
        monkeypatch.setattr(shell._core, "peer_lost", lambda peer, _: lost.append(peer))
        shell._take_in(b"X1", [b"garbage"], 100.0)
        shell._take_in(b"C1", encode(7, 1, 0, [hello(m.CLIENT)]), 100.0)
        lost.clear()
        shell._take_in(b"C1", [b"garbage"], 100.0)
        shell._core.table.sessions.clear()
        shell.close()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert lost == [b"C1"]
    assert "dropped peer" in caplog.records[0].getMessage()


def test_nobody_is_awaited_awake_after_a_heartbeat(tmp_path, monkeypatch) -> None:
    """A scheduler looks out for the next message while a task is under way, and sleeps otherwise."""
    arrived: list[tuple[bytes, list[bytes]]] = []
    spun: list[float] = []

    def say(peer: bytes, seq: int, *messages: m.Message) -> None:
        arrived.append((peer, [bytes(encode(7, seq, 0, messages)[0])]))

    def spin(duration_s: float) -> bool:
        spun.append(duration_s)
        return False

    async def run() -> list[float]:
        link = zmq_link.bind(f"ipc://{tmp_path}/scheduler")
        shell = make_shell(link, tmp_path, 100.0)
        with monkeypatch.context() as patch:
            patch.setattr(link, "receive", lambda _: [arrived.pop()] if arrived else [])
            patch.setattr(link, "spin", spin)
            patch.setattr(link, "send", lambda *_: None)
            say(b"S1", 1, hello(m.SUPERVISOR, workers=1))
            shell._turn()
            say(b"S1", 2, m.Heartbeat())
            shell._turn()
            idle, spun[:] = list(spun), []
            say(b"W1", 1, hello(m.WORKER, supervisor=b"S1"))
            shell._turn()
            say(b"C1", 1, hello(m.CLIENT), *submission(0))
            shell._turn()
        shell.close()
        return idle

    assert set(asyncio.run(run())) == {0.0}
    assert spun[-1] == scheduler_shell.SPIN_S
