"""``scaler.compat.ray``: programs for Ray, without Ray and beside an installed one.

It takes the name ``ray`` in its process, so each program has a process of its own.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.runtime.helpers import run_program

pytestmark = pytest.mark.slow
FUNCTIONS = """
from concurrent.futures import CancelledError
import time
import numpy as np
import scaler.compat.ray
import ray
from scaler.compat.ray import scaler_init

@ray.remote
def add(a, b=0):
    return a + b

@ray.remote(num_returns=2)
def both(value):
    return value, -value

@ray.remote
def total(refs):
    return sum(ray.get(refs))

@ray.remote
def fib(n):
    return n if n < 2 else sum(ray.get([fib.remote(n - 1), fib.remote(n - 2)]))

@ray.remote
def slow(seconds):
    time.sleep(seconds)
    return seconds

@ray.remote
def fail():
    raise KeyError("x")

@ray.remote
def return_reference():
    return add.remote(1)

@ray.remote
class Counter:
    pass

def said(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""
PROGRAM = """
scaler_init(n_workers=2)
print(ray.is_initialized(), said(scaler_init))

ref = add.remote(1, 2)
print(ray.get(ref), ray.get(add.remote(ref, b=ref)))
positive, negative = both.remote(7)
print(ray.get([positive, negative]), ray.get(add.remote(positive, negative)))
print(ray.get(total.remote([add.remote(n, n) for n in range(4)])))
stored = ray.put(np.ones(100_000))
print(ray.get(stored).sum(), ray.get(add.remote(stored, b=stored)).sum())
print(ray.get(total.remote((ray.put(3), ray.put(4)))), ray.get(fib.remote(7)))
print(sorted(ray.util.map_unordered(add, [1, 2, 3])))
refs = [add.remote(n) for n in range(3)]
print(sorted(ray.util.as_completed(refs)))
print(set(ray.util.as_completed(refs, yield_obj_refs=True)) == set(refs))

fast, endless = add.remote(0), slow.remote(1000)
ready, others = ray.wait([endless, fast])
print(ready == [fast], others == [endless], ray.wait([endless], timeout=0.01) == ([], [endless]))
print(said(ray.get, endless, timeout=0.01))
ray.cancel(endless)
try:
    ray.get(endless)
except ray.exceptions.TaskCancelledError as error:
    print(isinstance(error, CancelledError))

print(said(ray.get, fail.remote()))
print(said(ray.get, both.options(num_returns=3).remote(1)))
print(said(add, 1))
print(said(ray.get, 5))
print(said(ray.wait, [fast, fast]))
print(said(ray.wait, [fast], num_returns=2))
print(said(ray.remote, num_returns=0))
print(said(add.options, runtime_env={"pip": ["x"]}))
print(said(add.options, wrong=1))
print("a task cannot return it" in said(ray.get, return_reference.remote()))
kept = ray.put(1)
print("no function or file keeps it" in said(ray.get, ray.remote(lambda: kept).remote()))
print("no function or file keeps it" in said(ray.get, ray.remote(lambda x: kept).remote([kept])))
ray.shutdown()
print(ray.is_initialized())

ray.init(num_cpus=1)
print(ray.is_initialized(), ray.get(add.options(name="one", num_cpus=0.5).remote(1)))
ray.shutdown()
"""
PRINTED = """\
True RuntimeError: cannot initialize twice: call shutdown() in between
3 6
[7, -7] 0
12
100000.0 200000.0
7 13
[1, 2, 3]
[0, 1, 2]
True
True True True
GetTimeoutError: not all of 1 values were there after 0.01 s
True
KeyError: 'x'
ValueError: the task has returned 2 values, and num_returns=3
TypeError: call add.remote(...) in place of add(...): it runs as a task
TypeError: references are needed, or a list of them, not int
ValueError: each reference may be given once
ValueError: num_returns is 2, and there are 1 references
ValueError: num_returns must be a whole number of 1 or more, not 0
NotImplementedError: runtime_env is not there: tasks run in the environment of their workers
ValueError: 'wrong' is no option of a remote function
True
True
True
False
True 1
"""


def test_programs_run_without_ray() -> None:
    """Tasks, references among arguments and inside of values, nested tasks, wait, errors."""
    done = run_program(FUNCTIONS + PROGRAM)

    assert (done.stdout, done.stderr) == (PRINTED, "")


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
def test_an_installed_ray_is_patched() -> None:
    """``ray`` is Ray's own module, whose functions are this layer's, also in the workers."""
    done = run_program(f"import ray\n{FUNCTIONS}{PROGRAM}")

    assert done.stdout == PRINTED


def test_what_is_not_there_says_so() -> None:
    """What only a cluster of Ray knows; addresses of such a cluster."""
    program = """
for name in ("get_actor", "timeline", "nodes", "get_runtime_context"):
    print(said(getattr(ray, name)))
print(said(Counter.options, lifetime="detached"))
print(said(ray.init, "ray://host:10001"))
print(said(scaler_init, "tcp://127.0.0.1:1", n_workers=2))
"""
    done = run_program(FUNCTIONS + program)

    lines = done.stdout.splitlines()
    assert all("NotImplementedError: ray." in one for one in lines[:4]), done
    assert lines[4] == (
        "NotImplementedError: lifetime is not there: an actor ends with the client that had it made"
    )
    assert "scaler_init(address=...) connects" in lines[5]
    assert lines[6].startswith("TypeError: n_workers is a setting of a new cluster")


def test_actors_are_those_of_the_engine() -> None:
    """They keep their state, take references, go into tasks, and end when they are killed."""
    program = """
scaler_init(n_workers=2)

@ray.remote
class Account:
    def __init__(self, money):
        self.money = money

    def add(self, money):
        self.money += money
        return self.money

@ray.remote
def pay(account, money):
    return ray.get(account.add.remote(money))

account = Account.remote(ray.put(5))
print(ray.get([account.add.remote(1), account.add.remote(pay.remote(account, 10))]))
print(said(Account, 3))
ray.kill(account)
try:
    ray.get(account.add.remote(1))
except ray.exceptions.RayActorError as error:
    print(type(error).__name__)
ray.shutdown()
"""
    done = run_program(FUNCTIONS + program)

    assert done.stdout.splitlines() == [
        "[6, 32]",
        "TypeError: call Account.remote(...) in place of Account(...)",
        "ActorDiedError",
    ], done


def test_a_folder_named_ray_is_not_ray(tmp_path) -> None:
    """A folder of notes is no installed Ray, whether it was imported before or not."""
    if importlib.util.find_spec("ray") is not None:
        pytest.skip("Ray is installed")
    (tmp_path / "ray").mkdir()
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
%s
import scaler.compat.ray
import ray
import ray.util
from ray.exceptions import GetTimeoutError
print(ray.remote.__module__, ray.util.as_completed.__module__)
"""
    for before in ("", "import ray"):
        done = run_program(program % before)
        assert "scaler_compat.ray scaler_compat.ray\n" == done.stdout, done.stderr


def test_options_of_classes_and_methods() -> None:
    """Those of the decorator stay; what a method cannot do is said when it is decorated."""
    program = """
import scaler.compat.ray
import ray

@ray.remote(resources={"unicorn": 1})
class Counter:
    @ray.method(num_returns=1, max_task_retries=2)
    def add(self):
        pass

print(Counter.options(num_gpus=2)._capabilities)
for wrong in ({"num_returns": 2}, {"concurrency_group": "x"}, {"num_cpus": 1}):
    try:
        ray.method(**wrong)
    except Exception as error:
        print(type(error).__name__)
"""
    done = run_program(program)
    assert [
        "{'unicorn': 1, 'gpu': 2}", "NotImplementedError", "NotImplementedError", "ValueError",
    ] == done.stdout.splitlines(), done.stderr  # fmt: skip
