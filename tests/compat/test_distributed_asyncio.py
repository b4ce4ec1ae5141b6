"""The client of distributed in programs of asyncio, and what clients share by a name."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

dask = pytest.importorskip("dask")
db = pytest.importorskip("dask.bag")
pytest.importorskip("dask._task_spec", reason="the client needs a Dask of 2024.12 or later")

from scaler_exec import PayloadError, SessionClosedError  # noqa: E402
from scaler_exec import distributed as ours  # noqa: E402
from tests.compat.distributed_tasks import fail, hold, inc  # noqa: E402
from tests.runtime.helpers import Flags, wait_until  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster(standing):
    """Return a cluster of two workers."""
    with ours.LocalCluster(n_workers=2, threads_per_worker=1) as made:
        from tests.conftest import our_processes

        standing.update(process.pid for process in our_processes())
        yield made


@pytest.fixture
def client(cluster):
    """Return a client that is not asynchronous."""
    with ours.Client(cluster) as made:
        yield made


@pytest.fixture
def flags(tmp_path):
    """Return files by which tasks are held."""
    return Flags(tmp_path)


def run(program, cluster):
    """Run a coroutine with an asynchronous client, within a minute."""

    async def body():
        async with ours.Client(cluster, asynchronous=True) as client:
            await asyncio.wait_for(program(client), 60)

    asyncio.run(body())


# -- asynchronous clients ------------------------------------------------------------------------


def test_all_that_waits_is_awaited(cluster, flags):
    """The calls of futures and of the client, also while others of them wait."""

    async def program(client):
        assert client is ours.default_client() is await client
        held = client.submit(hold, flags.path("go"))
        waits = [asyncio.ensure_future(one) for one in (ours.wait([held]), client.gather([held]))]
        scattered = await client.scatter({"x": 5})
        assert 6 == await client.submit(inc, scattered["x"])
        failed = client.submit(fail, 1)
        assert isinstance(await failed.exception(), ZeroDivisionError)
        assert await failed.traceback()
        with pytest.raises(ZeroDivisionError):
            await client.gather([failed])
        with pytest.raises(ours.TimeoutError):
            await held.result(timeout="50 ms")
        assert 45 == await client.compute(db.range(10, npartitions=2).sum())
        assert [45] == await client.compute([db.range(10, npartitions=2).sum()], sync=True)
        assert 2 == await client.get({"a": (inc, 1)}, "a")
        assert {"worker-0": 1, "worker-1": 1} == await client.nthreads()
        assert not any(one.done() for one in waits)
        flags.set("go")
        done, values = await asyncio.gather(*waits)
        assert ({held}, [7]) == (done.done, values)
        never = client.submit(hold, flags.path("never"))
        await never.cancel()
        assert never.cancelled()
        pairs = ours.as_completed([client.submit(inc, 1)], with_results=True)
        assert [2] == [value async for _, value in pairs]
        # In a thread without a loop its calls wait.
        assert 3 == await asyncio.to_thread(lambda: client.submit(inc, 2).result())

    run(program, cluster)


def test_it_is_connected_where_it_is_awaited(cluster):
    """Before that it says so; a cluster of its own starts with it, and ends with it."""
    client = ours.Client(cluster, asynchronous=True)
    with pytest.raises(SessionClosedError, match="await it"):
        client.submit(inc, 1)

    async def program():
        async with (
            ours.LocalCluster(n_workers=1, threads_per_worker=1, asynchronous=True) as own,
            ours.Client(own, asynchronous=True) as joined,
        ):
            await own.wait_for_workers(1)
            await joined.start()
            with pytest.raises(TypeError, match="`async with`"), joined:
                pass
            assert "running" == joined.status
            assert 2 == await joined.submit(inc, 1)
        return own.status, joined.status

    created = ours.LocalCluster(n_workers=1, asynchronous=True)
    assert "created" == created.status
    with pytest.raises(ValueError, match="has not started"):
        _ = created.scheduler_address
    assert ("closed", "closed") == asyncio.run(program())


def test_who_awaits_a_cluster_at_the_same_time_gets_one():
    """It is started once, and so is what two coroutines await."""
    cluster = ours.LocalCluster(n_workers=1, threads_per_worker=1, asynchronous=True)

    async def opened(one):
        return await one

    async def program():
        assert {cluster} == set(await asyncio.gather(opened(cluster), opened(cluster)))
        client = ours.Client(cluster, asynchronous=True)
        await asyncio.gather(opened(client), opened(client))
        address, engine = cluster.scheduler_address, client._engine
        await opened(client)
        assert (address, engine) == (cluster.scheduler_address, client._engine)
        await client.close()
        await cluster.close()

    asyncio.run(program())


class Counter:
    """Counts."""

    number = 0

    def add(self, much):
        """Return the number after this was added."""
        self.number += much
        return self.number


def test_locks_and_queues_are_awaited(cluster):
    """One that was cancelled gets nothing: neither a lock nor the first value of a queue."""

    async def program(client):
        lock, queue = await ours.Lock("loop"), ours.Queue("loop", maxsize=2)
        async with lock:
            assert await lock.locked()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ours.Lock("loop").acquire(), 0.05)
            with pytest.raises(ValueError, match="no timeout"):
                lock.acquire(blocking=False, timeout=1)
        assert await lock.acquire(timeout=timedelta(seconds=30))
        await lock.release()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(queue.get(), 0.05)
        await queue.put(1)
        await queue.put(2)
        assert [1, 2] == [await queue.get(timeout="30 s"), await queue.get(timeout="30 s")]
        with pytest.raises(ours.TimeoutError):
            await queue.get(timeout=0.05)
        event = ours.Event("loop")
        waits = asyncio.ensure_future(event.wait())
        await event.set()
        assert await waits
        async with ours.Semaphore(2, "loop") as semaphore, ours.MultiLock(["loop", "other"]):
            assert 1 == await semaphore.get_value()
        with pytest.raises(RuntimeError, match="Released too often"):
            semaphore.release()
        assert await semaphore.acquire()
        await semaphore.close()
        assert 0 == await semaphore.get_value()
        await client.replicate(client.map(inc, range(2)), n=2)
        await client.set_metadata("loop", 1)
        assert 1 == await client.get_metadata("loop")
        counter = await client.submit(Counter, actor=True)
        assert 5 == await counter.add(5)
        assert 5 == await counter.number

    run(program, cluster)


@pytest.mark.parametrize("what", ["lock", "semaphore", "queue"])
def test_what_came_too_late_is_given_back(cluster, client, what):
    """A coroutine that is cancelled just before it goes on has neither a lease nor a value."""
    other: Any = {
        "lock": ours.Lock("late", client),
        "semaphore": ours.Semaphore(1, "late", client=client),
        "queue": ours.Queue("late", client),
    }[what]

    async def program(_):
        if what == "queue":
            other.put("first", "30 s")
            other.put("second", "30 s")
        same = type(other)(name="late")
        waits = asyncio.ensure_future(same.get() if what == "queue" else same.acquire())
        await asyncio.sleep(0)
        # The loop has no turn meanwhile: its thread has brought what was asked for, and ended.
        wait_until(
            lambda: all(one.name != "scaler-await" for one in threading.enumerate()),
            "the thread goes on",
        )
        assert not waits.done()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

        if what == "queue":
            assert ["first", "second"] == [other.get("30 s"), other.get("30 s")]
        else:
            assert other.acquire(timeout="30 s")

    run(program, cluster)


def test_the_loop_goes_on_however_many_wait(cluster, flags):
    """Each call that waits has a thread of its own: none waits for a place among others."""

    async def program(client):
        queue = ours.Queue("many")
        takers = [asyncio.ensure_future(queue.get()) for _ in range(40)]
        await asyncio.sleep(0)
        for number in range(40):
            await queue.put(number)
        assert set(range(40)) == set(await asyncio.gather(*takers))

    run(program, cluster)
    wait_until(lambda: threading.active_count() < 30, "threads are left")


# -- what is shared by a name --------------------------------------------------------------------


def put_sum(name):
    """Take a future from a queue, and put one of a task with it."""
    queue = ours.Queue(name)
    given = queue.get(timeout=60)
    queue.put(ours.get_client().submit(inc, given))
    return given.result()


def test_futures_in_queues_and_variables(client, cluster):
    """They come out done, as futures of whoever takes them, and stand as arguments of tasks."""
    queue, variable = ours.Queue("futures"), ours.Variable("futures")
    one, failed = client.submit(inc, 1), client.submit(fail, 1)
    with ours.Client(cluster, set_as_default=False) as other:
        queue.put({"one": [one]})
        variable.set(failed)
        came = ours.Queue("futures", client=other).get(timeout=60)["one"][0]
        bad = ours.Variable("futures", client=other).get(timeout=60)
        assert (one.key, "finished", other) == (came.key, came.status, came.client)
        assert 3 == other.submit(inc, came).result()
        assert "error" == bad.status
        with pytest.raises(ZeroDivisionError, match="of 1"):
            bad.result()
        # It is that of the same key, if there is one.
        queue.put(one)
        assert queue.get(timeout=60).task is one.task
        queue.put(one)
        assert 2 == other.submit(put_sum, "futures").result()
        assert 3 == queue.get(timeout=60).result()
    cancelled = client.submit(inc, 7)
    cancelled.cancel()
    with pytest.raises(ours.CancelledError):
        queue.put(cancelled)


def test_datasets(client, cluster):
    """They stay when their client has left, until they are unpublished."""
    with ours.Client(cluster, set_as_default=False) as other:
        kept = other.persist(db.range(10, npartitions=2))
        other.publish_dataset(bag=kept, future=other.submit(inc, 1))
        other.publish_dataset([1], name=("a", 1))
        with pytest.raises(KeyError, match="exists"):
            other.publish_dataset(bag=1)
        other.publish_dataset([2], name=("a", 1), override=True)
    assert {"bag", "future", ("a", 1)} == set(client.list_datasets())
    assert 45 == client.get_dataset("bag").sum().compute()
    assert 2 == client.datasets["future"].result()
    assert [2] == client.datasets[("a", 1)]
    client.unpublish_dataset("bag")
    client.unpublish_dataset("bag")
    with pytest.raises(KeyError, match="not found"):
        client.get_dataset("bag")
    assert 5 == client.get_dataset("bag", default=5) == client.datasets.get("bag", 5)
    client.datasets["x"] = 1
    del client.datasets["future"], client.datasets[("a", 1)]
    assert (["x"], 1, True) == (list(client.datasets), len(client.datasets), "x" in client.datasets)
    for wrong in (lambda: client.publish_dataset(1), lambda: client.publish_dataset(name="y")):
        with pytest.raises(ValueError, match="its name"):
            wrong()
    with pytest.raises(PayloadError, match="at most"):
        client.publish_dataset(y=bytes(1 << 21))

    async def program(joined):
        assert 1 == await joined.datasets["x"]
        assert ["x"] == [one async for one in joined.datasets]
        for wrong in (lambda: len(joined.datasets), lambda: joined.datasets.update(x=1)):
            with pytest.raises(TypeError, match="await"):
                wrong()
        await joined.unpublish_dataset("x")

    run(program, cluster)
    assert {} == dict(client.datasets)
