"""Simulated clients, which check what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client import ClientCore
from scaler_cluster.core.graph import SUPPLIED
from scaler_cluster.core.outcomes import LOSSES_MAX
from scaler_cluster.ids import CALL_BITS
from scaler_cluster.links.link import HUB
from scaler_cluster.objects.digest import digest_of
from scaler_cluster.testing.bench import PYTHON, segment
from scaler_cluster.testing.graphs import OBJECTS, SimulatedGraph
from scaler_cluster.testing.nodes import Node
from scaler_cluster.testing.tasks import Expected, Task, evaluate
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.core.client import Function
    from scaler_cluster.testing.simulation import Simulation
    from scaler_cluster.wire.batch import Buffer

HEARTBEAT_S = 1.0
FUNCTIONS: tuple[Function, ...] = tuple(
    (bytes([n]) * 16, b"function", (), f"function{n}") for n in range(4)
)


@dataclass(slots=True)
class Asked:
    """What was asked for, and how it may come back."""

    expected: Expected
    names: frozenset[bytes]
    """Tasks whose end may be its own."""
    options: tuple[m.TaskOptions, ...]
    """Its own first, then those of its inputs."""
    inputs: tuple[int, ...] = ()
    """Tasks that it takes the results of."""


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

    def _note(self, index: int, outcome: object) -> None:
        self._session.resolve(self.first + index, outcome)
        self._done += 1

    @property
    def outstanding(self) -> int:
        return self.asked - self._done


class SessionNode(Node):
    """Who asks for tasks, and looks at what comes back; a client, or the tasks of a worker."""

    def __init__(self, simulation: Simulation, name: bytes, core: ClientCore) -> None:
        super().__init__(simulation, name)
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
        self._heartbeat_at = simulation.now + HEARTBEAT_S

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
            self._note(number, task, options)
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
            self._note(number, task, options)
        return numbers

    def open_call(self, call: Slots) -> int:
        return self.core.open_call(call)

    def _submit_run(
        self, first: int, batch: Batch, options: m.TaskOptions, function: Function
    ) -> None:
        self.core.teach(*function)
        self.core.submit_run(first, function[0], m.CALL_ARGS, options, (), batch)

    def _note(self, number: int, task: Task, options: m.TaskOptions) -> None:
        self.asked[number] = Asked(evaluate(task), frozenset((task.name,)), (options,))

    def ask_graph(
        self, graph: SimulatedGraph, inputs: Sequence[int] = (), parts: int = 1
    ) -> list[int]:
        """Submit a graph; return the tasks that are wanted of it."""
        core = self.core
        count = len(graph.nodes)
        is_single = count == len(inputs) + 1
        first = core.reserve(count) if is_single else core.open_graph()
        numbers = sorted({one for node in graph.nodes[len(inputs) :] for one in node.objects})
        objects = dict(zip(numbers, self.store(numbers), strict=True))
        tasks = [SUPPLIED if task in self.resolved else task for task in inputs]
        messages = graph.messages(first, FUNCTIONS[0][0], tasks, objects, parts)
        wanted = [first + node for node in graph.wanted]
        is_asking = any(task != SUPPLIED for task in tasks)
        asking = [Waiter(task) for task in inputs] if is_asking else []
        waiters: dict[int, object] = {task: Waiter(task) for task in wanted}
        core.submit_graph(FUNCTIONS[0], next(messages), waiters, asking)
        self._note_graph(graph, first, inputs)
        for node, task in enumerate(tasks):
            if task == SUPPLIED:
                self._supply(first + node, inputs[node])
        for message in messages:
            core.say(message)
        self.release_later(tuple(objects.values()))
        return wanted

    def _note_graph(self, graph: SimulatedGraph, first: int, inputs: Sequence[int]) -> None:
        known = [self.asked[task] for task in inputs]
        expected = graph.evaluate([one.expected for one in known])
        names = frozenset().union(*(one.names for one in known))
        options = tuple(option for one in known for option in one.options)
        sources = graph.sources()
        for node in graph.wanted:
            some = [node, *(sources[node] - {node})]
            self.asked[first + node] = Asked(
                expected[node],
                names.union(graph.nodes[one].name for one in some),
                (*map(graph.options_of, some), *options),
                tuple(inputs),
            )

    def give_up(self, tasks: Sequence[int]) -> None:
        """Cancel tasks; of a map they all belong to one."""
        call = self.core.calls.get(tasks[0] >> CALL_BITS)
        if isinstance(call, Slots):
            self.core.close_call(call.first, call.asked)
            asked = range(call.first, call.first + call.asked)
            waiters: list[object] = [Waiter(task) for task in asked if task not in self.resolved]
        else:
            waiters = self.core.cancel(tasks)
        self.cancelled(waiters)

    def cancelled(self, waiters: Sequence[Any]) -> None:
        """Nobody waits for these any more."""
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
            self.core.offer(one, name, len(content))
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
        assert not core.broken
        settled, core.settled = core.settled, []
        for waiter, outcome in settled:
            plain = bytes(outcome) if isinstance(outcome, memoryview) else outcome
            self.resolve(waiter.task, plain)  # type: ignore[attr-defined]
        self.supply_unmet()

    def supply_unmet(self) -> None:
        """Send the inputs that the scheduler asks for, now or when they are there."""
        unmet, self.core.unmet = self.core.unmet, []
        for task, of in unmet:
            assert isinstance(of, Waiter)
            if of.task in self.resolved:
                self._supply(task, of.task)
            else:
                self._unmet.setdefault(of.task, []).append(task)

    def resolve(self, task: int, outcome: object) -> None:
        """A task came back; never twice, and with what it should."""
        assert task not in self.resolved, f"{task} came back twice"
        asked = self.asked[task]
        if isinstance(outcome, m.Returned):
            self._check_returned(task, outcome)
        elif isinstance(outcome, bytes):
            assert outcome == asked.expected, f"{task}: {outcome!r}, not {asked.expected!r}"
        elif isinstance(outcome, m.Failed):
            self._check_failure(task, asked, outcome)
        else:
            assert outcome is None, f"{task} came back with {outcome!r}"
            assert self.took_back or self._was_given_up(task), f"{task} was cancelled by nobody"
        self.resolved[task] = outcome
        for one in self._unmet.pop(task, ()):
            self._supply(one, task)

    def _check_returned(self, task: int, message: m.Returned) -> None:
        """Look into the segments of a result, and let go of them sometime."""
        content = self.simulation.read(message.objects, message.address)
        if content is None:
            assert self.simulation.machines_lost, f"the result of {task} is gone"
        else:
            expected = self.asked[task].expected
            assert content == expected, f"{task}: {content!r}, not {expected!r}"

        def let_go() -> None:
            if self.is_alive():
                self.resolved[task] = content if content is not None else message
                self.core.release(message.objects)
                self.set_timer(self.simulation.now)

        self.simulation.at(self.simulation.now + self.simulation.random.uniform(0, 2), let_go)

    def _check_failure(self, task: int, asked: Asked, failure: m.Failed) -> None:
        simulation, kind = self.simulation, failure.kind
        if kind == m.FAILED_EXCEPTION:
            error = bytes(failure.payload)
            is_expected = isinstance(asked.expected, frozenset) and error in asked.expected
            is_disturbed = error in simulation.disturbed and error[1:] in asked.names
            assert is_expected or is_disturbed, f"{task} raised {error!r}, not {asked.expected!r}"
        elif kind == m.FAILED_WORKER_DIED:
            assert simulation.died & asked.names, f"{task} did not kill its worker"
        elif kind == m.FAILED_TIMEOUT:
            assert any(one.timeout_s for one in asked.options), f"{task} has no timeout"
        elif kind == m.FAILED_LOST:
            is_once = any(one.at_most_once for one in asked.options)
            is_lost = simulation.machines_lost > LOSSES_MAX
            assert is_once or is_lost, f"{task} was not lost so often"
        else:
            assert kind == m.FAILED_MISSING, f"{task} failed by {kind}"
            assert simulation.machines_lost, f"{task}: {failure.detail}"

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
        self.core.say(message)
        self.set_timer(self.simulation.now)

    def beat(self) -> None:
        """Say that it lives, if that is due."""
        if self.simulation.now >= self._heartbeat_at:
            self._heartbeat_at = self.simulation.now + HEARTBEAT_S
            self.core.say(m.Heartbeat())

    def check_over(self) -> None:
        """Check, when everything has come back, that nothing is left, here or in the core."""
        core = self.core
        assert self.resolved.keys() == self.asked.keys(), "some never came back"
        left = core.waiters, core.calls, core.settled, core._inputs, self._unmet, self.held
        assert not any(left), f"it remembers {left}"
        for task, asked in self.asked.items():
            if asked.options[0].at_most_once:
                starts = self.simulation.started.get((core.welcome.session, task), 0)
                assert starts <= 1, f"{task} was started {starts} times"


class ClientNode(SessionNode):
    """A client that submits, maps, asks for graphs and cancels."""

    def __init__(self, simulation: Simulation, name: bytes) -> None:
        super().__init__(simulation, name, ClientCore())
        plan = simulation.plan
        self._prefix = b"%d" % name[-1]
        self._made = 0
        self._to_submit = plan.tasks
        self._graphs = plan.graphs
        self._futures: list[int] = []
        """Tasks that may be passed on to others."""
        self.core.say(m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "simulated"))
        self._has_begun = False
        self.turn()

    @property
    def is_done(self) -> bool:
        """Return True if it is gone, or has everything it will ever ask for."""
        return not self.is_alive() or not (self._to_submit or self._graphs or self.core.busy)

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.take_in(frames)
        assert not self.core.refused
        self.turn()
        if self.core.welcome.session and not self._has_begun:
            self._has_begun = True
            self._act()

    def turn(self) -> None:
        self.beat()
        if self.core.lost:
            # The scheduler gave it up while it was paused: what the shell does is break.
            self.stop()
            return
        self.tell_hub(self.core.take_actions())
        self.set_timer(self._heartbeat_at)

    def leave(self) -> None:
        """Say Goodbye."""
        self.core.say(m.Goodbye())
        self.tell_hub(self.core.take_actions())
        self.stop()

    def _act(self) -> None:
        """Ask for something, now and then."""
        if not self.is_alive() or not (self._to_submit or self._graphs):
            return
        if self.simulation.plan.tasks_waiting_max >= 0 and not self.core.welcome.session:
            # It will be told that it has to ask first.
            self.simulation.at(self.simulation.now + 0.1, self._act)
            return
        dice = self.simulation.random
        options = dice.choice(
            (
                m.DEFAULT_OPTIONS,
                m.TaskOptions(priority=dice.randint(-1, 1)),
                m.TaskOptions(retries=2),
                m.TaskOptions(at_most_once=True),
                m.TaskOptions(timeout_s=0.03),
            )
        )
        if self._graphs and (not self._to_submit or dice.random() < 0.4):
            self._graphs -= 1
            self._get([options] if dice.random() < 0.7 else [options, m.DEFAULT_OPTIONS])
        else:
            self._submit_some(options)
        self.turn()
        self.simulation.at(self.simulation.now + dice.uniform(0, 0.5), self._act)

    def _submit_some(self, options: m.TaskOptions) -> None:
        dice, plan = self.simulation.random, self.simulation.plan
        count = min(self._to_submit, dice.randint(1, max(30, plan.tasks // 10)))
        self._to_submit -= count
        function = dice.choice(FUNCTIONS[1:])
        tasks = []
        is_map = dice.random() < 0.5
        for _ in range(count):
            self._made += 1
            name = b"t%s.%d" % (self._prefix, self._made)
            some = plan.has_objects and not is_map and dice.random() < 0.2
            objects = (dice.randrange(OBJECTS),) if some else ()
            levels = dice.randint(0, plan.levels)
            tasks.append(Task(name, levels, plan.has_objects, (), objects))
        if is_map:
            numbers = self.ask_map(tasks, options, function)
            if dice.random() < 0.1:
                self._later(1, lambda: self.give_up(numbers))
            return
        numbers = self.ask(tasks, options, function)
        self._futures += numbers
        if dice.random() < 0.3:
            some_tasks = dice.sample(numbers, max(1, count // 3))
            self._later(1, lambda: self.give_up(some_tasks))
        if dice.random() < 0.03:
            self._later(1, self._take_back)

    def _get(self, options: Sequence[m.TaskOptions]) -> None:
        """Ask for a graph, inputs of which may be anything asked for before."""
        dice, plan = self.simulation.random, self.simulation.plan
        self._made += 1
        known = self._futures
        inputs = dice.sample(known, min(dice.choice((0, 0, 1, 2)), len(known)))
        count = len(inputs) + dice.choice((1, 3, 10, plan.nodes))
        graph = SimulatedGraph.draw(
            dice,
            b"n%s.%d" % (self._prefix, self._made),
            count,
            len(inputs),
            dice.randint(0, plan.levels),
            options,
            is_large=plan.has_objects,
        )
        wanted = self.ask_graph(graph, inputs, dice.randint(1, 3))
        self._futures += wanted
        if dice.random() < 0.3:
            some = dice.sample(wanted, dice.randint(1, len(wanted)))
            self._later(0.5, lambda: self.give_up(some))

    def _take_back(self) -> None:
        self.took_back = True
        self.core.take_back()

    def _later(self, most_s: float, act: Any) -> None:
        def do() -> None:
            if self.is_alive():
                act()
                self.turn()

        self.simulation.at(self.simulation.now + self.simulation.random.uniform(0, most_s), do)

    def check_over(self) -> None:
        """See :class:`SessionNode`; maps are let go of first."""
        for call in list(self.core.calls.values()):
            self.core.close_call(call.first, call.asked)  # type: ignore[attr-defined]
        super().check_over()


def object_of(number: int) -> bytes:
    """Return what is in an object."""
    return b"object-%d" % number
