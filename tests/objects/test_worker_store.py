"""Results that a worker stores: how their buffers lie in segments, and come out of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.objects.worker_store import WorkerStore
from scaler_cluster.pickling.payload import ALIGNMENT, OBJECT_BYTES, PACK_BYTES
from tests.objects.test_segments import MB, names

LARGE = OBJECT_BYTES // 8


@pytest.fixture
def store(places):
    """Return the store of a worker."""
    memory, disk = map(str, places)
    return WorkerStore(b"W1", StorageDirs(memory, disk, 1000 * MB), {}, {}, is_home=True)


def arrays(*counts):
    return [np.arange(count, dtype=np.int64) + n for n, count in enumerate(counts)]


def load(store, payload, segments):
    return pickle.loads(payload, buffers=store.map(tuple(segments)))


def test_buffers_of_one_result_share_a_segment(store, places):
    """Columns of a table lie in one file, each where a vector of the CPU's can read it."""
    values = arrays(LARGE, LARGE + 1, LARGE + 7)
    payload, segments = store.store(values)

    assert names(places[0]) == [name.decode() for name in segments]
    assert len(segments) == 1
    found = load(store, payload, segments)
    assert all(map(np.array_equal, found, values))
    assert all(one.ctypes.data % ALIGNMENT == 0 for one in found)
    assert not any(one.flags.writeable for one in found)


def test_what_was_pickled_before_is_packed_as_well(store):
    """The buffers of a result that the worker pickled at once share a segment, too."""
    values = arrays(LARGE, LARGE)
    payload, segments = store.write(store.pickle(values))

    assert len(segments) == 1
    assert all(map(np.array_equal, load(store, payload, segments), values))
    assert not store.buffers


def test_a_large_buffer_has_a_segment_of_its_own(store):
    """Who keeps a small part of a result does not keep a large one with it."""
    large = PACK_BYTES // 8
    values = arrays(LARGE, large, LARGE, LARGE)
    payload, segments = store.store(values)

    assert sorted(segments.values()) == [8 * LARGE, 16 * LARGE, PACK_BYTES]
    assert all(map(np.array_equal, load(store, payload, segments), values))


def test_one_buffer_needs_no_packing(store):
    """The pickle of a result with one large buffer is that of plain pickle."""
    (value,) = arrays(LARGE)
    payload, _ = store.store(value)

    assert payload == pickle.dumps(value, 5, buffer_callback=lambda _: False)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.one_of(st.integers(0, 70_000), st.integers(0, 1_000_000)), max_size=8))
def test_whatever_is_packed_comes_out(store, sizes):
    """A result of any buffers is the same after it was stored; segments have the size they say."""
    values = [bytearray(bytes([n % 251]) * size) for n, size in enumerate(sizes)]
    payload, segments = store.store([np.frombuffer(one, np.uint8) for one in values])

    assert [one.tobytes() for one in load(store, payload, segments)] == list(map(bytes, values))
    assert [store.map((name,))[0].nbytes for name in segments] == list(segments.values())
    assert all(nbytes <= max(PACK_BYTES, *sizes) for nbytes in segments.values())


def test_where_one_segment_fails_none_stays(store, places, monkeypatch):
    """A result that cannot be stored whole leaves nothing behind."""
    files = store._opened()
    write = files.write_parts
    calls: list[object] = []

    def fail_later(parts):
        if calls:
            raise OSError("broken")
        calls.append(parts)
        return write(parts)

    monkeypatch.setattr(files, "write_parts", fail_later)
    with pytest.raises(OSError, match="broken"):
        store.store(arrays(PACK_BYTES // 8, PACK_BYTES // 8))

    assert names(places[0]) == []
    assert store.names.first == 1, "what failed will never be reported"
