"""What simulated tasks do, and what comes of them where nothing goes wrong.

:func:`program` says it act by act: workers of the simulation play it, with other tasks between the
acts; :func:`evaluate` plays it in one go, and the tasks that it submits one after the other. What
both return has to be the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from scaler_cluster.testing.graphs import SimulatedGraph
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from scaler_cluster.testing.tasks import Task

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
    """Cancel these; a map ends, as the task asks for no more of its results."""

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


def evaluate_graph(graph: SimulatedGraph, inputs: Sequence[Expected] = ()) -> list[Expected]:
    """Return what each node has to come back with: runs them in order."""
    expected: list[Expected] = list(inputs)
    for node in graph.nodes[graph.inputs :]:
        values = [expected[one] for one in node.needs]
        results = tuple(value for value in values if isinstance(value, bytes))
        if len(results) == len(values):
            expected.append(evaluate(node, results))
        else:
            failures = (value for value in values if isinstance(value, frozenset))
            expected.append(frozenset().union(*failures))
    return expected


def _answer(act: Any) -> Any:
    """Return what a task is answered."""
    if isinstance(act, Ask):
        return [evaluate(child) for child in act.tasks]
    if isinstance(act, AskGraph):
        expected = evaluate_graph(act.graph, act.inputs)
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
