"""The client for asyncio, against a real cluster."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

import psutil
import pytest

from scaler_exec import AsyncClient, Client, SchedulerClusterCombo, SessionClosedError
from scaler_exec import ClusterUnreachableError as Unreachable
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, Flags, wait_workers


@pytest.fixture(scope="module")
def cluster(standing):
    """Return a cluster that all tests here share."""
    with SchedulerClusterCombo(2) as made, Client(made) as client:
        wait_workers(2)
        client.map(tasks.square, range(10))
        standing |= {child.pid for child in psutil.Process().children()}
        yield made


def run(body, cluster, **settings):
    """Run a coroutine function with a client; return what it returned."""

    async def with_client():
        async with AsyncClient(cluster, **settings) as client:
            return await asyncio.wait_for(body(client), BOUND_S)

    return asyncio.run(with_client())


async def numbers(stop):
    """Yield numbers, with waits in between."""
    for number in range(stop):
        if number % 10 == 0:
            await asyncio.sleep(0)
        yield number


def test_what_is_submitted_can_be_awaited(cluster) -> None:
    async def body(client):
        one = await client.submit(tasks.square, 3)
        many = await asyncio.gather(*(client.submit(tasks.square, n) for n in range(300)))
        return one, many

    assert run(body, cluster) == (9, [n * n for n in range(300)])


def test_a_map_is_in_order(cluster) -> None:
    async def body(client):
        return [value async for value in client.map(pow, range(3000), [2] * 3000)]

    assert run(body, cluster) == [n * n for n in range(3000)]


@pytest.mark.parametrize("buffersize", [None, 1, 7])
def test_items_may_come_one_by_one(cluster, buffersize) -> None:
    """An asynchronous iterable, beside an endless one."""

    async def body(client):
        powers = iter(lambda: 2, 0)
        found = client.map(pow, numbers(40), powers, buffersize=buffersize)
        return [value async for value in found]

    assert run(body, cluster) == [n * n for n in range(40)]


def test_no_more_items_are_taken_than_are_wanted_ahead(cluster) -> None:
    taken = []

    def items():
        for item in range(1000):
            taken.append(item)
            yield item

    async def body(client):
        results = client.map(tasks.square, items(), buffersize=5)
        first = await anext(results)
        await results.aclose()
        return first

    assert run(body, cluster) == 0
    assert len(taken) <= 7


def test_an_exception_ends_a_map_in_its_turn(cluster) -> None:
    async def body(client):
        found = []
        with pytest.raises(ZeroDivisionError) as caught:
            async for value in client.map(divmod, [7, 8, 9], [1, 2, 0]):
                found.append(value)
        assert "by zero" in str(caught.value.__cause__)
        return found, await client.submit(tasks.square, 2)

    assert run(body, cluster) == ([(7, 0), (4, 0)], 4)


def test_what_an_iterable_raises_comes_after_the_results_before_it(cluster) -> None:
    def items():
        yield 3
        raise LookupError("no more")

    async def body(client):
        found = []
        with pytest.raises(LookupError, match="no more"):
            async for value in client.map(tasks.square, items()):
                found.append(value)
        return found

    assert run(body, cluster) == [9]


def test_a_graph(cluster) -> None:
    async def body(client):
        return await client.get({"a": 3, "b": (tasks.square, "a"), "c": (pow, "b", 2)}, ["c", "b"])

    assert run(body, cluster) == {"c": 81, "b": 9}


def test_who_gives_a_graph_up_stops_it(cluster, tmp_path) -> None:
    """Cancelled while a node runs: the node is stopped, and none after it begins."""
    flags = Flags(tmp_path)
    paths = {"p": flags.path("begun"), "q": flags.path("go")}
    graph = {**paths, "a": (tasks.hold, "p", "q"), "b": (str, "a")}

    async def body(client):
        given = client.submit(time.sleep, 60)
        getting = asyncio.ensure_future(client.get({**graph, "c": given}, ["b", "c"]))
        await asyncio.to_thread(flags.wait, "begun")
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
        # Both workers are free again only if what the graph began was stopped.
        is_kept = not given.done()
        given.cancel()
        return is_kept, [await client.submit(tasks.square, n) for n in range(4)]

    assert run(body, cluster) == (True, [0, 1, 4, 9])
    with Client(cluster) as other:
        assert other.map(tasks.square, range(4)) == [0, 1, 4, 9]


def test_graphs_of_dask(cluster, tmp_path) -> None:
    """They are run as Client.get runs them, and given up as other graphs are."""
    dask = pytest.importorskip("dask")
    total = dask.delayed(sum)([dask.delayed(tasks.square)(n) for n in range(4)])
    flags = Flags(tmp_path)
    endless = dask.delayed(tasks.hold)(flags.path("begun"), flags.path("go"))

    async def body(client):
        values = await client.get(total.__dask_graph__(), total.__dask_keys__())
        getting = asyncio.ensure_future(
            client.get(endless.__dask_graph__(), endless.__dask_keys__())
        )
        await asyncio.to_thread(flags.wait, "begun")
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
        return values, [await client.submit(tasks.square, n) for n in range(4)]

    assert run(body, cluster) == ((14,), [0, 1, 4, 9])


def test_a_client_connects_once(cluster) -> None:
    """Coroutines that use it for the first time at once share one connection."""

    async def body():
        client = AsyncClient(cluster)
        await asyncio.gather(*(client._open() for _ in range(5)))
        first = client._client.identity
        await client
        assert client._client.identity == first
        await client.close()

    made = []
    connect = AsyncClient._connect

    def count(client):
        made.append(client)
        connect(client)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AsyncClient, "_connect", count)
        asyncio.run(body())
    assert len(made) == 1


def test_an_iterable_that_never_waits_leaves_others_their_turn(cluster) -> None:
    """Its items are taken in slices of the loop's time, and its end comes with the iteration's."""
    ended: list[int] = []
    beats: list[bool] = []

    async def items():
        try:
            for number in range(3_000):
                time.sleep(1e-5)  # noqa: ASYNC251
                yield number
        finally:
            ended.append(len(beats))

    async def beat():
        while True:
            beats.append(True)
            await asyncio.sleep(0)

    async def body(client):
        beating = asyncio.ensure_future(beat())
        results = client.map(tasks.square, items())
        assert await anext(results) == 0
        await results.aclose()
        beating.cancel()

    run(body, cluster)
    # Once before it, and once as it is closed, it would have had in any case.
    assert ended[0] > 2


def test_a_loop_that_ended_is_not_kept(cluster) -> None:
    """Results that come later are dropped, and so is the loop."""
    loops = []
    with Client(cluster) as client:
        future = client.submit(time.sleep, 60)

        async def body():
            loops.append(weakref.ref(asyncio.get_running_loop()))
            waiting = asyncio.shield(asyncio.ensure_future(future))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(waiting, 0.01)
            return await client.submit(tasks.square, 3)

        assert asyncio.run(body()) == 9
        future.cancel()
        client.submit(tasks.square, 3).result(BOUND_S)
    gc.collect()

    assert loops[0]() is None


def test_futures_come_as_they_are_done(cluster, tmp_path) -> None:
    flags = Flags(tmp_path)

    async def body(client):
        late = client.submit(tasks.wait_for, flags.path("go"))
        soon = client.submit(tasks.square, 3)
        order = []
        async for future in client.as_completed([late, soon, soon]):
            order.append(future is soon)
            flags.set("go")
        return order

    assert run(body, cluster) == [True, False]


def test_who_gives_up_waiting_stops_the_task(cluster) -> None:
    async def body(client):
        future = client.submit(time.sleep, 60)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.05)
        return future.cancelled(), await client.submit(tasks.square, 3)

    assert run(body, cluster) == (True, 9)


def test_who_awaits_a_task_that_is_cancelled_hears_of_it(cluster) -> None:
    async def body(client):
        future = client.submit(time.sleep, 60)
        asyncio.get_running_loop().call_later(0.05, future.cancel)
        with pytest.raises(asyncio.CancelledError):
            await future
        return True

    assert run(body, cluster)


def test_large_values_and_references(cluster) -> None:
    async def body(client):
        reference = await client.send_object(bytes(1_000_000))
        lengths = [value async for value in client.map(len, [reference] * 3)]
        return lengths, len(await client.submit(bytes, 2_000_000))

    assert run(body, cluster) == ([1_000_000] * 3, 2_000_000)


def test_options_are_those_of_the_client(cluster) -> None:
    async def body(client):
        quick = client.options(timeout=0.2)
        with pytest.raises(Exception, match="ran longer than 0.2 s"):
            await quick.submit(time.sleep, 60)
        return await client.submit(tasks.square, 3)

    assert run(body, cluster) == 9


def test_several_loops_may_use_one_client(cluster) -> None:
    """Each result comes to the loop that awaits it."""

    async def body(client):
        def in_thread(start):
            async def many():
                futures = (client.submit(tasks.square, n) for n in range(start, start + 50))
                return await asyncio.gather(*futures)

            return asyncio.run(many())

        return await asyncio.gather(*(asyncio.to_thread(in_thread, n) for n in (0, 1000)))

    assert run(body, cluster) == [[n * n for n in range(s, s + 50)] for s in (0, 1000)]


def test_a_client_starts_a_cluster_of_its_own() -> None:
    async def body():
        client = await AsyncClient(n_workers=1)
        try:
            return await client.submit(tasks.square, 3)
        finally:
            await client.close()

    assert asyncio.run(body()) == 9


def test_a_client_outside_of_its_time_says_so(cluster) -> None:
    client = AsyncClient(cluster)
    with pytest.raises(SessionClosedError, match="async with"):
        client.submit(tasks.square, 3)
    with pytest.raises(TypeError, match="n_workers"):
        AsyncClient(cluster, n_workers=2)
    with pytest.raises(TypeError, match="at least one iterable"):
        run(lambda one: one.map(tasks.square), cluster)
    with pytest.raises(Unreachable):
        asyncio.run(AsyncClient("ipc:///nowhere/at/all", timeout_seconds=0.1)._open())


def test_the_end_of_a_client_cancels_what_is_awaited(cluster) -> None:
    async def body():
        async with AsyncClient(cluster) as client:
            waiting = asyncio.ensure_future(client.submit(time.sleep, 60))
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(body())
    with Client(cluster) as other:
        assert other.submit(tasks.square, 3).result(BOUND_S) == 9
