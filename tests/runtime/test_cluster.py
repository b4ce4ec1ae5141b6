"""Schedulers, supervisors and clients that join, die, lie or are not there."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import signal
import socket
import time
import weakref

import pytest
import zmq

from scaler_cluster.client import handshake
from scaler_cluster.process.keeper import Restarts
from scaler_cluster.process.process import PYTHON_VERSION
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import decode, encode
from scaler_exec import (
    Client,
    ClusterBrokenError,
    ClusterUnreachableError,
    ConfigError,
    ScalerExecutor,
    SchedulerClusterCombo,
    TaskLostError,
)
from tests.runtime import tasks
from tests.runtime.helpers import (
    BOUND_S,
    cluster_process,
    find_process,
    free_port,
    show_keys,
    wait_gone,
    wait_until,
)


@pytest.fixture
def combo():
    """A cluster of two workers at a TCP port."""
    with SchedulerClusterCombo(2, "tcp://127.0.0.1:0") as combo:
        yield combo


# -- processes of the cluster that die -----------------------------------------------------------


@pytest.mark.parametrize("name", ["scheduler", "supervisor"])
@pytest.mark.parametrize("address", [None, "tcp://127.0.0.1:0"])
def test_a_process_that_is_killed_is_started_again(flags, name, address) -> None:
    """When scheduler or supervisor is killed, another one follows, and everything comes back."""
    with (
        SchedulerClusterCombo(2, address) as combo,
        ScalerExecutor(address=combo.get_address()) as executor,
    ):
        done = executor.submit(tasks.square, 3)
        assert done.result(BOUND_S) == 9
        running = executor.submit(tasks.hold, flags.path("started"), flags.path("go"))
        once = executor.options(at_most_once=True).submit(
            tasks.hold, flags.path("once"), flags.path("go")
        )
        queued = [executor.submit(tasks.square, n) for n in range(100)]
        results = executor.map(tasks.square, range(1000))
        linked = executor.submit(tasks.square, queued[50])
        worker, other = flags.wait("started"), flags.wait("once")

        cluster_process(name).kill()
        if name == "supervisor":
            # Both: one that still lives would see the flag, and return.
            wait_gone(worker)
            wait_gone(other)
        flags.set("go")

        assert [future.result(BOUND_S) for future in queued] == [n * n for n in range(100)]
        assert linked.result(BOUND_S) == 2500 * 2500
        assert list(results) == [n * n for n in range(1000)]
        # The workers of a scheduler go on with their tasks, those of a supervisor end with it.
        is_same = name == "scheduler"
        assert (running.result(BOUND_S) == worker) is is_same
        assert (
            once.exception(BOUND_S) is None if is_same else type(once.exception()) is TaskLostError
        )
        assert done.result() == 9


def test_a_process_that_is_killed_again_and_again_breaks_the_cluster(make_executor) -> None:
    """What is killed more often than five times in a minute has a reason, and stays dead."""
    executor = make_executor(1)
    for _ in range(Restarts.MOST + 1):
        wait_until(lambda: find_process("supervisor") is not None, "it does not start")
        victim = cluster_process("supervisor")
        victim.kill()
        wait_gone(victim.pid)

    with pytest.raises(ClusterBrokenError, match=f"supervisor process {victim.pid}"):
        executor.submit(tasks.square, 1).result(BOUND_S)


def test_a_process_that_ends_by_itself_breaks_the_cluster(make_executor, flags) -> None:
    """Pending futures and maps raise ClusterBrokenError when somebody ends the scheduler."""
    executor = make_executor(1)
    running = executor.submit(tasks.sleep, flags.path("started"))
    results = executor.map(tasks.square, [1])
    worker = flags.wait("started")
    victim = cluster_process("scheduler")
    victim.terminate()

    for wait in (lambda: running.result(BOUND_S), lambda: next(results)):
        with pytest.raises(ClusterBrokenError, match="shut down|ended with code 0"):
            wait()
    with pytest.raises(ClusterBrokenError):
        executor.submit(tasks.square, 1)
    executor.shutdown()
    wait_gone(worker)


def test_restarts_are_counted() -> None:
    """So many restarts within a minute are too many; old ones do not count."""
    restarts = Restarts()
    assert [restarts.may_start(float(n)) for n in range(6)] == 5 * [True] + [False]
    assert restarts.may_start(Restarts.WITHIN_S)
    assert not restarts.may_start(Restarts.WITHIN_S + 0.5)


def test_a_fork_server_that_dies_takes_its_workers_along(make_executor, flags) -> None:
    """When the workers' fork server is killed nothing is left, and pending futures say so."""
    executor = make_executor(2)
    running = executor.submit(tasks.refuse_to_stop_with_child, flags.path("child"))
    child = flags.wait("child")
    servers = cluster_process("supervisor").children()
    workers = [worker.pid for server in servers for worker in server.children()]
    for server in servers:
        server.kill()

    assert type(running.exception(BOUND_S)) is ClusterBrokenError
    executor.shutdown()
    wait_gone(*workers, child)


def test_the_children_of_tasks_die_with_a_killed_supervisor(make_executor, flags) -> None:
    """What tasks started does not outlive a supervisor that was killed."""
    executor = make_executor(1)
    executor.submit(tasks.refuse_to_stop_with_child, flags.path("child"))
    child = flags.wait("child")
    cluster_process("supervisor").kill()

    wait_gone(child)
    executor.kill_workers()


@pytest.mark.parametrize("name", ["scheduler", "supervisor"])
def test_a_process_that_was_stopped_for_a_while_goes_on(own, flags, name) -> None:
    """A scheduler or supervisor that is stopped for a moment delays, and loses nothing."""
    held = own.submit(tasks.hold, flags.path("held"), flags.path("go"))
    flags.wait("held")
    process = cluster_process(name)
    process.suspend()
    try:
        futures = [own.submit(tasks.square, n) for n in range(100)]
        with pytest.raises(concurrent.futures.TimeoutError):
            held.result(1.5)
        flags.set("go")
    finally:
        process.resume()

    assert [future.result(BOUND_S) for future in futures] == [n * n for n in range(100)]
    assert held.result(BOUND_S) > 0


def test_a_client_that_joined_hears_of_the_end(combo, flags) -> None:
    """When a cluster is shut down, futures of clients that joined raise ClusterBrokenError."""
    with ScalerExecutor(address=combo.get_address()) as executor:
        future = executor.submit(tasks.sleep, flags.path("started"))
        flags.wait("started")
        combo.shutdown()

        assert type(future.exception(BOUND_S)) is ClusterBrokenError
        assert "shut down" in str(future.exception())


def test_a_client_that_joined_gives_a_silent_scheduler_up(combo, flags) -> None:
    """A scheduler that answers no more is ClusterUnreachableError, with its address."""
    with Client(combo.get_address(), reconnect_timeout_seconds=2.0) as client:
        future = client.submit(tasks.sleep, flags.path("started"))
        flags.wait("started")
        scheduler = cluster_process("scheduler")
        scheduler.suspend()
        try:
            error = future.exception(BOUND_S)
        finally:
            scheduler.resume()

        assert type(error) is ClusterUnreachableError
        assert combo.get_address() in str(error)


def test_an_executor_gives_a_silent_scheduler_up() -> None:
    """An executor waits for a scheduler that is stopped as long as it was told to, and no longer."""
    with ScalerExecutor(max_workers=1, reconnect_timeout=1) as executor:
        scheduler = cluster_process("scheduler")
        scheduler.suspend()
        try:
            error = executor.submit(abs, -1).exception(BOUND_S)
        finally:
            scheduler.resume()

        assert type(error) is ClusterUnreachableError
        assert "has not answered for 1 s" in str(error)


# -- addresses -----------------------------------------------------------------------------------


def test_nobody_at_the_address_is_told_in_time(tmp_path, monkeypatch, caplog) -> None:
    """A dead address is ClusterUnreachableError within the timeout; the message names it.

    Who waits for long is told before, once.
    """
    monkeypatch.setattr(handshake, "TELL_S", 0.1)
    for address in (f"tcp://127.0.0.1:{free_port()}", f"ipc://{tmp_path}/nobody"):
        began = time.monotonic()
        with pytest.raises(ClusterUnreachableError, match="no scheduler answered") as caught:
            ScalerExecutor(address=address, timeout=0.3)

        assert address in str(caught.value)
        assert isinstance(caught.value, ConnectionError)
        assert time.monotonic() - began < BOUND_S
        (told,) = caplog.messages
        assert f"no scheduler has answered at {address} for" in told
        caplog.clear()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nonsense", "must begin with tcp:// or ipc://"),
        ("", "must begin with tcp:// or ipc://"),
        ("tcp://", "must end with a port"),
        ("tcp://127.0.0.1", "must end with a port"),
        ("tcp://127.0.0.1:x", "must end with a port"),
        ("http://x:1", "http:// is not a transport"),
    ],
)
def test_what_is_no_address_is_told_at_once(address, reason) -> None:
    """A malformed address is a ConfigError, which names the address and what is wrong with it."""
    with pytest.raises(ConfigError, match=reason) as caught:
        ScalerExecutor(address=address, timeout=BOUND_S)

    assert f"not {address!r}" in str(caught.value)


def test_something_else_at_the_address_is_told_in_time() -> None:
    """A server that speaks something else is ClusterUnreachableError within the timeout."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterUnreachableError, match=address):
            ScalerExecutor(address=address, timeout=0.3)


def test_a_port_in_use_is_told(combo) -> None:
    """A port that is taken is a ConfigError that names the address."""
    address = combo.get_address()
    with pytest.raises(ConfigError, match=f"{address}.*in use"):
        SchedulerClusterCombo(1, address)


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:x", "ipc:///no/such/place/x"])
def test_an_address_that_cannot_be_bound_is_told(address) -> None:
    """An address that cannot be bound is a ConfigError that names it."""
    with pytest.raises(ConfigError) as caught:
        SchedulerClusterCombo(1, address)

    assert address in str(caught.value)


def test_port_0_takes_a_free_port(combo) -> None:
    """With port 0 get_address() names the real port."""
    assert not combo.get_address().endswith(":0")
    with ScalerExecutor(address=combo.get_address()) as executor:
        assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_options_of_an_embedded_cluster_do_not_fit_a_running_one(combo) -> None:
    """An initializer with address= is a ConfigError: it is the cluster's own affair."""
    with pytest.raises(ConfigError, match="initializer"):
        ScalerExecutor(address=combo.get_address(), initializer=print)


# -- sharing -------------------------------------------------------------------------------------


def test_two_executors_share_one_cluster(own) -> None:
    """Executors that joined one cluster get their own results, from the same workers."""
    with ScalerExecutor(address=own.address) as other:
        ours = [own.submit(tasks.square, n) for n in range(500)]
        theirs = [other.submit(_negative, n) for n in range(500)]
        our_map = own.map(_negative, range(300))
        their_map = other.map(tasks.square, range(300))

        assert [future.result(BOUND_S) for future in ours] == [n * n for n in range(500)]
        assert [future.result(BOUND_S) for future in theirs] == [-n for n in range(500)]
        assert list(our_map) == [-n for n in range(300)]
        assert list(their_map) == [n * n for n in range(300)]
        assert set(other.map(_pid, range(100))) <= set(own.map(_pid, range(2000)))


def _negative(number):
    return -number


def _pid(_):
    return os.getpid()


def test_one_that_leaves_does_not_disturb_the_other(own, flags) -> None:
    """An executor that shuts down ends its own tasks only."""
    other = ScalerExecutor(address=own.address)
    ours = own.submit(tasks.hold, flags.path("ours"), flags.path("go"))
    flags.wait("ours")
    assert other.submit(tasks.square, 3).result(BOUND_S) == 9
    other.shutdown()
    flags.set("go")

    assert ours.result(BOUND_S) > 0
    assert list(own.map(tasks.square, range(50))) == [n * n for n in range(50)]


def test_a_client_that_is_dropped_stops_its_tasks(own, flags) -> None:
    """Tasks of a client that left are stopped, and their worker is free again."""
    client = Client(own.address)
    client.submit(tasks.sleep, flags.path("a"))
    client.submit(tasks.refuse_to_stop, flags.path("b"))
    flags.wait("a")
    flags.wait("b")
    client.disconnect()

    assert list(own.map(tasks.square, range(50))) == [n * n for n in range(50)]


# -- who does not fit ----------------------------------------------------------------------------


class Raw:
    """A peer made by hand."""

    def __init__(self, address: str, name: bytes) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.ROUTING_ID, name)
        self.socket.linger = 0
        show_keys(self.socket, address)
        self.socket.connect(address)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.context.term()

    def ask(self, *messages: m.Message) -> list[m.Message]:
        """Send messages as the first ones of a conversation; return the answer."""
        self.socket.send_multipart(encode(1, 1, 0, messages), copy=True)
        assert self.socket.poll(BOUND_S * 1000)
        return list(decode(self.socket.recv_multipart()).messages)


def hello(role: str, *, protocol: int = m.PROTOCOL_VERSION, python: str = PYTHON_VERSION):
    """Return a Hello."""
    return m.Hello(role, protocol, python, os.getpid(), "here", b"S-unknown")


@pytest.mark.parametrize("role", [m.CLIENT, m.WORKER, m.SUPERVISOR])
@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        ({"python": "2.7"}, f"runs Python 2.7, this scheduler {PYTHON_VERSION}"),
        ({"protocol": 999}, "speaks protocol 999, this scheduler (scaler-exec "),
    ],
)
def test_another_version_is_refused(combo, role, versions, sentence) -> None:
    """Another Python or protocol is refused with one sentence that says what differs."""
    with Raw(combo.get_address(), b"raw") as raw:
        (answer,) = raw.ask(hello(role, **versions))

    assert type(answer) is m.Refused
    assert sentence in answer.reason


def test_a_client_of_another_python_is_told(combo, monkeypatch) -> None:
    """ScalerExecutor(address=...) raises the scheduler's sentence at once."""
    monkeypatch.setattr("scaler_cluster.client.handshake.PYTHON_VERSION", "2.7")
    with pytest.raises(ClusterUnreachableError, match="runs Python 2.7"):
        ScalerExecutor(address=combo.get_address())


def garbage() -> list[list[bytes]]:
    """Return messages that are none."""
    good = encode(1, 1, 0, [hello(m.CLIENT)])[0]
    assert isinstance(good, bytes)
    return [
        [b""],
        [b"garbage"],
        [b"\xff" * 10_000],
        [b"\xdd\xff\xff\xff\xff"],
        [b"\xc6\xff\xff\xff\xff"],
        [b"\x80"],
        [good[:-3]],
        [good + b"\x00"],
        [b"x"] * 500,
        [os.urandom(5000), os.urandom(100)],
        list(map(bytes, encode(1, 1, 0, [m.Heartbeat()]))),
        list(map(bytes, encode(1, 1, 0, [hello("emperor")]))),
        list(map(bytes, encode(1, 1, 0, [hello(m.CLIENT), m.Cancelled(0, 1)]))),
        list(map(bytes, encode(1, 1, 0, [hello(m.CLIENT), m.Forget(b"f" * 16)]))),
        list(map(bytes, encode(1, 1, 99, [hello(m.CLIENT)]))),
    ]


SERVER = """
import os
from scaler_exec import ScalerExecutor, SchedulerClusterCombo
with SchedulerClusterCombo(1, 'tcp://127.0.0.1:0') as combo:
    print(combo.get_address(), flush=True)
    with ScalerExecutor(address=combo.get_address()) as executor:
        while not os.path.exists({stop!r}):
            executor.submit(abs, -1).result()
        print(list(executor.map(abs, range(-100, 0))) == list(range(100, 0, -1)))
"""


def test_garbage_hurts_only_who_sends_it(start_program, flags) -> None:
    """Peers that send garbage are dropped, with few log lines; a client at work notices nothing."""
    program = start_program(SERVER.format(stop=flags.path("stop")))
    address = program.line()
    for number, frames in enumerate(garbage()):
        with Raw(address, b"raw%d" % number) as raw:
            raw.socket.send_multipart(frames)
            # In order behind the garbage: who was dropped is asked to start over, or refused.
            raw.ask(hello(m.CLIENT, python="2.7"))
    flags.set("stop")
    code, out, err = program.end()

    assert (code, out) == (0, "True\n")
    lines = [line for line in err.splitlines() if " scaler.scheduler: " in line]
    dropped = [line for line in lines if "dropped peer" in line]
    assert 1 <= len(dropped) <= 10, err
    # At the end each of them was refused; as clients, two have got further before.
    said = "dropped peer", "refused a client", "lost client"
    assert len(lines) <= 30, err
    assert all(any(one in line for one in said) for line in lines), err


def test_garbage_below_the_protocol_hurts_nobody(start_program, flags) -> None:
    """A scheduler survives bytes that are no ZeroMQ, and logs few words about them."""
    program = start_program(SERVER.format(stop=flags.path("stop")))
    host, port = program.line().removeprefix("tcp://").split(":")
    for data in (
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 12,
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f",
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"
        + bytes(48)
        + b"\x06\xff\xff\xff\xff",
    ):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(data)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    flags.set("stop")
    code, out, err = program.end()

    assert (code, out) == (0, "True\n")
    lines = err.splitlines()
    # Some of it passes for a message of ZeroMQ's first version.
    assert len(lines) <= 4, err
    assert all("dropped peer" in line or "refused a connection" in line for line in lines), err


def test_a_peer_that_claims_a_huge_message_is_dropped(own) -> None:
    """A peer that claims a length beyond the limit is dropped, and others work on."""
    with Raw(own.address, b"raw") as raw:
        raw.socket.send(b"\xc6\xff\xff\xff\xff", zmq.SNDMORE)
        raw.socket.send(b"x" * 1000)

        assert own.submit(tasks.square, 3).result(BOUND_S) == 9


def test_a_worker_that_speaks_nonsense_is_replaced(make_executor, flags) -> None:
    """Garbage in the name of a worker costs that worker its life, and the cluster nothing."""
    executor = make_executor(1)
    future = executor.submit(_impersonate, executor.address)

    assert future.exception(BOUND_S) is not None
    assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def _impersonate(address: str) -> None:
    import gc

    from scaler_cluster.ids import HUB
    from scaler_cluster.runtime.worker import WorkerShell

    shell = next(one for one in gc.get_objects() if isinstance(one, WorkerShell))
    shell._link.send(HUB, [b"garbage"])
    time.sleep(tasks.FOREVER_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_is_told_to_end_ends(make_executor, number) -> None:
    """SIGTERM ends a supervisor, and so breaks the cluster; SIGINT, meant for the client, does not."""
    executor = make_executor(1)
    executor.submit(tasks.square, 3).result(BOUND_S)
    process = cluster_process("supervisor")
    process.send_signal(number)
    if number == signal.SIGTERM:
        wait_gone(process.pid)
    else:
        assert executor.submit(tasks.square, 3).result(BOUND_S) == 9


def test_nothing_of_an_executor_waits_for_the_collector() -> None:
    """An executor that was shut down is gone with the last reference to it."""
    gc.collect()
    gc.disable()
    try:
        executor = ScalerExecutor(1)
        executor.map(str, range(3))
        assert executor.submit(str, 1).result(BOUND_S) == "1"
        session = weakref.ref(executor._session)
        executor.shutdown()
        del executor
        assert session() is None
    finally:
        gc.enable()
