"""Locks, semaphores, events, queues and variables between programs and tasks, and their holders."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from scaler_cluster.combo import SchedulerClusterCombo
from scaler_cluster.process.interrupts import deferred
from scaler_cluster.runtime.nested import NestedSession
from scaler_cluster.runtime.nested_connection import NestedConnection
from scaler_exec import (
    Client,
    ConfigError,
    Event,
    Lock,
    MultiLock,
    PayloadError,
    QuotaExceededError,
    ScalerExecutor,
    Semaphore,
    SessionClosedError,
    SessionForkedError,
    Variable,
)
from scaler_exec import Queue as SharedQueue
from tests.runtime.helpers import BOUND_S, Program, wait_gone, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.core.client.coordination import Asked


SHORT_S = 0.05
"""Long enough for an answer that does not come to be missed."""


@pytest.fixture(scope="module")
def shared(standing) -> Iterator[tuple[str, ScalerExecutor]]:
    """Return a cluster of two workers, by its address and an executor there."""
    with (
        SchedulerClusterCombo(2) as combo,
        ScalerExecutor(address=combo.get_address()) as executor,
    ):
        standing |= {child.pid for child in psutil.Process().children()}
        yield combo.get_address(), executor


@pytest.fixture
def executor(shared) -> ScalerExecutor:
    return shared[1]


@pytest.fixture
def name(request) -> str:
    return request.node.name


def hold(name: str, said: Event) -> None:
    """Acquire a lock, say so, and wait for ever."""
    Lock(name).acquire()
    said.set()
    Event().wait()


def hold_and_end(name: str) -> bool:
    """Acquire a lock and end without giving it back."""
    return Lock(name).acquire()


def count(name: str, counter: Variable) -> None:
    """Add one to a variable, which nobody else may change meanwhile."""
    with Lock(name):
        counter.set(counter.get() + 1)


def produce(queue: SharedQueue, number: int) -> None:
    for index in range(10):
        queue.put((number, index))


def consume(queue: SharedQueue, number: int) -> list[tuple[int, int]]:
    return [queue.get() for _ in range(number)]


def wait_for(event: Event) -> bool:
    return event.wait()


def most_at_once(name: str, inside: SharedQueue) -> int:
    """Return how many hold the semaphore with this task."""
    with Semaphore(2, name) as semaphore:
        inside.put(os.getpid())
        return semaphore.get_value()


# -- each of them --------------------------------------------------------------------------------


def test_a_lock_is_one_holders_at_a_time(executor, name) -> None:
    """Who does not wait, or not for long, is told that it is held; it can be had when given back."""
    lock, other = Lock(name, executor), Lock(name, executor)
    assert lock.acquire()

    assert lock.locked()
    assert not other.acquire(blocking=False)
    assert not other.acquire(timeout=SHORT_S)
    lock.release()
    with other:
        assert not lock.acquire(timeout=0)
    assert not lock.locked()
    with pytest.raises(RuntimeError, match="not held by this object"):
        lock.release()


def test_tasks_exclude_each_other(executor, name) -> None:
    """What tasks on two workers do with a lock, they do one after the other."""
    counter = Variable(f"{name} counter", executor)
    counter.set(0)

    list(executor.map(count, [name] * 15, [counter] * 15))

    assert counter.get() == 15
    counter.delete()


def test_several_locks_at_once(executor, name) -> None:
    """All of them, or as many as are asked for; each is a Lock of its name."""
    first, second, third = (f"{name} {n}" for n in range(3))
    lock = Lock(second, executor)
    lock.acquire()
    locks = MultiLock([first, second, third], executor)

    assert not locks.acquire(timeout=SHORT_S)
    assert not Lock(first, executor).locked()
    assert locks.acquire(num_locks=2)
    assert Lock(first, executor).locked()
    locks.release()
    lock.release()
    with locks:
        assert lock.locked()
    assert not lock.locked()


def test_a_semaphore_has_its_leases(executor, name) -> None:
    """So many tasks are inside at once at most; another number is refused."""
    inside = SharedQueue(f"{name} inside", executor)

    counts = list(executor.map(most_at_once, [name] * 20, [inside] * 20))

    assert set(counts) <= {1, 2}
    assert len(inside.get(batch=True)) == 20
    semaphore = Semaphore(2, name, executor)
    assert semaphore.acquire()
    assert semaphore.acquire()
    assert not semaphore.acquire(timeout=0)
    with pytest.raises(ConfigError, match="at most 2 leases, not 3"):
        Semaphore(3, name, executor).acquire()
    semaphore.release()
    semaphore.release()
    assert semaphore.get_value() == 0


def test_an_event_wakes_a_hundred(executor, name) -> None:
    """Threads and tasks that wait all go on when a task sets it."""
    event = Event(name, executor)
    assert not event.is_set()
    assert not event.wait(timeout=SHORT_S)
    with ThreadPoolExecutor(100) as threads:
        waiting = [threads.submit(event.wait, BOUND_S) for _ in range(100)]
        tasks = [executor.submit(wait_for, event) for _ in range(3)]
        executor.submit(event.set).result(BOUND_S)

        assert all(one.result(BOUND_S) for one in (*waiting, *tasks))
    assert event.is_set()
    event.clear()
    assert not event.is_set()


def test_a_queue_between_tasks(executor, name) -> None:
    """Each value goes to one getter, those of one putter in their order, though there is no room."""
    queue = SharedQueue(name, executor, maxsize=3)
    getters = [executor.submit(consume, queue, 20) for _ in range(2)]
    putters = [executor.submit(produce, queue, number) for number in range(4)]

    got = [getter.result(BOUND_S) for getter in getters]

    assert sorted(got[0] + got[1]) == [(n, index) for n in range(4) for index in range(10)]
    for number in range(4):
        for part in got:
            mine = [index for n, index in part if n == number]
            assert mine == sorted(mine)
    for putter in putters:
        putter.result(BOUND_S)
    queue.close()


def test_a_queue_by_hand(executor, name) -> None:
    """Room, sizes, batches and times, and what was put is there when its putter has ended."""
    queue = SharedQueue(name, executor, maxsize=2)
    executor.submit(queue.put, "from a task").result(BOUND_S)
    queue.put(None)

    with pytest.raises(TimeoutError, match="no room"):
        queue.put(3, timeout=SHORT_S)
    assert queue.qsize() == 2
    assert queue.get(batch=2) == ["from a task", None]
    assert queue.get(batch=True) == []
    with pytest.raises(TimeoutError, match="too few values"):
        queue.get(timeout=SHORT_S)
    queue.put(4)
    with pytest.raises(TimeoutError):
        queue.get(timeout=SHORT_S, batch=2)
    assert queue.get() == 4
    queue.close()


def test_a_variable(executor, name) -> None:
    """Tasks and programs see the last value; who reads waits until there is one."""
    variable = Variable(name, executor)
    with pytest.raises(TimeoutError, match="no value"):
        variable.get(timeout=SHORT_S)
    reading = executor.submit(variable.get)
    variable.set({"value": 1})
    assert reading.result(BOUND_S) == {"value": 1}

    executor.submit(variable.set, 2).result(BOUND_S)

    assert variable.get() == 2
    variable.delete()
    with pytest.raises(TimeoutError):
        variable.get(timeout=0)


def test_what_cannot_work(shared, executor, name) -> None:
    """Wrong names, clients, values and numbers are refused with a sentence."""
    with pytest.raises(ConfigError, match="this Lock has no client"):
        Lock(name).acquire()
    with pytest.raises(TypeError, match="client must be a Client or a ScalerExecutor"):
        Lock(name, client=3)
    with pytest.raises(TypeError, match="name must be a text"):
        Event(b"name", executor)
    with pytest.raises(ConfigError, match="1 to 255 characters"):
        Variable("n" * 256, executor)
    with pytest.raises(TypeError, match="list of names"):
        MultiLock("ab", executor)
    with pytest.raises(ConfigError, match="different names"):
        MultiLock(["a", "a"], executor)
    with pytest.raises(ConfigError, match="num_locks must be 1 at most"):
        MultiLock(["a"], executor).acquire(num_locks=2)
    with pytest.raises(ConfigError, match="max_leases must be 1 or more"):
        Semaphore(0, name, executor)
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        Event(name, executor).wait("soon")
    with pytest.raises(ConfigError, match="batch must be 1000 at most"):
        SharedQueue(name, executor).get(batch=1001)
    queue = SharedQueue(name, executor)
    with pytest.raises(PayloadError, match="1048576 at most"):
        queue.put(bytes(1 << 20))
    with pytest.raises(PayloadError, match="cannot pickle"):
        queue.put(threading.Lock())
    with pytest.raises(QuotaExceededError, match="bytes in locks"):
        for _ in range(100):
            queue.put(bytes(800_000))
    queue.close()
    client = Client(shared[0])
    lock = Lock(name, client)
    client.disconnect()
    with pytest.raises(SessionClosedError):
        lock.acquire()


def test_a_copy_has_the_name_alone(executor, name) -> None:
    """A pickled lock is another object that holds nothing; what has no name gets one of its own."""
    lock = Lock(name, executor)
    with lock:
        copy = pickle.loads(pickle.dumps(lock))

        assert copy.name == name
        with pytest.raises(RuntimeError, match="not held by this object"):
            copy.release()
        assert not executor.submit(copy.acquire, timeout=SHORT_S).result(BOUND_S)
    assert Lock(client=executor).name != Lock(client=executor).name
    assert repr(lock) == f"<Lock: {name}>"


# -- holders and waiters that end ----------------------------------------------------------------


def acquire_soon(lock: Lock) -> None:
    """Acquire a lock long before silence would end its holder, and give it back."""
    assert lock.acquire(timeout=BOUND_S)
    lock.release()


@pytest.mark.parametrize("how", ["end", "cancel", "kill"])
def test_a_lock_ends_with_its_task(executor, name, how) -> None:
    """The task ends without a release, is cancelled, or its worker is killed: the next has it."""
    if how == "end":
        assert executor.submit(hold_and_end, name).result(BOUND_S)
    else:
        said, pid = Event(f"{name} said", executor), Variable(f"{name} pid", executor)
        holder = executor.submit(hold_and_tell, name, said, pid)
        assert said.wait(BOUND_S)
        assert not Lock(name, executor).acquire(timeout=0)
        if how == "cancel":
            assert holder.cancel()
        else:
            os.kill(pid.get(), signal.SIGKILL)

    acquire_soon(Lock(name, executor))


def hold_and_tell(name: str, said: Event, pid: Variable) -> None:
    pid.set(os.getpid())
    hold(name, said)


def test_a_lock_ends_with_its_client(shared, executor, name) -> None:
    """A program is killed that holds a lock: who waits for it has it long before a silence ends."""
    program = Program(
        f"""
from scaler_exec import Client, Lock
client = Client({shared[0]!r})
lock = Lock({name!r}, client)
print(lock.acquire(), flush=True)
lock.acquire()
"""
    )
    assert program.line() == "True"
    lock = Lock(name, executor)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lock.acquire, timeout=BOUND_S)
        assert not lock.acquire(timeout=SHORT_S)

        program.process.kill()
        program.end()

        assert waiting.result(BOUND_S)
    lock.release()


def test_ctrl_c_ends_a_wait(shared, executor, name) -> None:
    """KeyboardInterrupt is raised at once, and whoever waited does not get the lock later."""
    lock = Lock(name, executor)
    with lock:
        program = Program(
            f"""
from scaler_exec import Client, Lock
client = Client({shared[0]!r})
lock = Lock({name!r}, client)
try:
    print("waits", flush=True)
    lock.acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(lock.acquire(timeout=0), flush=True)
"""
        )
        assert program.line() == "waits"
        program.process.send_signal(signal.SIGINT)
        assert program.line() == "interrupted"
        assert program.line() == "False"
        assert program.end()[0] == 0

    acquire_soon(lock)


class Interrupted(list):
    """Leases, of which Ctrl-C keeps one from being noted."""

    def append(self, _: object) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_after_the_answer_loses_nothing(executor, name, monkeypatch) -> None:
    """What the scheduler has given by then goes back: a lock is free, a value is in its queue."""
    lock, queue = Lock(name, executor), SharedQueue(name, executor)
    lock._leases = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    acquire_soon(Lock(name, executor))

    queue.put(1)
    session = executor._session
    withdraw = session.withdraw

    def interrupted(asked: Asked, *, has_values: bool = False) -> bool:
        if has_values:
            raise KeyboardInterrupt
        return withdraw(asked)

    with monkeypatch.context() as patched:
        patched.setattr(session, "withdraw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.get(BOUND_S)
    assert queue.get(BOUND_S) == 1


def test_a_release_that_ctrl_c_ends_can_be_made_again(executor, name, monkeypatch) -> None:
    """What is not given back is still this object's."""
    lock = Lock(name, executor)
    lock.acquire()

    def interrupted(_: Asked) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(executor._session, "withdraw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.release()
    lock.release()


class CountingWaiter:
    """Counts threads that wait; Ctrl-C comes while the first one is counted."""

    count = 0

    def wait(self, *_: object) -> bool:
        return False

    def count_waiting(self, change: int) -> None:
        with deferred:
            self.count += change
            if change > 0:
                signal.raise_signal(signal.SIGINT)


def test_who_is_interrupted_is_not_counted_any_more() -> None:
    """A worker whose task was interrupted as it began to wait does not count as waiting."""
    session: Any = object.__new__(NestedSession)
    waiter = session._nested_waiter = CountingWaiter()

    with pytest.raises(KeyboardInterrupt):
        session._wait_for_others(lambda: False, None)

    assert waiter.count == 0


def test_what_a_task_has_is_looked_up_under_the_lock() -> None:
    """Other threads of the worker ask for more meanwhile."""
    connection: Any = object.__new__(NestedConnection)
    connection._lock = threading.Lock()
    coordination = SimpleNamespace(owns=lambda _: connection._lock.locked())
    connection._nested = SimpleNamespace(owned={}, coordination=coordination)

    assert connection.owns(1)


def test_a_forked_child_is_told_to_make_a_client(executor, name) -> None:
    """It neither acquires nor releases what its parent has, and never waits for a lost thread."""
    lock = Lock(name, executor)
    with lock, executor._session.connection._lock:
        pid = os.fork()
        if not pid:
            told = 0
            for use in (lock.acquire, lock.release, lock.locked):
                try:
                    use()
                except SessionForkedError:
                    told += 1
            os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


def test_a_waiting_task_can_be_cancelled(executor, name) -> None:
    """It ends at once, and does not get later what it has waited for."""
    lock = Lock(name, executor)
    with lock:
        begun = Event(f"{name} begun", executor)
        waiting = executor.submit(begin_and_acquire, name, begun)
        assert begun.wait(BOUND_S)
        assert waiting.cancel()
        with pytest.raises(CancelledError):
            waiting.result(BOUND_S)

    acquire_soon(lock)


def begin_and_acquire(name: str, begun: Event) -> None:
    begun.set()
    Lock(name).acquire()


def test_tasks_that_wait_leave_their_places_to_others(executor, name) -> None:
    """Four tasks wait on two workers, and the one that they wait for runs."""
    event = Event(name, executor)
    waiting = [executor.submit(wait_for, event) for _ in range(4)]

    executor.submit(event.set).result(BOUND_S)

    assert all(one.result(BOUND_S) for one in waiting)


def test_a_session_that_is_closed_ends_a_wait(shared, name) -> None:
    """Who waits in a thread when the client disconnects is told so."""
    client = Client(shared[0])
    event = Event(name, client)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(event.wait)
        assert not event.wait(timeout=SHORT_S)
        client.disconnect()

        with pytest.raises(SessionClosedError):
            waiting.result(BOUND_S)


# -- a scheduler that is killed ------------------------------------------------------------------


def test_a_lock_outlives_the_scheduler(standing) -> None:
    """Its holder keeps it, others wait on, and values, an event and a variable are still there."""
    with (
        SchedulerClusterCombo(1) as combo,
        Client(combo.get_address()) as one,
        Client(combo.get_address()) as other,
    ):
        mine, theirs = Lock("lock", one), Lock("lock", other)
        mine.acquire()
        queue, event, variable = SharedQueue("q", one), Event("e", one), Variable("v", one)
        for value in range(3):
            queue.put(value)
        assert SharedQueue("q", other).get() == 0
        event.set()
        variable.set("old")
        variable.set("new")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(partial(theirs.acquire, timeout=BOUND_S))
            wait_until(lambda: not theirs.acquire(timeout=0), "the lock is free")
            _kill_scheduler(standing)

            assert Event("e", other).wait(BOUND_S)
            assert SharedQueue("q", other).get(batch=True) == [1, 2]
            assert Variable("v", other).get(BOUND_S) == "new"
            assert not waiting.done()
            mine.release()
            assert waiting.result(BOUND_S)
        theirs.release()


def _kill_scheduler(standing: set[int]) -> None:
    """Kill the scheduler of the cluster that was started last."""
    victim = next(
        child
        for child in psutil.Process().children()
        if child.pid not in standing and "scaler_cluster.runtime.scheduler" in child.cmdline()
    )
    victim.kill()
    wait_gone(victim.pid)
