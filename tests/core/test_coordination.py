"""Locks, semaphores, events, queues and variables, as the scheduler keeps them."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.coordination import Asked
from scaler_cluster.core.scheduler.config import QuotaConfig, SchedulerConfig
from scaler_cluster.core.scheduler.coordination import Coordination
from scaler_cluster.core.scheduler.invariants import check_coordination
from scaler_cluster.core.scheduler.places import STAKE_BYTES
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, function_id
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable

SESSIONS = range(1, 5)


class Desk:
    """A Coordination, and what it has told whom."""

    def __init__(self, *, bytes_max: int = 1 << 20, is_open: bool = True) -> None:
        self.said: list[tuple[int, m.Message]] = []
        self.coordination = Coordination(
            lambda session, message: self.said.append((session, message)),
            bytes_max,
            is_open=is_open,
        )
        self._numbers = itertools.count(1)

    def ask(self, session: int, kind: str, act: str, *names: str, **more) -> int:
        number = next(self._numbers)
        message = m.Coordinate(number, kind, act, names or ("x",), **more)
        self.coordination.ask(session, "", message)
        self.check()
        return number

    def withdraw(self, session: int, number: int, *, has_values: bool = False) -> None:
        self.coordination.withdraw(session, number, has_values=has_values)
        self.check()

    def check(self) -> None:
        check_coordination(self.coordination, SESSIONS)

    def take(self) -> list[tuple[int, m.Message]]:
        said, self.said = self.said, []
        return said

    def answered(self) -> list[int]:
        """Return the numbers of the requests that were answered since the last look."""
        return [one.number for _, one in self.take() if isinstance(one, m.Coordinated)]


def values_of(message: m.Message) -> list[bytes]:
    assert isinstance(message, m.Coordinated)
    return list(map(bytes, message.values))


def test_a_lock_goes_to_those_who_wait_in_turn():
    """The first has it, and the others get it in the order in which they came."""
    desk = Desk()
    first, second, third = (desk.ask(one, m.LOCK, m.ACQUIRE) for one in (1, 2, 3))
    assert [first] == desk.answered()

    desk.withdraw(1, first)
    assert [second] == desk.answered()
    desk.withdraw(2, second)
    assert [third] == desk.answered()


def test_a_lock_ends_with_its_holder():
    """A session that ends holds nothing and waits for nothing."""
    desk = Desk()
    desk.ask(1, m.LOCK, m.ACQUIRE)
    desk.ask(2, m.LOCK, m.ACQUIRE)
    third = desk.ask(3, m.LOCK, m.ACQUIRE)

    desk.coordination.end(2)
    desk.answered()
    desk.coordination.end(1)

    assert [third] == desk.answered()
    desk.coordination.end(3)
    assert not list(desk.coordination.places)
    assert not desk.coordination.places.nbytes


def test_who_does_not_wait_is_answered_at_once():
    """What cannot be done now is answered with order 0, and nobody waits for it."""
    desk = Desk()
    desk.ask(1, m.LOCK, m.ACQUIRE)
    desk.take()

    desk.ask(2, m.LOCK, m.ACQUIRE, may_wait=False)

    ((_, answer),) = desk.take()
    assert isinstance(answer, m.Coordinated)
    assert not answer.order
    assert not desk.coordination.waiting


def test_several_locks_come_together_and_nobody_blocks_the_other():
    """Two that want the same locks in another order both get them, the first one first."""
    desk = Desk()
    held = desk.ask(1, m.LOCK, m.ACQUIRE, "a")
    first = desk.ask(2, m.LOCK, m.ACQUIRE, "b", "a", count=2)
    second = desk.ask(3, m.LOCK, m.ACQUIRE, "a", "b", count=2)
    assert [held] == desk.answered()

    desk.withdraw(1, held)
    assert [first] == desk.answered()
    desk.withdraw(2, first)
    assert [second] == desk.answered()


def test_some_of_several_locks_are_those_that_are_free():
    """Who wants any two of three gets the two that are free, and is told which."""
    desk = Desk()
    desk.ask(1, m.LOCK, m.ACQUIRE, "b")
    desk.take()

    desk.ask(2, m.LOCK, m.ACQUIRE, "a", "b", "c", count=2)

    ((_, answer),) = desk.take()
    assert isinstance(answer, m.Coordinated)
    assert ("a", "c") == answer.names


def test_a_semaphore_has_so_many_leases_as_all_say():
    """The third of two waits; who says another number is refused."""
    desk = Desk()
    first, second, third = (desk.ask(1, m.SEMAPHORE, m.ACQUIRE, most=2) for _ in range(3))
    assert [first, second] == desk.answered()

    desk.ask(2, m.SEMAPHORE, m.ACQUIRE, most=3)
    ((_, refused),) = desk.take()
    assert isinstance(refused, m.Coordinated)
    assert "at most 2 leases, not 3" in refused.refused
    assert refused.is_conflict

    desk.withdraw(1, second)
    assert [third] == desk.answered()


def test_values_are_kept_until_they_have_arrived():
    """A value whose taker dies before it says that it has it goes to the next one."""
    desk = Desk()
    put = desk.ask(1, m.QUEUE, m.PUT, value=b"v")
    desk.ask(2, m.QUEUE, m.TAKE)
    desk.take()
    waits = desk.ask(3, m.QUEUE, m.TAKE)

    desk.coordination.end(2)

    ((session, answer),) = desk.take()
    assert (3, [b"v"]) == (session, values_of(answer))
    desk.withdraw(3, waits, has_values=True)
    assert [(1, m.Lapsed(put))] == desk.take()


def test_values_go_back_to_where_they_were():
    """What a taker gives back is the next one again, before what was put later."""
    desk = Desk()
    for value in (b"1", b"2", b"3"):
        desk.ask(1, m.QUEUE, m.PUT, value=value)
    taken = desk.ask(2, m.QUEUE, m.TAKE, count=2)
    desk.withdraw(2, taken)
    desk.take()

    desk.ask(2, m.QUEUE, m.TAKE, count=0)

    ((_, answer),) = desk.take()
    assert [b"1", b"2", b"3"] == values_of(answer)


def test_a_full_queue_has_putters_wait():
    """A value is taken in once there is room; who waits for several values makes room as well."""
    desk = Desk()
    first, second, third = (desk.ask(1, m.QUEUE, m.PUT, value=b"%d" % n, most=1) for n in range(3))
    assert [first] == desk.answered()

    both = desk.ask(2, m.QUEUE, m.TAKE, count=2)

    assert [second, both, third] == desk.answered()


def test_everybody_who_waits_for_an_event_goes_on():
    """All waiters are answered when it is set, and later ones at once until it is cleared."""
    desk = Desk()
    waiters = [desk.ask(one, m.EVENT, m.GET) for one in SESSIONS]
    assert not desk.answered()

    is_set = desk.ask(1, m.EVENT, m.SET)
    assert [is_set, *waiters] == desk.answered()
    assert [desk.ask(2, m.EVENT, m.GET)] == desk.answered()

    cleared = desk.ask(3, m.EVENT, m.CLEAR)
    desk.ask(2, m.EVENT, m.GET)
    assert [(1, m.Lapsed(is_set))] == [one for one in desk.take() if isinstance(one[1], m.Lapsed)]
    assert cleared


def test_a_variable_has_the_last_value():
    """Who set it before need not keep its value any more."""
    desk = Desk()
    before = desk.ask(1, m.VARIABLE, m.SET, value=b"old")
    desk.ask(2, m.VARIABLE, m.SET, value=b"new")
    assert (1, m.Lapsed(before)) in desk.take()

    desk.ask(3, m.VARIABLE, m.GET)

    ((_, answer),) = desk.take()
    assert [b"new"] == values_of(answer)


def test_another_scheduler_hears_all_before_it_gives_anything_out():
    """What somebody holds is not given to others, though they spoke first."""
    desk = Desk(is_open=False)
    waits = desk.ask(1, m.LOCK, m.ACQUIRE)
    held = desk.ask(2, m.LOCK, m.ACQUIRE, order=7)
    assert not desk.take()

    desk.coordination.open()
    desk.check()
    assert not desk.take()

    desk.withdraw(2, held)
    assert [waits] == desk.answered()


def test_values_that_are_said_again_are_in_their_order():
    """The older value comes first, whoever spoke first; of a variable the younger one counts."""
    desk = Desk(is_open=False)
    desk.ask(1, m.QUEUE, m.PUT, value=b"second", order=9)
    desk.ask(2, m.QUEUE, m.PUT, value=b"first", order=4)
    desk.ask(1, m.VARIABLE, m.SET, value=b"new", order=9)
    old = desk.ask(2, m.VARIABLE, m.SET, value=b"old", order=4)
    assert [(2, m.Lapsed(old))] == desk.take()
    desk.coordination.open()

    desk.ask(3, m.QUEUE, m.TAKE, count=2)
    desk.ask(3, m.VARIABLE, m.GET)

    (_, taken), (_, read) = desk.take()
    assert [b"first", b"second"] == values_of(taken)
    assert [b"new"] == values_of(read)


def test_who_comes_back_too_late_is_told():
    """A lock that another one has by now has lapsed."""
    desk = Desk()
    desk.ask(1, m.LOCK, m.ACQUIRE)
    desk.take()

    late = desk.ask(2, m.LOCK, m.ACQUIRE, order=3)

    assert [(2, m.Lapsed(late))] == desk.take()


def test_who_was_given_up_finds_its_values():
    """They stayed here: none comes twice, and one that was taken meanwhile has lapsed."""
    desk = Desk()
    there, taken = (desk.ask(1, m.QUEUE, m.PUT, value=b"v%d" % n) for n in (1, 2))
    orders = [one.order for _, one in desk.take() if isinstance(one, m.Coordinated)]
    desk.coordination.end(1)
    get = desk.ask(2, m.QUEUE, m.TAKE)
    desk.withdraw(2, get, has_values=True)
    desk.take()

    for number, order, value in zip((there, taken), orders, (b"v1", b"v2"), strict=True):
        message = m.Coordinate(number, m.QUEUE, m.PUT, ("x",), order=order, value=value)
        desk.coordination.ask(3, "", message, is_back=True)
        desk.check()

    assert [(3, m.Lapsed(there))] == desk.take()
    desk.ask(2, m.QUEUE, m.TAKE, count=0)
    assert [b"v2"] == values_of(desk.take()[0][1])


def test_a_user_has_a_bound():
    """What is too much is refused with a sentence; what is taken away makes room."""
    desk = Desk(bytes_max=4 * STAKE_BYTES)
    put = desk.ask(1, m.QUEUE, m.PUT, value=b"v" * STAKE_BYTES)
    desk.take()

    desk.ask(1, m.QUEUE, m.PUT, value=b"v" * STAKE_BYTES)
    ((_, refused),) = desk.take()
    assert isinstance(refused, m.Coordinated)
    assert "bytes in locks" in refused.refused

    desk.withdraw(1, put)
    number = desk.ask(1, m.QUEUE, m.PUT, value=b"v" * STAKE_BYTES)
    assert [number] == desk.answered()


@pytest.mark.parametrize(
    "message",
    [
        m.Coordinate(1, "mutex", m.ACQUIRE, ("x",)),
        m.Coordinate(1, m.LOCK, m.PUT, ("x",)),
        m.Coordinate(1, m.LOCK, m.ACQUIRE, ()),
        m.Coordinate(1, m.LOCK, m.ACQUIRE, ("x", "x"), 2),
        m.Coordinate(1, m.LOCK, m.ACQUIRE, ("x",), 2),
        m.Coordinate(1, m.LOCK, m.ACQUIRE, ("x",), 0),
        m.Coordinate(1, m.LOCK, m.ACQUIRE, ("x" * 256,)),
        m.Coordinate(1, m.LOCK, m.ACQUIRE, ("x",), most=1),
        m.Coordinate(1, m.SEMAPHORE, m.ACQUIRE, ("x",)),
        m.Coordinate(1, m.QUEUE, m.TAKE, ("x", "y")),
        m.Coordinate(1, m.QUEUE, m.TAKE, ("x",), 1001),
        m.Coordinate(1, m.QUEUE, m.TAKE, ("x",), order=1),
        m.Coordinate(1, m.QUEUE, m.PUT, ("x",), order=1 << 62),
        m.Coordinate(1, m.QUEUE, m.PUT, ("x",), value=bytes((1 << 20) + 1)),
        m.Coordinate(1, m.QUEUE, m.TAKE, ("x",), value=b"v"),
    ],
)
def test_what_nobody_may_say(message):
    """A client that asks for what there cannot be has broken the protocol, and nothing is left."""
    desk = Desk()

    with pytest.raises(RemoteProtocolError):
        desk.coordination.ask(1, "", message)

    assert not list(desk.coordination.places)


def test_a_number_comes_once():
    """A second request with the number of one that waits, or holds, has broken the protocol."""
    desk = Desk()
    message = m.Coordinate(1, m.LOCK, m.ACQUIRE, ("x",))
    desk.coordination.ask(1, "", message)

    with pytest.raises(RemoteProtocolError):
        desk.coordination.ask(1, "", message)


NAMES = st.sampled_from("ab")
ASKS = st.one_of(
    st.builds(
        lambda names, count: (m.LOCK, m.ACQUIRE, names, {"count": min(count, len(names))}),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True),
        st.integers(1, 3),
    ),
    st.builds(lambda name: (m.SEMAPHORE, m.ACQUIRE, [name], {"most": 2}), NAMES),
    st.builds(lambda name: (m.QUEUE, m.PUT, [name], {"most": 2}), NAMES),
    st.builds(lambda name, count: (m.QUEUE, m.TAKE, [name], {"most": 2, "count": count}),
              NAMES, st.integers(0, 3)),
    st.builds(lambda name, act: (m.EVENT, act, [name], {}),
              NAMES, st.sampled_from([m.SET, m.GET, m.CLEAR, m.LOOK])),
    st.builds(lambda name, act: (m.VARIABLE, act, [name], {}),
              NAMES, st.sampled_from([m.SET, m.GET, m.CLEAR])),
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from(SESSIONS),
        st.one_of(ASKS, st.integers(0, 30), st.just("end")),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS, st.booleans())
def test_whatever_is_asked_nobody_has_too_much_and_nothing_is_lost(steps, is_open):
    """Locks have their holders alone, waiters their turn, and each value one place or one taker."""
    desk = Desk(is_open=is_open)
    asked: list[tuple[int, int]] = []
    put: dict[int, bytes] = {}
    taken: dict[int, list[bytes]] = {}
    arrived: list[bytes] = []
    for at, (session, step, flag) in enumerate(steps):
        if at == len(steps) // 2 and not is_open:
            desk.coordination.open()
        if isinstance(step, tuple):
            kind, act, names, more = step
            if act == m.PUT:
                more = {**more, "value": b"%d" % at}
            asked.append((session, desk.ask(session, kind, act, *names, may_wait=not flag, **more)))
            if act == m.PUT:
                put[asked[-1][1]] = more["value"]
        elif step == "end":
            for number in _unanswered(desk, [session]):
                put.pop(number, None)
            desk.coordination.end(session)
            asked = [one for one in asked if one[0] != session]
        elif step < len(asked):
            who, number = asked.pop(step)
            is_under_way = desk.coordination.stakes.taken.get(who, {}).get(number)
            desk.withdraw(who, number, has_values=flag)
            put.pop(number, None)
            if is_under_way and flag:
                arrived += taken[number]
        desk.check()
        for _, said in desk.take():
            if isinstance(said, m.Coordinated) and said.orders:
                taken[said.number] = values_of(said)
            if isinstance(said, m.Coordinated) and said.number in put and not said.order:
                # It was not to wait for room.
                del put[said.number]
    _end_all(desk, put, arrived)


def _unanswered(desk: Desk, sessions: Iterable[int]) -> set[int]:
    waiting = desk.coordination.waiting
    early = {message.number for message, _ in desk.coordination.early}
    return early.union(*(waiting.get(session, ()) for session in sessions))


def _end_all(desk: Desk, put: dict[int, bytes], arrived: list[bytes]) -> None:
    """When all have gone, nothing is held, and what was put and not taken is there."""
    unanswered = _unanswered(desk, SESSIONS)
    for session in SESSIONS:
        desk.coordination.end(session)
        desk.check()
    left = [
        stake.value
        for place in desk.coordination.places
        if place.kind == m.QUEUE
        for stake in place.stakes.values()
    ]
    assert max(Counter(left + arrived).values(), default=1) == 1, "a value is there twice"
    gone = {value for number, value in put.items() if number not in unanswered}
    assert gone <= {*left, *arrived}, "a value was lost"
    for place in desk.coordination.places:
        assert place.kind in (m.QUEUE, m.EVENT, m.VARIABLE), "a lock outlives its holders"
        assert not place.waits
        assert not place.puts


@given(st.lists(st.sampled_from(SESSIONS), min_size=1, max_size=30), st.randoms())
def test_turns_are_the_order_of_coming(comers, dice):
    """Whoever gives the lock back, or gives up waiting, the others get it as they came."""
    desk = Desk()
    line = [(session, desk.ask(session, m.LOCK, m.ACQUIRE)) for session in comers]
    holder = line.pop(0)
    assert [holder[1]] == desk.answered()

    while line:
        if dice.random() < 0.3:
            desk.withdraw(*line.pop(dice.randrange(len(line))))
            assert not desk.answered()
        else:
            desk.withdraw(*holder)
            holder = line.pop(0)
            assert [holder[1]] == desk.answered()


# -- in a scheduler ----------------------------------------------------------------------------


def acquire(number: int, **more) -> m.Coordinate:
    return m.Coordinate(number, m.LOCK, m.ACQUIRE, ("x",), **more)


def answered(actions: dict[bytes, list[m.Message]]) -> dict[bytes, list[int]]:
    return {
        peer: [one.number for one in messages if isinstance(one, m.Coordinated)]
        for peer, messages in actions.items()
    }


def test_a_client_whose_process_ends_holds_nothing():
    """The scheduler watches a client that asks, and gives on what it holds when it has ended."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, pid_space="here"))
    for name in (b"C1", b"C2"):
        hello = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 11, "h", pid_space="here")
        bench.feed(name, hello)
        bench.feed(name, acquire(1))
    assert [(b"C1", 11), (b"C2", 11)] == bench.core.table.to_watch

    bench.core.process_over(b"C1", bench.now)
    said = bench.wait(2.0)

    assert b"C1" not in bench.core.table.sessions
    assert ["coordinated 1"] == said["C2"]


def test_a_lock_of_a_task_ends_with_its_worker(one):
    """What a task holds goes to the next one once its worker has died."""
    worker = one.core.table.workers[b"W1"]
    pid, host = worker.pid, worker.host
    hello = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, pid, host, worker=b"W1")
    one.feed(b"C7", hello)
    one.feed(b"C7", acquire(1))
    one.core.receive(b"C1", [acquire(1)], one.now)
    assert {} == answered(one.act_raw())

    one.core.receive(b"S1", [m.WorkerLost(b"W1", 0, 0, {"signal": 9})], one.now)

    assert [1] == answered(one.act_raw())[b"C1"]


def test_a_quota_of_bytes_holds_for_values_as_well():
    """A scheduler that limits what one client has there refuses values beyond that."""
    config = SchedulerConfig(PYTHON, quotas=QuotaConfig(bytes_max=2000))
    bench = SchedulerBench(config)
    bench.client()
    bench.core.receive(b"C1", [m.Coordinate(1, m.QUEUE, m.PUT, ("x",), value=bytes(2000))], 100.0)

    ((answer,),) = bench.act_raw().values()

    assert isinstance(answer, m.Coordinated)
    assert "2000 bytes" in answer.refused


def test_workers_do_not_coordinate(one):
    """Only a client may ask."""
    with pytest.raises(RemoteProtocolError):
        one.core.receive(b"W1", [acquire(1)], one.now)
    with pytest.raises(RemoteProtocolError):
        one.core.receive(b"W1", [m.Withdraw(1)], one.now)


# -- at a client -------------------------------------------------------------------------------


def test_a_client_says_again_what_it_holds_and_waits_for():
    """To a scheduler that has forgotten it; what it has given back is not among it."""
    core = ClientCore()
    core.receive([m.Welcome(1, 1)], 0.0)
    held, waits, gone, taken = (
        Asked(m.Coordinate(0, kind, act, (name,), value=value))
        for kind, act, name, value in (
            (m.LOCK, m.ACQUIRE, "held", b""),
            (m.LOCK, m.ACQUIRE, "waits", b""),
            (m.LOCK, m.ACQUIRE, "gone", b""),
            (m.QUEUE, m.TAKE, "taken", b""),
        )
    )
    for one in (held, waits, gone, taken):
        core.coordination.ask(one)
    core.take_actions()
    said = [
        m.Coordinated(1, 5, is_kept=True, names=("held",)),
        m.Coordinated(3, 6, is_kept=True, names=("gone",)),
        m.Coordinated(4, 7, is_kept=True, orders=(2,), values=Batch.single(b"v")),
    ]
    core.receive(said, 1.0)
    core.coordination.withdraw(gone)

    core.start_over(m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "h"))
    core.take_actions()
    core.receive([m.Welcome(1, 1)], 2.0)

    again = [one for one in core.take_actions() if isinstance(one, m.Coordinate)]
    assert [("held", 5), ("waits", 0)] == [(one.names[0], one.order) for one in again]
    assert not any(isinstance(one, m.Withdraw) for one in core.take_actions())


def test_what_was_withdrawn_is_waited_for_no_more():
    """Another thread withdraws it: before it is sent, while it waits, or when it is answered."""
    core = ClientCore()
    early, waits, done = (Asked(acquire(0)) for _ in range(3))
    core.coordination.withdraw(early)
    for one in (early, waits, done):
        core.coordination.ask(one)
    core.coordination.answered(m.Coordinated(2, 5, is_kept=True, names=("x",)))

    assert [1, 2] == [one.number for one in core.take_actions() if isinstance(one, m.Coordinate)]
    assert [True, False, True] == [one.is_over for one in (early, waits, done)]
    for one in (waits, done):
        assert core.coordination.withdraw(one)
    assert [m.Withdraw(1), m.Withdraw(2)] == core.take_actions()
    assert waits.is_over


def test_only_what_was_asked_here_is_withdrawn():
    """What another client has asked has the same number, and what nobody has asked has none."""
    here, elsewhere = ClientCore(), ClientCore()
    asked, other, never = (Asked(acquire(0)) for _ in range(3))
    elsewhere.coordination.ask(other)
    assert not here.coordination.withdraw(other)
    here.coordination.ask(asked)
    here.take_actions()

    assert not here.coordination.withdraw(other)
    assert not here.coordination.withdraw(never)
    here.coordination.answered(m.Coordinated(1, 5, is_kept=True, names=("x",)))
    assert not here.coordination.withdraw(other)
    assert here.take_actions() == []
    assert here.coordination.withdraw(asked)
    assert here.take_actions() == [m.Withdraw(1)]
    assert not here.coordination.withdraw(asked)


def test_a_client_may_set_an_event_while_its_tasks_wait_for_room():
    """Those that have the room may be waiting for just that."""
    core = ClientCore()
    core.receive([m.Welcome(1, 1, asks_first=True)], 0.0)
    function = (function_id("f"), b"f", (), "f")
    core.submit(function, m.CALL_ARGS, m.DEFAULT_OPTIONS, (), b"p", object())
    asked = Asked(m.Coordinate(0, m.EVENT, m.SET, ("x",)))
    core.coordination.ask(asked)

    said = core.take_actions()

    assert not any(isinstance(one, m.Submit) for one in said)
    assert [1] == [one.number for one in said if isinstance(one, m.Coordinate)]
    core.coordination.withdraw(asked)
    assert m.Withdraw(1) in core.take_actions()
