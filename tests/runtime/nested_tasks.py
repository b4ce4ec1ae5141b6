"""Tasks that submit tasks. Imported in workers: nothing here may be slow to import."""

from __future__ import annotations

import concurrent.futures
import os
import random
import signal
import threading
import time
from pathlib import Path

from scaler_exec import Client, ScalerExecutor, rejoin, secede
from tests.runtime import tasks


def fibonacci(client, n):
    """Return the n-th number, through a tree of tasks."""
    if n < 2:
        return n
    a = client.submit(fibonacci, client, n - 1)
    b = client.submit(fibonacci, client, n - 2)
    return a.result() + b.result()


def is_even(client, n):
    """Ask ``is_odd``."""
    return n == 0 or client.submit(is_odd, client, n - 1).result()


def is_odd(client, n):
    """Ask ``is_even``."""
    return n > 0 and client.submit(is_even, client, n - 1).result()


def descend(client, n):
    """Return how many tasks stand on each other."""
    return 0 if n == 0 else 1 + client.submit(descend, client, n - 1).result()


def pid_after(seconds):
    """Sleep; return where."""
    time.sleep(seconds)
    return os.getpid()


def pids_of_children(client, count, seconds):
    """Return where so many children ran, and where their parent did."""
    futures = [client.submit(pid_after, seconds) for _ in range(count)]
    return [future.result() for future in futures], os.getpid()


def many_ways(client):
    """Ask in every way there is."""
    reference = client.send_object(b"x" * 100_000)
    futures = [client.submit(tasks.square, n) for n in range(20)]
    concurrent.futures.wait(futures)
    completed = {
        future.result()
        for future in concurrent.futures.as_completed(
            client.submit(tasks.square, n) for n in range(9)
        )
    }
    return {
        "submit": client.submit(int, "11", base=2).result(),
        "exception": client.submit(tasks.square, 3).exception(),
        "map": client.map(tasks.square, range(300)),
        "starmap": client.starmap(pow, [(2, 3), (3, 2)]),
        "object": client.map(len, [reference, reference]),
        "large": len(client.submit(bytes, 200_000).result()),
        "large argument": client.submit(len, b"y" * 200_000).result(),
        "wait": [future.result() for future in futures],
        "as_completed": completed,
    }


def many_ways_of_its_own():
    """As :func:`many_ways`, with a client that was made here."""
    with Client() as client:
        return many_ways(client)


def executor_ways():
    """Use an executor inside of a task."""
    with ScalerExecutor() as executor:
        futures = [executor.submit(tasks.square, n) for n in range(10)]
        squares = list(executor.map(tasks.square, range(100)))
        chunks = list(executor.map(tasks.square, range(100), chunksize=7))
    return [future.result() for future in futures], squares, chunks, os.getpid()


def failing_child(client, how):
    """Wait for a child that goes wrong."""
    return client.submit(tasks.fail, how).result()


def failing_far_child(client, how):
    """Wait for a child that goes wrong elsewhere, if there is another worker."""
    return client.submit(tasks.fail, how).result(30)


def catches(client):
    """Return what a failing child's exception looks like to its parent."""
    error = client.submit(tasks.fail, "raise").exception()
    return type(error).__name__, str(error), str(error.__cause__)


def mutable_argument(client):
    """Show that a child gets a copy, also where it runs on its parent's stack."""
    value = [1]
    result = client.submit(append_two, value).result()
    return value, result


def append_two(value):
    """Change the argument."""
    value.append(2)
    return value


def hold_children(client, directory, count):
    """Submit children that sleep for ever, and wait for one of them."""
    futures = [client.submit(touch_and_sleep, directory, n) for n in range(count)]
    Path(directory, "parent").write_text(str(os.getpid()))
    return [future.result() for future in futures]


def touch_and_sleep(directory, number):
    """Say that this runs, and where; then sleep."""
    path = Path(directory, f"child-{number}")
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(tasks.FOREVER_S)


def leave_children(client, directory, count):
    """Return while children are unfinished."""
    for number in range(count):
        client.submit(touch_and_sleep, directory, number)
    return os.getpid()


def leave_and_raise(client, directory, count):
    """Raise while children are unfinished."""
    leave_children(client, directory, count)
    raise ValueError("left them")


def from_threads(client, count):
    """Submit and wait in threads of the task."""
    results = {}

    def ask(n):
        results[n] = client.submit(fibonacci, client, n).result()

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def client_in_thread():
    """Make a client in a thread of the task."""
    found = []

    def ask():
        found.append(Client().submit(tasks.square, 5).result())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found


def wait_for_flag(path):
    """Wait until a file is there; return the pid."""
    tasks.wait_for(path)
    return os.getpid()


def set_flag(path):
    """Make a file."""
    Path(path).touch()
    return os.getpid()


def seceded(path):
    """Wait for what another task does, which needs a worker."""
    secede()
    pid = wait_for_flag(path)
    rejoin()
    return pid


def blocked_on_two(client, path):
    """Wait for two children of which the first one needs the second."""
    first = client.submit(wait_for_flag, path)
    second = client.submit(set_flag, path)
    done, _ = concurrent.futures.wait([first, second], timeout=30)
    return len(done)


def run_for_ever(path):
    """Tell that this runs, and go on."""
    set_flag(path)
    while True:
        time.sleep(60)


def times_out(client, path, timeout):
    """Wait for a child that runs elsewhere for a short time."""
    future = client.submit(run_for_ever, path)
    wait_for_flag(path)
    try:
        future.result(timeout)
    except concurrent.futures.TimeoutError:
        return "timed out"
    return "returned"


def ask_for(client, n, timeout):
    """Wait with a timeout that is more than enough, at each of many levels."""
    return 0 if n == 0 else 1 + client.submit(ask_for, client, n - 1, timeout).result(timeout)


def tree(client, seed, depth):
    """Run a random tree of tasks; return how many there were."""
    dice = random.Random(seed)
    time.sleep(dice.choice((0, 0, 0, 0.002)))
    if depth == 0:
        return 1
    seeds = [dice.randrange(1 << 30) for _ in range(dice.randint(0, 3))]
    how = dice.randrange(6)
    branches = [(client, one, depth - 1) for one in seeds]
    if how == 0:
        return 1 + sum(client.starmap(tree, branches))
    if how == 1:
        graph = {("branch", n): (tree, *branch) for n, branch in enumerate(branches)}
        return 1 + sum(client.get(graph, graph).values())
    futures = [client.submit(tree, *branch) for branch in branches]
    if how == 2:
        return 1 + client.submit(sum, futures).result()
    if how == 3:
        return 1 + sum(future.result() for future in concurrent.futures.as_completed(futures))
    if how == 4:
        concurrent.futures.wait(futures)
    return 1 + sum(future.result() for future in reversed(futures))


def plain_tree(seed, depth):
    """Return what :func:`tree` does, without tasks."""
    dice = random.Random(seed)
    dice.choice((0, 0, 0, 0.002))
    if depth == 0:
        return 1
    seeds = [dice.randrange(1 << 30) for _ in range(dice.randint(0, 3))]
    return 1 + sum(plain_tree(one, depth - 1) for one in seeds)


def fibonacci_of_graphs(client, n):
    """Return the n-th number; each call is a graph whose nodes are such calls."""
    if n < 2:
        return n
    graph = {"a": (fibonacci_of_graphs, client, n - 1), "b": (fibonacci_of_graphs, client, n - 2)}
    return client.get(graph | {"sum": (int.__add__, "a", "b")}, ["sum"])["sum"]


def fibonacci_of_futures(client, n):
    """Return the n-th number; each call waits for a task that takes the results of two more."""
    if n < 2:
        return n
    a = client.submit(fibonacci_of_futures, client, n - 1)
    b = client.submit(fibonacci_of_futures, client, n - 2)
    return client.submit(int.__add__, a, b).result()


def ask_twice(client, nap_s):
    """Wait for a task and for one that takes its result, which the scheduler may know by then."""
    first = client.submit(tasks.square, 3)
    time.sleep(nap_s)
    second = client.submit(tasks.square, first)
    return first.result(), second.result()


def chain_of_futures(client, length):
    """Wait for the last of many tasks that each take the result of the one before."""
    future = client.submit(int, 0)
    for _ in range(length):
        future = client.submit(increase, future)
    return future.result()


def increase(n):
    """Return one more."""
    return n + 1


def graph_ways(client, nbytes):
    """Have graphs of all kinds run: with large data, results and functions, and failing ones."""
    large = bytes(nbytes)
    graph = {
        "data": large,
        "sent": client.send_object(large),
        "made": (bytes, nbytes),
        "length": (lambda *values: len(large) + sum(map(len, values)), "data", "sent", "made"),
        "listed": (len, ["data", "sent", ["made"]]),
        "fails": (bytes.decode, b"\xff"),
        "failed": (increase, "fails"),
        0: (increase, 0.5),
        1: (increase, 0),
        2: (increase, 1),
    }
    found = client.get(graph, ["length", "listed", "made", 2])
    future = client.get(graph, ["failed"], block=False)["failed"]
    error = future.exception()
    many = client.get({n: (increase, n + 0.5) for n in range(500)}, range(500))
    return {
        "length": found["length"],
        "listed": found["listed"],
        "made": len(found["made"]),
        "chain": found[2],
        "failed": (type(error).__name__, "UnicodeDecodeError" in str(error.__cause__)),
        "many": sum(many.values()),
        "futures": client.submit(len, client.submit(bytes, nbytes)).result(),
        "kept": client.submit(len, future_that_is_done(client, nbytes)).result(),
    }


def future_that_is_done(client, nbytes):
    """Return the future of something large that has come back."""
    future = client.submit(bytes, nbytes)
    future.result()
    return future


def node_with_options(directory, timeout):
    """Let tasks that take futures run out of time, and be retried; return how they ended."""
    with ScalerExecutor() as executor:
        nap = executor.submit(float, 60)
        slow = executor.options(timeout=timeout).submit(time.sleep, nap)
        how = executor.submit(str, "raise")
        flaky = executor.options(retries=2).submit(tasks.fail_times, directory, 2, how)
        return type(slow.exception()).__name__, flaky.result()


def kill_self():
    """End this worker."""
    os.kill(os.getpid(), signal.SIGKILL)


def send_and_leave(client, nbytes):
    """Send an object, pass it on, and end without a word about it."""
    reference = client.send_object(bytes(nbytes))
    futures = [client.submit(len, reference) for _ in range(5)]
    large = client.submit(bytes, nbytes)
    return sum(future.result() for future in futures), len(large.result())


def send_and_hold(client, directory, nbytes):
    """Hold objects and children until this is killed."""
    reference = client.send_object(bytes(nbytes))
    future = client.submit(hold_large, directory, reference)
    Path(directory, "parent").write_text(str(os.getpid()))
    return future.result(600)


def hold_large(directory, data):
    """Hold an argument for ever."""
    touch_and_sleep(directory, len(data) % 10)


def is_client_usable(client):
    """Use a client that came by another pickle."""
    return client.submit(tasks.square, 7).result()


def with_options(timeout):
    """Submit with a timeout of the child's own; return how that ended."""
    with ScalerExecutor() as executor:
        future = executor.options(timeout=timeout).submit(time.sleep, 60)
        return type(future.exception()).__name__


def retried(directory):
    """Submit what fails twice, with retries."""
    with ScalerExecutor() as executor:
        return executor.options(retries=2).submit(tasks.fail_times, directory, 2, "raise").result()


def cancels_child(client, directory):
    """Cancel a child that runs elsewhere; return how its future looks then."""
    future = client.submit(touch_and_sleep, directory, 0)
    wait_for_flag(Path(directory, "child-0"))
    future.cancel()
    return future.cancelled(), client.submit(tasks.square, 2).result()


def gather_in_asyncio(client, count):
    """Await children in an event loop."""
    import asyncio

    async def gather():
        futures = [client.submit(tasks.square, n) for n in range(count)]
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    return asyncio.run(gather())


def fork_below(client, path):
    """Wait for a child that forks; note that this goes on after it."""
    text = client.submit(tasks.fork_and_return).result()
    tasks.append_line(path, "went on")
    return text


def many_waiters_in_callbacks(client):
    """Wait for a second child in the callback of a first one."""
    found = []
    done = threading.Event()

    def chain(future):
        found.append(client.submit(tasks.square, future.result()).result())
        done.set()

    client.submit(tasks.square, 3).add_done_callback(chain)
    done.wait(30)
    return found


def first_client_after(ready: str, go: str) -> int:
    """Say that it runs, and ask for a task once it may: this worker did not before."""
    Path(ready).write_text(str(os.getpid()))
    while not Path(go).exists():
        time.sleep(0.01)
    return int(Client().submit(abs, -4).result())
