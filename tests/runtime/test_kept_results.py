"""Results that are kept: what was run once is not run again, and nothing stale is returned."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading

import numpy as np
import psutil
import pytest

from scaler_exec import Client, ConfigError, ResultCache, ScalerExecutor, SchedulerClusterCombo
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_gone

CAMPAIGN = """
import dataclasses, os, time
from scaler_exec import ScalerExecutor

@dataclasses.dataclass
class Found:
    square: int

def work(n):
    with open({ran!r}, "a") as file:
        file.write(f"{{n}}\\n")
    while n >= 6 and not os.path.exists({go!r}):
        time.sleep(0.01)
    return Found(n * n)

with ScalerExecutor(2, cache={cache!r}) as executor:
    # What waits comes after what does not: no order of beginning is promised.
    for numbers in (range(6), range(6, 12)):
        for future in [executor.submit(work, n) for n in numbers]:
            found = future.result()
            assert isinstance(found, Found), type(found)
            print(found.square, flush=True)
"""


@pytest.fixture(scope="module")
def workers(standing):
    """A cluster of two workers for all tests of this module."""
    with SchedulerClusterCombo(2) as cluster:
        standing |= {child.pid for child in psutil.Process().children()}
        yield cluster


@pytest.fixture
def keeping(workers, tmp_path):
    """A client whose results are kept."""
    with Client(workers, cache=tmp_path / "kept") as client:
        yield client


def counted(path: str, value):
    """Note that this ran, and return the value."""
    with open(path, "a") as file:
        file.write("x")
    return value


def runs(path) -> int:
    return len(path.read_text()) if path.exists() else 0


def test_a_campaign_that_was_killed_goes_on_where_it_was(start_program, tmp_path) -> None:
    """After SIGKILL of client and cluster, no task runs again whose result had arrived.

    What is read is of the program's own class.
    """
    paths = {name: str(tmp_path / name) for name in ("ran", "go", "cache")}
    source = CAMPAIGN.format(**paths)
    first = start_program(source)
    assert [first.line() for _ in range(6)] == ["0", "1", "4", "9", "16", "25"]
    below = first.children()
    for pid in (first.pid, *below):
        # Some that were started for others end by themselves.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first.end()
    wait_gone(*below)
    (tmp_path / "go").touch()

    status, out, _ = start_program(source).end()

    assert (status, out.split()) == (0, [str(n * n) for n in range(12)])
    ran = (tmp_path / "ran").read_text().split()
    assert [ran.count(str(n)) for n in range(6)] == [1] * 6
    status, out, _ = start_program(source).end()
    assert (status, out.split()) == (0, [str(n * n) for n in range(12)])
    assert (tmp_path / "ran").read_text().split() == ran


@pytest.mark.parametrize("value", [7, None, np.arange(100_000.0), {"a": [1, 2]}], ids=repr)
def test_a_result_is_found_again(keeping, workers, tmp_path, value) -> None:
    """Submit, submit_verbose, map and starmap of any client find it; it is not run again."""
    path = tmp_path / "runs"
    first = keeping.submit(counted, str(path), value).result(BOUND_S)
    with ScalerExecutor(address=workers.get_address(), cache=keeping.cache) as executor:
        again = [
            executor.submit(counted, str(path), value).result(BOUND_S),
            *executor.map(counted, [str(path)], [value]),
            keeping.submit_verbose(counted, (str(path), value), {}).result(BOUND_S),
            *keeping.map(counted, [str(path)], [value]),
            *keeping.starmap(counted, [(str(path), value)]),
        ]

    assert runs(path) == 1
    for one in (first, *again):
        np.testing.assert_equal(one, value)


def test_without_the_cache_it_runs_again(keeping, tmp_path) -> None:
    """A view without a cache runs it; so does a client after ``clear``."""
    path = tmp_path / "runs"
    keeping.submit(counted, str(path), 1).result(BOUND_S)
    keeping.options(cache=None).submit(counted, str(path), 1).result(BOUND_S)
    assert runs(path) == 2
    keeping.cache.clear()
    assert keeping.cache.explain(counted, str(path), 1).startswith("never seen")
    keeping.submit(counted, str(path), 1).result(BOUND_S)

    assert runs(path) == 3


def test_exceptions_are_not_kept(keeping, tmp_path) -> None:
    """A task that raised is run again."""
    path = tmp_path / "runs"

    def fail(path: str) -> None:
        with open(path, "a") as file:
            file.write("x")
        raise LookupError("nothing there")

    for _ in range(2):
        assert type(keeping.submit(fail, str(path)).exception(BOUND_S)) is LookupError
    assert runs(path) == 2


def test_a_damaged_result_is_run_again(keeping, tmp_path) -> None:
    """A file whose content is not what was written is removed, and the task runs again."""
    path = tmp_path / "runs"
    keeping.submit(counted, str(path), "text").result(BOUND_S)
    (file,) = (tmp_path / "kept").glob("*/*.result")
    for damaged in (file.read_bytes()[:-1], b"", file.read_bytes()[:-1] + b"?"):
        file.write_bytes(damaged)
        before = runs(path)
        assert keeping.submit(counted, str(path), "text").result(BOUND_S) == "text"
        assert runs(path) == before + 1


def test_the_cache_is_bounded(workers, tmp_path) -> None:
    """What was not used for longest goes first; what is larger than the limit is not kept."""
    cache = ResultCache(tmp_path / "kept", limit=100_000)
    with Client(workers, cache=cache) as client:
        for n in range(30):
            client.submit(bytes, 10_000 + n).result(BOUND_S)
            client.submit(bytes, 10_000).result(BOUND_S)
        client.submit(bytes, 200_000).result(BOUND_S)

    kept = list((tmp_path / "kept").glob("*/*.result"))
    assert sum(file.stat().st_size for file in kept) <= 100_000
    assert cache.explain(bytes, 10_000).startswith("kept")
    assert cache.explain(bytes, 10_029).startswith("kept")
    assert cache.explain(bytes, 10_001).startswith("was evicted")
    assert cache.explain(bytes, 200_000).startswith("was")


def test_it_explains_what_changed(keeping, tmp_path) -> None:
    """``explain`` names the arguments, the code, and what has no lasting digest."""
    cache, path = keeping.cache, str(tmp_path / "runs")

    def made(factor: int):
        def scaled(x, y):
            return factor * x + y

        return scaled

    keeping.submit(made(2), 1, 2).result(BOUND_S)
    assert cache.explain(made(2), 1, 2).startswith("kept")
    assert cache.explain(counted, path, 1).startswith("never seen")
    assert cache.explain(made(2), 1, 3).endswith("argument 1 changed")
    assert cache.explain(made(3), 1, 2).endswith("code changed, or what it refers to")
    assert cache.explain(made(2), 1, y=2).endswith(
        "argument 1 was left out and argument y was added"
    )
    assert "cannot be pickled" in cache.explain(counted, sys.stdout)


def test_a_keyword_is_no_place(keeping) -> None:
    """A keyword argument that is called as a place is another argument than that."""

    def count(*args: int, **kwargs: int) -> tuple[int, int]:
        return len(args), len(kwargs)

    assert keeping.submit(count, 7).result(BOUND_S) == (1, 0)
    assert keeping.submit(count, **{"0": 7}).result(BOUND_S) == (0, 1)
    assert keeping.submit(count, 7, **{"0": 7}).result(BOUND_S) == (1, 1)


def test_no_submit_waits_for_the_disk(keeping, monkeypatch) -> None:
    """While a result is being written, calls are looked up."""
    writing, go = threading.Event(), threading.Event()

    def write(*_: object) -> None:
        writing.set()
        assert go.wait(BOUND_S)

    monkeypatch.setattr("scaler_cluster.client.result_files._write", write)
    first = keeping.submit(abs, -1)
    assert writing.wait(BOUND_S)
    told: list[str] = []
    asking = threading.Thread(target=lambda: told.append(keeping.cache.explain(counted, "", 1)))
    asking.start()
    asking.join(BOUND_S / 2)
    answered_meanwhile = list(told)
    go.set()
    asking.join(BOUND_S)

    assert first.result(BOUND_S) == 1
    assert answered_meanwhile == ["never seen: no result of counted() was kept here"]


def test_what_no_other_process_could_read_is_not_kept(keeping, caplog) -> None:
    """A class that has no name of its own: the log says so, once."""

    def make(x: int) -> object:
        class Local:
            value = x

        return Local()

    assert [keeping.submit(make, n).result(BOUND_S).value for n in (1, 2, 1)] == [1, 2, 1]
    said = [one.message for one in caplog.records if "not kept" in one.message]
    assert len(said) == 1
    assert "Local" in said[0]


def test_another_python_runs_it_again(keeping, monkeypatch) -> None:
    """A result of another version of Python is not taken."""
    with monkeypatch.context() as patched:
        patched.setattr("scaler_cluster.client.cache.PYTHON", "2.7.1 (cpython)")
        keeping.submit(abs, -1).result(BOUND_S)

    assert "Python changed from 2.7.1 (cpython) to 3." in keeping.cache.explain(abs, -1)


def test_what_has_no_digest_runs_with_one_warning(keeping) -> None:
    """A future as an argument: the task runs, and one warning says that it is not kept."""
    first = keeping.options(cache=None).submit(abs, -2)
    with pytest.warns(
        RuntimeWarning, match=r"results of square\(\) are not kept: argument 0"
    ) as seen:
        results = [keeping.submit(tasks.square, first).result(BOUND_S) for _ in range(3)]

    assert (results, len(seen)) == ([4, 4, 4], 1)


def test_a_client_takes_its_cache_along(keeping, tmp_path) -> None:
    """A pickled client, and a client in a task, keep results in the same directory."""
    copy = pickle.loads(pickle.dumps(keeping))

    assert copy.cache == keeping.cache
    copy.disconnect()


def test_a_directory_of_others_is_refused(workers, tmp_path) -> None:
    """Nobody else may write to the directory, and it must be one."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").touch()

    for name, said in (("open", "other users may write"), ("file", "cannot be kept")):
        with pytest.raises(ConfigError, match=said):
            Client(workers, cache=tmp_path / name)
    with pytest.raises(TypeError, match="cache must be a directory"):
        Client(workers, cache=3)  # type: ignore[arg-type]


def test_a_disk_that_is_full_fails_no_task(keeping, monkeypatch, caplog) -> None:
    """What cannot be written is logged once, and the results are there."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scaler_cluster.client.result_files._write", fail)
    assert [keeping.submit(abs, n).result(BOUND_S) for n in (-1, -2)] == [1, 2]
    assert [one.message for one in caplog.records if "not kept" in one.message] == [
        "results of abs() are not kept: OSError(28, 'No space left on device')"
    ]


def test_graphs_are_refused(keeping) -> None:
    """A graph's results are not kept: its client is told so."""
    with pytest.raises(ConfigError, match="options\\(cache=None\\)"):
        keeping.get({"a": (abs, -1)}, ["a"])

    assert keeping.options(cache=None).get({"a": (abs, -1)}, ["a"]) == {"a": 1}
