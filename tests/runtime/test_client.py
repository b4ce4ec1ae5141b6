"""Client and SchedulerClusterCombo."""

from __future__ import annotations

import concurrent.futures
import math
import time
from concurrent.futures import CancelledError

import pytest

from scaler_exec import Client, ConfigError, SchedulerClusterCombo, SessionClosedError
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S


@pytest.fixture(scope="module")
def cluster(single_cluster):
    """Return a cluster of one worker."""
    return single_cluster


def test_a_client_submits(client) -> None:
    """submit() returns a future of the call, keywords included."""
    assert client.submit(pow, 2, 5).result(BOUND_S) == 32
    assert client.submit(int, "11", base=2).result(BOUND_S) == 3


def test_map_returns_a_list(client) -> None:
    """map() is the builtin map's list, over one or several iterables."""
    assert client.map(tasks.square, range(100)) == [n * n for n in range(100)]
    assert client.map(pow, [2, 3], [3, 2]) == [8, 9]
    assert client.map(tasks.square, []) == []


def test_map_without_an_iterable_is_a_type_error(client) -> None:
    """map(function) alone raises TypeError, as the builtin does."""
    with pytest.raises(TypeError, match="must have at least one iterable"):
        client.map(tasks.square)


def test_map_takes_the_old_form(client) -> None:
    """map() takes arguments in tuples with a warning, and tuples as items where they are meant."""
    for rows in ([(n,) for n in range(5)], iter([(n,) for n in range(5)])):
        with pytest.deprecated_call(match=r"use starmap\(\)"):
            assert client.map(math.sqrt, rows) == [math.sqrt(n) for n in range(5)]
    with pytest.deprecated_call() as caught:
        assert client.map(divmod, [(7, 2), (9, 4)]) == [(3, 1), (2, 1)]
    assert caught[0].filename == __file__
    assert client.map(sum, [(1, 2), (3, 4)]) == [3, 7]
    assert client.map(len, iter([(1, 2), "abc"])) == [2, 3]


def test_keywords_reach_the_function(client) -> None:
    """Keyword arguments reach a function that names them or takes any."""
    assert client.submit(_all_kinds, 1, c=3, d=4).result(BOUND_S) == (1, 2, 3, {"d": 4})
    assert client.submit(_all_kinds, b=1, a=2).result(BOUND_S) == (2, 1, 5, {})
    with pytest.raises(TypeError, match="unexpected keyword"):
        client.submit(tasks.square, 1, other=2).result(BOUND_S)


def _all_kinds(a, b=2, *, c=5, **others):
    return a, b, c, others


def test_starmap_unpacks(client) -> None:
    """starmap() calls with each item's members."""
    assert client.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]


def test_map_raises_the_first_exception(client) -> None:
    """The first exception of a map, in order, is raised, and the client goes on."""
    with pytest.raises(ZeroDivisionError):
        client.map(divmod, [1, 2, 3], [1, 0, 1])

    assert client.submit(tasks.square, 3).result(BOUND_S) == 9


def test_clear_cancels_everything(client, flags) -> None:
    """clear() cancels what has not come back, running or queued; the client goes on."""
    done = client.submit(tasks.square, 3)
    assert done.result(BOUND_S) == 9
    running = client.submit(tasks.sleep, flags.path("started"))
    queued = [client.submit(tasks.square, n) for n in range(10)]
    flags.wait("started")
    client.clear()

    assert all(future.cancelled() for future in (running, *queued))
    assert done.result() == 9
    assert client.submit(tasks.square, 3).result(BOUND_S) == 9


def test_disconnect_cancels_and_closes(cluster, flags) -> None:
    """After disconnect(), pending futures are cancelled and submit raises; it may be repeated."""
    client = Client(cluster.get_address())
    future = client.submit(tasks.sleep, flags.path("started"))
    client.disconnect()
    client.disconnect()

    with pytest.raises(CancelledError):
        future.result(BOUND_S)
    with pytest.raises(SessionClosedError, match="the client was disconnected"):
        client.submit(tasks.square, 1)


def test_a_client_that_is_forgotten_leaves(cluster) -> None:
    """A client without a reference disconnects, and another works on."""
    with pytest.raises(CancelledError):
        Client(cluster.get_address()).submit(time.sleep, tasks.FOREVER_S).result(BOUND_S)
    with Client(cluster.get_address()) as other:
        assert other.submit(tasks.square, 3).result(BOUND_S) == 9


def test_several_clients_work_at_once(cluster) -> None:
    """Clients of one cluster get their own results."""
    clients = [Client(cluster.get_address()) for _ in range(4)]
    futures = [[client.submit(pow, n, k) for n in range(50)] for k, client in enumerate(clients)]

    for k, batch in enumerate(futures):
        assert [future.result(BOUND_S) for future in batch] == [n**k for n in range(50)]
    for client in clients:
        client.disconnect()


def test_a_combo_may_be_shut_down_twice() -> None:
    """shutdown() is idempotent."""
    combo = SchedulerClusterCombo(1)
    combo.shutdown()
    combo.shutdown()


def test_a_combo_without_workers_queues(flags) -> None:
    """With no workers tasks wait, until they are cancelled."""
    with SchedulerClusterCombo(0) as combo, Client(combo.get_address()) as client:
        future = client.submit(tasks.square, 3)
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(0.2)
        assert future.cancel()


def test_a_negative_number_of_workers_is_refused() -> None:
    """n_workers < 0 is a ConfigError."""
    with pytest.raises(ConfigError, match="n_workers"):
        SchedulerClusterCombo(-1)
