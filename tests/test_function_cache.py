"""What is known of a function holds until something that it uses has changed."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import logging
import math
import random
import re
import types
import weakref

import pytest

from scaler_cluster.pickling.by_value import is_importable
from scaler_cluster.pickling.function_cache import FUNCTIONS_MAX, OBJECTS_MAX, FunctionCache

cache: FunctionCache[str] = FunctionCache()


def known(function) -> bool:
    """Return True if a function is known, without a look, the third time it is used."""
    for _ in range(2):
        cache.put(function, cache.look(function), "made")
    return cache.get(function) == "made"


def in_main(source: str, **names) -> dict[str, object]:
    """Return the globals of a script, whose functions no other process can import."""
    namespace: dict[str, object] = {"__name__": "__main__", **names}
    exec(source, namespace)
    return namespace


@dataclasses.dataclass
class Point:
    x: int


class Plain:
    def __init__(self) -> None:
        self.value = [1]


class Reducing:
    def __reduce__(self):
        return Reducing, ()


class Slotted:
    __slots__ = ("a", "b")


KNOWN = {
    "number": 5,
    "text": "x",
    "tuple": (1, ("a", None)),
    "list": [1, [2]],
    "dict": {"a": {"b": [1]}},
    "set": {1, 2},
    "module": math,
    "function": math.sqrt,
    "importable class": Point,
    "instance": Plain(),
    "dataclass instance": Point(1),
    "partial": functools.partial(pow, 2),
    "logger": logging.getLogger("x"),
    "pattern": re.compile("x"),
    "slots": Slotted(),
}
UNKNOWN = {
    "bytearray": bytearray(3),
    "own way of pickling": Reducing(),
    "iterator": iter([1]),
    "too many": list(range(OBJECTS_MAX + 1)),
    "list of unknown": [bytearray(1)],
    "key of a dict": {Reducing(): 1},
    "module of no file": types.ModuleType("made_here"),
    "method of a random generator": random.Random(1).random,
    "abstract class": in_main("import abc\nclass A(abc.ABC): pass")["A"],
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_to_be_unchanged(name) -> None:
    """A function that refers to values that never change is pickled once."""
    assert known(in_main("def f(): return v", v=KNOWN[name])["f"])


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_may_change_unseen(name) -> None:
    """A function that refers to values that may change unseen is pickled each time."""
    assert not known(in_main("def f(): return v", v=UNKNOWN[name])["f"])


CHANGES = {
    "a global": ("K = 1\ndef f(): return K", "K = 2"),
    "a global that goes": ("K = 1\ndef f(): return K", "del K"),
    "a global that comes": ("def f(): return K", "K = 1"),
    "an inner function's global": ("K = 1\ndef f(): return [K for _ in 'a']", "K = 2"),
    "a list": ("L = [1]\ndef f(): return L", "L.append(2)"),
    "an item": ("L = [1000]\ndef f(): return L", "L[0] = 1001"),
    "a nested list": ("L = {'a': [1]}\ndef f(): return L", "L['a'][0] = 2"),
    "a key": ("D = {'a': 1}\ndef f(): return D", "D['b'] = D.pop('a')"),
    "a set": ("S = {1, 2}\ndef f(): return S", "S.add(3); S.remove(1)"),
    "an equal number of another type": ("S = {1}\ndef f(): return S", "S.clear(); S.add(True)"),
    "the code": ("def f(): return 1", "f.__code__ = (lambda: 2).__code__"),
    "the defaults": ("def f(x=1): return x", "f.__defaults__ = (2,)"),
    "a mutable default": ("def f(x=[]): return x", "f.__defaults__[0].append(1)"),
    "a keyword's default": ("def f(*, x=1): return x", "f.__kwdefaults__['x'] = 2"),
    "an attribute": ("def f(): return f.mark\nf.mark = 1", "f.mark = 2"),
    "a closure": (
        ("def make():\n n = 0\n def get(): return n\n def bump():\n  nonlocal n\n  n += 1\n"
        " return get, bump\nf, bump = make()"),
        "bump()",
    ),
    "a helper's global": ("K = 1\ndef g(): return K\ndef f(): return g()", "K = 2"),
    "a helper's default": ("def g(x=1): return x\ndef f(): return g()", "g.__defaults__ = (2,)"),
    "a helper": ("def g(): return 1\ndef f(): return g()", "def g(): return 2"),
    "the same name": ("def f(n): return f(n - 1)", "old, f = f, len"),
    "a class attribute": ("class C:\n a = 1\ndef f(): return C.a", "C.a = 2"),
    "a method": ("class C:\n def m(self): return 1\ndef f(): return C", "C.m = lambda self: 2"),
    "a method's global": ("K = 1\nclass C:\n def m(self): return K\ndef f(): return C", "K = 2"),
    "a static method's global": (
        "K = 1\nclass C:\n @staticmethod\n def m(): return K\ndef f(): return C", "K = 2",
    ),
    "a property's global": (
        "K = 1\nclass C:\n @property\n def m(self): return K\ndef f(): return C", "K = 2",
    ),
    "a base's attribute": (
        "class B:\n a = 1\nclass C(B): pass\ndef f(): return C.a", "B.a = 2",
    ),
    "a base": (
        "class A: pass\nclass B(A): pass\nclass C(B): pass\ndef f(): return C",
        "C.__bases__ = (A,)",
    ),
    "an instance": ("class C: pass\nc = C()\nc.a = 1\ndef f(): return c.a", "c.a = 2"),
    "an instance's dictionary": (
        "class C: pass\nc = C()\ndef f(): return c", "c.__dict__ = {'a': 1}",
    ),
    "an instance's class": (
        "class C: pass\nclass D: pass\nc = C()\ndef f(): return c", "c.__class__ = D",
    ),
    "a slot": ("class C: __slots__ = ('a',)\nc = C()\ndef f(): return c", "c.a = 1"),
    "a partial's list": (
        "import functools\nL = []\np = functools.partial(len, L)\ndef f(): return p()",
        "L.append(1)",
    ),
    "a bound method's instance": (
        "class C:\n def m(self): pass\nc = C()\nm = c.m\ndef f(): return m()", "c.a = 1",
    ),
    "a dictionary's method": ("D = {1: 1}\nget = D.get\ndef f(): return get(1)", "D[1] = 2"),
    "a list's length": ("L = []\nlength = L.__len__\ndef f(): return length()", "L.append(1)"),
    "a class in an annotation": (
        "class C: a = 1\nA = list[C]\ndef f(): return A", "C.a = 2",
    ),
    "a class in a union": ("class C: a = 1\nA = C | None\ndef f(): return A", "C.a = 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name) -> None:
    """A change of whatever a function refers to is seen."""
    before, change = CHANGES[name]
    namespace = in_main(before)
    function = namespace["f"]
    assert known(function), "the test would show nothing"
    exec(change, namespace)

    assert cache.get(function) is None


def test_a_change_between_look_and_put_is_seen() -> None:
    """A change while a function is pickled makes it be pickled anew."""
    namespace = in_main("K = 1\ndef f(): return K")
    function = namespace["f"]
    cache.put(function, cache.look(function), "first")
    state = cache.look(function)
    namespace["K"] = 2
    cache.put(function, state, "second")

    assert cache.get(function) is None


@pytest.mark.parametrize(
    "source",
    [
        "def f(): return 1",
        "def f(n): return f(n)",
        "def f(n): return g(n)\ndef g(n): return f(n)",
        "def make():\n def f(n): return f(n)\n return f\nf = make()",
        "class C:\n def m(self): return f()\ndef f(): return C().m()",
        "def f(): return f.me\nf.me = f",
    ],
)
def test_what_is_known_keeps_no_function(source) -> None:
    """A function goes with its last reference, whatever refers to it from within."""
    namespace = in_main(source)
    known(namespace["f"])
    dead = weakref.ref(namespace["f"])
    namespace.clear()
    gc.collect()

    assert dead() is None


def test_functions_that_their_globals_keep_are_forgotten_in_time() -> None:
    """A snapshot that holds the globals of its function keeps it, until there are many."""
    namespace = in_main("def f(n): return f(n)")
    dead = weakref.ref(namespace["f"])
    cache: FunctionCache[str] = FunctionCache()
    cache.put(namespace["f"], cache.look(namespace["f"]), "made")
    cache.put(namespace["f"], cache.look(namespace["f"]), "made")
    del namespace
    others = [in_main("def f(): pass")["f"] for _ in range(FUNCTIONS_MAX)]
    for one in others:
        cache.put(one, cache.look(one), "made")
    gc.collect()

    assert dead() is None


def test_modules_that_travel_by_value_are_not_known_by_name(monkeypatch) -> None:
    """A package that is registered with cloudpickle travels by value with its modules."""
    functions = [in_main("def f(): return v", v=v)["f"] for v in (json.decoder, json.loads)]
    assert all(map(known, functions))
    monkeypatch.setattr("scaler_cluster.pickling.by_value.REGISTERED", {"json"})

    assert not is_importable(json.decoder.JSONDecoder)
    assert not known(in_main("def f(): return v", v=json.decoder)["f"])


def test_only_importable_things_are_known_by_name() -> None:
    """Only what another process can import under its name is known by name."""
    assert is_importable(math.sqrt)
    assert is_importable(Point)
    assert is_importable(known)
    assert not is_importable(lambda: 0)
    assert not is_importable(in_main("def f(): pass")["f"])
