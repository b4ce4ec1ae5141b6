"""Plays programs on one engine: ``python player.py ENGINE``.

It reads a program on each line, as JSON, and writes its answers on a line, as JSON. A program is a
list of steps:

- ``["submit", function, [arguments]]``
- ``["map", function, source, options]``: a source is ``["list", [arguments]]``,
  ``["repeat", argument, times]`` or ``["reuse", value, times]``, a generator that yields one value
  again and again and changes it in between
- ``["change", name, number]``: in place, of a value, or of what a function refers to
- ``["settle"]``: wait until all results are there
- ``["scene", name]``: what cannot be said so, see ``scenes.py`` and ``differing.py``

An argument is ``["value", name]`` or ``["literal", anything]``.

The functions are those of a script's ``__main__``, and what they refer to is changed there. The
engine ``model`` says what is right: it calls a function at once, in this process, on a deep copy.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import faulthandler
import functools
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.differential import errands, scenes
from tests.differential.differing import DIFFERENCES
from tests.differential.engines import Answer, engine_of, outcome
from tests.differential.showing import show
from tests.differential.values import make_values

# -- what functions refer to -----------------------------------------------------------------------

NUMBER = 5
WORDS = ["a", ["b"]]
WEIGHTS = np.arange(20_000.0)
SCALES = np.arange(5.0)
NESTED: dict[str, Any] = {"weights": np.arange(20_000.0), "words": ["c"]}


class Box:
    """A class of the script, and two of its instances below."""

    factor = 1
    tags = ["x"]  # noqa: RUF012 - as users write it

    def __init__(self) -> None:
        self.size = 1
        self.items: list[int] = []
        self.data = np.arange(20_000.0)

    def measure(self, *values):
        return self.size, show([self.data, self.items]), self.factor, show(values)

    def grow(self, *values):
        self.size += 1
        self.items.append(self.size)
        return self.size, list(self.items), show(values)

    def __call__(self, *values):
        self.size += 1
        return self.size, show(values)

    @staticmethod
    def plain(*values):
        return NUMBER, show(values)

    @classmethod
    def made(cls, *values):
        return cls.factor, list(cls.tags), show(values)

    def replaced(self, *values):
        return "first", show(values)


class Child(Box):
    """Its base is another class of the script."""


BOX = Box()
CHILD = Child()


class OwnError(errands.Wrong):
    """An exception of the script, which is made from two arguments."""


class Shade(enum.Enum):
    """An enumeration of the script."""

    DARK = 1


@dataclasses.dataclass(frozen=True)
class Pair:
    """A class whose methods are made for it."""

    left: object
    right: object = Shade.DARK


def inner():
    return NUMBER, list(WORDS)


def first():
    return "first"


def second():
    return "second"


chosen = first


def shows(*values):
    return show(values)


def same(*values):
    return values


def reads(*values):
    return NUMBER, show(WORDS), show(values)


def reads_arrays(*values):
    return show([WEIGHTS, SCALES, NESTED]), show(values)


def reads_deeply(*values):
    return inner(), show(values)


def calls_chosen(*values):
    return chosen(), show(values)


def reads_class(*values):
    return Box.factor, list(Box.tags), Child.factor, BOX.size, Box().replaced(), show(values)


def has_default(*values, words=[]):  # noqa: B006 - it is changed on purpose
    return list(words), show(values)


def has_keyword(*values, number=1):
    return number, show(values)


def recoded(*values):
    return "first", show(values)


def noted(*values):
    return noted.note, show(values)  # type: ignore[attr-defined]


noted.note = 1  # type: ignore[attr-defined]


def imports(*values):
    import math

    return math.floor(2.5), NUMBER, show(values)


@functools.wraps(reads)
def decorated(*values):
    return "decorated", reads(*values)


def fails_own(*values):
    raise OwnError(NUMBER, show(values))


def compares(*values):
    made = Pair(1)
    return made == Pair(1), made.right is Shade.DARK, isinstance(CHILD, Box), made, show(values)


def gives_own(*values):
    return CHILD, Shade.DARK, values


@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.singledispatch
def kind_of(value):
    return "object"


@kind_of.register
def _(value: int):
    return "int"


@kind_of.register(list)
def _(value):
    return [kind_of(one) for one in value]


class Shape(abc.ABC):
    """An abstract class of the script."""

    @abc.abstractmethod
    def side(self): ...

    @functools.cached_property
    def area(self):
        return self.side() ** 2


class Square(Shape):
    """Calls its base's methods."""

    def side(self):
        return NUMBER + len(super().__repr__()[:1])


@dataclasses.dataclass(slots=True)
class Slotted:
    """Has no room for other attributes."""

    left: int
    right: list[int] = dataclasses.field(default_factory=list)


class Named(NamedTuple):
    """A tuple with a method."""

    left: int

    def twice(self):
        return 2 * self.left


def uses_tools(*values):
    made = fibonacci(30), kind_of([1, "a", [2]]), Square().area, Named(NUMBER).twice()
    return made, Slotted(NUMBER), Named(1), show(values)


COUNT = 0
LOCK = threading.Lock()


def counts():
    global COUNT
    COUNT += 1
    return COUNT


def counted():
    return COUNT


def looks_up_text():
    return isinstance(globals()["Box"], type)


def locks():
    with LOCK:
        return 5


def writes(*values):
    for value in values:
        if isinstance(value, (list, bytearray)):
            value.append(1)
        elif isinstance(value, dict):
            value["written"] = len(value)
        elif isinstance(value, set):
            value.add(len(value))
    return show(values)


def append_to(words, *values):
    words.append(len(words))
    return list(words), show(values)


def look_up(table, *values):
    return table.get("k"), show(values)


class Cells:
    """Closures, and what changes their cells."""

    def __init__(self) -> None:
        number, words, weights = 1, ["w"], np.arange(20_000.0)

        def closure(*values):
            return number, show([words, weights]), show(values)

        def outer(*values):
            return closure(*values)

        def change(n: int) -> None:
            nonlocal number
            number += n
            words.append(str(n))
            weights[0] += n

        self.closure, self.outer, self.change = closure, outer, change
        self.words = words


# -- the world of one program ----------------------------------------------------------------------


class World:
    """What a program's names stand for; everything is as at first."""

    def __init__(self) -> None:
        self.values = make_values(Box)
        global NUMBER, WORDS, WEIGHTS, SCALES, NESTED, BOX, CHILD, chosen
        NUMBER, WORDS, WEIGHTS, SCALES = 5, ["a", ["b"]], np.arange(20_000.0), np.arange(5.0)
        NESTED = {"weights": np.arange(20_000.0), "words": ["c"]}
        Box.factor, Box.tags = 1, ["x"]
        Box.replaced = lambda self, *values: ("first", show(values))  # type: ignore[method-assign]
        BOX, CHILD = Box(), Child()
        chosen = first
        has_default.__kwdefaults__ = {"words": []}
        has_keyword.__kwdefaults__ = {"number": 1}
        recoded.__code__ = shows.__code__
        noted.note = 1  # type: ignore[attr-defined]
        self.cells = cells = Cells()
        collected: list[int] = []
        self.collected = collected
        self.table: dict[str, Any] = {"k": 1, "w": np.arange(20_000.0)}
        self.functions: dict[str, Callable[..., Any]] = {
            **{one.__name__: one for one in BY_NAME},
            "decorated": decorated,
            "bound": BOX.measure,
            "bound of a child": CHILD.measure,
            "grow": BOX.grow,
            "instance": BOX,
            "replaced": BOX.replaced,
            "plain": Box.plain,
            "made": Child.made,
            "partial": functools.partial(shows, cells.words),
            "partial of reads": functools.partial(reads, collected),
            "collect": functools.partial(append_to, collected),
            "look up": functools.partial(look_up, self.table),
            "get": self.table.get,
            "numpy": np.sum,
            "builtin": len,
            "of a module": errands.describe,
            **{one.__name__: one for one in errands.ALL},
            "closure": cells.closure,
            "outer": cells.outer,
            "lambda": lambda *values: (NUMBER, chosen(), show(values)),
            "partial of a lambda": functools.partial(lambda *values: (NUMBER, show(values)), 1),
        }

    def change(self, name: str, n: int) -> None:
        """Change in place what a name stands for."""
        if name in self.values:
            self.values[name].change(n)
        else:
            CHANGES[name](self, n)


BY_NAME = (shows, same, reads, reads_arrays, reads_deeply, calls_chosen, reads_class, has_default,
           has_keyword, recoded, noted, imports, writes, fails_own, compares,
           gives_own, fibonacci, kind_of, uses_tools)  # fmt: skip
ONLY_BY_VALUE = ("closure", "outer", "lambda", "partial of a lambda", "decorated", "replaced")
"""Functions that pickle can't name."""


def _number(world: World, n: int) -> None:
    global NUMBER
    NUMBER = n


def _words(world: World, n: int) -> None:
    WORDS[1].append(n)  # type: ignore[attr-defined]


def _arrays(world: World, n: int) -> None:
    WEIGHTS[:5] += n
    NESTED["weights"][7] += n


def _scales(world: World, n: int) -> None:
    global SCALES
    SCALES = SCALES + n


def _chosen(world: World, n: int) -> None:
    global chosen
    chosen = second if n % 2 else first


def _factor(world: World, n: int) -> None:
    Box.factor = n


def _tags(world: World, n: int) -> None:
    Box.tags.append(str(n))


def _method(world: World, n: int) -> None:
    Box.replaced = lambda self, *values: (n, show(values))  # type: ignore[method-assign]


def _box(world: World, n: int) -> None:
    BOX.size += n
    BOX.data[n] += 1
    BOX.items.append(n)
    CHILD.size += n


def _default(world: World, n: int) -> None:
    has_default.__kwdefaults__["words"].append(n)  # type: ignore[index]


def _keyword(world: World, n: int) -> None:
    has_keyword.__kwdefaults__ = {"number": n}


def _code(world: World, n: int) -> None:
    recoded.__code__ = (shows if n % 2 else reads).__code__


def _note(world: World, n: int) -> None:
    noted.note = n  # type: ignore[attr-defined]


def _cell(world: World, n: int) -> None:
    world.cells.change(n)


def _collected(world: World, n: int) -> None:
    world.collected.append(n)


def _table(world: World, n: int) -> None:
    world.table["k"] = n
    world.table["w"][n] += 1


CHANGES: dict[str, Callable[[World, int], None]] = {
    "global number": _number,
    "global list": _words,
    "global arrays": _arrays,
    "global small array": _scales,
    "global function": _chosen,
    "class attribute": _factor,
    "class list": _tags,
    "method": _method,
    "instance": _box,
    "default": _default,
    "keyword default": _keyword,
    "code": _code,
    "function attribute": _note,
    "cells": _cell,
    "argument of a partial": _collected,
    "table": _table,
}

# -- playing ---------------------------------------------------------------------------------------


def play(program: list[Any], engine: Any) -> list[Answer]:
    """Return what a program's calls gave, in their order."""
    world = World()
    answers: list[Callable[[], Answer]] = []

    def given(argument) -> Any:
        kind, what = argument
        return what if kind == "literal" else world.values[what].value

    def items(kind: str, what: Any, times: int = 0) -> Iterable[Any]:
        if kind == "list":
            return map(given, what)
        if kind == "repeat":
            return itertools.repeat(given(what), times)
        return reused(world.values[what], times)

    def settled(answer: Answer) -> Callable[[], Answer]:
        return lambda: answer

    with engine.program():
        for step, *rest in program:
            if step == "submit":
                function, arguments = rest
                called = world.functions[function]
                answers.append(engine.submit(called, tuple(map(given, arguments))))
            elif step == "map":
                function, source, options = rest
                taken = iter(items(*source))
                answers.append(settled(engine.map(world.functions[function], taken, **options)))
                # An exception may have ended it anywhere; what follows must not depend on that.
                list(taken)
            elif step == "change":
                world.change(*rest)
            elif step == "scene":
                scene = getattr(scenes, rest[0], None) or DIFFERENCES[rest[0]].show
                answers.append(settled(outcome(functools.partial(scene, engine.make))))
            else:
                answers = [settled(answer()) for answer in answers]
        return [answer() for answer in answers]


def reused(value: Any, times: int) -> Iterator[Any]:
    """Yield one value again and again, and change it as soon as it was taken."""
    for n in range(times):
        yield value.value
        value.change(n + 1)


def main(name: str) -> None:
    """Play what comes until nothing does."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # What tasks print must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with engine_of(name) as engine:
        for line in sys.stdin:
            print(json.dumps(play(json.loads(line), engine)), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
