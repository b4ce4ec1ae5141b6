"""The client of distributed: its programs on this engine, and the table of what is served."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import operator
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import traceback
from pathlib import Path

import pytest

dask = pytest.importorskip("dask")
db = pytest.importorskip("dask.bag")
np = pytest.importorskip("numpy")
pytest.importorskip("dask._task_spec", reason="the client needs a Dask of 2024.12 or later")

from scaler_exec import distributed as ours  # noqa: E402
from scaler_exec.actors import destroy  # noqa: E402
from scaler_exec.distributed.refused import REFUSED, is_refused  # noqa: E402
from tests.compat.distributed_tasks import (  # noqa: E402
    count_in_metadata,
    count_up,
    fail,
    fail_at_first,
    hold,
    inc,
    nested,
    slowly,
    visit,
)
from tests.runtime.helpers import Flags, environment, wait_until  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = Path(__file__).parents[2] / "docs" / "distributed-names.md"
ROWS = dict(re.findall(r"^\| `([\w.]+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))
CLASSES = ("Client", "Future", "LocalCluster", "as_completed")
COVERED: set[str] = set()


def covers(names: str):
    """Note which rows of the table a test is of."""
    COVERED.update(names.split())
    return lambda test: test


@pytest.fixture(scope="module")
def client(standing, tmp_path_factory):
    """Return a client with a cluster of two workers."""
    with ours.Client(n_workers=2, threads_per_worker=1) as client:
        from tests.conftest import our_processes

        standing.update(process.pid for process in our_processes())
        yield client


@pytest.fixture
def flags(tmp_path):
    """Return files by which tasks are held."""
    return Flags(tmp_path)


# -- tasks ---------------------------------------------------------------------------------------


@covers("Client Client.submit Client.map Client.gather Future Future.result Future.key Future.done")
def test_calls_and_their_futures(client):
    """Futures are arguments, also deep in others; results come back in the same containers."""
    one = client.submit(inc, 1)
    many = client.map(inc, range(10))
    deep = client.submit(lambda box, *, by: sum(box["a"][0]) * by, {"a": (many,)}, by=one)

    assert (2, 110) == (one.result(timeout="10s"), deep.result())
    assert one.done()
    assert {"x": [2, 110], "y": (1, 2)} == client.gather({"x": [one, deep], "y": (1, one)})
    assert [1, 2] == list(client.gather(iter(many[:2])))
    assert [3, 4] == client.gather(client.map(operator.add, many[:2], [2, 2]))
    assert 3 == client.submit(slowly, one).result()
    assert ["a", "b"] == [future.key for future in client.map(inc, [1, 2], key=["a", "b"])]
    assert all(one.key.startswith("p-") for one in client.map(inc, [1, 2], key="p", batch_size=1))
    for wrong in (
        lambda: client.submit(3),
        lambda: client.map(inc, iter([1])),
        lambda: client.map(3, [1]),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="2 keys for 1"):
        client.map(inc, [1], key=["a", "b"])


def test_equal_calls_share_one_task(client, tmp_path):
    """Submit and map of the same call have one key and one run, unless they are not pure."""
    path = str(tmp_path / "runs")
    first = client.submit(count_up, path, 5)
    again = [*client.map(count_up, [path], [5]), client.submit(count_up, path, 5)]

    assert [5, 5, 5] == client.gather([first, *again])
    assert {first.key} == {one.key for one in again}
    impure = [client.submit(count_up, path, 5, pure=False) for _ in range(2)]
    assert 2 == len({one.key for one in impure})
    client.gather(impure)
    assert "xxx" == Path(path).read_text()
    named = client.submit(inc, 1, key="named")
    assert named.result() == client.submit(fail, 1, key="named").result()


@covers("Future.exception Future.status Future.retry Client.retry TimeoutError")
def test_what_a_task_raises(client, tmp_path, flags):
    """An exception comes with its traceback, to what takes the future as well; retry runs both."""
    failed = client.submit(fail, 3)
    then = client.submit(inc, failed)

    for one in (failed, then):
        with pytest.raises(ZeroDivisionError, match="of 3") as caught:
            one.result()
        assert "in fail" in str(caught.value.__cause__)
        assert "error" == one.status
    assert isinstance(failed.exception(), ZeroDivisionError)
    assert traceback.format_tb(failed.traceback())
    good = client.submit(inc, 1)
    assert [2] == client.gather([failed, good], errors="skip")
    assert {"a": None, "b": 2} == client.gather({"a": failed, "b": good}, errors="skip")
    with pytest.raises(ZeroDivisionError):
        client.gather([good, failed])
    with pytest.raises(ValueError, match="errors"):
        client.gather([], errors="other")
    flaky = client.submit(fail_at_first, str(tmp_path / "flaky"))
    after = client.submit(inc, flaky)
    assert isinstance(after.exception(), ValueError)
    after.retry()
    assert (5, 6) == (flaky.result(), after.result())
    assert 5 == client.submit(fail_at_first, str(tmp_path / "other"), retries=1).result()
    held = client.submit(hold, flags.path("go"))
    with pytest.raises(ours.TimeoutError):
        held.result(timeout=0.05)
    assert "pending" == held.status
    flags.set("go")
    assert 7 == held.result()


@covers("Client.cancel Future.cancel Future.cancelled CancelledError Future.release")
def test_cancelled_and_released(client, flags):
    """A cancelled task stops; one whose last future goes does too, unless another needs it."""
    held = client.submit(hold, flags.path("never"))
    flags.wait("never.began")
    held.cancel()
    assert held.cancelled()
    with pytest.raises(ours.CancelledError):
        held.result()
    done = client.submit(inc, 1)
    done.result()
    client.cancel([done], force=True)
    assert "cancelled" == done.status
    assert 2 == client.submit(inc, 1).result()

    needed = client.submit(hold, flags.path("needed"))
    needs = client.submit(inc, needed)
    dropped = [client.submit(hold, flags.path(f"dropped{n}")) for n in range(2)]
    needed.release()
    assert "cancelled" == needed.status
    del needed, dropped
    flags.set("needed")
    # With a worker that the dropped tasks do not hold any more.
    assert 8 == needs.result(timeout=30)
    assert [1, 2, 3] == client.gather(client.map(inc, range(3)))


@covers("Future.add_done_callback Future.client Future.executor")
@covers("Client.asynchronous LocalCluster.asynchronous")
def test_more_of_a_future(client):
    """It calls back, can be awaited, shows its state, and does not leave the process."""
    one = client.submit(inc, 1)
    called: list = []
    one.add_done_callback(called.append)
    wait_until(lambda: called, "it was not called")

    assert [one] == called
    assert client is one.client is one.executor
    assert client.asynchronous is client.cluster.asynchronous is False
    assert int is one.type
    assert f"<Future: finished, type: int, key: {one.key}>" == repr(one)

    async def program():
        return await client.submit(inc, 5)

    assert 6 == asyncio.run(program())
    again: ours.Future = ours.Future(one.key)
    assert (one.key, client, 2) == (again.key, again.client, again.result())
    with pytest.raises(KeyError, match="no task of this client"):
        ours.Future("unheard of", client)
    assert "cannot be inside" in str(client.submit(inc, type("Box", (), {"x": one})()).exception())


@covers("Client.scatter")
def test_values_sent_ahead(client):
    """Values become futures, in containers like theirs; a change of the original is not seen."""
    array = np.arange(100_000.0)
    remote = client.scatter(array)
    with pytest.MonkeyPatch.context() as patch:
        # Nothing is fetched to tell it.
        patch.setattr(type(remote.task), "outcome", None)
        assert np.ndarray is remote.type
    total = remote.result().sum()
    array[:] = 0

    assert total == client.submit(np.sum, remote).result() == client.submit(np.sum, remote).result()
    assert [1, 2] == client.gather(client.scatter([1, 2]))
    named = client.scatter({"x": 5}, broadcast=True)
    assert ("x", 6) == (named["x"].key, client.submit(inc, named["x"]).result())
    assert client.scatter(7).key == client.scatter(7).key != client.scatter(7, hash=False).key
    # What a task returned goes on as it came, whatever became of it here.
    made = client.submit(np.ones, 100_000)
    made.result()[:] = 0
    assert 100_000 == client.submit(np.sum, made).result()


def test_where_a_task_may_run(client):
    """Options go to the task: a worker's name, a priority, a resource that nobody has."""
    name = next(iter(client.nthreads()))
    assert 2 == client.submit(inc, 1, workers=name, priority=5, pure=False).result()
    waits = client.submit(inc, 1, resources={"unicorn": 1}, pure=False)
    with pytest.raises(concurrent.futures.TimeoutError):
        waits.result(timeout=0.1)


# -- waiting -------------------------------------------------------------------------------------


@covers("wait")
def test_waiting(client, flags):
    """All of them or the first one; too late is an error."""
    quick = client.map(inc, range(5))
    held = client.submit(hold, flags.path("go"))

    assert (set(quick), set()) == ours.wait(quick)
    done, not_done = ours.wait([*quick, held], return_when="FIRST_COMPLETED")
    assert (set(quick), {held}) == (done, not_done)
    with pytest.raises(ours.TimeoutError):
        ours.wait([held], timeout=0.05)
    with pytest.raises(NotImplementedError):
        ours.wait(quick, return_when="FIRST_EXCEPTION")
    flags.set("go")
    assert {held} == ours.wait({"a": held}).done
    for number, wait in enumerate((client.replicate, client.rebalance)):
        late, failed = client.submit(hold, flags.path(str(number))), client.submit(fail, number)
        timer = threading.Timer(0.1, flags.set, [str(number)])
        timer.start()
        wait([late, failed])
        assert late.done()
        timer.join()
    with pytest.raises(ValueError, match="1 or more"):
        client.replicate([held], n=0)
    held.cancel()
    with pytest.raises(ours.CancelledError):
        ours.wait([held])


@covers(
    "as_completed as_completed.add as_completed.batches as_completed.clear as_completed.count "
    "as_completed.has_ready as_completed.is_empty as_completed.next as_completed.next_batch "
    "as_completed.update"
)
def test_as_they_come(client, flags):
    """Futures are yielded when they are done; more are added meanwhile."""
    held = client.submit(hold, flags.path("go"))
    quick = client.map(inc, range(3))
    coming = ours.as_completed([held, *quick])

    assert set(quick) == {next(coming) for _ in range(3)}
    assert (1, False, False) == (coming.count(), coming.is_empty(), coming.has_ready())
    assert [] == coming.next_batch(block=False)
    coming.add(client.submit(inc, 10))
    assert 11 == coming.next().result()
    flags.set("go")
    assert [[held]] == list(coming.batches())
    assert coming.is_empty()
    coming.update(quick)
    coming.clear()
    assert [] == list(coming)
    failed = client.submit(fail, 1)
    pairs = list(ours.as_completed([quick[0], failed], with_results=True, raise_errors=False))
    came = dict(pairs)
    kind, error, trace = came[failed]
    assert (1, ZeroDivisionError) == (came[quick[0]], kind)
    assert ("of 1", True) == (str(error), trace is error.__traceback__)
    with pytest.raises(ZeroDivisionError):
        list(ours.as_completed([failed], with_results=True))
    never = client.submit(hold, flags.path("never"))
    with pytest.raises(ours.TimeoutError):
        list(ours.as_completed([never], timeout=0.05))

    async def program():
        found = [one async for one in ours.as_completed(quick)]
        late = ours.as_completed([never], timeout=0.05)
        with pytest.raises(ours.TimeoutError):
            await late.__anext__()
        return found

    assert set(quick) == set(asyncio.run(program()))
    # Not when the last future of it goes: what was raised here may keep that for long.
    never.cancel()


@covers("worker_client get_client secede rejoin local_client default_client Client.current")
@covers("Client.as_current")
def test_which_client(client):
    """In a task that of the task; else the default one, or that of a context."""
    assert (10, [1, 2, 3, 4], 5, 2) == client.submit(nested, 4).result()
    assert client is ours.get_client() is ours.default_client() is ours.Client.current()
    with pytest.raises(ValueError, match="no client"):
        ours.Client.current(allow_global=False)
    with ours.Client(client.cluster, set_as_default=False) as other:
        assert client is ours.default_client()
        with other.as_current():
            assert other is ours.default_client()
        with pytest.raises(ValueError, match="no task"), ours.worker_client():
            pass


def test_a_task_that_nobody_waits_for(client, tmp_path):
    """It runs, and the end of its client waits for it."""
    path = tmp_path / "ran"
    with ours.Client(client.cluster, set_as_default=False) as other:
        ours.fire_and_forget(other.submit(count_up, str(path)))

    assert "x" == path.read_text()


# -- Dask ----------------------------------------------------------------------------------------


@covers("Client.compute Client.persist Client.get futures_of Client.futures_of dask config")
def test_collections(client):
    """They are computed and kept on the cluster, by the client or by Dask itself."""
    x = db.range(20, npartitions=4)

    assert 190 == client.compute(x.sum()).result() == x.sum().compute()
    assert [190, 5, {"a": 20}] == client.compute([x.sum(), 5, {"a": x.count()}], sync=True)
    kept = x.map(inc).persist()
    assert 4 == len(ours.futures_of(kept)) == len(client.futures_of([kept]))
    ours.wait(kept)
    assert 210 == kept.sum().compute() == client.persist([kept.map(abs)])[0].sum().compute()
    graph = {"a": (inc, 1), "b": (inc, "a")}
    assert (3, [2, [3]]) == (client.get(graph, "b"), client.get(graph, ["a", ["b"]]))
    assert [2, 3] == client.gather(client.get(graph, ["a", "b"], sync=False))
    future = client.submit(inc, 1)
    assert 3 == dask.delayed(inc)(future).compute(scheduler="scaler")
    assert 5 == dask.delayed(sum)([future, future, 1]).compute()
    for compute in (client.compute, client.persist, dask.compute):
        node = dask.delayed(inc)(1)
        with pytest.raises(NotImplementedError, match="cannot be an actor"):
            compute(node, actors=node)
    assert ours.config is dask.config.config
    assert ours.dask is dask


def test_dask_gets_its_scheduler_back(client):
    """While there is a default client, Dask uses it; an inner one ends first, or last."""
    before = dask.config.get("scheduler")
    first = ours.Client(client.cluster)
    second = ours.Client(client.cluster)
    assert second is ours.default_client()
    assert dask.base.get_scheduler() == second.get
    assert dask.base.get_scheduler() != first.get
    first.close()
    assert second is ours.default_client()
    assert 2 == dask.delayed(inc)(1).compute()
    second.close()
    assert client is ours.default_client()
    assert before is dask.config.get("scheduler")


# -- the cluster ---------------------------------------------------------------------------------


def test_a_new_cluster_tells_of_all_its_workers(tmp_path):
    """Who asks at once waits for the workers; an address needs no protocol."""
    with ours.LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1") as cluster:
        with ours.Client(cluster) as client:
            assert {"worker-0": 1, "worker-1": 1} == client.nthreads()
        with ours.Client(cluster.scheduler_address.removeprefix("tcp://")) as client:
            assert {"worker-0": 4, "worker-1": 4} == client.run(slowly, 3)
    with ours.Client(n_workers=2, threads_per_worker=1) as client:
        assert 2 == len(client.run(os.getpid))


def test_without_bokeh_there_is_no_dashboard(monkeypatch):
    """A program that asks for one, as many do, runs all the same."""
    monkeypatch.setattr("scaler_exec.distributed.cluster.find_spec", lambda name: None)
    with (
        pytest.warns(UserWarning, match="needs bokeh"),
        ours.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":8787") as cluster,
    ):
        assert "" == cluster.dashboard_link


def test_mistakes_that_are_told(client, tmp_path):
    """Of what programs get wrong, the error says what to do."""
    future = client.submit(inc, 1)
    with pytest.raises(TypeError, match="as a list"):
        ours.wait(future, future)
    with pytest.raises(TypeError, match="not the class"):
        ours.Client(ours.LocalCluster)
    broken = tmp_path / "broken.py"
    broken.write_text("1 +")
    with pytest.raises(SyntaxError):
        client.upload_file(broken)


@covers("Client.nthreads Client.ncores Client.wait_for_workers Client.write_scheduler_file")
def test_what_there_is(client, tmp_path):
    """The feed tells of workers; another client finds the cluster by a file."""
    client.wait_for_workers(2, timeout="20s")
    names = {"worker-0": 1, "worker-1": 1}
    assert names == client.nthreads() == client.ncores()
    assert {"worker-0": 1} == client.nthreads(["worker-0"]) == client.nthreads("worker-0")
    info = client.scheduler_info()
    assert (2, set(names)) == (info["n_workers"], set(info["workers"]))
    assert client.scheduler.address == info["address"]
    assert set(names) == set(client.processing())
    assert "" == client.dashboard_link
    assert "processes=2 threads=2>" in repr(client)
    assert repr(client.scheduler.address)[1:-1] in client._repr_html_()
    with pytest.raises(TimeoutError):
        client.wait_for_workers(3, timeout=0.3)
    client.write_scheduler_file(tmp_path / "file")
    with pytest.raises(ValueError, match="has written"):
        client.write_scheduler_file(tmp_path / "other")
    with ours.Client(scheduler_file=tmp_path / "file", set_as_default=False) as other:
        assert 2 == other.submit(inc, 1).result()
    assert "No scheduler connected" in repr(other)
    assert "No scheduler connected" in other._repr_html_()
    with dask.config.set({"scheduler-address": client.scheduler.address}):
        other = ours.Client(set_as_default=False)
    assert (None, client.scheduler.address) == (other.cluster, other.scheduler.address)
    other.close()
    for told in client.run(visit).values():
        assert (told[0], info["address"]) == told[1:3]
        assert told[0] in names
    wait_until(lambda: client.submit(visit, pure=False).result()[-1] > 1, "nothing is remembered")
    with pytest.raises(ValueError, match="No worker found"):
        ours.get_worker()
    with client.get_executor(retries=1, pure=False) as executor:
        assert [1, 2] == list(executor.map(inc, range(2)))


def test_versions_of_each_worker(client, monkeypatch):
    """They are compared with those here; a package that is another one there is named."""
    found = client.get_versions(packages=["psutil", "no_such_package"])
    assert {"worker-0", "worker-1"} == set(found["workers"])
    here = found["client"]
    assert all(here["packages"] == one["packages"] for one in found["workers"].values())
    assert (None, True) == (here["packages"]["no_such_package"], "psutil" in here["packages"])
    monkeypatch.setattr(dask, "__version__", "0.0")
    with pytest.warns(UserWarning, match=r"dask [\d.]+ in worker-1, 0.0 here"):
        client.get_versions(check=True)


def test_calls_on_workers_that_fail_or_are_not_waited_for(client, flags):
    """A failure is raised, returned or left out, as is asked."""
    name = next(iter(client.nthreads()))
    with pytest.raises(ZeroDivisionError):
        client.run(fail, 1, workers=name)
    assert isinstance(client.run(fail, 1, on_error="return", workers=name)[name], ZeroDivisionError)
    assert {} == client.run(fail, 1, on_error="ignore", workers=name)
    with pytest.raises(ValueError, match="on_error"):
        client.run(fail, 1, on_error="other")
    with pytest.raises(NotImplementedError, match="nannies"):
        client.run(fail, 1, nanny=True)
    assert client.run(hold, flags.path("go"), wait=False, workers=name) is None
    flags.wait("go.began")
    flags.set("go")


def test_what_tasks_say(client, capfd, caplog):
    """Prints and logs come here, if the client wants them."""
    with ours.Client(client.cluster, set_as_default=False, stream_output=True) as other:
        other.submit(ours.print, "hello").result()
        other.forward_logging(level=logging.WARNING)
        other.submit(logging.getLogger("of.a.task").warning, "beware").result()
        other.unforward_logging()
        with ours.span("one"):
            other.submit(logging.getLogger("of.a.task").warning, "unheard").result()
        wait_until(lambda: "beware" in caplog.text, "no record came")
        with pytest.raises(NotImplementedError):
            other.forward_logging("one.logger")
    assert "hello" in capfd.readouterr().out
    assert "unheard" not in caplog.text


@covers("Client.close Client.shutdown LocalCluster.close LocalCluster.scale LocalCluster.name")
@covers("LocalCluster.scheduler_address LocalCluster.get_client LocalCluster.wait_for_workers")
def test_a_cluster_of_ones_own():
    """It is scaled, restarted and closed; a client ends what it started."""
    with (
        dask.config.set({"distributed.worker.resources.unicorn": 1}),
        ours.LocalCluster(
            "mine", n_workers=1, threads_per_worker=1, processes=False, memory_limit="2GB"
        ) as cluster,
    ):
        client = cluster.get_client()
        assert ("mine", client.scheduler.address) == (cluster.name, cluster.scheduler_address)
        assert 2 == client.submit(inc, 1, resources={"unicorn": 1}).result()
        cluster.scale(2)
        cluster.wait_for_workers(2, timeout=20)
        kept = client.submit(inc, 5)
        pids = {one["pid"] for one in client.scheduler_info()["workers"].values()}
        client.restart(timeout=30)
        assert kept.cancelled()
        assert not pids & {one["pid"] for one in client.scheduler_info()["workers"].values()}
        cluster.adapt(maximum=1)
        assert 3 == client.submit(inc, 2).result()
        client.shutdown()
        assert ("closed", "closed") == (client.status, cluster.status)
        with pytest.raises(RuntimeError):
            client.submit(inc, 1)
    for wrong in ({"n_workers": 1.5}, {"unheard": 1}):
        with pytest.raises((NotImplementedError, TypeError)):
            ours.Client(**wrong)


# -- what reviewers found ------------------------------------------------------------------------


def test_gather_raises_the_first_failure_and_keeps_containers(client, flags):
    """A failure is raised while others run; one that is skipped leaves nested containers whole."""
    held = client.submit(hold, flags.path("go"))
    failed = client.submit(fail, 1)
    with pytest.raises(ZeroDivisionError):
        client.gather([held, {"a": (failed,)}])
    assert not held.done()
    twin = client.submit(inc, 1)
    released = client.submit(inc, 2)
    released.release()
    cancelled = client.submit(hold, flags.path("never"))
    cancelled.cancel()
    with pytest.raises(ours.CancelledError):
        client.gather([held, cancelled])
    with pytest.raises(ours.CancelledError):
        client.gather([released])
    flags.set("go")
    found = client.gather(
        [held, twin, failed, [twin, failed, {"x": cancelled}], released], errors="skip"
    )
    assert [7, 2, [2, None, {"x": None}]] == found
    assert [2, 2] == client.gather([client.submit(inc, 1), twin])


def test_containers_that_hold_themselves(client):
    """A list that holds itself ends no call, whether it is gathered, passed or waited for."""
    future = client.submit(inc, 1)
    loop: list = [future]
    loop.append(loop)

    assert [future] == ours.futures_of(loop)
    assert {future} == ours.wait(loop).done
    gathered = client.gather(loop)
    assert (2, True) == (gathered[0], gathered[1] is gathered)
    plain: list = [1]
    plain.append(plain)
    assert 2 == client.submit(len, plain, pure=False).result()


def test_asyncio_is_never_blocked(client, flags):
    """A loop goes on while values come, and after a loop was closed nobody misses it."""
    held = client.submit(hold, flags.path("go"))
    failed = client.submit(fail, 1)

    async def leave():
        waits = asyncio.ensure_future(ours.as_completed([held]).__anext__())
        awaits = asyncio.ensure_future(held._awaited())
        await asyncio.sleep(0)
        waits.cancel()
        awaits.cancel()

    async def program():
        pairs = {}
        async for future, value in ours.as_completed(
            [held, failed], with_results=True, raise_errors=False
        ):
            pairs[future] = value
        return pairs, await held

    asyncio.run(leave())
    assert not held.done()
    flags.set("go")
    pairs, value = asyncio.run(program())
    assert (7, 7) == (value, pairs[held])
    assert ZeroDivisionError is pairs[failed][0]

    def raised():
        async def taken():
            async for _ in ours.as_completed([failed], with_results=True):
                pass

        asyncio.run(taken())

    with pytest.raises(ZeroDivisionError):
        raised()


def test_what_a_detached_task_takes_runs_on(client, flags):
    """Neither cancelling nor closing ends it; closing waits for nothing else."""
    with ours.Client(client.cluster, set_as_default=False) as other:
        first = other.submit(hold, flags.path("go"))
        then = other.submit(count_up, flags.path("ran"), first)
        ours.fire_and_forget(then)
        endless = other.compute(dask.delayed(hold)(flags.path("never")))
        other.cancel(first)
        assert first.cancelled()
        del first, then
        flags.set("go")
    assert "x" == Path(flags.path("ran")).read_text()
    assert endless.cancelled()


def test_graphs_without_futures_are_cancelled(client, flags):
    """The futures of get(sync=False) go, and so do the tasks; an interrupt ends compute()."""
    made = client.get({"a": (hold, flags.path("never")), "b": "a"}, ["a", "b"], sync=False)
    flags.wait("never.began")
    assert made[0].future is made[1].future
    del made
    with pytest.raises(ZeroDivisionError):
        client.compute([dask.delayed(hold)(flags.path("no")), dask.delayed(fail)(1)], sync=True)
    # Both workers are free again.
    both = client.map(hold, [flags.path("one"), flags.path("two")])
    for name in ("one", "two"):
        flags.wait(f"{name}.began")
        flags.set(name)
    assert [7, 7] == client.gather(both)


def test_one_key_is_one_actor(client):
    """The same key twice is the same actor."""
    first, second = (client.submit(Counter, key="counter", actor=True) for _ in range(2))
    counter = first.result()
    assert [1, 3] == [counter.add(1).result(), second.result().add(2).result()]
    destroy(counter._handle).result()


def test_late_is_late_in_every_python(client):
    """Whoever catches the TimeoutError of futures catches what waiting for workers raises."""
    with pytest.raises(concurrent.futures.TimeoutError):
        client.wait_for_workers(9, timeout=0.3)
    with pytest.raises(TimeoutError):
        ours.Queue("nothing here").get(timeout="10 ms")


def test_an_executor_with_a_wrong_keyword_connects_to_nothing(client, monkeypatch):
    """It is refused before it connects."""
    monkeypatch.setattr("scaler_exec.executor.ScalerExecutor.__init__", lambda *_, **__: 1 / 0)
    with pytest.raises(TypeError):
        client.get_executor(retries="x")
    with pytest.raises(TypeError, match=r"unsupported arguments .*: \['more', 'unheard'\]"):
        client.get_executor(unheard=1, more=2, retries=1)


def test_a_restart_that_is_late_leaves_the_workers(monkeypatch):
    """If the workers do not go in time, the cluster has its size again."""

    def late(*_):
        raise ours.TimeoutError

    with (
        dask.config.set({"distributed.worker.resources.unicorn": 1}),
        ours.LocalCluster(n_workers=1, threads_per_worker=1, resources={"yeti": 1}) as cluster,
        cluster.get_client() as client,
    ):
        # What is given counts, not the configuration.
        (worker,) = client.scheduler_info()["workers"].values()
        assert {"yeti": 1} == worker["resources"]
        monkeypatch.setattr(client, "_await_snapshot", late)
        with pytest.raises(ours.TimeoutError):
            client.restart(timeout=60)
        assert 2 == client.submit(inc, 1).result(timeout=60)


# -- the table -----------------------------------------------------------------------------------


# -- locks, queues, actors -----------------------------------------------------------------------


def put_twice(name, value):
    """Put a value into a queue, from a task, and set an event."""
    queue = ours.Queue(name)
    queue.put(value)
    queue.put(value + 1)
    ours.Event(name).set()
    with ours.Lock(name), ours.Semaphore(2, name):
        ours.Variable(name).set(value)


def test_programs_and_tasks_share_locks_and_queues(client):
    """Without a client, the default one leads to them; in a task, the task's."""
    lock, queue = ours.Lock("here"), ours.Queue("here", maxsize=5)
    assert lock.acquire(timeout="10 s")
    task = client.submit(put_twice, "here", 3, pure=False)
    assert ours.Event("here").wait("60 s")
    assert [3, 4] == [queue.get(timeout="60 s"), queue.get(timeout=60)]
    assert not task.done()
    lock.release()
    task.result()
    assert 3 == ours.Variable("here").get("60 s")
    with ours.MultiLock(["here", "there"]):
        assert lock.locked()
    with pytest.raises(ours.TimeoutError):
        queue.get(timeout="50 ms")
    # A semaphore that is closed has given back what it held.
    semaphore, other = ours.Semaphore(1, "here"), ours.Semaphore(1, "here")
    assert semaphore.acquire()
    semaphore.close()
    for closed in (semaphore, pickle.loads(pickle.dumps(semaphore))):
        with pytest.raises(RuntimeError, match="already closed"):
            closed.acquire(timeout=0)
        with pytest.raises(RuntimeError, match="already closed"), closed:
            pass
    assert other.acquire(timeout=0)
    other.release()
    with pytest.raises(RuntimeError, match="Released too often"):
        other.release()


@covers("Client.get_metadata")
def test_metadata(client):
    """Tasks and programs read and change it, by keys and by paths; no change is lost."""
    assert 0 == client.get_metadata(["tests", "runs"], 0)
    client.gather([client.submit(count_in_metadata, one) for one in range(4)])
    assert 4 == client.get_metadata(["tests", "runs"])
    assert {*range(4)} == set(client.get_metadata("tests")["who"])
    client.set_metadata(("tests", "runs", "deeper"), 1)
    assert {"deeper": 1} == client.get_metadata(("tests", "runs"))
    with pytest.raises(KeyError, match="unheard"):
        client.get_metadata(["tests", "unheard"])
    with pytest.raises(KeyError, match="far"):
        client.get_metadata(["tests", "runs", "deeper", "far"])
    with pytest.raises(ValueError, match="needs a key"):
        client.set_metadata([], 1)
    client.set_metadata("tests", None)
    assert client.get_metadata("tests", 5) is None


class Counter:
    """Counts."""

    number = 0

    def __init__(self, begin=0):
        self.number = begin

    @property
    def half(self):
        """Return half of the number; only of an even one there is one."""
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")
        return self.number // 2

    def add(self, much):
        """Return the number after this was added."""
        self.number += much
        return self.number


def add_to(counter, much):
    """Add to an actor from a task."""
    return counter.add(much).result()


def make_no_actor():
    """Return the type of what the constructor of an actor raises, in a task."""
    return type(ours.get_client().submit(int, "one", actor=True).exception())


@covers("ActorFuture BaseActorFuture")
def test_actors_keep_their_state(client):
    """A method returns a future, an attribute its value; a task may have the actor, too."""
    counter = client.submit(Counter, client.submit(inc, 1), actor=True).result()
    assert isinstance(counter, ours.Actor)
    called = counter.add(3)
    assert isinstance(called, ours.ActorFuture)
    assert 5 == called.result()
    assert 9 == client.submit(add_to, counter, 4).result()
    assert 9 == counter.number
    with pytest.raises(ValueError, match="9 is odd"):
        _ = counter.half
    assert {"add"} == {"add", "half", "number"} & set(dir(counter))
    calls = [counter.add(1) for _ in range(3)]
    assert {*zip(calls, (10, 11, 12), strict=True)} == set(
        ours.as_completed(calls, with_results=True)
    )
    others = client.gather(client.map(Counter, [1, 2], actors=True))
    assert [2, 3] == [one.add(1).result() for one in others]
    with pytest.raises(ValueError, match="invalid literal"):
        client.submit(int, "one", actor=True).result()
    assert ValueError is client.submit(make_no_actor).result()
    with pytest.raises(NotImplementedError, match="resources alone"):
        client.submit(Counter, actor=True, retries=2)
    for one in (counter, *others):
        destroy(one._handle).result()


# -- code ----------------------------------------------------------------------------------------


class Greeting(ours.WorkerPlugin):
    """Says something in the environment of its worker."""

    name = "greeting"

    def setup(self, worker):
        """Say it."""
        os.environ["GREETING"] = "hello"

    def teardown(self, worker):
        """Say it no more."""
        del os.environ["GREETING"]


def test_code_goes_to_workers(client, tmp_path):
    """Files, plugins and variables reach each worker before the next task; run() calls on each."""
    module = tmp_path / "sent_by_a_test.py"
    module.write_text("def answer(): return 41")
    client.upload_file(module)
    assert 41 == client.submit(lambda: __import__("sent_by_a_test").answer(), pure=False).result()
    # Those in place of workers that became actors come and go.
    wait_until(lambda: len(client.run(os.getpid)) >= 2, "there were no two workers")
    assert "greeting" == client.register_plugin(Greeting())
    client.register_plugin(ours.Environ({"TONE": "soft"}))
    said = client.run(lambda: os.environ["GREETING"] + os.environ["TONE"])
    assert 2 <= len(said)
    assert {"hellosoft"} == set(said.values())
    client.unregister_worker_plugin("greeting")
    assert {None} == set(client.run(os.environ.get, "GREETING").values())
    with pytest.raises(NotImplementedError, match="restart_workers"):
        ours.PipInstall(["x"], restart_workers=True)


def test_each_passed_name_has_a_test():
    """Of each row that says passed, a test in this module says that it covers it."""
    assert set() == {name for name, state in ROWS.items() if state == "passed"} - COVERED


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_table_is_true(name, client):
    """A name that is refused raises NotImplementedError with its reason; others are there."""
    owner, _, last = name.rpartition(".")
    examples = {"Client": client, "Future": client.submit(inc, 1), "": ours}
    examples |= {"LocalCluster": client.cluster, "as_completed": ours.as_completed([])}
    value = getattr(examples[owner], last)

    assert (ROWS[name] == "refused") == (name in REFUSED) == is_refused(value)
    if name in REFUSED:
        with pytest.raises(NotImplementedError, match=re.escape(REFUSED[name])):
            value()


def test_the_table_has_every_name():
    """The names that the installed distributed has stand in the table."""
    theirs = pytest.importorskip("distributed", minversion="2026.8")
    names = set(theirs.__all__)
    for kind in CLASSES:
        names |= {f"{kind}.{one}" for one in dir(getattr(theirs, kind)) if one[0] != "_"}
    assert set() == names - set(ROWS)


def test_a_name_that_nobody_has(client):
    """A misspelt name is an error as anywhere."""
    for owner in (ours, client, client.submit(inc, 1), client.cluster):
        assert not hasattr(owner, "unheard_of")


# -- the same program with both imports ----------------------------------------------------------

PROGRAM = """
import operator, sys
import dask, dask.bag as db
from {} import (Client, as_completed, fire_and_forget, futures_of, get_client, wait,
                worker_client, LocalCluster)

def inc(x): return x + 1
def double(x): return 2 * x
def fib(n):
    if n < 2: return n
    with worker_client() as client:
        a, b = client.submit(fib, n - 1), client.submit(fib, n - 2)
        return sum(client.gather([a, b]))
def train(model, block): return {{"steps": model["steps"] + 1, "sum": model["sum"] + block}}
def zero(): raise ZeroDivisionError("zero")

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False,
                      dashboard_address=None) as cluster:
        with Client(cluster) as client:
            a = client.map(lambda x: x ** 2, range(10)); b = client.map(operator.neg, a)
            print(client.submit(sum, b).result(), client.gather(a))
            remote = client.scatter(list(range(5)))
            print(client.gather(client.map(inc, remote)), client.submit(sum, remote).result())
            model = client.submit(dict, steps=0, sum=0)
            for block in range(20): model = client.submit(train, model, block)
            print(model.result(), model.status)
            print(client.submit(fib, 4).result())
            seq = as_completed(client.map(inc, range(3))); out = []
            for future in seq:
                out.append(future.result())
                if future.result() < 5: seq.add(client.submit(double, future))
            print(sorted(out))
            bad = client.submit(zero)
            print(repr(bad.exception()), bad.status, client.gather([bad, a[1]], errors="skip"))
            x = db.range(100, npartitions=4).map(inc).persist()
            print(wait(x).not_done, len(futures_of(x)), x.sum().compute())
            print(client.compute([dask.delayed(inc)(1), dask.delayed(sum)([1, 2])], sync=True))
            print(client.get({{"a": 1, "b": (inc, "a")}}, ["a", "b"]), dask.delayed(inc)(a[3]).compute())
            print(list(client.get_executor().map(inc, range(3))))
            f = client.submit(inc, 41); g = client.submit(inc, 41)
            print(wait([f]).done == {{f}}); print(f.key == g.key, f == g, f.type, f.done(), f.cancelled())
            client.cancel(f); print(f.status, g.status)
"""


def test_a_program_does_the_same_on_both(tmp_path):
    """The documentation's ways to use a client print the same with both imports."""
    pytest.importorskip("distributed", minversion="2026.8")
    printed: list[str] = []
    for package in ("scaler_exec.distributed", "distributed"):
        path = tmp_path / f"program_{len(printed)}.py"
        path.write_text(textwrap.dedent(PROGRAM.format(package)))
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True,
                              timeout=60, check=False, env=environment())  # fmt: skip
        assert 0 == done.returncode, done.stderr
        printed.append(done.stdout)
    assert printed[1] == printed[0]
