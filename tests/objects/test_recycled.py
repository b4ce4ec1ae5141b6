"""The memory of segments that were removed goes to the next ones, unless somebody still maps it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from scaler_cluster.errors import MissingObjectsError, StorageFullError
from scaler_cluster.ids import claim_of
from scaler_cluster.objects import recycled as module
from tests.objects.test_segments import MB, counted, data, names


@pytest.fixture
def memory(places):
    """Return the directory that stands for the memory."""
    return places[0]


def file_of(memory, name):
    """Return the number of a segment's file, and how large that is."""
    status = (memory / name.decode()).stat()
    return status.st_ino, status.st_size


def recycled(memory):
    return names(memory / module.DIRECTORY) if (memory / module.DIRECTORY).exists() else []


@pytest.mark.parametrize("nbytes", [MB, MB - 50_000, MB + 50_000])
def test_the_next_segment_of_about_that_size_has_its_memory(make, memory, nbytes):
    """A segment is written to the file of one that was removed, which then is as large as it."""
    segments = make()
    name = segments.write(data())
    number, _ = file_of(memory, name)
    segments.recycle(name)
    assert counted(memory) == MB

    again = segments.write(data(nbytes, fill=8))
    assert file_of(memory, again) == (number, nbytes)
    assert segments.open(again) == data(nbytes, fill=8)
    assert counted(memory) == nbytes
    assert recycled(memory) == []


def test_nobody_sees_what_others_wrote(make, memory):
    """Between the parts of a segment there is nothing of the one that had its memory before."""
    segments = make()
    segments.recycle(segments.write(data(fill=8)))
    half = MB // 2
    name = segments.write_parts([(0, data(half - 60)), (half, data(half))])

    assert recycled(memory) == []
    assert bytes(segments.open(name)[half - 60 : half]) == bytes(60)


@pytest.mark.parametrize("nbytes", [MB // 2, 2 * MB])
def test_a_segment_of_another_size_has_its_own(make, memory, nbytes):
    """A segment that is much larger or smaller leaves it to others."""
    segments = make()
    segments.recycle(segments.write(data()))
    segments.write(data(nbytes))

    assert len(recycled(memory)) == 1
    assert counted(memory) == MB + nbytes


def test_the_nearest_one_is_taken(make, memory):
    """Of several the one is taken that is nearest in size."""
    segments = make()
    written = [segments.write(data(nbytes)) for nbytes in (MB, MB + 9_000, MB + 90_000)]
    number, _ = file_of(memory, written[1])
    for name in written:
        segments.recycle(name)

    assert file_of(memory, segments.write(data(MB + 10_000)))[0] == number


def test_what_is_mapped_does_not_change(make, memory):
    """A segment that somebody has mapped is not written to; its memory is counted out."""
    segments = make()
    name = segments.write(data())
    view = make(b"W1").open(name)
    segments.recycle(name)
    segments.write(data(fill=8))

    assert view == data()
    assert (counted(memory), recycled(memory)) == (MB, [])


def test_what_another_process_maps_does_not_change(make, memory):
    """So it is if another process has mapped it, until that is gone, killed or not."""
    segments = make()
    kept, freed = segments.write(data()), segments.write(data())
    numbers = [file_of(memory, name)[0] for name in (kept, freed)]
    paths = [str(memory / name.decode()) for name in (kept, freed)]
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"mapped\n"
        segments.recycle(kept)
        assert file_of(memory, segments.write(data(fill=8)))[0] not in numbers
        reader.kill()
        reader.wait()

        segments.recycle(freed)
        assert file_of(memory, segments.write(data(fill=8)))[0] == numbers[1]


READER = """
import os, sys
from pathlib import Path
from scaler_cluster.objects.mapping import map_file
from scaler_cluster.objects.recycled import hold

views = []
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    assert hold(fd, Path(path))
    views.append(map_file(fd, writable=False))
    os.close(fd)
print("mapped", flush=True)
sys.stdin.read()
"""


def test_what_was_removed_is_not_found(make, memory):
    """Nobody finds a segment by its name once it was removed, nor lists it."""
    segments = make()
    name = segments.write(data())
    segments.recycle(name)

    with pytest.raises(MissingObjectsError):
        segments.open(name)
    assert not segments.has(name)
    assert segments.inventory() == ()


def test_who_opened_it_too_early_sees_that_it_is_another(make, memory, monkeypatch):
    """A segment is missing if its memory is used again while somebody is about to open it."""
    segments = make()
    name = segments.write(data())
    hold = module.hold

    def late(fd, path):
        monkeypatch.setattr(module, "hold", hold)
        segments.recycle(name)
        segments.write(data(fill=8))
        return hold(fd, path)

    monkeypatch.setattr(module, "hold", late)
    with pytest.raises(MissingObjectsError):
        make(b"W1").open(name)


@pytest.mark.parametrize("who", ["segment", "claim"])
def test_what_is_recycled_makes_room(make, memory, who):
    """What is recycled is given back where there is no other room."""
    segments = make(limit=5 * MB)
    for name in [segments.write(data()) for _ in range(4)]:
        segments.recycle(name)
    if who == "segment":
        segments.write(data(3 * MB))
    else:
        assert segments.claim(claim_of(b"W1"), 3 * MB) == 3 * MB

    assert len(recycled(memory)) == 2
    assert counted(memory) == 5 * MB


def test_what_made_room_in_vain_is_not_counted(make, memory, monkeypatch):
    """If no file fits after what is recycled was given back, that is counted out all the same."""

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    segments = make(limit=5 * MB)
    for name in [segments.write(data()) for _ in range(4)]:
        segments.recycle(name)
    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(OSError, match="full"):
        segments.claim(claim_of(b"W1"), 3 * MB)

    assert counted(memory) == len(recycled(memory)) * MB == 2 * MB


def test_all_is_given_back(make, memory):
    """Afterwards nothing is left of them."""
    segments = make()
    for name in [segments.write(data()) for _ in range(3)]:
        segments.recycle(name)
    segments.drop_recycled()

    assert (counted(memory), recycled(memory)) == (0, [])


def test_what_is_recycled_is_counted_anew(make, memory):
    """When what is in memory is counted anew, what is recycled counts."""
    segments = make()
    segments.recycle(segments.write(data()))
    (memory / "usage").unlink()
    segments.recount()

    assert counted(memory) == MB


def test_few_are_kept(make, memory, monkeypatch):
    """Small segments are not kept, nor more than COUNT_MAX."""
    monkeypatch.setattr(module, "COUNT_MAX", 2)
    segments = make()
    segments.recycle(segments.write(data(module.NBYTES_MIN - 1)))
    assert recycled(memory) == []

    for name in [segments.write(data()) for _ in range(3)]:
        segments.recycle(name)
    assert len(recycled(memory)) == 2
    assert counted(memory) == 2 * MB


def test_nothing_is_kept_where_a_mapping_holds_no_lock(make, memory, monkeypatch):
    """Where a lock ends with its descriptor, nobody could tell whether a segment is mapped."""
    monkeypatch.setattr(module, "hold", lambda fd, path: True)
    segments = make()
    segments.recycle(segments.write(data()))

    assert (counted(memory), recycled(memory)) == (0, [])


def test_on_disk_nothing_is_kept(make, places):
    """A segment on disk is removed."""
    segments = make(memory=False)
    segments.recycle(segments.write(data()))

    assert names(places[1]) == []


def test_full_memory_is_taken_from_what_is_recycled(make, memory, places, monkeypatch):
    """What is recycled is given back before the disk is used, if shared memory is full early."""
    segments = make()
    segments.recycle(segments.write(data()))
    write = os.pwrite

    def pwrite(fd, buffer, offset):
        if recycled(memory) and len(buffer) > 8:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, buffer, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    name = segments.write(data(2 * MB))
    assert names(places[1]) == []
    assert segments.open(name) == data(2 * MB)
    assert counted(memory) == 2 * MB


def test_a_full_disk_is_full_whatever_is_recycled(make, places, monkeypatch):
    """If the disk is full, nobody waits for what others recycle in shared memory."""
    others = make(b"C2")
    written = [others.write(data()) for _ in range(2)]
    write = os.pwrite

    def pwrite(fd, buffer, offset):
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(places[1])):
            others.recycle(written.pop())
            raise OSError(errno.ENOSPC, "full")
        return write(fd, buffer, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(StorageFullError):
        make(limit=2 * MB).write(data(3 * MB))
    assert len(written) == 1


def test_where_no_name_fits_nothing_is_kept(make, memory, monkeypatch):
    """Shared memory that is full to the last name keeps nothing."""

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    segments = make()
    name = segments.write(data())
    monkeypatch.setattr(os, "rename", full)
    segments.recycle(name)

    assert (counted(memory), recycled(memory)) == (0, [])
