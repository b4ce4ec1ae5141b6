"""Simulated clients, which submit at random."""

from __future__ import annotations

from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.graphs import OBJECTS, SimulatedGraph
from scaler_cluster.testing.sessions import FUNCTIONS, SessionNode
from scaler_cluster.testing.tasks import Task
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer


EVEN = (("even", 1),)
"""A demand of tasks: what the second machine offers in the end."""


class ClientNode(SessionNode):
    """A client that submits, maps, asks for graphs and cancels."""

    def __init__(self, simulation: World, name: bytes) -> None:
        super().__init__(simulation, name, ClientCore())
        plan = simulation.plan
        self._prefix = b"%d" % name[-1]
        self._made = 0
        self._to_submit = plan.tasks
        self._graphs = plan.graphs
        self._actors = plan.actors
        self._futures: list[int] = []
        """Tasks that may be passed on to others."""
        self._hello = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "simulated")
        self.core.requests.say(self._hello)
        self._has_begun = False
        self.turn()

    @property
    def is_done(self) -> bool:
        """Return True if it is gone, or has everything it will ever ask for."""
        return not self.is_alive() or not (self._to_submit or self._graphs or self.core.busy)

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        self.take_in(frames)
        assert not self.is_refused
        self.turn()
        if self.core.welcome.session and not self._has_begun:
            self._has_begun = True
            self._act()

    def turn(self) -> None:
        self.beat()
        if self.is_lost:
            self.is_lost = False
            self.exchange = Exchange(self.simulation.random.getrandbits(31) + 1)
            self.core.start_over(self._hello)
        self.tell_hub(self.core.take_actions())
        self.set_timer(self._liveness.heartbeat_at)

    def leave(self) -> None:
        """Say Goodbye."""
        self.core.requests.say(m.Goodbye())
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
        demands = ((), EVEN)[dice.random() < 0.2 and self.simulation.plan.demands]
        options = dice.choice(
            (
                m.TaskOptions(capabilities=demands),
                m.TaskOptions(priority=dice.randint(-1, 1)),
                m.TaskOptions(retries=2),
                m.TaskOptions(at_most_once=True),
                m.TaskOptions(timeout_s=0.03),
            )
        )
        if self.simulation.plan.has_shares and dice.random() < 0.6:
            options = replace(options, **self._share())
        if self._graphs and (not self._to_submit or dice.random() < 0.4):
            self._graphs -= 1
            self._get([options] if dice.random() < 0.7 else [options, m.DEFAULT_OPTIONS])
        else:
            self._submit_some(options)
        self.turn()
        self.simulation.at(self.simulation.now + dice.uniform(0, 0.5), self._act)

    def _share(self) -> dict[str, Any]:
        """Return a demand of what the workers of a machine share."""
        dice = self.simulation.random
        cores = dice.choice((1, 1, m.WHOLE_MACHINE, dice.randint(1, self.simulation.plan.workers)))
        demands = (), (("gpu", dice.randint(1, 2)),), (("gpu", 1), ("memory", 0.5))
        return {"cores": cores, "capabilities": dice.choice((*demands, (("memory", 0.5),)))}

    def _submit_some(self, options: m.TaskOptions) -> None:
        dice, plan = self.simulation.random, self.simulation.plan
        count = min(self._to_submit, dice.randint(1, max(30, plan.tasks // 10)))
        self._to_submit -= count
        if plan.actors and dice.random() < 0.7:
            self._call_some(count)
            return
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

    def _call_some(self, count: int) -> None:
        """Make an actor, or call some; now and then give calls up."""
        dice, actors = self.simulation.random, self.simulation.actors
        if self._actors and (not actors or dice.random() < 0.5):
            self._actors -= 1
            self._made += 1
            name = f"{m.ACTOR}{self._prefix.decode()}:{self._made}"
            actors[name] = []
            task = Task(b"a%s.%d" % (self._prefix, self._made))
            self.ask([task], m.TaskOptions(creates=name, at_most_once=True))
        for _ in range(count if actors else 0):
            self._made += 1
            task = Task(b"c%s.%d" % (self._prefix, self._made))
            options = m.TaskOptions(workers=(dice.choice(list(actors)),), at_most_once=True)
            numbers = self.ask([task], options, dice.choice(FUNCTIONS[1:]))
            if dice.random() < 0.1:
                self._later(1, partial(self.give_up, numbers))

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
        self.core.abort_calls(CancelledError())
        super().check_over()
        kept = self.core.requests.unfinished
        assert kept is not None
        assert kept.is_empty, "it would ask again for what came back"
