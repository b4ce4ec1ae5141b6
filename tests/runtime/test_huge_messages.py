"""What is larger than a message may be is refused at the door, by name, and nothing else is."""

from __future__ import annotations

import pytest

from scaler_cluster.pickling import payload
from scaler_exec import PayloadError
from tests.runtime.helpers import BOUND_S

LIMIT = 200_000
REASON = rf"pickled bytes is larger than a message may be \({LIMIT}\): split it"


@pytest.fixture
def huge(monkeypatch):
    """Return a value beyond the limit, which is two gigabytes otherwise."""
    monkeypatch.setattr(payload, "BATCH_BYTES_MAX", LIMIT)
    return list(range(LIMIT))


def test_huge_arguments_are_refused(client, huge) -> None:
    """A huge argument fails its own future, or the map that it is an item of."""
    fine = client.submit(len, [1, 2])
    with pytest.raises(PayloadError, match=REASON):
        client.submit(len, huge).result(BOUND_S)
    with pytest.raises(PayloadError, match=REASON):
        client.map(len, [[1], huge])

    assert fine.result(BOUND_S) == 2
    assert client.submit(len, [1]).result(BOUND_S) == 1


def test_huge_nodes_and_objects_are_refused(client, huge) -> None:
    """A huge value in a graph, or one to be sent ahead, is refused."""
    with pytest.raises(PayloadError, match=REASON):
        client.get({"node": (len, huge)}, ["node"])
    with pytest.raises(PayloadError, match=REASON):
        client.send_object(huge)

    assert client.submit(len, [1]).result(BOUND_S) == 1
