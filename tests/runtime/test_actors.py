"""Actors through the public API: order, state, errors, and every way in which they end."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from concurrent.futures import CancelledError

import numpy as np
import psutil
import pytest

from scaler_exec import (
    ActorDiedError,
    Client,
    ConfigError,
    ScalerExecutor,
    SchedulerClusterCombo,
    actors,
)
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, is_gone, wait_gone, wait_until

pytestmark = pytest.mark.slow


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.seen = [start]

    def add(self, number: int) -> int:
        self.seen.append(number)
        return sum(self.seen)

    def all(self) -> list[int]:
        return self.seen

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise KeyError("no such thing")

    def hold(self, started: str, release: str, number: int) -> int:
        """Announce itself, and add a number once that is let go of."""
        tasks.hold(started, release)
        return self.add(number)

    def ask(self, other: actors.ActorHandle, number: int) -> int:
        """Have another actor add something."""
        return int(other.add(number).result())

    def ask_oneself(self, handle: actors.ActorHandle) -> None:
        handle.add(1)

    def mean(self, values: np.ndarray) -> np.ndarray:
        return values - values.mean()

    def run(self, client: Client) -> int:
        """Run a task, and wait for it."""
        return client.submit(tasks.square, 7).result()


class Broken:
    def __init__(self) -> None:
        raise OSError("no such model")

    def use(self) -> None:
        """Never called."""


def add_to(handle: actors.ActorHandle, number: int) -> int:
    return int(handle.add(number).result())


def make_one(client: Client, start: int) -> actors.ActorHandle:
    return actors.create(client, Counter, start)


@pytest.fixture(scope="module")
def combo(standing):
    """A cluster of two workers."""
    with SchedulerClusterCombo(2) as combo:
        with Client(combo) as client:
            client.submit(os.getpid).result(BOUND_S)
        standing |= {child.pid for child in psutil.Process().children()}
        yield combo


@pytest.fixture
def client(combo):
    """A client of that cluster."""
    with Client(combo) as client:
        yield client


@pytest.fixture
def counter(client):
    handle = actors.create(client, Counter)
    yield handle
    actors.destroy(handle, force=True).exception(BOUND_S)


def gone(future) -> ActorDiedError:
    """Return how the actor ended, which a future tells."""
    with pytest.raises(ActorDiedError) as caught:
        future.result(BOUND_S)
    return caught.value


# -- calls -----------------------------------------------------------------------------------------


def test_calls_change_the_state_in_their_order(counter) -> None:
    """Calls run one after the other, in the order of their submission, on one object."""
    futures = [counter.add(number) for number in range(1, 200)]

    assert [future.result(BOUND_S) for future in futures] == [
        n * (n + 1) // 2 for n in range(1, 200)
    ]
    assert actors.value(counter, "seen").result(BOUND_S) == list(range(200))
    assert actors.call(counter, "all").result(BOUND_S) == list(range(200))


def test_a_call_has_an_ordinary_future(counter) -> None:
    """The future of a call has callbacks, can be awaited, and has the remote traceback."""
    called: list[object] = []
    future = counter.add(1)
    future.add_done_callback(called.append)

    async def wait() -> int:
        return await counter.add(2)

    assert asyncio.run(wait()) == 3
    assert called == [future]
    with pytest.raises(KeyError, match="no such thing") as caught:
        counter.fail().result(BOUND_S)
    assert "in fail" in str(caught.value.__cause__)
    assert counter.add(1).result(BOUND_S) == 4


def test_large_values_go_to_an_actor_and_come_back(counter) -> None:
    """Arrays are arguments and results of calls as they are of tasks."""
    values = np.arange(100_000.0)

    assert counter.mean(values).result(BOUND_S).sum() == pytest.approx(0)


def test_a_call_that_runs_is_not_interrupted(counter, flags) -> None:
    """Nobody gets the result of a call that is cancelled while it runs, but it runs to its end."""
    running = counter.hold(flags.path("on"), flags.path("go"), 5)
    flags.wait("on")

    assert running.cancel()
    flags.set("go")

    assert actors.value(counter, "seen").result(BOUND_S) == [0, 5]
    with pytest.raises(CancelledError):
        running.result(BOUND_S)


def test_an_actor_takes_no_worker_away(client, counter, flags) -> None:
    """While an actor is busy, as many tasks run as there are workers."""
    busy = counter.hold(flags.path("on"), flags.path("go"), 5)
    flags.wait("on")

    held = [client.submit(tasks.hold, flags.path(f"{n}"), flags.path("go")) for n in range(2)]
    for number in range(2):
        flags.wait(f"{number}")
    flags.set("go")

    assert [one.result(BOUND_S) for one in held]
    assert busy.result(BOUND_S) == 5


# -- handles ---------------------------------------------------------------------------------------


def test_handles_go_into_tasks_and_actors(combo, client, counter) -> None:
    """A handle is used by tasks, by other actors and by other clients, and is made by tasks."""
    assert client.submit(add_to, counter, 1).result(BOUND_S) == 1
    assert sum(client.map(add_to, [counter] * 3, [1, 1, 1])) == 2 + 3 + 4
    other = actors.create(client, Counter)
    assert other.ask(counter, 5).result(BOUND_S) == 9
    assert other.run(client).result(BOUND_S) == 49
    made = client.submit(make_one, client, 7).result(BOUND_S)
    assert made.add(1).result(BOUND_S) == 8
    assert max(dir(made)) == "run"
    with Client(combo) as third:
        assert third.submit(add_to, made, 2).result(BOUND_S) == 10
    for one in (other, made):
        assert actors.destroy(one).result(BOUND_S) is None


def test_misuse_is_told_at_the_door(client, counter) -> None:
    """What cannot work is refused with a sentence."""
    with pytest.raises(ConfigError, match="called itself"):
        counter.ask_oneself(counter).result(BOUND_S)
    with pytest.raises(TypeError, match=r"pass future.result\(\)"):
        counter.add(client.submit(tasks.square, 2))
    with pytest.raises(AttributeError, match="has no method 'sub'"):
        counter.sub(1)
    with pytest.raises(TypeError):
        actors.create(client, 5)
    with ScalerExecutor(1) as executor, pytest.raises(ConfigError, match="capabilities alone"):
        actors.create(executor.options(retries=2), Counter)


def test_it_has_what_it_demands_for_as_long_as_it_lives(flags) -> None:
    """Nobody else has the amounts that an actor demands, until it ends."""
    with ScalerExecutor(2, machine_capabilities={"licence": 1}) as executor:
        licensed = executor.options(capabilities={"licence": 1})
        handle = actors.create(licensed, Counter)
        assert handle.add(1).result(BOUND_S) == 1
        waits = licensed.submit(tasks.square, 3)
        assert executor.submit(tasks.square, 4).result(BOUND_S) == 16
        assert not waits.done()
        actors.destroy(handle)
        assert waits.result(BOUND_S) == 9


# -- ends ------------------------------------------------------------------------------------------


def test_a_killed_actor_is_told_as_such(client, flags) -> None:
    """If its worker is killed, what runs fails, what waits fails, and later calls fail at once."""
    counter = actors.create(client, Counter)
    pid = counter.pid().result(BOUND_S)
    futures = [counter.hold(flags.path("on"), flags.path("never"), 1), counter.add(1)]
    flags.wait("on")

    os.kill(pid, signal.SIGKILL)

    for error in map(gone, (*futures, counter.add(1))):
        assert error.death.signal == signal.SIGKILL
        assert error.death.pid == pid
        assert "the actor Counter" in str(error)
        assert f"its process {pid}" in str(error)
        assert "killed by signal 9" in str(error)
    assert client.submit(tasks.square, 2).result(BOUND_S) == 4


def test_an_actor_that_cannot_be_made_is_told_as_such(client) -> None:
    """If the constructor raises, calls say so, those before it was known and those after."""
    broken = actors.create(client, Broken)

    for future in [broken.use(), broken.use()]:
        assert "OSError" in str(gone(future))
    assert "no such model" in str(gone(actors.ready(broken)))


def test_an_actor_ends_when_told(client, flags) -> None:
    """What was submitted before runs first, unless it is forced; what comes later fails."""
    counter = actors.create(client, Counter, 1)
    before = counter.hold(flags.path("on"), flags.path("go"), 1)
    flags.wait("on")
    ended, after = actors.destroy(counter), counter.add(1)
    flags.set("go")

    assert before.result(BOUND_S) == 2
    assert ended.result(BOUND_S) is None
    assert "destroyed" in str(gone(after))
    assert "destroyed" in str(gone(counter.add(1)))


def test_an_actor_ends_with_its_client(combo, client) -> None:
    """An actor whose client is gone ends; other clients are told so."""
    with Client(combo) as maker:
        counter = actors.create(maker, Counter)
        pid = counter.pid().result(BOUND_S)
        kept = client.submit(same, counter).result(BOUND_S)
        kept._session = client._session
        assert kept.add(1).result(BOUND_S) == 1

    wait_gone(pid)

    assert "client" in str(gone(kept.add(1)))


def test_a_handle_is_of_use_as_long_as_a_client_is(combo, client) -> None:
    """A handle that was found in one client goes on with another when that is closed."""
    counter = actors.create(client, Counter)
    found = pickle.loads(pickle.dumps(counter))
    with Client(combo) as passing:
        found._session = passing._session
        assert found.add(1).result(BOUND_S) == 1

    assert found.add(2).result(BOUND_S) == 3
    actors.destroy(counter).result(BOUND_S)


def same(value: object) -> object:
    return value


def test_an_actor_outlives_the_scheduler(flags) -> None:
    """If the scheduler is killed, an actor keeps its state, and calls run in order, none twice."""
    before = schedulers()
    with SchedulerClusterCombo(2, "tcp://127.0.0.1:0") as combo, Client(combo) as client:
        (victim,) = [one for one in schedulers() if one not in before]
        _outlives(client, flags, victim)


def schedulers() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [one for one in children if "scaler_cluster.runtime.scheduler" in one.cmdline()]


def _outlives(client, flags, victim: psutil.Process) -> None:
    counter = actors.create(client, Counter)
    pid = counter.pid().result(BOUND_S)
    running = counter.hold(flags.path("on"), flags.path("go"), 1)
    waiting = [counter.add(number) for number in range(2, 20)]
    flags.wait("on")
    victim.kill()
    wait_gone(victim.pid)
    later = [counter.add(number) for number in range(20, 30)]
    flags.set("go")

    assert running.result(BOUND_S) == 1
    assert [one.result(BOUND_S) for one in (*waiting, *later)][-1] == sum(range(30))
    assert counter.all().result(BOUND_S) == list(range(30))
    assert counter.pid().result(BOUND_S) == pid
    assert client.submit(tasks.square, 3).result(BOUND_S) == 9
    assert actors.destroy(counter).result(BOUND_S) is None
    wait_until(lambda: is_gone(pid), "the worker stays")
