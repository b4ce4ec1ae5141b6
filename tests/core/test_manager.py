"""What a manager has its backend do: by example, with systems that are slow, refuse, lie or die."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scaler_cluster.core.manager import manager as core
from scaler_cluster.core.manager.config import ManagerConfig
from scaler_cluster.core.manager.fleet import BACKOFF_MAX_S, SETTLE_S, STURDY_S
from scaler_cluster.core.manager.units import Listed
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.wire import messages as m

OFFER = m.Offer("x", 0, 100, 1, 5.0, ())


class System:
    """A manager's core with a system whose units are sets of names, and a scheduler."""

    def __init__(self, **settings) -> None:
        self.now = 100.0
        self.made = 0
        settings = {"most": 4, "drain_timeout_s": 60.0, "start_timeout_s": 30.0} | settings
        config = ManagerConfig(name="m", address="tcp://x:1", **settings)
        self.core = core.ManagerCore(config, OFFER, self._name, self.now)
        self.units: dict[str, Listed] = {}
        """What the system lists."""
        self.here: dict[str, int] = {}
        """What the scheduler names, with the tasks of each."""
        self.refusal = ""
        self.is_silent = False
        self.is_alone = False
        """Whether the scheduler is gone."""
        self.ended: list[str] = []
        """What was ended through the backend."""
        self.drained: list[str] = []
        self.left: str | None = None
        self.reports: list[m.Units] = []

    def _name(self) -> str:
        self.made += 1
        return str(self.made)

    def wait(self, duration_s: float) -> None:
        """Let time pass from deadline to deadline."""
        end = self.now + duration_s
        for _ in range(10_000):
            self.act()
            due = self.core.deadline
            if due > end or self.left is not None:
                self.now = end
                return
            self.now = max(self.now, due)
        raise AssertionError("the core's deadline does not move")

    def act(self) -> None:
        """Do what is due now, and what follows from it."""
        self.core.tick(self.now)
        while actions := self.core.take_actions():
            for action in actions:
                self._do(action)
            self.core.tick(self.now)

    def _do(self, action: core.Action) -> None:
        if isinstance(action, core.Start):
            if not self.refusal:
                self.units.update((name, Listed("pending")) for name in action.units)
            self.core.started(action.units, self.refusal, self.now)
        elif isinstance(action, core.Stop):
            for name in action.units:
                self.ended.append(name)
                self.units.pop(name, None)
                self.here.pop(name, None)
            self.core.stopped("", self.now)
        elif isinstance(action, core.Look):
            listed = None if self.is_silent else dict(self.units)
            self.core.looked(listed, "no answer" if self.is_silent else "", self.now)
        elif isinstance(action, core.Leave):
            self.left = action.reason
        elif isinstance(action, core.Send) and isinstance(action.message, m.Drain):
            self.drained += action.message.units
        elif isinstance(action, core.Send) and isinstance(action.message, m.Units):
            self.reports.append(action.message)
            if not self.is_alone:
                self.core.receive([self._wanted(self.core.wanted)], self.now)

    def _wanted(self, workers: int) -> m.Wanted:
        return m.Wanted(workers, tuple(self.here), tuple(self.here.values()))

    def want(self, workers: int) -> None:
        self.core.receive([self._wanted(workers)], self.now)
        self.act()

    def come(self, *names: str, tasks: int = 1) -> None:
        """Let the workers of units come."""
        self.here.update((name, tasks) for name in names)
        self.want(self.core.wanted)

    def finish(self, name: str) -> None:
        """Let a unit leave by itself, as one that has drained does."""
        self.here.pop(name)
        self.units.pop(name)
        self.want(self.core.wanted)
        self.wait(2.1)


@pytest.fixture
def system():
    """A manager of up to four units of a worker each, which knows that there are none."""
    made = System()
    made.wait(0.1)
    return made


def test_units_are_started_and_ended_as_they_are_wanted(system):
    """What has not come is ended; what is here drains, the one with the fewest tasks first."""
    system.want(3)
    assert list(system.units) == ["m-1", "m-2", "m-3"]

    system.come("m-1", tasks=5)
    system.come("m-2", tasks=1)
    system.want(2)
    assert system.ended == ["m-3"]
    assert system.drained == []

    system.want(1)
    assert system.drained == ["m-2"]
    assert system.ended == ["m-3"]
    system.finish("m-2")
    assert list(system.core.fleet.units) == ["m-1"]
    assert system.core.fleet.failed == 0


def test_there_are_never_more_than_the_most(system):
    """A unit that drains is still there, so no other one takes its place before it is gone."""
    system.want(4)
    system.come(*system.units)
    system.want(0)
    system.want(4)

    assert len(system.units) == 4
    system.finish("m-1")
    assert list(system.units) == ["m-2", "m-3", "m-4", "m-5"]


def test_units_have_several_workers():
    """So many units are started that they have as many workers as are wanted."""
    system = System(most=10, per_unit=4)
    system.wait(0.1)
    system.want(5)
    assert len(system.units) == 2
    system.want(10)
    assert len(system.units) == 2, "three would be twelve workers"


def test_a_unit_that_dies_is_replaced(system):
    """At once if it has lived a while, and with a pause if not."""
    system.want(1)
    system.come("m-1")
    system.wait(STURDY_S)
    system.units.pop("m-1")
    system.here.clear()
    system.want(1)
    system.wait(2.1)
    assert list(system.units) == ["m-2"]
    assert system.core.fleet.failed == 1

    system.come("m-2")
    system.units["m-2"] = Listed("out of memory", is_over=True)
    system.here.clear()
    system.want(1)
    assert list(system.core.fleet.units) == []
    assert system.core.reason == "out of memory"
    system.wait(1.1)
    assert "m-3" in system.units


def test_a_system_that_refuses_is_asked_ever_less_often(system):
    """Its reason is reported; the first unit that comes ends that."""
    system.refusal = "quota exceeded"
    system.want(1)
    system.wait(1000.0)

    assert system.made < 15
    assert system.reports[-1].reason == "quota exceeded"
    assert system.core.fleet.start_at - system.now <= BACKOFF_MAX_S
    system.refusal = ""
    while not system.units:
        system.wait(1.0)
    system.come(*system.units)
    assert system.core.reason == ""


def test_units_that_work_and_are_killed_are_soon_replaced(system):
    """However often that happens, nobody waits long: work would lie."""
    system.want(1)
    for _ in range(50):
        made = system.made
        system.come(*system.units)
        system.units.clear()
        system.here.clear()
        system.want(1)
        system.wait(25.0)
        assert system.made == made + 1


@pytest.mark.parametrize("ends_first", [False, True])
def test_units_whose_workers_cannot_start_are_tried_ever_less_often(system, ends_first):
    """The scheduler says why, be it before the system lists the unit's end, or after that."""
    system.want(1)
    for _ in range(100):
        system.wait(10.0)
        for name in list(system.units):
            if ends_first:
                system.units[name] = Listed("exit code 1", is_over=True)
                system.wait(2.1)
            system.core.receive([m.UnitBroken(name, "cannot start: no module")], system.now)
            system.act()
            system.units.pop(name, None)

    assert system.core.reason == f"workers cannot start: no module (m-{system.made})"
    assert system.core.fleet.failed == system.made < 15
    assert set(system.ended) <= {f"m-{number}" for number in range(1, 15)}


def test_a_broken_unit_with_tasks_drains(system):
    """Its other workers may finish what they run."""
    system.want(1)
    system.come("m-1")
    system.core.receive([m.UnitBroken("m-1", "cannot start: no module")], system.now)
    system.act()

    assert (system.drained, system.ended) == (["m-1"], [])


def test_units_that_die_as_soon_as_they_came_are_tried_less_often(system):
    """A quarter of a minute lies between them; one that has lived for a while ends that."""
    system.want(1)
    for _ in range(1000):
        system.wait(1.0)
        for name in list(system.units):
            system.come(name)
            system.units[name] = Listed("out of memory", is_over=True)
            system.here.clear()
            system.want(1)
            system.wait(2.1)
            system.units.clear()
    assert 50 < system.made < 100, "of a thousand seconds"

    while not system.units:
        system.wait(1.0)
    system.come(*system.units)
    system.wait(STURDY_S + 5.0)
    system.units.clear()
    system.here.clear()
    system.want(1)
    system.wait(2.1)
    assert system.units, "one that has lived ended the pauses"


def test_units_that_never_come_are_given_up(system):
    """They are ended, counted, and the system's reason is told."""
    system.want(1)
    system.units["m-1"] = Listed("ImagePullBackOff")
    system.wait(31.0)

    assert system.ended == ["m-1"]
    assert "did not come within 30 s: ImagePullBackOff" in system.core.reason
    assert system.core.fleet.failed == 1


def test_units_that_never_come_and_nobody_says_why(system):
    """As those whose key the scheduler does not let in: only they know."""
    system.want(1)
    system.units["m-1"] = Listed()
    system.wait(31.0)

    assert system.core.reason == (
        "workers did not come within 30 s: their own output may say why (m-1)"
    )


def test_units_that_never_come_back_are_given_up(system):
    """The scheduler has lost them; the system still has them."""
    system.want(1)
    system.come("m-1")
    system.wait(2.1)
    system.here.clear()
    system.want(1)
    system.wait(61.0)

    assert system.ended == ["m-1"]
    assert system.core.reason == "workers did not come back within 60 s: pending (m-1)"


def test_a_unit_that_the_system_does_not_end_is_sent_off(system):
    """A manager before this one has started it, and the system does not know it any more."""
    system.here = {"m-z": 1}
    system.want(0)
    system.wait(60.0)
    assert system.ended == ["m-z"]

    system.drained.clear()
    system.come("m-z")
    system.wait(2.1)
    assert system.drained == ["m-z"]
    system.here.clear()
    system.want(0)
    assert list(system.core.fleet.units) == []


def test_a_unit_that_does_not_finish_is_ended(system):
    """After the time that tasks may take to end."""
    system.want(1)
    system.come("m-1")
    system.want(0)
    system.wait(59.0)
    assert system.ended == []
    system.wait(2.0)
    assert system.ended == ["m-1"]


def test_units_drain_before_their_life_is_over():
    """A system that ends units by itself ends none with tasks on it."""
    system = System(lifetime_s=600.0)
    system.wait(0.1)
    system.want(1)
    system.come("m-1")
    system.wait(539.0)
    assert system.drained == []
    system.wait(2.0)
    assert system.drained[0] == "m-1"
    assert list(system.units) == ["m-1", "m-2"], "another one takes its place"


def test_the_units_of_a_killed_manager_are_adopted():
    """Nothing is started before it is known what is there."""
    system = System()
    system.units = {"m-a": Listed(), "m-b": Listed(), "m-c": Listed("", is_over=True)}
    system.want(3)
    assert list(system.units) == ["m-a", "m-b", "m-c", "m-1"]

    system.come("m-a", "m-b", "m-1")
    assert system.core.fleet.failed == 0


def test_a_unit_that_only_the_scheduler_knows_counts(system):
    """It was started by another manager, on a system that does not list its units."""
    system.here = {"m-z": 1}
    system.want(1)
    assert system.units == {}

    system.want(0)
    assert system.drained == ["m-z"]


def test_a_system_that_lists_late_is_believed(system):
    """A unit that was just accepted may not be listed yet."""
    system.want(1)
    system.units.clear()
    system.wait(SETTLE_S - 3.0)
    assert list(system.core.fleet.units) == ["m-1"]
    system.wait(5.0)
    assert "m-1" not in system.core.fleet.units
    assert system.core.fleet.failed == 1


def test_a_system_that_does_not_answer_ends_nothing(system):
    """Its silence is told as a reason."""
    system.want(1)
    system.come("m-1")
    system.is_silent = True
    system.wait(60.0)
    assert system.core.reason == "no answer"
    assert list(system.core.fleet.units) == ["m-1"]
    system.is_silent = False
    system.wait(3.0)
    assert system.core.reason == ""


def test_a_restarted_scheduler_hears_the_offer_and_what_drains(system):
    """What drains is said with each report."""
    system.want(2)
    system.come("m-1", "m-2")
    system.wait(2.1)
    system.want(1)
    system.drained.clear()
    system.core.receive([m.Unknown(), m.Unknown()], system.now)
    actions = system.core.take_actions()
    (back,) = [one for one in actions if isinstance(one, core.ComeBack)]
    assert isinstance(back.message, m.Offer)
    assert back.message.wanted == 1

    system.here.clear()
    system.want(1)
    system.wait(2.1)
    assert system.drained[-1] == "m-1"

    system.wait(20.0)
    assert system.ended == [], "it may finish before another scheduler as well"
    system.come("m-1")
    system.here.clear()
    system.want(1)
    system.wait(8.0)
    assert system.ended == ["m-1"], "it has finished, and its system has not noticed"


def test_a_manager_leaves_with_its_units(system):
    """What is here may finish for a while, what is not is ended."""
    system.want(2)
    system.come("m-1")
    system.core.leave(system.now)
    system.act()
    assert (system.drained, system.ended) == (["m-1"], ["m-2"])
    system.wait(9.0)
    assert system.left is None
    system.wait(5.0)
    assert system.ended == ["m-2", "m-1"]
    assert system.left == ""


def test_a_manager_of_a_silent_system_leaves():
    """What nobody has seen is not waited for."""
    system = System()
    system.is_silent = True
    system.wait(0.1)
    system.core.leave(system.now)
    system.wait(11.0)
    assert system.left == ""


def test_a_manager_of_a_silent_scheduler_leaves(system):
    """What the scheduler named once, and the system does not list, is not waited for."""
    system.here = {"m-z": 1}
    system.want(1)
    system.is_alone = True
    system.core.leave(system.now)
    system.wait(15.0)
    assert system.left == ""


@pytest.mark.parametrize("how", ["told", "dismissed", "alone"])
def test_a_manager_may_leave_its_units(how):
    """They are for the next manager with its id, whyever it ends."""
    system = System(keeps_units=True, death_timeout_s=20.0)
    system.wait(0.1)
    system.want(1)
    if how == "told":
        system.core.leave(system.now)
    elif how == "dismissed":
        system.core.receive([m.Goodbye()], system.now)
    else:
        system.is_alone = True
        system.wait(21.0)
        assert system.left == "the scheduler at tcp://x:1 does not answer"
        assert (list(system.units), system.ended) == (["m-1"], [])
        return
    system.act()
    assert system.left == ""
    assert (list(system.units), system.ended) == (["m-1"], [])


@pytest.mark.parametrize("message", [m.Goodbye("the cluster was shut down"), None])
def test_without_a_scheduler_there_are_no_units(message):
    """They end when the cluster does, or when its scheduler is silent for too long."""
    system = System(death_timeout_s=20.0)
    system.wait(0.1)
    system.want(1)
    system.come("m-1")
    if message is not None:
        system.core.receive([message], system.now)
    system.is_alone = True
    system.wait(25.0)
    assert system.ended == ["m-1"]
    assert system.left == ("" if message else "the scheduler at tcp://x:1 does not answer")


def test_one_whose_place_was_taken_leaves_the_units(system):
    """The manager that has come has them."""
    system.want(1)
    system.core.receive([m.Refused("another manager with its id has come")], system.now)
    system.act()
    assert system.left == "another manager with its id has come"
    assert system.ended == []


@pytest.mark.parametrize("message", [m.Retire(), m.Wanted(1, ("a",), ())])
def test_what_nobody_may_say(system, message):
    """A scheduler that breaks the protocol is found out."""
    with pytest.raises(RemoteProtocolError):
        system.core.receive([message], system.now)


class AnySystem(RuleBasedStateMachine):
    """A system that is slow, refuses, falls silent, lets units die; and a scheduler that restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.system = System(most=5, per_unit=2)
        self.system.wait(0.1)

    @rule(workers=st.integers(0, 9))
    def want(self, workers):
        self.system.want(workers)

    @rule(data=st.data())
    def come(self, data):
        absent = [one for one in self.system.units if one not in self.system.here]
        if absent:
            self.system.come(data.draw(st.sampled_from(absent)), tasks=data.draw(st.integers(0, 3)))

    @rule(data=st.data(), is_listed=st.booleans())
    def die(self, data, is_listed):
        if self.system.units:
            name = data.draw(st.sampled_from(list(self.system.units)))
            self.system.here.pop(name, None)
            if is_listed:
                self.system.units[name] = Listed("it died", is_over=True)
            else:
                del self.system.units[name]

    @rule()
    def lose_all(self):
        """The scheduler is restarted; the units come back later."""
        self.system.here.clear()
        self.system.core.receive([m.Unknown()], self.system.now)

    @rule(refusal=st.sampled_from(["", "no"]), is_silent=st.booleans())
    def change_mood(self, refusal, is_silent):
        self.system.refusal, self.system.is_silent = refusal, is_silent

    @rule(duration_s=st.sampled_from([0.1, 3.0, 35.0, 100.0]))
    def wait(self, duration_s):
        self.system.wait(duration_s)

    @precondition(lambda self: self.system.core.fleet.units)
    @rule()
    def drained(self):
        """What drains and has nothing to do leaves."""
        for name in set(self.system.drained) & set(self.system.here):
            self.system.here.pop(name)
            self.system.units.pop(name, None)

    @invariant()
    def never_too_many(self):
        living = [one for one in self.system.units.values() if not one.is_over]
        assert len(living) <= 2

    def teardown(self):
        """A system that works again has nothing left once nothing is wanted."""
        system = self.system
        system.refusal, system.is_silent = "", False
        system.want(0)
        system.wait(200.0)
        assert not [one for one in system.units.values() if not one.is_over]
        assert not system.core.fleet.units


AnySystem.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnySystem = AnySystem.TestCase
