"""Where few tasks may wait in the scheduler, further ones wait at their clients, in order."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.submit_window import SubmitWindow
from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.admission import STALE_S
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, function_id, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.wire import messages as m

F = function_id("f")


def submit(first, count=1):
    return m.Submit(first, F, m.CALL_ARGS, m.DEFAULT_OPTIONS, payloads_of(first, count))


# -- the client --------------------------------------------------------------------------------


@pytest.fixture
def window():
    """A window that nothing has come to."""
    return SubmitWindow()


def passed(window, *messages):
    return [describe(one) for one in window.pass_on(messages)]


def test_tasks_wait_until_they_are_let(window):
    """Tasks that wait for a grant hold up what comes after them, unless that concerns no task."""
    function, forget = m.Function(F, b"f"), m.Forget(F)
    assert passed(window, function, submit(0, 3), forget, m.Heartbeat()) == [
        "Function f",
        "Heartbeat",
        "RequestCredit 3",
    ]
    assert not window.is_open

    window.allow(3)
    assert window.is_open
    assert passed(window) == ["Submit 0-2 f", "Forget f"]
    assert not window.is_open


def test_part_of_a_message_may_be_let(window):
    """A grant for part of a Submit sends that part; the rest stays next."""
    assert passed(window, submit(0, 5), submit(5, 2)) == ["RequestCredit 7"]
    window.allow(3)
    assert passed(window) == ["Submit 0-2 f"]
    window.allow(3)
    assert passed(window, submit(7)) == ["RequestCredit 1", "Submit 3-4 f", "Submit 5 f"]


def test_tasks_are_taken_back_where_they_wait(window):
    """A client takes back tasks that it has not sent without asking the scheduler."""
    passed(window, submit(0, 5), submit(5, 5))
    assert passed(window, m.Cancel(3, 4)) == ["Cancel 3-6", "RequestCredit -4"]
    window.allow(10)
    assert passed(window) == ["Submit 0-2 f", "Submit 7-9 f"]
    assert window.cancelled == []


def test_what_only_waits_here_is_told_to_be_cancelled(window):
    """Tasks that the scheduler never saw are reported as cancelled by the client's own core."""
    passed(window, submit(0, 5))
    assert passed(window, m.Cancel(0, 1000, queued_only=True)) == [
        "Cancel 0-999 queued only",
        "RequestCredit -5",
    ]
    assert window.cancelled == [m.Cancelled(0, 5)]


def test_who_leaves_leaves_at_once(window):
    """A client that leaves drops what waits and says Goodbye at once."""
    passed(window, submit(0, 5))

    assert passed(window, m.Goodbye()) == ["Goodbye"]
    window.allow(5)
    assert passed(window) == []


# -- the scheduler -----------------------------------------------------------------------------


def make(limit):
    bench = SchedulerBench(SchedulerConfig(PYTHON, tasks_waiting_max=limit))
    bench.supervisor()
    return bench


def test_clients_are_told_that_they_have_to_ask():
    """Clients are told to ask first; sessions of tasks are not, as they must never wait."""
    bench = make(10)
    raw = bench.core.receive
    bench.worker()
    assert bench.client() == {"C1": ["Welcome 1, 1 workers, ask first"]}
    raw(b"N1", [m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host", worker=b"W1")], bench.now)
    assert bench.act()["N1"] == ["Welcome 2, 1 workers"]
    raw(b"N1", [m.Function(F, b"f"), submit(0, 1000)], bench.now)
    invariants.check(bench.core)


def test_as_many_are_let_as_there_is_room_for():
    """Two clients in turn are granted their shares; a little room is saved until it is more."""
    bench = make(10)
    bench.client()
    bench.client(b"C2")
    assert bench.feed(b"C1", m.RequestCredit(100)) == {"C1": ["GrantCredit 10"]}
    assert bench.feed(b"C2", m.RequestCredit(100)) == {}
    bench.core.receive(b"C1", [m.Function(F, b"f")], bench.now)
    assert bench.feed(b"C1", submit(0, 10)) == {}

    assert bench.feed(b"C1", m.Cancel(0, 1)) == {}
    assert bench.feed(b"C1", m.Cancel(4, 3)) == {"C1": ["GrantCredit 2"], "C2": ["GrantCredit 2"]}
    assert bench.feed(b"C1", submit(10, 2)) == {}
    invariants.check(bench.core)


def test_who_asks_for_more_is_let_that_alone():
    """A client that was granted what it asked for is granted what it asks for beyond that."""
    bench = make(20)
    bench.client()

    assert bench.feed(b"C1", m.RequestCredit(4)) == {"C1": ["GrantCredit 4"]}
    assert bench.feed(b"C1", m.RequestCredit(3)) == {"C1": ["GrantCredit 3"]}


def test_what_was_let_and_sent_takes_its_room_once():
    """Of a grant only the part that was not sent yet takes room beside the tasks that wait."""
    bench = make(20)
    bench.client()
    bench.client(b"C2")
    bench.feed(b"C1", m.RequestCredit(10))
    bench.core.receive(b"C1", [m.Function(F, b"f"), submit(0, 6)], bench.now)

    assert bench.feed(b"C2", m.RequestCredit(20)) == {"C2": ["GrantCredit 10"]}


def test_who_was_let_and_is_silent_takes_no_room_for_ever():
    """The grant of a client that stays silent goes to others after a while."""
    bench = make(10)
    bench.client()
    bench.client(b"C2")
    bench.feed(b"C1", m.RequestCredit(10))
    assert bench.feed(b"C2", m.RequestCredit(10)) == {}

    assert bench.wait(STALE_S)["C2"] == ["GrantCredit 10"]


def test_who_is_gone_takes_no_room():
    """The room that a client was granted is free again once the client is gone."""
    bench = make(10)
    bench.client()
    bench.client(b"C2")
    bench.feed(b"C1", m.RequestCredit(10))
    bench.feed(b"C2", m.RequestCredit(10))

    assert bench.lose(b"C1") == {"C2": ["GrantCredit 10"]}


@pytest.mark.parametrize(
    "messages",
    [
        [submit(0)],
        [m.RequestCredit(1), submit(0, 2)],
        [m.RequestCredit(0, 1)],
        [m.RequestCredit(2), submit(0), m.RequestCredit(0, 2)],
    ],
    ids=["unasked", "too many", "fewer than none", "sent"],
)
def test_who_does_not_keep_to_it_is_dropped(messages):
    """A client that sends more than it was granted is dropped: it would fill the memory."""
    bench = make(10)
    bench.client()
    bench.core.receive(b"C1", [m.Function(F, b"f")], bench.now)

    def feed_all():
        for message in messages:
            bench.feed(b"C1", message)

    with pytest.raises(RemoteProtocolError, match="tasks"):
        feed_all()


def test_nobody_need_ask_where_there_is_no_limit(one):
    """A scheduler without a limit asks nobody to ask first, and refuses a client that asks."""
    with pytest.raises(RemoteProtocolError, match="asks for what it may do"):
        one.core.receive(b"C1", [m.RequestCredit(1)], one.now)


# -- both --------------------------------------------------------------------------------------


class Pair:
    """Clients and a scheduler, and what is under way between them."""

    def __init__(self, limit: int, clients: int) -> None:
        self.bench = make(limit)
        self.limit = limit
        self.bench.worker()
        self.clients = [ClientCore() for _ in range(clients)]
        self.up: list[deque[m.Message]] = [deque() for _ in self.clients]
        self.down: list[deque[m.Message]] = [deque() for _ in self.clients]
        self.seen: list[list[int]] = [[] for _ in self.clients]
        for number in range(clients):
            self.say(number, m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON, 1, "host"))
            self.carry_up(number)
            self.carry_down(number)

    def peer(self, number: int) -> bytes:
        return b"C%d" % number

    def say(self, number: int, message: m.Message) -> None:
        self.clients[number].requests.say(message)
        self.flush(number)

    def flush(self, number: int) -> None:
        self.up[number].extend(self.clients[number].take_actions())

    def submit(self, number: int, count: int) -> None:
        client = self.clients[number]
        for _ in range(count):
            client.submit((F, b"f", (), "f"), m.CALL_ARGS, m.DEFAULT_OPTIONS, (), b"p", object())
        self.flush(number)

    def carry_up(self, number: int) -> None:
        while self.up[number]:
            message = self.up[number].popleft()
            if type(message) is m.Submit:
                self.seen[number] += range(message.first, message.first + len(message.batch))
            self.bench.core.receive(self.peer(number), [message], self.bench.now)
        self.turn()

    def turn(self) -> None:
        for peer, messages in self.bench.core.take_actions(self.bench.now).items():
            if peer[:1] == b"C":
                self.down[int(peer[1:])].extend(messages)
        invariants.check(self.bench.core)

    def carry_down(self, number: int) -> None:
        client = self.clients[number]
        client.receive(list(self.down[number]), self.bench.now)
        self.down[number].clear()
        self.flush(number)

    def work(self) -> None:
        """Let the worker do what it has."""
        worker = self.bench.core.table.workers[b"W1"]
        while worker.runs:
            run = worker.runs[0]
            batch = payloads_of(run.first, run.count, "r")
            done = m.Done(run.session, run.first, 0.001 * run.count, batch)
            self.bench.core.receive(b"W1", [done], self.bench.now)
            self.turn()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "cancel", "up", "down", "work", "take back"]),
        st.integers(0, 1),
        st.integers(1, 12),
    ),
    max_size=60,
)


@given(st.integers(1, 12), STEPS)
def test_nothing_is_lost_and_the_order_stays(limit, steps):
    """No task is lost or overtaken, and never do more wait than the limit says."""
    pair = Pair(limit, 2)
    for what, number, count in steps:
        client = pair.clients[number]
        if what == "submit":
            pair.submit(number, count)
        elif what == "cancel" and client.requests.next_task:
            client.cancel(
                range(max(client.requests.next_task - count, 0), client.requests.next_task)
            )
            pair.flush(number)
        elif what == "take back":
            client.take_back()
            pair.flush(number)
        elif what == "up":
            pair.carry_up(number)
        elif what == "down":
            pair.carry_down(number)
        elif what == "work":
            pair.work()
        assert pair.bench.core.table.backlog.count <= limit
    for _ in range(2000):
        if not any(client.busy for client in pair.clients):
            break
        pair.bench.now += STALE_S
        for number in range(2):
            pair.carry_up(number)
            pair.carry_down(number)
        pair.work()
    assert not any(client.busy for client in pair.clients)
    assert all(seen == sorted(set(seen)) for seen in pair.seen)


@pytest.mark.parametrize("taken_back", [0, 5])
def test_what_follows_a_cancel_is_held_as_well(window, taken_back):
    """Tasks that are submitted in the turn in which others are taken back wait, and are sent."""
    passed(window, submit(0))
    passed(window, m.Cancel(taken_back, 1), submit(2, 3))
    window.allow(4)

    first = [] if taken_back == 0 else ["Submit 0 f"]
    assert passed(window) == [*first, "Submit 2-4 f"]
