"""What of a value cannot be pickled, and where it lies."""

from __future__ import annotations

import asyncio
import collections
import copyreg
import functools
import logging
import multiprocessing
import queue
import re
import socket
import sqlite3
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.errors import PayloadError
from scaler_cluster.pickling import unpicklable
from scaler_cluster.pickling.payload import dumps
from scaler_cluster.pickling.unpicklable import find

LOCK = threading.Lock()


@pytest.fixture(autouse=True, scope="module")
def as_python_pickles_exceptions():
    """Undo what a library has done to them that another test imported in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, reduce in list(copyreg.dispatch_table.items()):
            if issubclass(kind, BaseException) and reduce.__module__.startswith("tblib"):
                patch.delitem(copyreg.dispatch_table, kind)
        yield


def told(value: object) -> str:
    """Return what is said of a value that cannot be pickled."""
    with pytest.raises(PayloadError) as caught:
        dumps(value)
    return str(caught.value)


# -- wherever it is ------------------------------------------------------------------------------


class Holder:
    """Holds something in an attribute."""

    def __init__(self, held: object) -> None:
        self.count = 3
        self.held = held

    def use(self) -> None:
        """Do nothing."""


class Slotted:
    """Holds something in a slot."""

    __slots__ = ("count", "held")

    def __init__(self, held: object) -> None:
        self.count = 3
        self.held = held


class Mixed(Slotted):
    """Holds things in slots and in attributes."""

    def __init__(self, held: object) -> None:
        super().__init__(3)
        self.more = held


class WithState:
    """Says itself what its state is."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __getstate__(self):
        return [1, self.held]

    def __setstate__(self, state):
        self.held = state[1]


class WithReduce:
    """Says itself what it is made from."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __reduce__(self):
        return WithReduce, (self.held,)


class Listed(list):  # type: ignore[type-arg]
    """A list of a type of its own."""


@dataclass
class Record:
    """Holds something in a field."""

    held: object


class Pair(NamedTuple):
    """Holds something in a field of a tuple."""

    number: int
    held: object


WRAPPERS = {
    "list": lambda one: [1, "a", one],
    "tuple": lambda one: (one, None),
    "dict": lambda one: {"a": 1, 2.5: one},
    "text": lambda one: {"it's": one},
    "attribute": Holder,
    "slot": Slotted,
    "both": Mixed,
    "field": Record,
    "namedtuple": lambda one: Pair(1, one),
    "subclass": lambda one: Listed([1, one]),
    "deque": lambda one: collections.deque([1, one]),
    "defaultdict": lambda one: collections.defaultdict(int, a=one),
    "ordered": lambda one: collections.OrderedDict(a=one),
    "namespace": lambda one: types.SimpleNamespace(a=one),
    "partial": lambda one: functools.partial(max, 1, one),
    "keyword": lambda one: functools.partial(max, key=one),
    "called": lambda one: functools.partial(Holder(one).use),
    "method": lambda one: Holder(one).use,
    "state": WithState,
    "reduce": WithReduce,
    "array": lambda one: np.array([1, one], dtype=object),
    "exception": lambda one: ValueError(1, one),
    "proxy": lambda one: types.MappingProxyType({"a": one}),
}
GOOD = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(), st.just(Holder), st.just(Holder(2))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(), inner, max_size=3),
        st.builds(Holder, inner),
    ),
    max_leaves=5,
)


@given(way=st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=8), beside=GOOD)
def test_its_place_is_named(way, beside):
    """The part of a value that cannot be pickled is named by its way from the value."""
    value: Any = LOCK
    for name in reversed(way):
        value = WRAPPERS[name]([beside, value])

    found = find(value)

    assert found is not None
    assert found.part is LOCK
    # Each step of the way is an expression.
    assert eval("value" + "".join(found.path)) is LOCK


@given(way=st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=8), beside=GOOD)
def test_what_can_be_pickled_is_not_blamed(way, beside):
    """Nothing is found in a value that can be pickled."""
    value = beside
    for name in reversed(way):
        value = WRAPPERS[name](value)

    dumps(value)
    assert find(value) is None


def make(held: object):
    def holder() -> object:
        return held

    return holder


def with_default(_: int, held: object = LOCK) -> None:
    """Have a default."""


def by_value(function: Any, **global_: object) -> Any:
    """Return a function that travels by value, with globals of its own."""
    copy = types.FunctionType(
        function.__code__,
        {"__name__": "__main__", **global_},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = "__main__"
    copy.__qualname__ = function.__qualname__
    return copy


def uses_global() -> object:
    return connection  # type: ignore[name-defined]  # noqa: F821


def uses_other() -> object:
    return other()  # type: ignore[name-defined]  # noqa: F821


CONNECTION = sqlite3.connect(":memory:")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (make(LOCK), "its closure variable held is a _thread.lock, which cannot be pickled"),
        (make({"a": LOCK}), "its closure variable held['a'] is a _thread.lock"),
        (make(make(LOCK)), "its closure variable held, its closure variable held is a _thread"),
        ([make(LOCK)], "its item [0], its closure variable held is a _thread.lock"),
        (Holder(make(LOCK)), "its attribute held, its closure variable held is a _thread.lock"),
        (by_value(with_default), "its default of the parameter held is a _thread.lock"),
        (lambda *, a=LOCK: a, "its default of the parameter a is a _thread.lock"),
        (
            by_value(uses_global, connection=CONNECTION),
            "its global variable connection is a sqlite3.Connection, which cannot be pickled",
        ),
        (
            by_value(uses_other, other=by_value(uses_global, connection=CONNECTION)),
            "its global variable other, its global variable connection is a sqlite3.Connection",
        ),
        (functools.cache(make(LOCK)), "its closure variable held is a _thread.lock"),
        (functools.singledispatch(make(LOCK)), "its closure variable held is a _thread.lock"),
        (type("Local", (), {"lock": LOCK}), "its attribute lock is a _thread.lock"),
        (type("Local", (), {"lock": LOCK})(), "its class Local.lock is a _thread.lock"),
        (
            type("Local", (), {"run": property(make(LOCK))}),
            "its attribute run, its closure variable held is a _thread.lock",
        ),
        ({1, LOCK}, "its member is a _thread.lock"),
        ({(1, LOCK): 2}, "[1] is a _thread.lock"),
    ],
)
def test_what_no_expression_reaches_is_named(value, named):
    """Globals, closure variables, defaults, set members, keys and classes are named."""
    assert named in told(value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (LOCK, "it is a _thread.lock, which cannot be pickled. Each process has its own: make"),
        ((n for n in (1,)), "it is a generator, which cannot be pickled. Use a list"),
        ([socket.socket], None),
        ([threading.Event()], "its item [0] is a threading.Event, which cannot be pickled. Each"),
        (Holder(queue.Queue()), "its attribute held is a queue.Queue, which cannot be pickled."),
        (Holder(queue.SimpleQueue()), "is a _queue.SimpleQueue, which cannot be pickled. Those of"),
        ([multiprocessing.Lock()], "its item [0] is a multiprocessing.synchronize.Lock, whose"),
        (
            [multiprocessing.Lock()],
            "Those of a multiprocessing.Manager() can be passed to tasks. Give others",
        ),
        ([logging.StreamHandler()], "its item [0] is a logging.StreamHandler, which cannot"),
        ([logging.getLogger("a")], None),
        ([asyncio.Lock], None),
        (CONNECTION, "Make it in the task, or once per worker in the initializer."),
    ],
)
def test_what_it_is_and_what_to_do(value, named):
    """The error names the part's type as people know it, and a remedy."""
    if named is None:
        dumps(value)
    else:
        assert named in told(value)


def test_files_sockets_and_executors(tmp_path):
    """Files, sockets and executors are named as what they are."""
    with (
        (tmp_path / "written").open("w") as stream,
        socket.socket() as one,
        ThreadPoolExecutor(1) as pool,
    ):
        assert "is an _io.TextIOWrapper" in told([stream])
        assert "Pass the path of the file" in told([stream])
        assert "its item [0] is a socket.socket" in told([one])
        assert "its item [0] is a concurrent.futures.thread.ThreadPoolExecutor, " in told([pool])


# -- hostile objects -----------------------------------------------------------------------------


class Leaves:
    """Ends the program, or so it seems, when it is pickled."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self):
        raise self.error("on purpose")


class Hostile:
    """Fails whatever is asked of it."""

    def __getattribute__(self, name):
        raise RuntimeError("no")

    def __repr__(self):
        raise SystemExit(3)

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


class Wrong:
    """Is reduced to what nothing can be made from."""

    def __init__(self, to: object) -> None:
        self.to = to

    def __reduce__(self):
        return self.to


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError, ValueError])
def test_whatever_is_raised_where_it_is_pickled(error):
    """What pickling raises becomes the cause of a PayloadError that names the object."""
    with pytest.raises(PayloadError, match=r"its item \[1\] is .*Leaves, whose pickling") as caught:
        dumps([1, Leaves(error)])

    assert type(caught.value.__cause__) is error
    assert f"raises {error.__name__}: on purpose" in str(caught.value)


def test_an_interrupt_is_no_fault_of_a_value():
    """A KeyboardInterrupt passes: nobody can tell it from a real one."""
    with pytest.raises(KeyboardInterrupt):
        dumps([Leaves(KeyboardInterrupt)])


def test_hostile_objects_are_named():
    """An object whose every method fails is named as well."""
    assert "test_unpicklable.Hostile, whose pickling raises" in told([Hostile()])


@pytest.mark.parametrize("to", [5, (), (1,), (int, 5), (1, 2, 3, 4, 5, 6, 7)])
def test_what_is_reduced_wrongly_is_named(to):
    """An object whose __reduce__ returns nonsense is named, or the pickler's own words are told."""
    assert "Wrong" in told([Wrong(to)])


def test_cycles_end():
    """A value that holds itself is walked once."""
    value: list[Any] = [1]
    value += [value, Holder(value)]
    assert find(value) is None

    value.append(LOCK)
    assert "its item [3] is a _thread.lock" in told(value)


def test_depth_has_no_bound():
    """A nesting deeper than the stack is walked, and its way is cut in the middle."""
    value: Any = LOCK
    for _ in range(400):
        value = [value]

    assert re.search(r"its item \[0\]\[0\].* \.\.\. .*\[0\]\[0\] is a _thread.lock", told(value))


def test_too_much_is_not_walked_for_ever(monkeypatch):
    """Nothing is found in a value with more parts than are looked at."""
    monkeypatch.setattr(unpicklable, "VALUES_MAX", 1000)

    class Endless:
        def __reduce__(self):
            return Endless, (Endless(),)

    assert find(Endless()) is None
    assert find([[n] for n in range(1000)] + [LOCK]) is None
