"""What public calls refuse, at the call: nothing is sent, and nothing else is harmed."""

from __future__ import annotations

import gc
import math
import multiprocessing
import pickle
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

from scaler_exec import (
    Client,
    ClusterBrokenError,
    ConfigError,
    ScalerExecutor,
    SchedulerClusterCombo,
)
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port

NOT_CALLABLE = [None, 5, "abs", [abs]]


# -- functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", NOT_CALLABLE)
def test_an_executor_takes_functions(executor, wrong) -> None:
    """submit() and map() of an executor, and of its views, refuse what cannot be called."""
    for one in (executor, executor.options(timeout=5)):
        with pytest.raises(TypeError, match=r"fn must be a function, .* write submit\(fn, x\)"):
            one.submit(wrong)
        with pytest.raises(TypeError, match=r"fn must be a function, .* write map\(fn, x\)"):
            one.map(wrong, range(3))

    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_subclass_takes_functions() -> None:
    """A map() that submits each call by itself refuses at once what cannot be called."""

    class Watched(ScalerExecutor):
        def submit(self, fn, /, *args, **kwargs):
            return super().submit(fn, *args, **kwargs)

    with Watched(1) as executor, pytest.raises(TypeError, match="fn must be a function"):
        executor.map(None, range(3))  # type: ignore[arg-type]


class Plain:
    """A serializer that does as the engine does."""

    @staticmethod
    def serialize(obj):
        import cloudpickle

        return cloudpickle.dumps(obj)

    @staticmethod
    def deserialize(payload):
        import pickle

        return pickle.loads(payload)


@pytest.mark.parametrize("serializer", [None, Plain])
def test_a_client_takes_functions(cluster, serializer) -> None:
    """Each call of a client that takes a function refuses what cannot be called."""
    with Client(cluster, serializer=serializer) as client:
        for wrong in NOT_CALLABLE:
            calls = {
                "submit": lambda wrong=wrong: client.submit(wrong),
                "submit_verbose": lambda wrong=wrong: client.submit_verbose(wrong, (), {}),
                "map": lambda wrong=wrong: client.map(wrong, range(3)),
                "starmap": lambda wrong=wrong: client.starmap(wrong, [(1,)]),
            }
            for call in calls.values():
                with pytest.raises(TypeError, match="fn must be a function"):
                    call()

        assert client.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_future_is_no_function(executor, client) -> None:
    """The error about a future in place of a function says where a future may stand."""
    for one in (executor, client):
        future = one.submit(tasks.square, 3)
        with pytest.raises(TypeError, match=r"not a future: .* submit\(fn, future\)"):
            one.submit(future)
        assert one.submit(tasks.square, future).result(BOUND_S) == 81


def test_a_task_takes_functions(executor) -> None:
    """What a task submits must be callable as well."""
    assert executor.submit(_submit_none).result(BOUND_S) == ["TypeError"] * 4


def _submit_none() -> list[str]:
    said = []
    executor, client = ScalerExecutor(), Client()
    calls: list[Any] = [executor.submit, client.submit]
    maps: list[Any] = [executor.map, client.map]
    for call, args in [(one, ()) for one in calls] + [(one, (range(3),)) for one in maps]:
        try:
            call(None, *args)
        except Exception as error:
            said.append(type(error).__name__)
    return said


@pytest.mark.parametrize("wrong", [None, 5, ()])
def test_a_worker_fails_what_it_cannot_call(single, wrong) -> None:
    """A worker fails a task that it cannot call with TypeError, and goes on."""
    session = single._session
    for args, kwargs in (((), {}), ((1,), {"a": 1})):
        with pytest.raises(TypeError, match="not callable"):
            session.submit(wrong, args, kwargs).result(BOUND_S)

    assert single.submit(tasks.square, 3).result(BOUND_S) == 9
    assert single.submit(_submit_unchecked, wrong).result(BOUND_S) == ["TypeError"] * 2
    assert single.submit(tasks.square, 3).result(BOUND_S) == 9


def _submit_unchecked(wrong) -> list[str]:
    session = ScalerExecutor()._session
    futures = [session.submit(wrong, (), {}) for _ in range(2)]
    return [type(future.exception(BOUND_S)).__name__ for future in futures]


def test_a_pool_refuses_the_same_with_the_same_type() -> None:
    """Where ProcessPoolExecutor raises for a slip, an executor raises an exception of its type."""
    slips: list[Any] = [
        {"max_workers": 0},
        {"max_workers": -1},
        {"max_workers": "4"},
        {"initializer": 3},
    ]
    if sys.version_info >= (3, 11):
        slips += [{"max_tasks_per_child": 0}, {"max_tasks_per_child": 1.5}]
    for options in slips:
        with pytest.raises((TypeError, ValueError)) as expected:
            ProcessPoolExecutor(**options)
        with pytest.raises(expected.type, match=next(iter(options))):
            ScalerExecutor(**options)


# -- options -------------------------------------------------------------------------------------

WRONG_OPTIONS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"priority": "high"}, TypeError),
    ({"priority": 1.5}, TypeError),
    ({"priority": None}, TypeError),
    ({"priority": 1 << 70}, ConfigError),
    ({"timeout": "5"}, TypeError),
    ({"timeout": 0}, ConfigError),
    ({"timeout": -1}, ConfigError),
    ({"timeout": math.nan}, ConfigError),
    ({"timeout": math.inf}, ConfigError),
    ({"timeout": True}, TypeError),
    ({"retries": 1.5}, TypeError),
    ({"retries": -1}, ConfigError),
    ({"retries": "1"}, TypeError),
    ({"at_most_once": 1}, TypeError),
    ({"at_most_once": True, "retries": 1}, ConfigError),
    ({"capabilities": ["gpu"]}, TypeError),
    ({"capabilities": "gpu=1"}, TypeError),
    ({"capabilities": {"gpu": "1"}}, TypeError),
    ({"capabilities": {"gpu": -2}}, ConfigError),
    ({"capabilities": {1: 1}}, TypeError),
]


def test_a_wrong_option_fails_at_the_call(executor, flags) -> None:
    """A wrong option harms neither what was submitted before nor what is submitted later."""
    pending = executor.submit(tasks.hold, flags.path("held"), flags.path("go"))
    for options, error in WRONG_OPTIONS:
        with pytest.raises(error, match=next(iter(options))):
            executor.options(**options)
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9
    flags.set("go")

    assert pending.result(BOUND_S) > 0


def test_options_may_be_numbers_of_numpy(executor) -> None:
    """Options of an executor may be numbers of numpy."""
    view = executor.options(
        priority=np.int64(3), timeout=np.float32(20), retries=np.uint8(1), at_most_once=False
    )
    assert view.submit(tasks.square, 3).result(BOUND_S) == 9
    assert list(view.map(tasks.square, range(3))) == [0, 1, 4]
    mapped = executor.map(
        tasks.square, range(3), chunksize=np.int64(2), buffersize=np.int8(4), timeout=np.float64(20)
    )
    assert list(mapped) == [0, 1, 4]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": "5"}, TypeError),
        ({"timeout": math.nan}, ConfigError),
        ({"chunksize": 0}, ConfigError),
        ({"chunksize": 1.0}, TypeError),
        ({"chunksize": "3"}, TypeError),
        ({"buffersize": 0}, ConfigError),
        ({"buffersize": 2.0}, TypeError),
        ({"progress": 5}, TypeError),
        ({"progress": None}, TypeError),
    ],
)
def test_a_map_is_checked_at_the_call(executor, options, error) -> None:
    """A map with a wrong argument raises before it takes an item of its iterable."""
    items = iter(range(3))
    with pytest.raises(error, match=next(iter(options))):
        executor.map(tasks.square, items, **options)

    assert list(executor.map(tasks.square, items)) == [0, 1, 4]


def test_a_client_s_calls_are_checked(client) -> None:
    """The error names the wrong argument of a client's call, and the client goes on."""
    graph = {"a": (tasks.square, 3)}
    calls: list[tuple[Any, str]] = [
        (lambda: client.submit(abs, 1, profiling="no"), "profiling must be True or False"),
        (lambda: client.submit_verbose(abs, 1, {}), "args must be a tuple, not 1"),
        (lambda: client.submit_verbose(abs, "ab", {}), "args must be a tuple, not 'ab'"),
        (lambda: client.submit_verbose(abs, (), None), "kwargs must be a dict, not None"),
        (lambda: client.submit_verbose(abs, (1,), {}, ["gpu"]), "capabilities must be a mapping"),
        (lambda: client.submit_verbose(abs, (1,), {}, []), "capabilities must be a mapping"),
        (lambda: client.submit_verbose(abs, (1,), {}, None, 1), "reserialize must be True"),
        (lambda: client.map(abs, [1], capabilities=0), "capabilities must be a mapping"),
        (lambda: client.map(abs, [1], reserialize=None), "reserialize must be True"),
        (lambda: client.starmap(abs, [(1,)], capabilities="gpu"), "capabilities must be"),
        (lambda: client.get([1], ["a"]), "graph must be a dict of nodes, not"),
        (lambda: client.get(graph, "a"), "keys must be a list of keys of the graph, not 'a'"),
        (lambda: client.get(graph, 5), "keys must be a list of keys of the graph, not 5"),
        (lambda: client.get(graph, ["a"], block=0), "block must be True or False"),
        (lambda: client.get(graph, ["a"], capabilities=["gpu"]), "capabilities must be"),
        (lambda: client.get(graph, ["a"], reserialize=2), "reserialize must be True"),
        (lambda: client.send_object(1, name=2), "name must be a text, not 2"),
        (lambda: client.progress(client.submit(abs, 1)), "futures must be a list of futures"),
        (lambda: client.progress([], bar=3), "bar must be a bar of tqdm, .* not 3"),
        (lambda: client.performance_report(5).__enter__(), "PathLike"),
        (lambda: client.performance_report("x", profile=1), "profile must be True or False"),
    ]
    for call, message in calls:
        with pytest.raises(TypeError, match=message):
            call()

    assert client.get(graph, ["a"]) == {"a": 9}
    verbose = client.submit_verbose(abs, [-3], {}, {})
    assert verbose.result(BOUND_S) == 3


# -- making them ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_workers": 2.5}, TypeError, "max_workers must be an integer, not 2.5"),
        ({"max_workers": "4"}, TypeError, "max_workers must be an integer, not '4'"),
        ({"max_workers": True}, TypeError, "max_workers must be an integer, not True"),
        ({"mp_context": "bogus"}, ConfigError, "mp_context must be one of fork, spawn"),
        ({"mp_context": 3}, TypeError, "mp_context must be a context of multiprocessing"),
        ({"initializer": abs, "initargs": 3}, TypeError, "initargs must be a tuple, not 3"),
        ({"initializer": abs, "initargs": "ab"}, TypeError, "initargs must be a tuple, not 'ab'"),
        ({"memory_limit": "lots"}, ConfigError, "memory_limit must be a size such as 2GB"),
        ({"memory_limit": 100}, ConfigError, "memory_limit must be 32 MiB or more, .* not 100"),
        ({"memory_limit": "1MB"}, ConfigError, "memory_limit must be 32 MiB or more"),
        ({"memory_limit": -1}, ConfigError, "memory_limit must be 32 MiB or more"),
        ({"memory_limit": True}, TypeError, "memory_limit must be a number of bytes"),
        ({"memory_limit": 0.8}, ConfigError, "memory_limit must be a whole number of bytes"),
        ({"object_memory_limit": "0GB"}, ConfigError, "object_memory_limit must be 1 or more"),
        ({"object_memory_limit": []}, TypeError, "object_memory_limit must be a number of bytes"),
        ({"stream_output": 1}, TypeError, "stream_output must be True or False"),
        ({"dashboard": "yes"}, TypeError, "dashboard must be True or False"),
        ({"timeout": "5"}, TypeError, "timeout must be a number of seconds, not '5'"),
        ({"timeout": 0}, ConfigError, "timeout must be greater than 0 seconds"),
        ({"reconnect_timeout": 0}, ConfigError, "reconnect_timeout must be greater than 0 seconds"),
        ({"address": 8516}, TypeError, "address must be a text such as tcp://127.0.0.1:8516"),
        ({"address": "localhost:8516"}, ConfigError, "address must .* as tcp://localhost:8516,"),
    ],
)
def test_an_executor_s_arguments_are_checked(options, error, message) -> None:
    """An executor refuses wrong arguments before any process is started."""
    with pytest.raises(error, match=f"^{message}"):
        ScalerExecutor(**options)


def test_an_executor_s_arguments_may_be_numpy_s() -> None:
    """An executor takes numbers of numpy, and any mp_context, which has no effect."""
    context: Any
    for context in ("spawn", multiprocessing.get_context("fork"), multiprocessing):
        with ScalerExecutor(
            np.int64(1), context, max_tasks_per_child=np.int8(100), memory_limit="2GB",
            object_memory_limit=np.int64(1 << 20),
        ) as executor:  # fmt: skip
            assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"address": "localhost:8516"}, ConfigError, "address must begin with .* as tcp://localhost:8516"),
        ({"address": "localhost"}, ConfigError, "address must begin with .* as tcp://127.0.0.1:8516"),
        ({"address": "tcp://localhost"}, ConfigError, "address must end with a port"),
        ({"address": "http://localhost:1"}, ConfigError, "address must begin with tcp://"),
        ({"address": 8516}, TypeError, "address must be a text such as tcp://127.0.0.1:8516, not"),
        ({"profiling": 1}, TypeError, "profiling must be True or False, not 1"),
        ({"stream_output": "yes"}, TypeError, "stream_output must be True or False"),
        ({"timeout_seconds": "5"}, TypeError, "timeout_seconds must be a number of seconds"),
        ({"timeout_seconds": math.inf}, ConfigError, "timeout_seconds must be 1e.09 seconds at"),
        ({"heartbeat_interval_seconds": None}, TypeError, "heartbeat_interval_seconds must be a"),
        ({"serializer": 3}, TypeError, "serializer must be a class or an object with serialize"),
        ({"object_storage_address": "here"}, ConfigError, "object_storage_address must begin"),
        ({"object_storage_address": 3}, TypeError, "object_storage_address must be an address"),
    ],
)  # fmt: skip
def test_a_client_s_arguments_are_checked(options, error, message) -> None:
    """A client refuses wrong arguments before it connects."""
    with pytest.raises(error, match=f"^{message}"):
        Client(**{"address": f"tcp://127.0.0.1:{free_port()}"} | options)


def test_a_cluster_is_an_address(cluster) -> None:
    """Client and ScalerExecutor take what has get_address() in place of the address."""
    with Client(cluster) as client, ScalerExecutor(address=cluster) as executor:
        assert client.submit(tasks.square, 3).result(BOUND_S) == 9
        assert executor.submit(tasks.square, 4).result(BOUND_S) == 16
        assert executor.address == cluster.get_address()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"n_workers": "1"}, TypeError, "n_workers must be an integer, not '1'"),
        ({"n_workers": 1.0}, TypeError, "n_workers must be an integer"),
        ({"address": 8516}, TypeError, "address must be an address, not 8516"),
        ({"worker_io_threads": "1"}, TypeError, "worker_io_threads must be a whole number"),
        ({"scheduler_io_threads": 0}, ConfigError, "scheduler_io_threads must be 1 or more"),
        ({"task_timeout_seconds": "5"}, TypeError, "task_timeout_seconds must be a number of"),
        ({"trim_memory_threshold_bytes": "much"}, ConfigError, "trim_memory.* must be a size"),
        ({"trim_memory_threshold_bytes": -1}, ConfigError, "trim_memory.* must be 0 or more"),
        ({"protected": 1}, TypeError, "protected must be true or false"),
        ({"per_worker_capabilities": ["gpu"]}, TypeError, "per_worker_capabilities must be a"),
        ({"per_worker_queue_size": 0}, ConfigError, "per_worker_task_queue_size must be 1 or"),
        ({"dashboard": 1}, TypeError, "dashboard must be True or False"),
        ({"worker_manager_id": 1}, TypeError, "worker_manager_id must be a text"),
    ],
)
def test_a_cluster_s_arguments_are_checked(settings, error, message) -> None:
    """A cluster refuses wrong arguments before any process is started."""
    with pytest.raises(error, match=f"^{message}"):
        SchedulerClusterCombo(**{"n_workers": 1} | settings)


def test_a_cluster_s_arguments_may_be_numpy_s() -> None:
    """A cluster takes numbers of numpy, and sizes as texts."""
    with SchedulerClusterCombo(
        np.int64(1), load_balance_seconds=np.float32(0), worker_io_threads=np.int8(1),
        trim_memory_threshold_bytes="1.5 GiB", per_worker_capabilities={"gpu": np.int64(2)},
    ) as cluster, Client(cluster) as client:  # fmt: skip
        verbose = client.submit_verbose(tasks.square, (3,), {}, {"gpu": np.int64(1)})
        assert verbose.result(BOUND_S) == 9


# -- what they look like -------------------------------------------------------------------------


def test_reprs_tell_the_state() -> None:
    """The repr of an executor, a cluster and a client says its state, size and address."""
    with SchedulerClusterCombo(1) as cluster:
        address = re.escape(cluster.get_address())
        assert re.fullmatch(
            f"<SchedulerClusterCombo running, workers=1, address={address}>", repr(cluster)
        )
        client, executor = Client(cluster), ScalerExecutor(address=cluster)
        assert re.fullmatch(f"<Client open, address={address}>", repr(client))
        assert re.fullmatch(f"<ScalerExecutor open, workers=1, address={address}>", repr(executor))
        copy = pickle.loads(pickle.dumps(client))
        assert repr(copy).startswith("<Client not connected yet, address=")
        assert "_session" not in vars(copy)
        executor.shutdown()
        client.disconnect()
        assert [repr(one).split()[1] for one in (executor, client)] == ["closed,", "closed,"]
        broken = Client(cluster)
        broken._session.break_now(ClusterBrokenError("on purpose"))
        assert repr(broken).startswith("<Client broken, address=")
        broken.disconnect()

    assert repr(cluster).startswith("<SchedulerClusterCombo shut down, ")


def test_what_was_never_made_has_a_repr() -> None:
    """An object whose __init__ raised has a repr, which debuggers show."""
    for kind in (ScalerExecutor, Client, SchedulerClusterCombo):
        assert repr(object.__new__(kind)).startswith(f"<{kind.__name__} ")


def test_options_of_an_executor_that_nobody_keeps(executor) -> None:
    """A cluster runs as long as a view of its executor is kept."""
    options = ScalerExecutor(1).options(timeout=60)
    gc.collect()

    assert options.submit(abs, -1).result(BOUND_S) == 1
    options.shutdown()


def test_a_joined_cluster_has_its_own_workers(executor) -> None:
    """max_workers is refused together with the address of a running cluster."""
    with pytest.raises(ConfigError, match="max_workers"):
        ScalerExecutor(3, address=executor.address)
