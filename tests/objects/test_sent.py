"""What a client stores, when it is stored again, and when it is let go."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.errors import StorageFullError
from scaler_cluster.ids import segment_names
from scaler_cluster.objects import digest, sent
from scaler_cluster.objects.client_store import ClientStore
from scaler_cluster.objects.reported_names import ReportedNames
from scaler_cluster.objects.segments import Segments
from scaler_cluster.objects.sent import CallObjects, Key, SentObjects
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.pickling.payload import Collector, Token, Whole, contiguous, dumps, loads
from scaler_cluster.wire import messages as m

SIZE = 100_000


def _never_connect(address):
    raise AssertionError("everything is on this machine")


class Store:
    """Sent objects on a file system, and what the scheduler is told."""

    def __init__(self, directory):
        self.core = ClientCore()
        place = StorageDirs(disk=str(directory))
        self.segments = Segments(place, segment_names(b"O1"))
        store = ClientStore((place.served_at(""),), ReportedNames(b"C1"), _never_connect)
        self.sent = SentObjects(self, store)
        self.stored: dict[bytes, bytes] = {}

    def offer(self, one, segment, nbytes):
        """See :class:`Offering`."""
        self.core.requests.offer(one, segment, nbytes)

    def release(self, objects):
        """See :class:`Offering`."""
        self.core.release(objects)

    def forget(self, function):
        """See :class:`Offering`."""
        self.core.requests.forget(function)

    def told(self):
        """Return what was said since, as ("Object" or "Release", number of objects)."""
        self.sent.sweep()
        told = []
        for message in self.core.take_actions():
            if isinstance(message, m.Object):
                assert message.object not in self.stored
                self.stored[message.object] = message.segment
                told.append(("Object", 1))
            elif isinstance(message, m.Release):
                for one in message.objects:
                    self.segments.remove(self.stored.pop(one))
                told.append(("Release", len(message.objects)))
        return told

    def hold(self, value, **options):
        """Store a value's buffers and let go of them again, as one submission does."""
        collector = Collector()
        stream = dumps(value, collector)
        objects = self.sent.hold(collector.buffers, **options)
        told = self.told()
        buffers = [self.segments.open(self.stored[one]) for one in objects]
        copy = loads(stream, buffers=buffers)
        self.sent.release(objects)
        return objects, copy, told


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def array(fill=1.0):
    return np.full(SIZE, fill)


def test_a_buffer_is_stored_once_as_long_as_its_owner_lives(store):
    """An array that is named a second time is neither stored nor announced again."""
    value = array()
    first, copy, told = store.hold(value)

    assert told == [("Object", 1)]
    assert (copy == value).all()
    assert store.hold(value)[0] == first
    assert store.told() == []


def test_an_object_goes_with_its_owner(store):
    """When the array dies, the next turn lets go of the object."""
    value = array()
    store.hold(value)
    del value
    gc.collect()

    assert store.sent.has_dead
    store.sent.sweep()
    assert store.told() == [("Release", 1)]


def test_equal_content_is_stored_once(store):
    """Another array of equal bytes is the same object, which lives as long as either."""
    one, other = array(), array()
    store.hold(one)
    objects, _, told = store.hold(other)
    assert told == []
    del one
    gc.collect()
    store.sent.sweep()

    assert store.told() == []
    assert store.hold(other)[0] == objects
    assert len(store.segments.inventory()) == 1


def test_views_are_known_by_what_they_view(store):
    """A slice or a transposed array is made anew each time, and is still the same buffer."""
    value = np.zeros((400, 400))

    first = store.hold(value[:300])[0]
    assert store.hold(value[:300])[0] == first
    transposed = store.hold(value.T)[0]
    assert store.hold(value.T)[0] == transposed
    assert store.hold(value[100:])[0] == first, "equal bytes"
    assert store.told() == []


def test_a_copy_of_a_view_is_known_by_what_it_views(store):
    """A view that does not lie in one piece is copied for each pickle, and stays one object."""
    value = np.arange(160_000.0).reshape(400, 400)

    first, copy, told = store.hold(contiguous(value[:, :300]))
    assert told == [("Object", 1)]
    assert (copy == value[:, :300]).all()
    assert [store.hold(contiguous(value[:, :300]))[::2] for _ in range(3)] == [(first, [])] * 3

    value[399, 299] = 0
    assert store.hold(contiguous(value[:, :300]))[1][399, 299] == 0
    # The same place and size, and other strides.
    assert (store.hold(contiguous(value[::2, ::2][:, :150]))[1] == value[::2, :300:2]).all()
    assert (store.hold(contiguous(value[:, :300:4][:, :75]))[1] == value[:, :300:4]).all()
    del value
    gc.collect()
    store.sent.sweep()
    store.told()
    assert len(store.segments.inventory()) == 0


def test_a_changed_buffer_is_stored_anew(store):
    """What a task gets is what the buffer holds when it is passed, whoever changed it."""
    value = array(1.0)
    view = value[:]
    for fill in (1.0, 2.0, 2.0, 3.0, 1.0):
        view[:] = fill
        assert store.hold(value)[1][0] == fill
    assert len(store.segments.inventory()) == 1


def test_an_unchanged_buffer_is_stored_once(store):
    """An unchanged buffer is stored once, however often it is looked at."""
    value = array()
    store.hold(value)

    for _ in range(3):
        assert store.hold(value)[2] == []
        assert store.hold(value, again=True)[2] == []
    assert len(store.segments.inventory()) == 1


def test_one_changed_byte_is_seen_wherever_it_is(store):
    """One changed byte is seen anywhere, also in parts that different threads look at."""
    value = np.zeros(5 << 20)
    for index in (0, 1 << 20, 3 << 20, -1):
        store.hold(value)
        value[index] += 1
        assert store.hold(value)[1][index] == value[index]


@pytest.fixture
def looks(monkeypatch):
    """Return the sizes of the buffers whose content was looked at, as far as it is known."""
    looks = []

    def fingerprint_of(data):
        looks.append(data.nbytes)
        return fingerprint(data)

    fingerprint = digest.fingerprint_of
    monkeypatch.setattr(sent, "fingerprint_of", fingerprint_of)
    return looks


def test_what_nobody_may_write_to_is_not_looked_at(store, looks):
    """A read-only array that owns its memory, or whose owner is read-only, is not looked at."""
    value = array()
    value.flags.writeable = False
    for one in (value, value[1:], value):
        store.hold(one)
        store.hold(one)

    assert looks == []
    store.hold(value, again=True)
    assert looks == [value.nbytes]


def test_what_somebody_else_may_write_to_is_looked_at(store):
    """A read-only view of a writable array is looked at: it is no promise."""
    value = array(1.0)
    view = value.view()
    view.flags.writeable = False
    store.hold(view)
    value[:] = 2.0

    assert store.hold(view)[1][0] == 2.0


def test_what_was_changed_before_it_became_read_only_is_seen(store, looks):
    """A change before an array became read-only is seen."""
    value = array(1.0)
    store.hold(value)
    value[:] = 2.0
    value.flags.writeable = False

    assert store.hold(value)[1][0] == 2.0
    before = len(looks)
    assert store.hold(value)[1][0] == 2.0
    assert len(looks) == before


def test_what_was_looked_at_just_now_is_not_looked_at_again(store, looks):
    """A buffer is looked at once within a call that runs no code of the user in between."""
    value = array()
    looked_at: set[Key] = set()
    store.hold(value)
    for _ in range(5):
        store.hold(value, looked_at=looked_at)
    assert looks == [value.nbytes]


def test_what_cannot_be_watched_is_held_by_the_call(store):
    """The bytes of a ``bytes`` object are let go of with the submission that named them."""
    value = Whole.of(bytes(SIZE))
    _, copy, told = store.hold(value)

    assert told == [("Object", 1)]
    assert copy == bytes(SIZE)
    assert store.told() == [("Release", 1)]


def test_a_result_is_released_when_it_is_dropped(store):
    """A lazy result announces its end, whether its value was asked for or not."""
    name = store.segments.write(memoryview(bytes(SIZE)))
    store.core.lazy_result = store.sent.lazy_result
    store.core.waiters[0] = "somebody"
    store.core.receive([m.Returned(0, dumps(7), (name,), sizes=(SIZE,))], 0.0)
    (event,) = store.core.events.take()
    ((_, result),) = event.pairs
    del event
    store.stored[name] = name

    assert result.load() == 7
    del result
    store.sent.sweep()
    assert store.told() == [("Release", 1)]


def test_no_room_leaves_nothing_behind(store, monkeypatch):
    """Where the second of two buffers finds no room, the first one is let go of."""
    real, calls = Segments.write, []

    def write(self, data):
        calls.append(data)
        if len(calls) == 2:
            raise StorageFullError("full")
        return real(self, data)

    monkeypatch.setattr(Segments, "write", write)
    buffers = [memoryview(bytes(SIZE)), memoryview(bytes(SIZE + 1))]

    with pytest.raises(StorageFullError):
        store.sent.hold(buffers)
    assert store.told() == [("Object", 1), ("Release", 1)]
    assert store.segments.inventory() == ()


# -- maps ------------------------------------------------------------------------------------


def test_a_large_list_is_pickled_once_per_map(store):
    """A map pickles a large list, dict or string once, as long as it takes items."""
    large = list(range(SIZE))
    call = CallObjects(store.sent, again=False, steady=True)

    one, other = call.shrink((1, large)), call.shrink((2, large))
    assert one[0] == 1
    assert one[1] is other[1]
    collector = Collector()
    dumps(one, collector)
    assert [type(buffer.obj) for buffer in collector.buffers] == [Token]
    assert store.told() == [("Object", 1)]
    call.close()
    assert store.told() == [("Release", 1)]


def test_small_values_stay_what_they_are(store):
    """A small value travels as it is, without anything in its place."""
    small = ([1], "text", np.zeros(10), array())
    call = CallObjects(store.sent, again=False, steady=True)

    assert all(a is b for a, b in zip(call.shrink(small), small, strict=True))
    call.close()


def test_a_list_that_may_have_changed_is_pickled_anew(store):
    """A list is pickled anew where code of the user has run between two items."""
    large, text = list(range(SIZE)), "x" * SIZE
    call = CallObjects(store.sent, again=False, steady=False)
    first = call.shrink((large, text))
    large[0] = 7

    second = call.shrink((large, text))
    assert first[1] is second[1]
    assert bytes(first[0].parts[0]) != bytes(second[0].parts[0])
    call.close()


def test_a_call_that_goes_on_later_looks_again(store):
    """A call looks again at what it knew by identity after code of the user has run."""
    large = list(range(SIZE))
    call = CallObjects(store.sent, again=False, steady=True)
    first = call.shrink((large,))
    large[0] = 7
    assert call.shrink((large,)) == first
    call.resume()

    assert bytes(call.shrink((large,))[0].parts[0]) != bytes(first[0].parts[0])
    call.close()


# -- what was sent ahead ---------------------------------------------------------------------


def test_what_was_sent_lives_as_long_as_the_reference(store):
    """The end of a reference releases its object, once."""
    reference = store.sent.send([1, 2], "numbers")
    assert store.told() == [("Object", 1)]
    reference.release()
    assert store.told() == [("Release", 1)]
    del reference
    assert store.told() == []


def test_a_reference_of_before_a_clear_releases_nothing_after_it(store):
    """A reference from before a clear does not release the same content sent after it."""
    old = store.sent.send([1, 2], "numbers")
    store.sent.clear()
    new = store.sent.send([1, 2], "numbers")
    store.told()
    del old

    assert store.told() == []
    del new
    assert store.told() == [("Release", 1)]
