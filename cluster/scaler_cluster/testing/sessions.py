"""What asks for tasks in a simulation, and checks what comes back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client.events import InputWanted, Settled
from scaler_cluster.core.client.liveness import Liveness
from scaler_cluster.errors import MissingObjectsError
from scaler_cluster.ids import CALL_BITS, HUB, function_id
from scaler_cluster.objects.digest import digest_of
from scaler_cluster.testing.asked import Asked
from scaler_cluster.testing.bench import segment
from scaler_cluster.testing.nodes import Node
from scaler_cluster.testing.programs import evaluate_graph
from scaler_cluster.testing.tasks import object_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.client.client import ClientCore
    from scaler_cluster.core.client.events import ClientEvent
    from scaler_cluster.core.client.requests import Function
    from scaler_cluster.testing.graphs import SimulatedGraph
    from scaler_cluster.testing.tasks import Task
    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

HEARTBEAT_S = 2.5
"""Seldom: what happens while nothing is under way is always the same."""
FUNCTIONS: tuple[Function, ...] = tuple(
    (function_id(b"function%d" % n), b"function%d" % n, (), f"function{n}") for n in range(4)
)


class Waiter:
    """Stands for a future."""

    def __init__(self, task: int = -1) -> None:
        self.task = task


class Slots:
    """The results of one map."""

    def __init__(self, session: SessionNode) -> None:
        self.first = 0
        self.asked = 0
        self._session = session
        self._done = 0

    def settle(self, index: int, batch: Batch) -> None:
        for number, payload in enumerate(batch, index):
            self._note(number, bytes(payload))

    def returned(self, index: int, result: object) -> None:
        self._note(index, result)

    def fail(self, index: int, failure: m.Failed) -> None:
        self._note(index, failure)

    def cancelled(self, index: int, count: int) -> None:
        for number in range(index, index + count):
            self._note(number, None)

    def abort(self, _: BaseException) -> None:
        self._session.give_up_map(self)

    def _note(self, index: int, outcome: object) -> None:
        self._session.resolve(self.first + index, outcome)
        self._done += 1

    @property
    def outstanding(self) -> int:
        return self.asked - self._done


class SessionNode(Node):
    """Asks for tasks and checks what comes back: a client, or the tasks of a worker."""

    def __init__(self, simulation: World, name: bytes, core: ClientCore, host: bytes = b"") -> None:
        super().__init__(simulation, name, host)
        self.core = core
        self.asked: dict[int, Asked] = {}
        self.resolved: dict[int, object] = {}
        """What came back, a result in segments as its message; None: cancelled."""
        self.given_up: set[int] = set()
        """Tasks that were cancelled here."""
        self.took_back = False
        self.held: dict[bytes, int] = {}
        """How many need each object that was stored here."""
        self.supplied = 0
        """How many inputs were supplied."""
        self._unmet: dict[int, list[int]] = {}
        """Inputs of graphs to be supplied, by the task that they are."""
        self._written = 0
        core.first_segment = lambda: self._written + 1
        self._liveness = Liveness(HEARTBEAT_S, math.inf, simulation.now)
        self.sessions: set[int] = set()
        """Those that it had, one after the other."""
        self.welcomes = 0
        """How often a scheduler that had forgotten it took it in."""
        self.is_lost = False
        """True once the scheduler did not know it."""
        self.is_refused = False

    # -- asking ------------------------------------------------------------------------------

    def ask(
        self, tasks: Sequence[Task], options: m.TaskOptions, function: Function = FUNCTIONS[0]
    ) -> list[int]:
        """Submit tasks one by one."""
        numbers = []
        for task in tasks:
            objects = self.store(task.objects)
            number = self._submit(task, options, function, objects)
            numbers.append(number)
            self.asked[number] = Asked.of(task, options)
        return numbers

    def _submit(
        self, task: Task, options: m.TaskOptions, function: Function, objects: tuple[bytes, ...]
    ) -> int:
        waiter = Waiter()
        waiter.task = self.core.submit(
            function, m.CALL_ARGS, options, objects, task.payload, waiter
        )
        self.release_later(objects)
        return waiter.task

    def ask_map(
        self, tasks: Sequence[Task], options: m.TaskOptions, function: Function = FUNCTIONS[0]
    ) -> list[int]:
        """Submit tasks as one map; they have no objects."""
        call = Slots(self)
        call.first = self.open_call(call)
        call.asked = len(tasks)
        self._submit_run(call.first, Batch.of([task.payload for task in tasks]), options, function)
        numbers = list(range(call.first, call.first + len(tasks)))
        for number, task in zip(numbers, tasks, strict=True):
            self.asked[number] = Asked.of(task, options)
        return numbers

    def open_call(self, call: Slots) -> int:
        return self.core.open_call(call)

    def _submit_run(
        self, first: int, batch: Batch, options: m.TaskOptions, function: Function
    ) -> None:
        self.core.requests.teach(*function)
        self.core.requests.submit_run(first, function[0], m.CALL_ARGS, options, (), batch)

    def ask_graph(
        self, graph: SimulatedGraph, inputs: Sequence[int] = (), parts: int = 1
    ) -> list[int]:
        """Submit a graph; return the tasks that are wanted of it."""
        core = self.core
        count = len(graph.nodes)
        is_single = count == len(inputs) + 1
        first = core.requests.reserve(count) if is_single else core.requests.open_call()
        numbers = sorted({one for node in graph.nodes[len(inputs) :] for one in node.objects})
        objects = dict(zip(numbers, self.store(numbers), strict=True))
        tasks = [m.SUPPLIED if task in self.resolved else task for task in inputs]
        messages = graph.messages(first, FUNCTIONS[0][0], tasks, objects, parts)
        wanted = [first + node for node in graph.wanted]
        asking = [Waiter(task) for task in inputs]
        waiters: dict[int, object] = {task: Waiter(task) for task in wanted}
        core.submit_graph(FUNCTIONS[0], next(messages), waiters, asking)
        self._note_graph(graph, first, inputs)
        for node, task in enumerate(tasks):
            if task == m.SUPPLIED:
                self._supply(first + node, inputs[node])
        for message in messages:
            core.requests.go_on_with(message)
        self.release_later(tuple(objects.values()))
        return wanted

    def _note_graph(self, graph: SimulatedGraph, first: int, inputs: Sequence[int]) -> None:
        known = [self.asked[task] for task in inputs]
        expected = evaluate_graph(graph, [one.expected for one in known])
        names = frozenset().union(*(one.names for one in known))
        options = tuple(option for one in known for option in one.options)
        beside = tuple(option for one in known for option in one.beside)
        sources = graph.sources()
        for node in graph.wanted:
            some = [node, *(sources[node] - {node})]
            self.asked[first + node] = Asked(
                expected[node],
                names.union(graph.nodes[one].name for one in some),
                (*map(graph.options_of, some), *options),
                tuple(inputs),
                (*graph.options, *beside),
            )

    def give_up(self, tasks: Sequence[int]) -> None:
        """Cancel tasks; of a map they all belong to one."""
        call = self.core.calls.get(tasks[0] >> CALL_BITS)
        if isinstance(call, Slots):
            self.core.close_call(call.first, call.asked)
            self.give_up_map(call)
        else:
            self.cancelled(self.core.cancel(tasks))

    def give_up_map(self, call: Slots) -> None:
        """Give up all results of a map that have not come back."""
        asked = range(call.first, call.first + call.asked)
        self.cancelled([Waiter(task) for task in asked if task not in self.resolved])

    def cancelled(self, waiters: Sequence[Any]) -> None:
        """Note that these were cancelled here, and settle them."""
        for waiter in waiters:
            self.given_up.add(waiter.task)
            self.resolve(waiter.task, None)

    # -- objects -----------------------------------------------------------------------------

    def store(self, numbers: Sequence[int]) -> tuple[bytes, ...]:
        """Store objects, unless they are; return their ids. They are to be released."""
        return tuple(self.store_bytes(object_of(number)) for number in numbers)

    def store_bytes(self, content: bytes) -> bytes:
        """Store bytes, unless they are; return the id. It is to be released."""
        one = digest_of(memoryview(content))
        if one not in self.held:
            self.held[one] = 0
            self._written += 1
            name = segment(self.name, self._written)
            self.simulation.home.write(name, content)
            self.core.requests.offer(one, name, len(content))
            self.stored(one, content)
        self.held[one] += 1
        return one

    def stored(self, one: bytes, content: bytes) -> None:
        """An object was stored here."""

    def release_later(self, objects: tuple[bytes, ...]) -> None:
        """Let go of objects, at once or after a while."""
        if objects and self.simulation.random.random() < 0.5:
            self.release(objects)
        elif objects:
            later = self.simulation.now + self.simulation.random.uniform(0, 2)
            self.simulation.at(later, lambda: self.release(objects))

    def release(self, objects: Sequence[bytes]) -> None:
        """Let go of objects."""
        gone = []
        for one in objects:
            self.held[one] -= 1
            if not self.held[one]:
                del self.held[one]
                gone.append(one)
        if gone and self.is_alive():
            self.core.release(tuple(gone))
            self.set_timer(self.simulation.now)

    # -- what comes back ---------------------------------------------------------------------

    def take_in(self, frames: list[Buffer]) -> None:
        """Hand what has arrived to the core, and look at what it says."""
        core = self.core
        core.receive(self.exchange.receive(HUB, frames, self.simulation.now), self.simulation.now)
        self.sessions.add(core.welcome.session)
        self.handle(core.events.take())

    def handle(self, events: Sequence[ClientEvent]) -> None:
        """Do what follows from what happened."""
        for event in events:
            if isinstance(event, Settled):
                for waiter, outcome in event.pairs:
                    assert isinstance(waiter, Waiter)
                    plain = bytes(outcome) if isinstance(outcome, memoryview) else outcome
                    self.resolve(waiter.task, plain)
            elif isinstance(event, InputWanted):
                self._supply_when_there(event)
            elif isinstance(event, m.Unknown):
                self.is_lost = True
            elif isinstance(event, m.Welcome):
                self.welcomes += 1
            elif isinstance(event, m.Refused):
                self.is_refused = True
            else:
                assert isinstance(event, m.Unplaced), f"{event} is no news for it"

    def _supply_when_there(self, wanted: InputWanted) -> None:
        """Send an input that the scheduler asks for, now or when it is there."""
        of = wanted.waiter
        assert isinstance(of, Waiter)
        if of.task in self.resolved:
            self._supply(wanted.task, of.task)
        else:
            self._unmet.setdefault(of.task, []).append(wanted.task)

    def resolve(self, task: int, outcome: object) -> None:
        """A task came back; never twice, and with what it should."""
        assert task not in self.resolved, f"{task} came back twice"
        asked = self.asked[task]
        if isinstance(outcome, m.Returned):
            self._check_returned(task, outcome)
        elif isinstance(outcome, bytes):
            assert outcome == asked.expected, f"{task}: {outcome!r}, not {asked.expected!r}"
        elif isinstance(outcome, m.Failed):
            asked.check_failure(task, outcome, self.simulation, was_forgotten=bool(self.welcomes))
        else:
            assert outcome is None, f"{task} came back with {outcome!r}"
            assert self.took_back or self._was_given_up(task), f"{task} was cancelled by nobody"
        self.resolved[task] = outcome
        for one in self._unmet.pop(task, ()):
            self._supply(one, task)

    def _check_returned(self, task: int, message: m.Returned) -> None:
        """Look into the segments of a result, and let go of them sometime."""
        try:
            content = self.simulation.read(message.objects, message.address)
        except MissingObjectsError:
            # The scheduler lets go of what a client that it gives up has not fetched.
            is_known = self.name in self.simulation.hub.core.table.sessions
            assert self.welcomes or not is_known, f"the result of {task} was removed"
            content = None
        if content is None:
            lost = self.simulation.machines_lost or self.simulation.plan.loses_touch
            assert lost, f"the result of {task} is gone"
        else:
            expected = self.asked[task].expected
            assert content == expected, f"{task}: {content!r}, not {expected!r}"

        def let_go() -> None:
            if self.is_alive():
                self.resolved[task] = content if content is not None else message
                self.core.release(message.objects)
                self.set_timer(self.simulation.now)

        self.simulation.at(self.simulation.now + self.simulation.random.uniform(0, 2), let_go)

    def _was_given_up(self, task: int) -> bool:
        return task in self.given_up or any(map(self._was_given_up, self.asked[task].inputs))

    def _supply(self, task: int, of: int) -> None:
        """Say what became of an input."""
        outcome = self.resolved[of]
        if outcome is None:
            message = m.ProvideInputs(task, m.INPUT_CANCELLED, b"")
        elif isinstance(outcome, m.Failed):
            message = m.ProvideInputs(task, outcome.kind, outcome.payload, (), outcome.detail)
        elif isinstance(outcome, m.Returned):
            message = m.ProvideInputs(task, "", outcome.payload, outcome.objects)
        else:
            assert isinstance(outcome, bytes)
            message = m.ProvideInputs(task, "", outcome)
        self.supplied += 1
        self.core.requests.say(message)
        self.set_timer(self.simulation.now)

    def beat(self) -> None:
        """Say that it lives, if that is due."""
        if self._liveness.beat(self.simulation.now):
            self.core.requests.beat()

    def check_over(self) -> None:
        """Check, when everything has come back, that nothing is left, here or in the core."""
        core = self.core
        assert self.resolved.keys() == self.asked.keys(), "some never came back"
        left = core.waiters, core.calls, core.events.take(), core._inputs, self._unmet, self.held
        assert not any(left), f"it remembers {left}"
        for task, asked in self.asked.items():
            if asked.options[0].at_most_once:
                started = self.simulation.started
                starts = sum(started.get((session, task), 0) for session in self.sessions)
                assert starts <= 1, f"{task} was started {starts} times"
