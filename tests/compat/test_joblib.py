"""joblib and scikit-learn on our backend: what their users rely on, by their own calls."""

from __future__ import annotations

import multiprocessing
import operator
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from joblib import Parallel, delayed, effective_n_jobs, parallel_config

import scaler_exec.joblib
from scaler_exec import (
    Client,
    ConfigError,
    RemoteTraceback,
    ScalerExecutor,
    SchedulerClusterCombo,
)
from scaler_exec.joblib import ScalerBackend

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def combo(standing):
    """Two workers of a running cluster."""
    with SchedulerClusterCombo(2) as made:
        standing |= {child.pid for child in psutil.Process().children()}
        yield made


@pytest.fixture
def joined(combo):
    """The backend, on that cluster."""
    with parallel_config(backend="scaler", address=combo):
        yield


def square(number):
    return number * number


def pid_of(number):
    return os.getpid()


def tree(depth):
    """Return how many calls there are, each of which calls two more."""
    if not depth:
        return 1
    return 1 + sum(Parallel(n_jobs=2)(delayed(tree)(depth - 1) for _ in range(2)))


def sums(array, words, number):
    return float(array.sum()) + len(words) + number, array.flags.writeable


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
@pytest.mark.parametrize("batch_size", [1, 7, "auto"])
def test_results_come_as_asked_for(joined, return_as, batch_size):
    """All results come back, in order unless that is not wanted."""
    results = Parallel(return_as=return_as, batch_size=batch_size)(
        delayed(square)(number) for number in range(50)
    )

    found = sorted(results) if return_as == "generator_unordered" else list(results)
    assert [number * number for number in range(50)] == found


def test_calls_of_several_kinds_share_a_batch(joined):
    """Functions, methods, no arguments, keywords, one object twice: each call gets its own."""
    shared = ["a"]
    calls = [
        delayed(dict)(), delayed(pow)(2, 3, mod=5), delayed("x".join)(["a", "b"]),
        delayed(lambda left, right: left is right)(shared, shared), delayed(int)("7"),
    ]  # fmt: skip

    assert [{}, 3, "axb", True, 7] == Parallel(batch_size=5)(calls)
    assert [{}] * 3 == Parallel(batch_size=3)([delayed(dict)()] * 3)


def test_large_arguments_arrive_shared(joined):
    """Large arrays are mapped, not copied, and large texts arrive, also within one batch."""
    array, words = np.ones(100_000), ["word"] * 50_000

    results = Parallel(batch_size=4)(delayed(sums)(array, words, n) for n in range(8))

    assert [(150_000.0 + n, False) for n in range(8)] == results


def test_a_value_is_an_argument_once():
    """A value that several calls of a batch name is one argument of the task."""
    array, words = np.ones(3), ["word"]
    items = [(sums, (array, words), {"number": n}) for n in ("a", "b")]

    runner, calls, values = ScalerBackend()._pack(items)

    assert all(map(operator.is_, values, (array, words, "a", "b")))
    assert 4 == len(values)
    assert "sums" == runner.label
    assert [([0, 1], {"number": 2}), ([0, 1], {"number": 3})] == calls


def test_nested_calls_are_tasks_of_the_same_workers(joined):
    """Calls within calls neither hang nor bring more processes."""
    assert [15, 15, 15, 15] == Parallel()(delayed(tree)(3) for _ in range(4))


def nested_pids(n_jobs):
    return {os.getpid(), *Parallel(n_jobs=n_jobs)(delayed(pid_of)(number) for number in range(5))}


def test_nested_calls_without_n_jobs_stay_in_their_worker(joined):
    """The calls around them keep all workers busy: nested ones spread only if they say so."""
    assert [1] * 6 == [len(pids) for pids in Parallel()([delayed(nested_pids)(None)] * 6)]


def test_an_exception_ends_the_call_alone(joined):
    """It arrives with its remote traceback, what else runs is cancelled, and the next call works."""
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError) as caught:
        Parallel(batch_size=1)(
            delayed(function)(value) for function, value in ((fail, 0), (time.sleep, 100))
        )

    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in fail" in str(caught.value.__cause__)
    assert [1, 4] == Parallel()(delayed(square)(number) for number in (1, 2))
    assert time.monotonic() - start < 90


def fail(number):
    return 1 / number


def test_an_exception_of_the_iterable_arrives(joined):
    """An iterable that raises late fails the call."""

    def items():
        yield from (delayed(square)(number) for number in range(20))
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        Parallel(batch_size=1)(items())


def test_a_timeout_is_kept(joined):
    """A call that takes too long raises TimeoutError, and is stopped."""
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.2)(delayed(time.sleep)(100) for _ in range(2))

    assert [0, 1] == Parallel(timeout=100)(delayed(square)(number) for number in range(2))


def test_a_generator_that_is_dropped_stops_its_calls(joined):
    """What still runs for nobody is cancelled: the workers are free for others."""
    results = Parallel(return_as="generator", batch_size=1)(
        delayed(function)(value) for function, value in ((square, 3), *[(time.sleep, 100)] * 3)
    )
    assert 9 == next(results)
    with pytest.warns(UserWarning, match="cancelled"):
        results.close()

    assert [4] * 4 == Parallel()(delayed(square)(2) for _ in range(4))


@pytest.mark.parametrize(("pre_dispatch", "ahead"), [(3, 3), ("2 * n_jobs", 60)])
def test_tiny_calls_go_ahead_unless_told_not_to(joined, monkeypatch, pre_dispatch, ahead):
    """With the default, more are handed out than joblib does; a number is kept to."""
    monkeypatch.setattr(scaler_exec.joblib, "AHEAD_S", 1e6)
    parallel = Parallel(batch_size=1, pre_dispatch=pre_dispatch)
    most = 0

    def items():
        nonlocal most
        for number in range(100):
            most = max(most, number + 1 - parallel.n_completed_tasks)
            yield delayed(square)(number)

    assert [number * number for number in range(100)] == parallel(items())
    # It takes items for all workers at a time.
    assert (most <= ahead + 2) if ahead == 3 else (most >= ahead)


def test_workers_of_its_own_stay_and_follow_n_jobs():
    """One set of workers serves all calls of a block; n_jobs says how many they are."""
    with parallel_config(backend="scaler", n_jobs=2) as config:
        first = {*Parallel(batch_size=1)(delayed(pid_of)(n) for n in range(40))}
        second = {*Parallel(batch_size=1)(delayed(pid_of)(n) for n in range(40))}
        cluster = config["backend"]._cluster
        assert len(first | second) <= 2
        Parallel(n_jobs=3)(delayed(square)(n) for n in range(3))
        assert 3 == cluster._made._session.cluster.workers
        Parallel(n_jobs=2)(delayed(square)(n) for n in range(3))
        assert 2 == cluster._made._session.cluster.workers
        with Parallel(n_jobs=2) as parallel:
            assert [1] == parallel([delayed(square)(1)])
            assert [4] == parallel([delayed(square)(2)])
    del config, cluster, parallel


def test_an_executor_or_client_may_be_given(combo):
    """Calls are its tasks, with its options."""
    with ScalerExecutor(address=combo) as executor, Client(combo) as client:
        reference = executor.send_object([1, 2, 3])
        for given in (executor.options(priority=3), client):
            with parallel_config(backend="scaler", executor=given):
                assert [0, 1, 4] == Parallel()(delayed(square)(n) for n in range(3))
        with parallel_config(backend="scaler", executor=executor):
            assert [6, 3] == Parallel()([delayed(sum)(reference), delayed(len)(reference)])


def test_effective_n_jobs_are_the_workers(joined, combo):
    """Minus one means all workers of the cluster, and less leaves some of them alone."""
    assert 2 == effective_n_jobs(-1)
    assert 1 == effective_n_jobs(-2)
    assert 5 == effective_n_jobs(5)
    with pytest.raises(ValueError, match="n_jobs == 0"):
        effective_n_jobs(0)


def test_bad_input_is_refused(combo):
    """What cannot work says so at the door."""
    with pytest.raises(TypeError, match="executor must be a ScalerExecutor or a Client, not 3"):
        parallel_config(backend="scaler", executor=3)
    with ScalerExecutor(address=combo) as executor:
        with pytest.raises(ConfigError, match="no address and no options"):
            parallel_config(backend="scaler", executor=executor, address=combo)
        with (
            parallel_config(backend="scaler", executor=executor, inner_max_num_threads=2),
            pytest.raises(ConfigError, match="belong to a cluster that is started here"),
        ):
            Parallel(n_jobs=2)([delayed(square)(1)])
    with (
        parallel_config(backend="scaler", address=combo, memory_limit="1GB"),
        pytest.raises(ConfigError, match="belong to an embedded cluster"),
    ):
        Parallel(n_jobs=2)([delayed(square)(1)])


def test_a_copy_is_of_the_same_cluster(combo):
    """A pickled backend leads to the same address."""
    backend = ScalerBackend(address=combo.get_address(), nesting_level=2)

    copy = pickle.loads(pickle.dumps(backend))

    assert 2 == copy.nesting_level
    assert {"address": combo.get_address()} == copy._cluster.options


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_joins_anew(combo):
    """A process that was forked within the block does not wait for its parent's connection."""
    with parallel_config(backend="scaler", address=combo):
        Parallel(n_jobs=2)([delayed(square)(1)])
        child = os.fork()
        if not child:
            found = Parallel(n_jobs=2)(delayed(square)(n) for n in range(3))
            os._exit(0 if found == [0, 1, 4] else 1)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_missing_joblib_names_the_extra():
    """Without joblib the error says what to install."""
    code = "import sys; sys.modules['joblib'] = None; import scaler_exec.joblib"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pip install 'scaler-exec[joblib]'" in done.stderr


def test_a_call_that_was_refused_is_not_counted(combo) -> None:
    """It does not use the cluster, so the number of those that do stays."""
    with Client(combo) as client:
        cluster = ScalerBackend(executor=client)._cluster
        with pytest.raises(ConfigError, match="belong to a cluster"):
            cluster.open(2, 3, {})
        cluster.open(2, None, {})
        assert 1 == cluster._calls
