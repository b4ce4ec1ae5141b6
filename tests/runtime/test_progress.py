"""Bars: what has come back is shown, and shown seldom."""

from __future__ import annotations

import concurrent.futures
import io
import threading
from operator import add, neg

import pytest
from tqdm import tqdm

from scaler_cluster.client import progress as module
from scaler_exec import Client, ClusterBrokenError, ScalerExecutor
from tests.runtime.helpers import BOUND_S, run_program, wait_until, wait_workers
from tests.runtime.tasks import hold, raise_this


class Bar:
    """A bar that nobody sees."""

    def __init__(self, total=None):
        self.total = total
        self.updates: list[int] = []
        self.closed = 0

    @property
    def n(self):
        return sum(self.updates)

    def update(self, n=1):
        assert n > 0
        self.updates.append(n)

    def refresh(self):
        pass

    def close(self):
        self.closed += 1


@pytest.fixture(scope="module")
def shared():
    """Return an executor that all of these use."""
    with ScalerExecutor(2) as made:
        wait_workers(2)
        yield made


@pytest.fixture
def client(shared):
    with Client(shared.address) as made:
        yield made


# -- futures -----------------------------------------------------------------------------------


def test_all_futures_come_back(client):
    """progress() waits for all futures, whatever becomes of them, and takes no results."""
    futures = [client.submit(neg, n) for n in range(300)]
    futures.append(client.submit(raise_this, "KeyError", "missing"))
    bar = Bar()

    assert client.progress(futures, bar) is None
    assert (bar.total, bar.n, bar.closed) == (301, 301, 0)
    assert len(bar.updates) < 100
    assert all(one.done() for one in futures)
    assert futures[7].result() == -7
    assert isinstance(futures[-1].exception(), KeyError)


def test_what_comes_back_in_another_order_is_shown(client, flags):
    """Futures count as they come back, while the first one is still running."""
    held = client.submit(hold, flags.path("begun"), flags.path("go"))
    futures = [held, *(client.submit(neg, n) for n in range(50))]
    bar = Bar()
    thread = threading.Thread(target=client.progress, args=(futures, bar))
    thread.start()
    try:
        wait_until(lambda: bar.n == 50, "the others are not shown")
        assert thread.is_alive()
    finally:
        flags.set("go")
        thread.join(BOUND_S)

    assert not thread.is_alive()
    assert bar.n == 51


def test_cancelled_futures_have_come_back(client, flags):
    """Cancelled futures count as come back."""
    held = client.submit(hold, flags.path("begun"), flags.path("go"))
    flags.wait("begun")
    held.cancel()
    bar = Bar()
    client.progress([held], bar)

    assert bar.n == 1


def test_futures_of_a_graph_may_be_given_as_they_are(client):
    """progress() takes the futures of a graph as a dictionary, and none at all."""
    bar = Bar(total=99)
    client.progress(client.get({"a": 1, "b": (add, "a", 2)}, ["b"], block=False), bar)
    client.progress(iter([]), Bar())

    assert (bar.total, bar.n) == (99, 1)
    with pytest.raises(TypeError, match="not of 3"):
        client.progress([3], bar)


def test_a_broken_cluster_ends_it(make_executor, client, flags):
    """progress() ends when the cluster breaks."""
    executor = make_executor(1)
    future = executor.submit(hold, flags.path("begun"), flags.path("go"))
    bar = Bar()
    thread = threading.Thread(target=client.progress, args=([future], bar))
    thread.start()
    flags.wait("begun")
    executor.kill_workers()
    thread.join(BOUND_S)

    assert not thread.is_alive()
    assert bar.n == 1
    assert isinstance(future.exception(), ClusterBrokenError)


# -- maps --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "options"),
    [
        (range(1000), {}),
        (range(1001), {"chunksize": 10}),
        (range(1000), {"buffersize": 100}),
        (range(1001), {"buffersize": 100, "chunksize": 7}),
        (range(0), {}),
    ],
)
@pytest.mark.parametrize("is_endless", [False, True])
def test_a_map_is_shown(shared, items, options, is_endless):
    """A map's bar counts each item once, whatever the chunks, and the results are as ever."""
    bar = Bar()
    given = iter(items) if is_endless else items
    results = shared.map(neg, given, progress=bar, **options)
    # What has no length is known once all of it was asked for.
    assert bar.total == (None if is_endless and "buffersize" in options else len(items))

    assert list(results) == [-n for n in items]
    assert bar.n == len(items)
    assert len(bar.updates) < 200
    assert bar.closed == 0


def test_results_count_before_their_turn(shared, flags):
    """Results of a map count as they come back, while the first call still runs."""
    bar = Bar()
    results = shared.map(
        hold_first, range(200), [flags.path("begun")] * 200, [flags.path("go")] * 200,
        progress=bar,
    )  # fmt: skip
    found = []
    thread = threading.Thread(target=lambda: found.extend(results))
    thread.start()
    try:
        flags.wait("begun")
        wait_until(lambda: bar.n > 0, "nothing is shown")
        assert found == []
    finally:
        flags.set("go")
        thread.join(BOUND_S)

    assert found == list(range(200))
    assert bar.n == 200


def hold_first(number, begun, go):
    if number == 0:
        hold(begun, go)
    return number


def test_a_map_that_fails_shows_so_much(shared):
    """The bar of a map that raises never shows more than has come back."""
    bar = Bar()
    results = shared.map(raise_this, ["KeyError"] * 3, ["x"] * 3, progress=bar)
    with pytest.raises(KeyError):
        list(results)

    assert bar.n <= 3


def test_a_timeout_is_one(shared, flags):
    """A timeout of a map with a bar is as without one."""
    results = shared.map(
        hold, [flags.path("begun")], [flags.path("go")], timeout=0.3, progress=Bar()
    )
    with pytest.raises(concurrent.futures.TimeoutError):
        next(results)
    flags.set("go")


def test_who_watches_each_submission_is_shown_results(make_executor):
    """A map through an overridden submit() counts results one by one, as they are taken."""

    class Watched(ScalerExecutor):
        def submit(self, fn, /, *args, **kwargs):
            return super().submit(fn, *args, **kwargs)

    bar = Bar()
    with Watched(1) as executor:
        assert list(executor.map(neg, range(5), progress=bar)) == [-n for n in range(5)]
        assert list(executor.map(neg, range(2))) == [0, -1]
    assert (bar.total, bar.updates) == (5, [1] * 5)


# -- tqdm --------------------------------------------------------------------------------------


def test_a_bar_of_tqdm_may_be_given(shared, client):
    """A given bar of tqdm keeps its settings, and stays open."""
    out = io.StringIO()
    with tqdm(total=30, file=out, desc="both", mininterval=0) as bar:
        assert list(shared.map(neg, range(20), progress=bar)) == [-n for n in range(20)]
        client.progress([client.submit(neg, n) for n in range(10)], bar)
        assert (bar.n, bar.total) == (30, 30)
    assert "both: 100%" in out.getvalue()
    assert "30/30" in out.getvalue()


def test_one_is_made(shared, client, capsys):
    """A bar that is made here is shown on stderr up to its end, and nothing on stdout."""
    assert sum(shared.map(neg, range(20), progress=True)) == -190
    client.progress([client.submit(neg, n) for n in range(10)])

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "20/20" in printed.err
    assert "10/10" in printed.err


def test_a_map_that_is_dropped_closes_its_bar(shared, monkeypatch):
    """A dropped map closes its bar."""
    made: list[Bar] = []

    def make(total):
        made.append(Bar(total))
        return made[0]

    monkeypatch.setattr(module, "_make", make)
    results = shared.map(neg, range(20), progress=True)
    next(results)
    assert made[0].closed == 0
    del results

    assert made[0].closed == 1


def test_without_tqdm_it_is_said_what_is_missing():
    """Without tqdm only a program that asks for a bar fails, with what is missing."""
    done = run_program("""
import sys
from operator import neg
from scaler_exec import Client, ConfigError, ScalerExecutor
with ScalerExecutor(1) as executor, Client(executor.address) as client:
    assert list(executor.map(neg, [1])) == [-1]
    assert "tqdm" not in sys.modules
    sys.modules["tqdm"] = sys.modules["tqdm.auto"] = None
    future = client.submit(neg, 1)
    for show in (lambda: executor.map(neg, [1], progress=True), lambda: client.progress([future])):
        try:
            show()
        except ConfigError as error:
            print(error)
""")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pip install 'scaler-exec[progress]'") == 2
