"""What simulated tasks do, and what comes of them where nothing goes wrong.

The payload of a task alone decides what it does. :func:`program` says it act by act: workers of the
simulation play it, with other tasks between the acts; :func:`evaluate` plays it in one go, and the
tasks that it submits one after the other. What both return has to be the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from scaler_cluster.testing.graphs import SimulatedGraph

    Program: TypeAlias = Generator["Act", Any, bytes]

Expected: TypeAlias = "bytes | frozenset[bytes]"
"""What a task has to return, or what it may raise; empty: it only ends by what goes wrong."""
RAISED = b"!"
"""What a task makes of one that raised."""
CHILD_OPTIONS = (
    *[m.DEFAULT_OPTIONS] * 5,
    m.TaskOptions(priority=1),
    m.TaskOptions(retries=1),
    m.TaskOptions(timeout_s=0.03),
    m.TaskOptions(at_most_once=True),
)
"""What tasks ask of those that they submit."""


@dataclass(frozen=True)
class Task:
    """What a task does; its name decides most of it."""

    name: bytes
    """Nobody else's. One that begins with "t" often raises, or kills its worker."""
    levels: int = 0
    """How many levels of tasks it may submit."""
    is_large: bool = False
    """It may return what lies in segments."""
    needs: tuple[int, ...] = ()
    """Of a node: those whose results it takes."""
    objects: tuple[int, ...] = ()
    """Numbers of the objects that come with its payload."""

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(payload: bytes) -> Task:
        """Return the task of a payload."""
        name, levels, is_large, needs, objects = payload.split(b" ")
        return Task(name, int(levels), is_large == b"1", _numbers(needs), _numbers(objects))

    @cached_property
    def payload(self) -> bytes:
        needs, objects = (b",".join(b"%d" % n for n in ns) for ns in (self.needs, self.objects))
        return b"%s %d %d %s %s" % (self.name, self.levels, self.is_large, needs, objects)

    @cached_property
    def _dice(self) -> int:
        return crc32(self.name)

    @property
    def _rarely(self) -> int:
        # Else hardly anything that needs others would ever return.
        return 1 if self.name.startswith(b"t") and b"/" not in self.name else 5

    @property
    def takes_s(self) -> float:
        return (0.00001, 0.0001, 0.001, 0.01, 0.05, 0.4)[self._dice % 6]

    @property
    def raises(self) -> bool:
        return self._dice // 7 % (17 * self._rarely) == 3

    @property
    def crashes(self) -> bool:
        return self._dice // 11 % (29 * self._rarely) == 5

    @property
    def is_stubborn(self) -> bool:
        """It does not end when it is interrupted."""
        return self._dice // 13 % 11 == 7

    @property
    def segments(self) -> int:
        """In how many segments its result lies; 0: it is small."""
        return (0, 0, 1, 2)[self._dice // 17 % 4] if self.is_large else 0

    @property
    def error(self) -> bytes:
        """What it raises."""
        return b"x" + self.name

    @property
    def disturbed(self) -> bytes:
        """What it raises if something went wrong with a task that it waits for."""
        return b"d" + self.name

    def result(self, values: Sequence[bytes]) -> bytes:
        """Return what it returns, with these at hand."""
        return b"r%s=%08x" % (self.name, crc32(b",".join((self.payload, *values))))

    def child(self, number: int) -> Task:
        """Return a task that it submits."""
        name = b"%s/%d" % (self.name, number)
        objects = (number % 3,) if self.is_large and crc32(name) % 3 == 0 else ()
        return Task(name, self.levels - 1, self.is_large, (), objects)


def _numbers(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, text.split(b","))) if text else ()


# -- programs --------------------------------------------------------------------------------


@dataclass(slots=True)
class Pause:
    """Compute for a while."""

    seconds: float


class Crash:
    """Kill the process."""


@dataclass(slots=True)
class Ask:
    """Submit tasks, one by one or as a map; the answer is a list of what names them."""

    tasks: Sequence[Task]
    options: m.TaskOptions
    is_map: bool = False
    """Then they have no objects."""


@dataclass(slots=True)
class AskGraph:
    """Submit a graph, inputs of which are these; the answer names what is wanted of it."""

    graph: SimulatedGraph
    inputs: Sequence[Any] = ()


@dataclass(slots=True)
class Await:
    """Wait for tasks; the answer are their results, RAISED for one that raised.

    After the timeout the answer is None.
    """

    tasks: Sequence[Any]
    timeout_s: float | None = None


@dataclass(slots=True)
class GiveUp:
    """Cancel these; of a map: nobody will ask for its results any more."""

    tasks: Sequence[Any]


@dataclass(slots=True)
class Secede:
    """Leave the place of the worker to others, or take it back."""

    seceded: bool


Act: TypeAlias = "Pause | Crash | Ask | AskGraph | Await | GiveUp | Secede"


class Raised(Exception):
    """The simulated task raises."""


class Disturbed(Exception):
    """Something went wrong with a task that this one waits for."""


def program(task: Task, inputs: Sequence[bytes] = ()) -> Program:
    """Say what a task does, act by act."""
    values = list(inputs)
    if task.levels:
        dice = random.Random(crc32(task.name))  # noqa: S311 - it is to be repeated
        way = dice.choice((_one_by_one, _one_by_one, _all, _map, _graph, _linked, _forsakes, None))
        if way is not None:
            values += yield from way(task, dice)
    yield Pause(task.takes_s)
    if task.crashes:
        yield Crash()
    if task.raises:
        raise Raised
    return task.result(values)


def _children(
    task: Task, dice: random.Random, most: int = 4, *, is_map: bool = False
) -> list[Task]:
    children = [task.child(number) for number in range(dice.randint(1, most))]
    return [replace(child, objects=()) for child in children] if is_map else children


def _one_by_one(task: Task, dice: random.Random) -> Generator[Act, Any, list[bytes]]:
    """Submit some tasks, then ask for the result of one after the other."""
    options = dice.choice(CHILD_OPTIONS)
    children = yield Ask(_children(task, dice), options)
    yield Pause(dice.choice((0.0, 0.0, 0.002, 0.03)))
    if dice.random() < 0.2:
        children.reverse()
    if dice.random() < 0.2 and len(children) > 1:
        yield GiveUp(children[-1:])
        children = children[:-1]
    values = []
    for child in children:
        if dice.random() < 0.15:
            yield Await([child], dice.choice((0.0, 0.001, 0.02, 0.5)))
        values += yield Await([child])
    return values


def _all(task: Task, dice: random.Random) -> Generator[Act, Any, list[bytes]]:
    """Wait for all at once, perhaps after having waited for something that is no task."""
    children = yield Ask(_children(task, dice, 8), m.DEFAULT_OPTIONS)
    if dice.random() < 0.3:
        yield Secede(seceded=True)
        yield Pause(0.1)
        yield Secede(seceded=False)
    values: list[bytes] = yield Await(children)
    return values


def _map(task: Task, dice: random.Random) -> Generator[Act, Any, list[bytes]]:
    """Take the results of a map in order, perhaps not all of them."""
    items = _children(task, dice, 8, is_map=True)
    children = yield Ask(items, dice.choice(CHILD_OPTIONS), is_map=True)
    taken = len(children) if dice.random() < 0.7 else dice.randrange(len(children))
    values = []
    for child in children[:taken]:
        values += yield Await([child])
    yield GiveUp(children)
    return values


def _graph(task: Task, dice: random.Random) -> Generator[Act, Any, list[bytes]]:
    """Ask for a graph."""
    wanted = yield AskGraph(_graph_of(task, dice, 0))
    values: list[bytes] = yield Await(wanted)
    return values


def _linked(task: Task, dice: random.Random) -> Generator[Act, Any, list[bytes]]:
    """Pass tasks on to a graph, before they have come back or after."""
    children = yield Ask(_children(task, dice, 3), m.DEFAULT_OPTIONS)
    yield Pause(dice.choice((0.0, 0.0, 0.002, 0.03)))
    wanted = yield AskGraph(_graph_of(task, dice, len(children)), children)
    both = [*children, *wanted] if dice.random() < 0.5 else [*wanted, *children]
    values = []
    for one in both:
        values += yield Await([one])
    return values


def _forsakes(task: Task, dice: random.Random) -> Generator[Act, Any, list[bytes]]:
    """End before what it submitted."""
    is_map = dice.random() < 0.5
    yield Ask(_children(task, dice, is_map=is_map), m.DEFAULT_OPTIONS, is_map)
    yield AskGraph(_graph_of(task, dice, 0))
    return []


def _graph_of(task: Task, dice: random.Random, inputs: int) -> SimulatedGraph:
    from scaler_cluster.testing.graphs import SimulatedGraph

    count = inputs + dice.randint(1, 5)
    levels, is_large = task.levels - 1, task.is_large
    options = dice.sample(CHILD_OPTIONS, dice.choice((1, 1, 3)))
    name = task.name + b"/g"
    return SimulatedGraph.draw(dice, name, count, inputs, levels, options, is_large=is_large)


# -- the sequential evaluator ----------------------------------------------------------------


class Never(Exception):
    """The task never ends by itself, but only by what goes wrong."""


@lru_cache(maxsize=1 << 16)
def evaluate(task: Task, inputs: tuple[bytes, ...] = ()) -> Expected:
    """Return what a task has to come back with: plays it, and what it submits, in order."""
    acts = program(task, inputs)
    answer: Any = None
    try:
        while True:
            answer = _answer(acts.send(answer))
    except StopIteration as end:
        result: bytes = end.value
        return result
    except Raised:
        return frozenset((task.error,))
    except Never:
        return frozenset()


def _answer(act: Any) -> Any:
    """Return what a task is answered."""
    if isinstance(act, Ask):
        return [evaluate(child) for child in act.tasks]
    if isinstance(act, AskGraph):
        expected = act.graph.evaluate(act.inputs)
        return [expected[node] for node in act.graph.wanted]
    if isinstance(act, Await):
        return [one if isinstance(one, bytes) else _raised(one) for one in act.tasks]
    if isinstance(act, Crash):
        raise Never
    return None


def _raised(errors: frozenset[bytes]) -> bytes:
    if not errors:
        raise Never
    return RAISED
