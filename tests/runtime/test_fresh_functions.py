"""A task runs its function as that is at the call: globals, closures, defaults, attributes."""

from __future__ import annotations

import json
import textwrap

import pytest

from tests.runtime.helpers import run_program

PRELUDE = """
    import functools, importlib, itertools, json, sys
    from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
    answers = []
"""
ENDING = """
    print(json.dumps(answers))
"""
ENGINES = {
    "executor": """
    executor = ScalerExecutor(2)
    run = lambda function, *args: executor.submit(function, *args).result(60)
    """,
    "map": """
    executor = ScalerExecutor(2)
    run = lambda function, *args: next(executor.map(function, *([one] for one in args or [0])))
    """,
    "client": """
    cluster = SchedulerClusterCombo(2)
    executor = Client(cluster.get_address())
    run = lambda function, *args: executor.submit(function, *args).result(60)
    """,
    "graph": """
    cluster = SchedulerClusterCombo(2)
    executor = Client(cluster.get_address())
    run = lambda function, *args: executor.get({"it": (function, *args)}, ["it"])["it"]
    """,
    "serializer": """
    import cloudpickle
    from scaler_exec import Serializer
    class Plain(Serializer):
        serialize = staticmethod(cloudpickle.dumps)
        deserialize = staticmethod(cloudpickle.loads)
    cluster = SchedulerClusterCombo(2)
    executor = Client(cluster.get_address(), serializer=Plain)
    run = lambda function, *args: executor.submit(function, *args).result(60)
    """,
}


def answers_of(program: str, engine: str = "executor"):
    """Run a program as a script; return what it put into ``answers``, as (got, expected)."""
    parts = (PRELUDE, ENGINES[engine], program, ENDING)
    done = run_program("\n".join(map(textwrap.dedent, parts)))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(program: str, engine: str = "executor") -> None:
    """Run a program; everything in ``answers`` is to be a pair of equals."""
    answers = answers_of(program, engine)
    assert answers
    assert [got for got, _ in answers] == [expected for _, expected in answers]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_of_main_sees_its_globals(engine) -> None:
    """A function of __main__ sees its globals as they are at each call."""
    check(
        """
        K = 5
        def times(x): return K * x
        for K in (5, 6, 6, 6, 1000, 1001, 1000, 6):
            answers.append((run(times, 2), 2 * K))

        L, D = [1], {"a": [0, 0]}
        def look(_=0): return [list(L), D["a"][1]]
        for n in range(5):
            answers.append((run(look), look()))
            L.append(n)
            D["a"][1] = n
        L[0] = 99
        answers.append((run(look), look()))

        def helper(_=0): return 1
        def calls(_=0): return helper()
        for _ in range(3):
            answers.append((run(calls), 1))
        def helper(_=0): return 2
        answers.append((run(calls), 2))

        def asks(_=0): return "gone" if "lost" not in globals() else lost
        lost = 1
        for _ in range(3):
            answers.append((run(asks), 1))
        del lost
        answers.append((run(asks), "gone"))
        """,
        engine,
    )


def test_closures_defaults_and_attributes_are_seen() -> None:
    """Changed closures, defaults and attributes are seen, also of functions and methods named."""
    check(
        """
        def make():
            count = 0
            def get(): return count
            def bump():
                nonlocal count
                count += 1
            return get, bump
        get, bump = make()
        for n in range(5):
            answers.append((run(get), n))
            bump()

        def defaults(x=1, *, y=2): return [x, y]
        for n in range(5):
            answers.append((run(defaults), defaults()))
            if n % 2: defaults.__defaults__ = (n,)
            else: defaults.__kwdefaults__["y"] = n

        def attribute(): return attribute.mark
        for attribute.mark in (1, 1, 1, 2, 3):
            answers.append((run(attribute), attribute.mark))

        class Box:
            def __init__(self): self.value = 0
            def get(self): return self.value
        box = Box()
        def look(): return box.value
        for box.value in (0, 0, 1, 1, 2):
            answers.append((run(box.get), box.value))
            answers.append((run(look), box.value))
            answers.append((run(functools.partial(lambda b: b.value, box)), box.value))

        class Slotted:
            __slots__ = ("value",)
        slotted = Slotted()
        def slot(): return slotted.value
        for slotted.value in (1, 1, 1, 2):
            answers.append((run(slot), slotted.value))

        def code(): return 1
        for _ in range(3): answers.append((run(code), 1))
        code.__code__ = (lambda: 2).__code__
        answers.append((run(code), 2))
        """
    )


@pytest.mark.parametrize("engine", ["executor", "graph"])
def test_classes_of_main_are_as_they_are_at_the_call(engine) -> None:
    """Classes of __main__ are in tasks as they are at the call, and unchanged in the caller."""
    check(
        """
        class Shape:
            sides = 3
            @classmethod
            def count(cls): return cls.sides
        def look(): return [Shape.sides, Shape.count()]
        def make(): return Shape()
        for Shape.sides in (3, 3, 4, 3, 5, 4, 4, 3):
            answers.append((run(look), [Shape.sides] * 2))
        for Shape.sides in (7, 8):
            made = run(make)
            Shape.sides = before_it_came = 0
            made = run(make)
            answers.append((type(made) is Shape, True))
            answers.append((Shape.sides, before_it_came))
        Shape.name = lambda self: "shape"
        answers.append((run(lambda: Shape().name()), "shape"))
        """,
        engine,
    )


def test_a_result_does_not_change_the_class_that_it_is_of() -> None:
    """An instance that comes back late leaves its class as the caller has it by then."""
    check(
        """
        class Shape:
            sides = 3
        future = executor.submit(lambda: Shape())
        Shape.sides = 4
        shape = future.result(60)
        answers.append((Shape.sides, 4))
        answers.append((shape.sides, 4))
        """
    )


def test_arrays_of_a_function_are_looked_at() -> None:
    """A changed array in a global, closure or partial is seen, small or large."""
    check(
        """
        import numpy as np
        for size in (10, 100_000):
            values = np.zeros(size)
            def total(): return float(values.sum())
            def make(inner): return lambda: float(inner.sum())
            closure, partial = make(values), functools.partial(np.sum, values)
            for n in range(4):
                for function in (total, closure, partial):
                    answers.append((float(run(function)), size * n))
                values += 1
        """
    )


def test_a_task_that_submits_its_own_function_sees_what_it_changed() -> None:
    """A function that was unpickled in a worker is pickled as it is there."""
    check(
        """
        K = 1
        def outer(client_address, depth):
            global K
            if depth == 0:
                return K
            K += 1
            with ScalerExecutor() as inner:
                return inner.submit(outer, client_address, depth - 1).result(60)
        for depth in (1, 2, 1, 3):
            answers.append((run(outer, "", depth), None))
        answers[:] = [(got > 1, True) for got, _ in answers]
        """
    )


def test_functions_do_not_live_longer_for_being_known() -> None:
    """A function that was submitted goes with its last reference, also a recursive closure."""
    check(
        """
        import gc, weakref
        def make():
            def fact(n): return 1 if n < 2 else n * fact(n - 1)
            return fact
        def make_plain(k): return lambda n: n + k
        for maker in (make, lambda: make_plain(3)):
            function = maker()
            for _ in range(4): run(function, 3)
            dead = weakref.ref(function)
            del function
            gc.collect()
            answers.append((dead() is None, True))
        def again(n): return n if n == 0 else again(n - 1)
        for _ in range(4): run(again, 2)
        dead = weakref.ref(again)
        del again
        gc.collect()
        answers.append((dead() is None, True))
        """
    )


def test_workers_reload_what_the_caller_reloads(tmp_path) -> None:
    """All workers run the new code of a module, whether they had the old one or none."""
    directory = json.dumps(str(tmp_path))
    check(
        f"""
        import os, pathlib, time
        directory = pathlib.Path({directory})
        sys.path.insert(0, str(directory))
        sys.dont_write_bytecode = True
        def write(number):
            (directory / "reloaded_module.py").write_text(f"NUMBER = {{number}}\\n"
                "def value(_=None): return NUMBER\\n" + "#" * number +
                # A file of another size: what was compiled of the old one is not taken for it.
                "\\n"
                "class Thing:\\n    def value(self): return NUMBER\\n")
            (directory / "user_module.py").write_text(
                "import reloaded_module\\ndef value(_): return reloaded_module.value()\\n")
        write(1)
        executor.shutdown()
        executor = ScalerExecutor(3)
        import reloaded_module, user_module
        answers.append((executor.submit(reloaded_module.value).result(60), 1))
        for number in (2, 3):
            write(number)
            importlib.reload(reloaded_module)
            for function in (reloaded_module.value, user_module.value):
                answers.append((sorted(set(executor.map(function, range(200)))), [number]))
            things = [reloaded_module.Thing() for _ in range(100)]
            got = executor.map(lambda thing: thing.value(), things)
            answers.append((sorted(set(got)), [number]))
        """
    )


def test_a_reload_that_raises_hurts_nothing_else(tmp_path) -> None:
    """A reload that raises leaves workers with the module as far as the caller's got."""
    directory = json.dumps(str(tmp_path))
    check(
        f"""
        import pathlib
        directory = pathlib.Path({directory})
        sys.path.insert(0, str(directory))
        sys.dont_write_bytecode = True
        module = directory / "half_module.py"
        module.write_text("NUMBER = 1\\ndef value(): return NUMBER\\n")
        executor.shutdown()
        executor = ScalerExecutor(1)
        import half_module, math
        answers.append((executor.submit(half_module.value).result(60), 1))
        module.write_text("NUMBER = 20\\nraise LookupError\\n")
        try:
            importlib.reload(half_module)
        except LookupError:
            pass
        for _ in range(2):
            answers.append((executor.submit(half_module.value).result(60), half_module.value()))
            answers.append((executor.submit(math.sqrt, 4).result(60), 2.0))
        """
    )


def test_a_reload_that_raises_in_a_worker_alone_is_told(tmp_path) -> None:
    """A worker never runs old code in silence where the caller has the new."""
    directory = json.dumps(str(tmp_path))
    check(
        f"""
        import os, pathlib
        directory = pathlib.Path({directory})
        sys.path.insert(0, str(directory))
        sys.dont_write_bytecode = True
        module = directory / "here_module.py"
        module.write_text("def value(): return 1\\n")
        executor.shutdown()
        executor = ScalerExecutor(1)
        import here_module
        answers.append((executor.submit(here_module.value).result(60), 1))
        module.write_text(
            f"import os\\nassert os.getpid() == {{os.getpid()}}\\ndef value(): return 2\\n")
        importlib.reload(here_module)
        for _ in range(2):
            error = executor.submit(here_module.value).exception(60)
            answers.append(("AssertionError" in str(error), True))
        """
    )


def test_modules_that_are_registered_travel_by_value(tmp_path) -> None:
    """A module registered with cloudpickle travels by value after a worker has missed it."""
    directory = json.dumps(str(tmp_path))
    check(
        f"""
        import pathlib, cloudpickle
        executor.submit(abs, 1).result(60)
        directory = pathlib.Path({directory})
        sys.path.insert(0, str(directory))
        (directory / "own_module.py").write_text(
            "NUMBER = 1\\ndef value(_=None): return NUMBER\\n"
            "class Thing:\\n    def value(self): return NUMBER\\n")
        import own_module
        error = executor.submit(own_module.value).exception(60)
        answers.append(("register_pickle_by_value(own_module)" in str(error), True))
        cloudpickle.register_pickle_by_value(own_module)
        for number in (1, 2):
            own_module.NUMBER = number
            answers.append((executor.submit(own_module.value).result(60), number))
            answers.append((list(executor.map(own_module.value, range(3))), [number] * 3))
            things = [own_module.Thing() for _ in range(3)]
            get = lambda thing, *_: thing.value()
            answers.append((executor.submit(get, things[0]).result(60), number))
            answers.append((list(executor.map(get, things)), [number] * 3))
            def through_module(): return own_module.value()
            answers.append((executor.submit(through_module).result(60), number))
        """
    )
