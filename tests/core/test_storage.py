"""An object storage without files or sockets: what it answers, fetches and gives up."""

from __future__ import annotations

import math

import pytest

from scaler_cluster.core.storage.copies import COPIES_AT_ONCE
from scaler_cluster.core.storage.storage import HEARTBEAT_S, RECYCLE_S, UPSTREAM, StorageCore
from scaler_cluster.core.storage.transfer import PART_BYTES_MIN as PART_BYTES
from scaler_cluster.core.storage.transfer import SILENCE_S
from scaler_cluster.core.storage.uploads import SENT_MAX
from scaler_cluster.errors import MissingObjectsError, RemoteProtocolError, StorageFullError
from scaler_cluster.ids import DRAFT
from scaler_cluster.testing.bench import hello, segment
from scaler_cluster.testing.describe import describe, describe_all
from scaler_cluster.wire import messages as m

A, B = segment(b"C1", 1), segment(b"C1", 2)
NAME = A.decode()
FETCH = f"Fetch {NAME} 0+{PART_BYTES}"
ELSEWHERE = "tcp://elsewhere"


class MemoryDraft:
    """A draft in a dictionary."""

    def __init__(self, files, name, nbytes) -> None:
        self.files, self.name = files, name
        files.kept[DRAFT + name] = bytearray(nbytes)

    def write(self, data, offset) -> None:
        if self.files.is_full:
            raise StorageFullError("no room")
        self.files.kept[DRAFT + self.name][offset : offset + len(data)] = data

    def finish(self) -> bytes:
        self.files.kept[self.name] = self.files.kept.pop(DRAFT + self.name)
        return self.name

    def discard(self) -> None:
        self.files.remove(DRAFT + self.name)


class MemoryFiles:
    """Segments in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytearray] = {}
        self.is_full = False
        self.recycled: list[bytes] = []

    def draft(self, name, nbytes) -> MemoryDraft:
        return MemoryDraft(self, name, nbytes)

    def open(self, name) -> memoryview:
        if name not in self.kept:
            raise MissingObjectsError("not here")
        return memoryview(self.kept[name])

    def has(self, name) -> bool:
        return name in self.kept

    def remove(self, name) -> None:
        self.kept.pop(name, None)

    def recycle(self, name) -> None:
        self.remove(name)
        self.recycled.append(name)

    def drop_recycled(self) -> int:
        self.recycled.clear()
        return 0

    def purge(self, prefix, keep) -> None:
        for name in list(self.kept):
            if name.removeprefix(DRAFT).startswith(prefix) and name not in keep:
                del self.kept[name]

    def inventory(self) -> tuple[bytes, ...]:
        return tuple(self.kept)


class Bench:
    """Drives a StorageCore; time moves by :meth:`wait`."""

    def __init__(self, *, waits: bool = False) -> None:
        self.files = MemoryFiles()
        self.core = StorageCore(self.files, hello(m.STORAGE), waits=waits)
        self.now = 100.0
        self.told = self.act()

    def act(self) -> dict[str, list[str]]:
        """Return what it has to say: to peers, and to other storages by their address."""
        told = describe_all(self.core.take_actions())
        requests = self.core.take_requests().items()
        return told | {address: list(map(describe, sent)) for address, sent in requests}

    def feed(self, peer: bytes, *messages: m.Message) -> dict[str, list[str]]:
        """Let a peer send messages."""
        self.core.receive(peer, messages, self.now)
        return self.act()

    def answer(self, *messages: m.Message, address: str = ELSEWHERE) -> dict[str, list[str]]:
        """Let another storage answer."""
        self.core.receive_from(address, messages, self.now)
        return self.act()

    def wait(self, duration_s: float) -> dict[str, list[str]]:
        """Let time pass from deadline to deadline."""
        end = self.now + duration_s
        told: dict[str, list[str]] = {}
        while (due := self.core.deadline) <= end:
            self.now = max(due, self.now)
            self.core.tick(self.now)
            for peer, lines in self.act().items():
                told.setdefault(peer, []).extend(lines)
        self.now = end
        return told


@pytest.fixture
def bench():
    """A storage beside its scheduler."""
    return Bench()


@pytest.fixture
def alone():
    """A storage that runs by itself, to which a scheduler has connected."""
    bench = Bench(waits=True)
    assert bench.told == {}
    assert bench.feed(b"S1", hello(m.SCHEDULER)) == {"S1": ["Hello storage"]}
    return bench


def part(name: bytes, data: bytes, offset: int = 0, total: int | None = None) -> m.Part:
    return m.Part(name, offset, len(data) if total is None else total, data)


# -- what clients send and fetch -------------------------------------------------------------


def test_a_client_stores_and_another_fetches(bench) -> None:
    """The storage asks for parts of a segment, and tells its whole size with each it serves."""
    assert bench.feed(b"F1", m.Put(A)) == {"F1": [FETCH]}
    assert bench.feed(b"F1", part(A, b"data")) == {"F1": [f"Transferred {NAME}"]}
    assert bytes(bench.files.kept[A]) == b"data"
    assert bench.feed(b"F2", m.Fetch(A, 2, 1)) == {"F2": [f"Part {NAME} 2+1 of 4"]}
    assert bench.feed(b"F2", m.Fetch(B, 0, 9))["F2"][0].endswith(": not here")


def test_a_segment_that_is_there_is_not_sent_again(bench) -> None:
    """A segment that the storage before this one received whole is not sent again."""
    bench.files.kept[A] = bytearray(b"data")

    assert bench.feed(b"F1", m.Put(A)) == {"F1": [f"Transferred {NAME}"]}


@pytest.mark.parametrize("name", [b"usage", b"../00-1", b"00-1/../x", b""])
def test_what_is_no_name_is_not_stored(bench, name) -> None:
    """A segment whose name hides a path is not stored."""
    assert "cannot be stored" in bench.feed(b"F1", m.Put(name))["F1"][0]


def test_one_client_sends_so_much_at_a_time(bench) -> None:
    """One client may send only so many segments at a time, and none that another one sends."""
    bench.feed(b"F1", *(m.Put(segment(b"C1", number)) for number in range(SENT_MAX)))

    assert "cannot be stored" in bench.feed(b"F1", m.Put(segment(b"C1", SENT_MAX)))["F1"][0]
    assert "cannot be stored" in bench.feed(b"F2", m.Put(A))["F2"][0]
    assert bench.feed(b"F2", m.Put(segment(b"C2", 0)))["F2"][0].startswith("Fetch")


def test_a_put_that_comes_again_starts_over(bench) -> None:
    """A Put that comes again starts over, as its client may have been told it is unknown."""
    bench.feed(b"F1", m.Put(A))
    bench.feed(b"F1", part(A, b"x" * PART_BYTES, total=PART_BYTES + 1))

    assert bench.feed(b"F1", m.Put(A)) == {"F1": [FETCH]}
    assert bench.files.kept == {}


def test_a_full_storage_says_so(bench) -> None:
    """A full storage says so, and keeps nothing of what it could not take."""
    bench.files.is_full = True
    bench.feed(b"F1", m.Put(A))

    assert bench.feed(b"F1", part(A, b"data")) == {"F1": [f"Transferred {NAME}: no room"]}
    assert bench.files.kept == {}


@pytest.mark.parametrize("how", ["goodbye", "silence", "purge", "lost"])
def test_what_was_half_sent_goes_with_its_client(bench, how) -> None:
    """A half-sent segment goes when its client ends; a late part belongs to nobody."""
    bench.feed(b"F1", m.Put(A))
    bench.feed(b"F1", part(A, b"x" * PART_BYTES, total=PART_BYTES + 1))
    assert bench.files.kept
    if how == "goodbye":
        bench.feed(b"F1", m.Goodbye())
    elif how == "silence":
        bench.wait(SILENCE_S)
    elif how == "purge":
        bench.feed(UPSTREAM, m.Purge(A[:-1], ()))
    else:
        bench.core.peer_lost(b"F1")

    assert bench.files.kept == {}
    assert bench.core.take_gone() == ([b"F1"] if how != "purge" else [])
    assert bench.feed(b"F1", part(A, b"y", PART_BYTES, PART_BYTES + 1)) == {}


@pytest.mark.parametrize(
    "message", [m.Release((A,)), m.Purge(b"", ()), m.Copy(A, ELSEWHERE), m.Heartbeat()]
)
def test_only_the_scheduler_gives_orders(bench, alone, message) -> None:
    """Orders are refused from every peer that is not the scheduler."""
    for storage in (bench, alone):
        with pytest.raises(RemoteProtocolError, match="not for a storage"):
            storage.feed(b"F1", message)


# -- what the scheduler wants ----------------------------------------------------------------


def test_it_says_what_is_there(bench) -> None:
    """After the Welcome a storage lists its segments, and removes those that nobody needs."""
    bench.files.kept |= {A: bytearray(b"a"), B: bytearray(b"b")}

    assert bench.told == {"": ["Hello storage"]}
    assert bench.feed(UPSTREAM, m.Welcome(0, 0)) == {"": [f"Inventory {NAME} {B.decode()}"]}
    bench.feed(UPSTREAM, m.Release((A,)))
    assert list(bench.files.kept) == [B]


def test_the_memory_of_what_is_removed_waits_for_others(bench) -> None:
    """What was removed leaves its memory to the next segments, until a while after the last."""
    bench.feed(UPSTREAM, m.Release((A,)))
    bench.wait(0.75 * RECYCLE_S)
    bench.feed(UPSTREAM, m.Release((B,)))
    bench.wait(0.75 * RECYCLE_S)
    assert bench.files.recycled == [A, B]

    bench.wait(0.25 * RECYCLE_S)
    assert bench.files.recycled == []
    assert bench.core.deadline == math.inf


@pytest.mark.parametrize("end", [m.Goodbye(), m.Unknown(), m.Refused("no")])
def test_it_leaves_with_its_scheduler(bench, end) -> None:
    """A storage leaves when its scheduler is lost; its parent starts another one if needed."""
    bench.feed(UPSTREAM, end)

    assert bench.core.leave


def test_a_copy_is_fetched(bench) -> None:
    """A copy is fetched part by part, and then the scheduler hears of it."""
    total = PART_BYTES + 3
    assert bench.feed(UPSTREAM, m.Copy(A, ELSEWHERE)) == {ELSEWHERE: [FETCH]}
    assert bench.core.sources == {ELSEWHERE}
    first = bench.answer(part(A, b"x" * PART_BYTES, total=total))
    assert first == {ELSEWHERE: [f"Fetch {NAME} {PART_BYTES}+{PART_BYTES}"]}
    assert bench.answer(part(A, b"end", PART_BYTES, total)) == {"": [f"Transferred {NAME}"]}
    assert bytes(bench.files.kept[A]) == b"x" * PART_BYTES + b"end"
    assert bench.core.sources == set()
    assert bench.core.deadline == math.inf


def test_a_few_copies_at_a_time_from_each(bench) -> None:
    """A few copies at a time are fetched from each machine, whatever others are doing."""
    names = [segment(b"C1", number) for number in range(COPIES_AT_ONCE + 2)]
    sent = bench.feed(UPSTREAM, *(m.Copy(name, ELSEWHERE) for name in names))
    assert len(sent[ELSEWHERE]) == COPIES_AT_ONCE
    other = segment(b"C2", 0)
    assert list(bench.feed(UPSTREAM, m.Copy(other, "tcp://third"))) == ["tcp://third"]

    told = bench.answer(part(names[0], b"data"))
    assert told[ELSEWHERE] == [f"Fetch {names[-2].decode()} 0+{PART_BYTES}"]
    # What is under way for nobody is not taken back.
    assert list(bench.feed(UPSTREAM, m.Release((names[1],)))) == []
    assert list(bench.answer(part(names[1], b"data"))) == [ELSEWHERE]
    assert names[1] not in bench.files.kept


@pytest.mark.parametrize("how", ["silence", "missing", "full", "unreachable"])
def test_a_copy_that_cannot_be_had_is_told(bench, how) -> None:
    """The scheduler hears why a copy cannot be had, and nothing is left of it."""
    bench.feed(UPSTREAM, m.Copy(A, ELSEWHERE))
    if how == "silence":
        told = bench.wait(SILENCE_S)
    elif how == "missing":
        told = bench.answer(m.Transferred(A, "not here"))
    elif how == "full":
        bench.files.is_full = True
        told = bench.answer(part(A, b"data"))
    else:
        bench.core.source_lost(ELSEWHERE, "no way there", bench.now)
        told = bench.act()

    reasons = {"silence": "silent for 30 s", "missing": "not here", "full": "no room"}
    assert reasons.get(how, "no way there") in told[""][0]
    assert bench.files.kept == {}
    assert bench.core.sources == set()


def test_a_source_that_begins_anew_is_asked_for_the_rest(bench) -> None:
    """A source that was restarted is asked only for the parts that have not arrived."""
    bench.feed(UPSTREAM, m.Copy(A, ELSEWHERE))
    bench.answer(part(A, b"x" * PART_BYTES, total=PART_BYTES + 1))

    again = {ELSEWHERE: [f"Fetch {NAME} {PART_BYTES}+{PART_BYTES}"]}
    assert bench.answer(m.Unknown()) == again


def test_a_busy_source_is_not_silent(bench) -> None:
    """A source that serves another copy of ours meanwhile does not count as silent."""
    bench.feed(UPSTREAM, m.Copy(A, ELSEWHERE), m.Copy(B, ELSEWHERE))
    bench.wait(SILENCE_S - 1)
    bench.answer(part(A, b"data"))

    assert bench.wait(SILENCE_S - 1) == {}


# -- a storage that runs by itself -----------------------------------------------------------


def test_it_tells_its_scheduler_that_it_lives(alone) -> None:
    """A storage sends heartbeats, as its scheduler may be on another machine."""
    for _ in range(20):
        assert alone.wait(HEARTBEAT_S) == {"S1": ["Heartbeat"]}
        alone.feed(b"S1")


def test_the_storage_of_another_machine_learns_that_its_scheduler_is_new():
    """It sends heartbeats; if the scheduler does not know it, it ends, and its parent follows."""
    core = StorageCore(MemoryFiles(), hello(m.STORAGE, supervisor=b"S1"), waits=False)
    core.receive(UPSTREAM, [m.Welcome(0, 0)], 1.0)
    core.take_actions()
    core.tick(core.deadline)

    assert core.take_actions() == {UPSTREAM: [m.Heartbeat()]}
    core.receive(UPSTREAM, [m.Unknown()], 4.0)
    assert core.leave


def test_it_obeys_the_scheduler_that_came(alone) -> None:
    """A storage obeys a scheduler that connected to it as one that it connected to."""
    assert alone.feed(b"S1", m.Copy(A, ELSEWHERE)) == {ELSEWHERE: [FETCH]}
    assert alone.answer(part(A, b"data")) == {"S1": [f"Transferred {NAME}"]}


@pytest.mark.parametrize("how", ["silence", "goodbye"])
def test_what_was_stored_goes_with_the_scheduler(alone, how) -> None:
    """The next scheduler finds an empty storage."""
    alone.files.kept[A] = bytearray(b"data")
    alone.feed(b"S1", m.Copy(B, ELSEWHERE))
    alone.wait(SILENCE_S) if how == "silence" else alone.feed(b"S1", m.Goodbye())

    assert not alone.core.leave
    assert (alone.files.kept, alone.core.sources) == ({}, set())
    assert alone.wait(100) == {}
    assert alone.feed(b"S2", hello(m.SCHEDULER)) == {"S2": ["Hello storage"]}


def test_it_ends_with_the_whole_cluster(alone) -> None:
    """A storage ends when its scheduler leaves for good."""
    alone.feed(b"S1", m.Goodbye("the cluster was shut down"))

    assert alone.core.leave


def test_it_serves_one_scheduler_at_a_time(alone) -> None:
    """A storage refuses a second scheduler; the first may come again, but its objects are gone."""
    assert alone.feed(b"S2", hello(m.SCHEDULER)) == {"S2": ["Refused: it serves another scheduler"]}
    alone.files.kept[A] = bytearray(b"data")
    assert alone.feed(b"S1", hello(m.SCHEDULER)) == {"S1": ["Hello storage"]}
    assert alone.files.kept == {}


def test_what_was_stored_stays_for_a_successor(alone):
    """A scheduler that takes the place of another one is served at once, and finds its objects."""
    alone.feed(b"S1", m.Goodbye())
    assert alone.feed(b"S1", hello(m.SCHEDULER, name="us")) == {"S1": ["Hello storage"]}
    alone.files.kept[A] = bytearray(b"data")
    alone.feed(b"S1", m.Copy(B, ELSEWHERE))

    assert list(alone.feed(b"S3", hello(m.SCHEDULER, name="them"))) == ["S3"]
    alone.core.receive(b"S2", [hello(m.SCHEDULER, name="us")], alone.now)
    assert [one.is_stored for one in alone.core.take_actions()[b"S2"]] == [True]
    assert alone.core.take_gone() == [b"S1", b"S1"]
    assert (list(alone.files.kept), alone.core.sources) == ([A], set())
    assert alone.feed(b"S2", m.Welcome(0, 0)) == {"S2": [f"Inventory {NAME}"]}


def test_a_storage_that_has_a_scheduler_takes_no_other(bench) -> None:
    """A storage that a scheduler started takes no other scheduler."""
    with pytest.raises(RemoteProtocolError, match="has its scheduler"):
        bench.feed(b"S2", hello(m.SCHEDULER))
