"""A user's own serializer, and objects that are sent ahead."""

from __future__ import annotations

import enum
import pickle
import struct
from io import BytesIO

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from scaler_cluster.ids import segment_prefix
from scaler_cluster.objects.remote_store import Incoming, RemoteStore
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_exec import (
    Client,
    DeserializeObjectError,
    MissingObjectsError,
    SchedulerClusterCombo,
    Serializer,
    StorageFullError,
)
from tests.runtime.helpers import BOUND_S

MB = 1_000_000


class Tagged(Serializer):
    """Marks what it serializes; counts in the process where it is used."""

    calls: list[str] = []  # noqa: RUF012 - one for all, to be counted

    @staticmethod
    def serialize(obj):
        Tagged.calls.append(type(obj).__name__)
        return b"tagged" + cloudpickle.dumps(obj)

    @staticmethod
    def deserialize(payload):
        assert type(payload) is bytes
        assert payload.startswith(b"tagged")
        return pickle.loads(payload[6:])


@pytest.fixture
def tagged(cluster):
    Tagged.calls.clear()
    with Client(cluster.get_address(), serializer=Tagged) as made:
        yield made


def add(a, b):
    return a + b


# -- serializers -----------------------------------------------------------------------------


def test_a_serializer_sees_function_arguments_and_result(tagged) -> None:
    """A serializer is called once for the function, each argument and the result."""
    assert tagged.submit(add, 1, 2.5).result(BOUND_S) == 3.5
    assert Tagged.calls == ["function", "int", "float"]
    assert tagged.submit(add, 2, 2.5).result(BOUND_S) == 4.5
    assert Tagged.calls[3:] == ["int", "float"]


def test_a_serializer_serves_maps_and_large_values(tagged) -> None:
    """What a serializer makes may be large, and is stored as other values are."""
    value = np.ones(MB)

    assert tagged.map(add, [1, 2, 3], [4, 5, 6]) == [5, 7, 9]
    assert float(tagged.submit(add, value, 1).result(BOUND_S).sum()) == 2 * MB
    assert tagged.submit(add, b=1, a=2).result(BOUND_S) == 3


class Refuses(Tagged):
    """Cannot make anything of what it made."""

    @staticmethod
    def deserialize(payload):
        raise ValueError("not readable")


def test_what_cannot_be_deserialized_fails_its_task(cluster) -> None:
    """A serializer's error on the worker fails the task with that error."""
    with Client(cluster.get_address(), serializer=Refuses) as client:
        error = client.submit(add, 1, 2).exception(BOUND_S)

    assert isinstance(error, DeserializeObjectError)
    assert "not readable" in str(error)


class Kind(enum.Enum):
    """What is looked up by the first byte of a payload."""

    FRAME = b"F"
    NUMBER = b"N"
    OTHER = b"O"


class Parquet(Serializer):
    """Frames as parquet, as the documents of Scaler have it: they take a byte of bytes for one."""

    @staticmethod
    def serialize(obj):
        if isinstance(obj, pd.DataFrame):
            buffer = BytesIO()
            obj.to_parquet(buffer)
            return Kind.FRAME.value + buffer.getvalue()
        if isinstance(obj, int):
            return Kind.NUMBER.value + struct.pack("I", obj)
        return Kind.OTHER.value + cloudpickle.dumps(obj)

    @staticmethod
    def deserialize(payload):
        kind = Kind(payload[0])
        payload = payload[1:]
        if kind == Kind.FRAME:
            return pd.read_parquet(BytesIO(payload))
        if kind == Kind.NUMBER:
            return struct.unpack("I", payload)[0]
        return cloudpickle.loads(payload)


def test_the_documented_serializer_works(cluster) -> None:
    """The documented serializer carries frames, numbers and others, small and large."""
    frame = pd.DataFrame({"a": range(100_000), "b": [0.5] * 100_000})
    with Client(cluster.get_address(), serializer=Parquet) as client:
        copy = client.submit(_doubled, frame, 2).result(BOUND_S)
        pairs = client.map(_pair, [frame.head(3), "text"], [1, 2])

    pd.testing.assert_frame_equal(copy, frame * 2)
    pd.testing.assert_frame_equal(pairs[0][0], frame.head(3))
    assert pairs[1] == ("text", 2)


def _doubled(frame, factor):
    return frame * factor


def test_a_serializer_that_the_workers_lack_fails_its_task(cluster, tmp_path, monkeypatch) -> None:
    """A serializer's module that workers lack is named, and the client goes on."""
    source = "import tests.runtime.test_serializer as t\nclass Absent(t.Tagged):\n    pass\n"
    (tmp_path / "absent_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    from absent_module import Absent  # type: ignore[import-not-found]

    with Client(cluster.get_address(), serializer=Absent) as client:
        error = client.submit(add, 1, 2).exception(BOUND_S)

    assert isinstance(error, DeserializeObjectError)
    assert "absent_module" in str(error)


# -- objects that are sent ahead -------------------------------------------------------------


def test_a_reference_stands_for_its_value(client) -> None:
    """A reference may be passed as often as wanted, to single tasks and in maps."""
    values = [1, 2, 3], b"1" * MB, "text", {"a": 1}
    for value in values:
        reference = client.send_object(value, name="value")

        assert reference.name == "value"
        assert client.submit(len, reference).result(BOUND_S) == len(value)
        assert client.submit(_pair, reference, 3).result(BOUND_S) == (value, 3)
        assert client.map(_pair, [reference] * 3, range(3)) == [(value, n) for n in range(3)]


def _pair(a, b):
    return a, b


def test_a_reference_works_with_a_serializer(tagged) -> None:
    """The value of a reference is serialized once, when it is sent."""
    reference = tagged.send_object([1, 2])

    assert tagged.submit(add, reference, [3]).result(BOUND_S) == [1, 2, 3]
    assert Tagged.calls == ["list", "function", "list"]


def test_a_reference_inside_of_a_value_is_refused(client) -> None:
    """The error of a reference inside of a value says how it may be passed."""
    reference = client.send_object([1, 2])
    error = client.submit(len, [reference]).exception(BOUND_S)

    assert "positional argument of its own" in str(error)
    assert isinstance(error.__cause__, TypeError)


def test_a_reference_that_was_cleared_is_missing(client) -> None:
    """A reference cannot be passed after clear(), and the client goes on."""
    reference = client.send_object([1, 2])
    client.clear()

    with pytest.raises(MissingObjectsError, match="send it again"):
        client.submit(len, reference)
    assert client.submit(len, client.send_object([1, 2])).result(BOUND_S) == 2


def test_functions_go_on_after_clear(client) -> None:
    """A heavy function is stored anew after clear()."""
    value = np.ones(MB)

    def total(n):
        return int(value.sum()) + n

    assert client.submit(total, 1).result(BOUND_S) == MB + 1
    client.clear()
    assert client.submit(total, 2).result(BOUND_S) == MB + 2
    assert client.map(total, range(3)) == [MB, MB + 1, MB + 2]


def test_a_reference_of_another_client_is_missing(client, cluster) -> None:
    """A client cannot pass another client's reference."""
    with Client(cluster.get_address()) as other:
        reference = other.send_object([1, 2])

        with pytest.raises(MissingObjectsError, match="another client's"):
            client.submit(len, reference)


# -- clients that cannot see the objects -----------------------------------------------------


@pytest.fixture
def blind(monkeypatch):
    """Return a client that sees none of the cluster's directories, as one in a container."""
    monkeypatch.setattr(StorageDirs, "is_here", property(lambda _: False))
    cluster = SchedulerClusterCombo(2, "tcp://127.0.0.1:0")
    with cluster, Client(cluster.get_address()) as made:
        yield made


def test_a_client_that_sees_no_files_goes_by_the_network(blind) -> None:
    """A client that sees no files reaches the storage by the network, which starts then."""
    value = np.ones(MB)

    assert float(blind.submit(add, value, 1).result(BOUND_S).sum()) == 2 * MB
    assert blind.map(np.sum, [value] * 3) == [MB] * 3
    assert blind.submit(len, blind.send_object("x" * MB)).result(BOUND_S) == MB


def test_a_segment_that_was_sent_is_not_sent_again(blind) -> None:
    """A segment that is sent twice is stored once, and neither sender hangs."""
    connection = blind._session.connection
    home = connection.welcome.homes[0].address
    passport = connection.credentials.passport(home)
    storage = RemoteStore(home, connection.address, b"F1", passport)
    mine = segment_prefix(connection.peer) + b"77"
    try:
        storage.push(mine, memoryview(bytes(MB)))
        storage.push(mine, memoryview(bytes(MB)))
        assert bytes(storage.fetch(Incoming(mine)) or b"") == bytes(MB)
        for wrong in (b"usage", b"../00-1", b"00-1/../x", "é-1".encode()):
            with pytest.raises(StorageFullError, match="of that name"):
                storage.push(wrong, memoryview(b"x"))
        with pytest.raises(MissingObjectsError):
            storage.fetch(Incoming(b"00-2"))
    finally:
        storage.close()


# -- values that change ----------------------------------------------------------------------


def test_a_changed_array_is_sent_again(client) -> None:
    """Tasks see an array as it is at their submit, with ``reserialize`` in any case."""
    value = np.zeros(MB)
    calls = (
        lambda: client.submit(np.sum, value).result(BOUND_S),
        lambda: client.submit_verbose(np.sum, (value,), {}, reserialize=True).result(BOUND_S),
        lambda: client.map(np.sum, [value])[0],
        lambda: client.map(np.sum, [value], reserialize=True)[0],
        lambda: client.starmap(np.sum, [(value,)])[0],
        lambda: client.get({"sum": (np.sum, value)}, ["sum"])["sum"],
    )
    for count in range(3 * len(calls)):
        value[0] = count
        assert calls[count % len(calls)]() == count
