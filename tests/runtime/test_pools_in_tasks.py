"""``multiprocessing`` and the standard library's pool inside of tasks, as in any program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.helpers import BOUND_S, run_program, wait_gone

PROGRAM = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from scaler_exec import Client, ScalerExecutor

level = None

@dataclass
class Point:
    x: int

    def up(self):
        return Point(self.x + 1)

class Wrong(Exception):
    pass

def square(n):
    return n * n

def up(point):
    assert isinstance(point, Point)
    return point.up()

def fail(n):
    raise Wrong(n)

def set_level(n):
    global level, other
    level = other = n

def add(n):
    return level + other + n

def put(queue):
    queue.put((Point(3), multiprocessing.current_process().daemon))

def use_pool(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        (point,) = pool.map(up, [Point(1)])
        assert type(point) is Point
        found = [pool.map(square, range(4)), point, list(pool.imap(lambda n: n + 1, range(3)))]
        try:
            pool.apply(fail, (3,))
        except Wrong as error:
            found.append(repr(error))
    with multiprocessing.get_context(method).Pool(1, set_level, (50,)) as pool:
        return [*found, pool.map(add, range(3))]

def use_executor(method):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, context, set_level, (50,)) as executor:
        (point,) = executor.map(up, [Point(1)])
        assert type(point) is Point
        failed = repr(executor.submit(fail, 2).exception())
        return [list(executor.map(square, range(4))), point, failed, executor.submit(add, 1).result()]

def use_process(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=put, args=(queue,))
    process.start()
    found = queue.get(timeout=20)
    process.join()
    return [*found, process.exitcode]
"""
USED = [
    "[[0, 1, 4, 9], Point(x=2), [1, 2, 3], 'Wrong(3)', [100, 101, 102]]",
    "[[0, 1, 4, 9], Point(x=2), 'Wrong(2)', 101]",
    "[Point(x=3), False, 0]",
]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_take_functions_and_classes_of_main(method: str) -> None:
    """A pool in a task takes functions and classes of __main__, and lambdas."""
    source = (
        PROGRAM
        + f"""
with ScalerExecutor(1) as executor:
    for use in use_pool, use_executor, use_process:
        print(executor.submit(use, {method!r}).result({BOUND_S}))
"""
    )
    done = run_program(source)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == USED


def test_a_pool_runs_what_its_task_is_made_of() -> None:
    """A pool in a task runs its own task's functions, not another task's of the same name."""
    source = (
        PROGRAM
        + """
def take(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(square, [3])

other = '''
from scaler_exec import Client
import multiprocessing, sys
def square(n):
    return -n
def take(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(square, [3])
with Client(sys.argv[1]) as client:
    print(client.submit(take, "fork").result(), client.submit(take, "spawn").result(), flush=True)
'''
import subprocess
with ScalerExecutor(1) as executor:
    for method in "fork", "spawn":
        print(executor.submit(take, method).result(), flush=True)
    subprocess.run([sys.executable, "-c", other, executor.address], check=True)
    for factor in 10, 20:
        def square(n):
            return n + factor
        def take(method):
            with multiprocessing.get_context(method).Pool(1) as pool:
                return pool.map(square, [3])
        for method in "fork", "spawn":
            print(executor.submit(take, method).result())
"""
    )
    done = run_program(source)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[9]", "[9]", "[-3]", "[-3]", "[13]", "[13]", "[23]", "[23]"]


def test_what_starts_in_a_task_does_not_run_the_clusters_program_again() -> None:
    """A worker's ``__main__`` is an empty module, and its process one of a pool's."""
    source = (
        PROGRAM
        + """
def ask():
    main = sys.modules["__main__"]
    return hasattr(main, "__file__"), main.__spec__, multiprocessing.current_process().name

with ScalerExecutor(2) as executor:
    print(executor.submit(ask).result())
"""
    )
    done = run_program(source)

    assert done.stdout in ("(False, None, 'Worker-0')\n", "(False, None, 'Worker-1')\n"), (
        done.stderr
    )


END = r"""
def mark():
    return multiprocessing.current_process()._config["semprefix"].split("-")[1]

def nap(path):
    open(path, "a").write(f"{os.getpid()}\n")
    time.sleep(1000)

def sleep_in_pool(method, path):
    with multiprocessing.get_context(method).Pool(2) as pool:
        pool.map(nap, [path, path])

def leave_running(method, path):
    global kept
    context = multiprocessing.get_context(method)
    kept = context.Pool(1), ProcessPoolExecutor(1, context), context.Process(target=nap, args=(path,))
    kept[0].apply_async(nap, (path,))
    kept[1].submit(nap, path)
    kept[2].start()
    while open(path, "a+").tell() == 0 or len(open(path).readlines()) < 3:
        time.sleep(0.01)
"""
HOW = {
    "timeout": "executor.options(timeout=0.2).submit(sleep_in_pool, {method!r}, {path!r}).exception()",
    "cancel": """
future = executor.submit(sleep_in_pool, {method!r}, {path!r})
while not os.path.exists({path!r}) or len(open({path!r}).readlines()) < 2:
    time.sleep(0.01)
future.cancel()
""",
    "left": "executor.submit(leave_running, {method!r}, {path!r}).result()",
}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("how", list(HOW))
def test_no_pool_outlives_its_task_or_its_cluster(method: str, how: str, tmp_path: Path) -> None:
    """No process or semaphore of a pool outlives its task, however that ends."""
    path = tmp_path / "pids"
    text = HOW[how].format(method=method, path=str(path))
    body = "\n".join(f"    {line}" for line in text.splitlines())
    done = run_program(
        f"{PROGRAM}{END}\n"
        f"with ScalerExecutor(1) as executor:\n    print(executor.submit(mark).result())\n{body}\n"
        "print('ended')"
    )
    mark, _, ended = done.stdout.strip().partition("\n")

    assert ended == "ended", done.stderr
    if path.exists():
        wait_gone(*map(int, path.read_text().split()))
    assert not list(Path("/dev/shm").glob(f"sem.mp-{mark}-*"))
