"""Segments on a real file system: written once, mapped by many, counted, removed."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from scaler_cluster.errors import MissingObjectsError, StorageFullError
from scaler_cluster.ids import claim_of, segment_prefix
from scaler_cluster.objects import segments as module
from scaler_cluster.objects.segments import DRAFT_TEXT, Draft
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.objects.worker_store import WorkerStore

MB = 1_000_000


def data(nbytes=MB, fill=7):
    return memoryview(bytes([fill]) * nbytes)


def counted(directory):
    """Return how much memory the segments take together, as all processes are told."""
    return int.from_bytes((directory / "usage").read_bytes(), "little")


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != "usage")


def test_what_is_written_can_be_mapped_by_others(make):
    """Another process of the machine finds the same bytes by name, and cannot change them."""
    name = make().write(data())

    view = make(b"W1").open(name)
    assert view == data()
    assert view.readonly


def test_a_writable_mapping_is_private(make):
    """What is written to a writable mapping is seen by nobody else."""
    segments = make()
    name = segments.write(data())
    view = segments.open(name, writable=True)
    view[0] = 1

    assert segments.open(name) == data()


def test_names_are_never_used_twice(make):
    """Each write has its own segment, also of equal bytes; names tell the owner."""
    segments = make()

    one, other = segments.write(data()), segments.write(data())
    assert one != other
    assert one.startswith(segment_prefix(b"C1"))


@pytest.mark.parametrize("nbytes", [1, 70_000, module.PARALLEL_BYTES + 1])
def test_the_digest_tells_equal_content(make, nbytes):
    """Equal bytes have equal digests, whatever their size; others have not."""
    segments = make()
    _, one = segments.write_new(data(nbytes), ())
    again, same = segments.write_new(data(nbytes), {one})
    _, other = segments.write_new(data(nbytes, fill=8), {one})

    assert one == same
    assert one != other
    assert not again
    assert len(segments.inventory()) == 2


def test_any_contiguous_buffer_is_written(make):
    """The items of a buffer may have any type and shape."""
    segments = make()
    items = memoryview(data(24).cast("B")).cast("d", shape=[3, 1])

    assert segments.open(segments.write(items)) == data(24)


def test_a_removed_segment_stays_with_who_mapped_it(make, places):
    """A removed segment stays for those that mapped it; no other process finds it."""
    segments = make()
    name = segments.write(data())
    view = segments.open(name)
    segments.remove(name)
    segments.remove(name)

    assert view == data()
    assert names(places[0]) == []
    with pytest.raises(MissingObjectsError, match="on this machine"):
        segments.open(name)


@pytest.mark.parametrize("name", [b"usage", b"../disk/x", b"/etc/passwd", b"draft-1", b"\xff", b""])
def test_only_segments_can_be_opened(make, name):
    """A name that no segment has does not lead anywhere else."""
    segments = make()
    segments.write(data())

    with pytest.raises(MissingObjectsError):
        segments.open(name)


# -- limits ----------------------------------------------------------------------------------


def test_a_claim_takes_room(make, places):
    """What a process claims for its own memory is counted as if it were in shared memory."""
    one, other = make(b"C1", 3 * MB), make(b"W1", 3 * MB)
    claim = claim_of(b"W1")
    assert other.claim(claim, 2 * MB) == 2 * MB
    for _ in range(2):
        one.write(data())
    assert (len(names(places[1])), counted(places[0])) == (1, 3 * MB)

    assert other.claim(claim, 3 * MB) == 2 * MB, "what the others have is not given"
    assert other.claim(claim, MB) == MB
    one.recount()
    assert counted(places[0]) == 2 * MB
    assert other.claim(claim, 0) == 0
    assert counted(places[0]) == MB
    assert len(names(places[0])) == 1


def test_a_claim_ends_with_its_process(make, places):
    """What a dead process claimed is given back with all else that it left."""
    dead = make(b"W1")
    dead.claim(claim_of(b"W1"), 5 * MB)
    assert (places[0] / names(places[0])[0]).stat().st_blocks == 0, "it takes memory by itself"

    make().purge(segment_prefix(b"W1"), ())
    assert (names(places[0]), counted(places[0])) == ([], 0)


def test_a_worker_that_outlives_its_cluster_keeps_what_it_has(places):
    """A worker that looks for room when the directories are gone finds no error."""
    dirs = StorageDirs(str(places[0]), str(places[1]), MB)
    places[0].rmdir()

    assert WorkerStore(b"W1", dirs, {}, {}, is_home=True).claim(5 * MB) == 5 * MB


def test_where_no_file_fits_there_is_no_room(places, monkeypatch):
    """Shared memory that is full to the last file leaves what lives in a worker no room."""

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "ftruncate", full)
    dirs = StorageDirs(str(places[0]), str(places[1]), MB)
    assert WorkerStore(b"W1", dirs, {}, {}, is_home=True).claim(MB) == 0


def test_without_shared_memory_any_claim_is_granted(make):
    """Where there is no shared memory, what a process keeps takes no room of others."""
    assert make(memory=False).claim(b"x", MB) == MB


def test_memory_is_shared_and_counted(make, places):
    """All processes together use no more memory than the limit; what has no room goes to disk."""
    one, other = make(b"C1", 3 * MB), make(b"W1", 3 * MB)
    written = [segments.write(data()) for segments in (one, other, one, other)]

    assert counted(places[0]) == 3 * MB
    assert (len(names(places[0])), len(names(places[1]))) == (3, 1)
    assert all(one.open(name) == data() for name in written)
    for name in written:
        other.remove(name)
    assert counted(places[0]) == 0
    assert names(places[1]) == []


def test_without_shared_memory_everything_is_on_disk(make, places):
    """Segments are files on disk where a machine has no shared memory."""
    segments = make(memory=False)
    name = segments.write(data())

    assert segments.open(name) == data()
    assert names(places[1]) == [name.decode()]
    assert names(places[0]) == []


def fail_to_write(monkeypatch, *, below, number=errno.ENOSPC):
    """Let the file systems below some directories be full."""
    real = os.pwrite

    def pwrite(fd, buffer, offset):
        if len(buffer) > 8 and os.readlink(f"/proc/self/fd/{fd}").startswith(
            tuple(map(str, below))
        ):
            raise OSError(number, os.strerror(number))
        return real(fd, buffer, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


def test_memory_smaller_than_the_limit_is_noticed_once(make, places, monkeypatch, caplog):
    """Files on disk take objects, with one warning, if /dev/shm is full before its limit."""
    fail_to_write(monkeypatch, below=[places[0]])
    segments = make()
    with caplog.at_level(logging.WARNING):
        written = [segments.write(data()) for _ in range(3)]

    assert len([record for record in caplog.records if "less room" in record.message]) == 1
    assert all(segments.open(name) == data() for name in written)
    assert names(places[0]) == []
    assert counted(places[0]) == 0


def test_no_room_anywhere_is_a_clear_error(make, places, monkeypatch):
    """The error of a full disk names size, limit and disk, and nothing is left behind."""
    fail_to_write(monkeypatch, below=places)
    segments = make()

    with pytest.raises(
        StorageFullError, match=r"object of 1\.0 MB: the 10 MB of memory .* is full"
    ):
        segments.write(data())
    assert names(places[0]) == names(places[1]) == []


def test_what_cannot_fit_is_refused_before_it_is_written(make, places, monkeypatch):
    """Nothing is written of an object that is larger than what is free."""
    fail_to_write(monkeypatch, below=places, number=errno.EIO)
    monkeypatch.setattr("scaler_cluster.objects.segments._free_bytes", lambda _: MB - 1)
    segments = make(limit=0)

    with pytest.raises(StorageFullError, match=r"object of 1\.0 MB"):
        segments.write(data())
    assert names(places[1]) == []


def test_nothing_is_an_object_as_well(make):
    """An empty object is stored and mapped like any other."""
    segments = make()

    assert bytes(segments.open(segments.write(data(0)))) == b""


def test_a_draft_moves_to_disk_when_memory_ends(make, places, monkeypatch):
    """A draft that outgrows memory is copied to disk, and nothing of it stays in memory."""
    segments = make()
    draft = Draft(segments, "4331-9", 2 * MB)
    draft.write(data(), 0)
    fail_to_write(monkeypatch, below=[places[0]])
    draft.write(data(fill=8), MB)

    assert segments.open(draft.finish()) == bytes(data()) + bytes(data(fill=8))
    assert names(places[0]) == []
    assert counted(places[0]) == 0


def test_a_draft_that_somebody_removed(make):
    """A draft that was removed meanwhile cannot be finished, and can be discarded."""
    segments = make()
    draft = Draft(segments, "4331-9", MB)
    segments.remove(b"draft-4331-9")

    with pytest.raises(FileNotFoundError):
        draft.finish()
    draft.discard()
    assert segments.inventory() == ()


def test_other_errors_of_the_file_system_are_raised(make, places, monkeypatch):
    """A broken disk is not taken for a full one, and leaves no draft either."""
    fail_to_write(monkeypatch, below=places, number=errno.EIO)

    with pytest.raises(OSError, match="Input/output"):
        make().write(data())
    assert names(places[0]) == names(places[1]) == []


# -- what others left ------------------------------------------------------------------------


def test_the_remains_of_an_owner_are_removed(make, places):
    """Segments and drafts of one owner go, in memory and on disk, but for those to be kept."""
    gone, other = make(b"W1", 2 * MB), make(b"W2", 2 * MB)
    kept, *_ = [gone.write(data()) for _ in range(3)]
    theirs = other.write(data())
    for place in places:
        (place / f"{DRAFT_TEXT}{segment_prefix(b'W1').decode()}9").write_bytes(b"x")
    copied = segment_prefix(b"W1") + b"a"
    copy = other.draft(copied, MB)
    other.purge(segment_prefix(b"W1"), (kept, copied))

    assert set(other.inventory()) == {kept, theirs, b"draft-" + copied}
    assert copy.finish() == copied
    other.remove(copied)
    assert counted(places[0]) < 2 * MB
