"""What a client asks again when its scheduler has forgotten it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.events import InputWanted, Settled
from scaler_cluster.core.client.unfinished import DEAD_MIN, Unfinished
from scaler_cluster.ids import CALL_BITS, first_task_id
from scaler_cluster.testing.bench import function_id, object_id, payloads_of
from scaler_cluster.testing.describe import describe
from scaler_cluster.wire import messages as m

F, G = function_id("f"), function_id("g")
HELLO = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, "3.11", 1, "here")
ONCE = m.TaskOptions(at_most_once=True)


@pytest.fixture
def core():
    made = ClientCore()
    made.receive([m.Welcome(1, 4)], 0.0)
    return made


def submit(core, count=1, function=F, options=m.DEFAULT_OPTIONS, objects=()):
    """Ask for single tasks; each one's waiter is its id as text."""
    for task in range(core.requests.next_task, core.requests.next_task + count):
        packed = function, b"pickle", objects, "name"
        assert core.submit(packed, m.CALL_ARGS, options, (), b"p", str(task)) == task


def ask_map(core, call, count, function=F):
    """Ask for the tasks of a map; return the id of the first one."""
    first = core.open_call(call)
    core.requests.teach(function, b"pickle", (), "name")
    batch = payloads_of(first, count)
    core.requests.submit_run(first, function, m.CALL_ARGS, m.DEFAULT_OPTIONS, (), batch)
    call.asked += count
    return first


def sent(core):
    return [describe(message) for message in core.take_actions()]


def results(first, count=1):
    return m.Results(first, payloads_of(first, count, "r"))


def come_back(core, welcome=None):
    """Let the scheduler forget this client, and take it in again; return what is said then."""
    core.start_over(HELLO)
    assert [type(one) for one in core.take_actions()] == [m.Hello]
    assert not core.requests.has_some
    assert core.take_actions() == []
    welcome = welcome or m.Welcome(2, 4)
    core.receive([welcome], 1.0)
    said = sent(core)
    assert said.count("Resumed") == (not welcome.asks_first)
    return [text for text in said if text != "Resumed"]


def settled(core):
    return [
        pair for event in core.events.take() if isinstance(event, Settled) for pair in event.pairs
    ]


class Call:
    """Stands for a map; remembers which of its tasks failed."""

    asked = outstanding = 0

    def __init__(self):
        self.failed: list[int] = []

    def settle(self, index, batch):
        pass

    def fail(self, index, failure):
        self.failed.append(index)


def test_what_has_not_come_back_is_asked_again(core):
    """A run is asked for without the tasks that came back, after the function that it names."""
    submit(core, 5)
    sent(core)
    core.receive([results(0), results(2)], 0.5)

    assert come_back(core) == ["Function f", "Submit 1 f", "Submit 3-4 f"]
    core.receive([results(3, 2), results(1)], 2.0)
    assert [who for who, _ in settled(core)] == ["0", "2", "3", "4", "1"]
    assert come_back(core) == []


def test_nothing_else_is_said_before_the_answer(core):
    """What is submitted meanwhile follows what is asked for again, and was said never."""
    submit(core)
    sent(core)
    core.start_over(HELLO)
    submit(core, 2, G)
    assert sent(core)[0].startswith("Hello")

    core.receive([m.Welcome(2, 4)], 1.0)
    assert sent(core) == ["Function f", "Submit 0 f", "Resumed", "Function g", "Submit 1-2 g"]


def test_a_map_is_asked_for_where_it_is_open(core):
    """Of a map, too, only the tasks are asked for that have not come back."""
    first = ask_map(core, Call(), 10)
    sent(core)
    core.receive([results(first + 2, 3), results(first + 9)], 0.5)

    assert come_back(core) == ["Function f", *(
        f"Submit {first + start}-{first + stop} f" for start, stop in ((0, 1), (5, 8))
    )]  # fmt: skip


def test_what_may_start_only_once_is_lost(core):
    """Who must ask first loses what may have started; one task that was not sent runs."""
    submit(core, 2, options=ONCE)
    sent(core)
    core.start_over(HELLO)
    submit(core, options=ONCE)
    core.take_actions()
    core.receive([m.Welcome(2, 4, asks_first=True)], 1.0)
    core.receive([m.GrantCredit(9)], 1.0)

    *_, again = core.take_actions()
    assert (again.first, len(again.batch), again.options) == (2, 1, ONCE)
    assert [(who, what.kind) for who, what in settled(core)] == [("0", "lost"), ("1", "lost")]


def test_what_may_start_only_once_is_judged_by_the_scheduler(core):
    """What was said before is asked again up to Resumed; what was not follows."""
    submit(core, 2, options=ONCE)
    sent(core)
    core.start_over(HELLO)
    (greeting,) = core.take_actions()
    submit(core, options=ONCE)
    core.receive([m.Welcome(1, 4)], 1.0)

    assert greeting.resume == 1
    said = [text.split(" Task")[0] for text in sent(core)]
    assert said == ["Function f", "Submit 0-1 f", "Resumed", "Submit 2 f"]
    assert not settled(core)


@pytest.mark.parametrize("asks_first", [True, False])
def test_what_was_about_to_be_asked_again_is_not_new(core, asks_first):
    """A scheduler may be gone before it was asked again: the next one is to judge the same."""
    submit(core, 2, options=ONCE)
    sent(core)
    core.start_over(HELLO)
    core.take_actions()
    core.receive([m.Welcome(1, 4)], 1.0)
    core.start_over(HELLO)
    (greeting,) = core.take_actions()
    core.receive([m.Welcome(1, 4, asks_first=asks_first)], 2.0)

    assert greeting.resume == 1
    said = [text.split(" Task")[0] for text in sent(core)]
    assert said == (["Function f"] if asks_first else ["Function f", "Submit 0-1 f", "Resumed"])
    assert len(settled(core)) == (2 if asks_first else 0)


def test_what_was_given_up_is_not_asked_again(core):
    """Neither cancelled tasks, sent or not, nor maps that nobody waits for come again."""
    submit(core, 3)
    sent(core)
    core.cancel([1])
    call = Call()
    call.outstanding = 4
    core.close_call(ask_map(core, call, 4), 4)
    sent(core)

    assert come_back(core) == ["Function f", "Submit 0 f", "Submit 2 f"]


def ask_graph(core, nodes, options=m.DEFAULT_OPTIONS, objects=(), inputs=(), function=F):
    """Ask for a graph of independent nodes in two parts, all wanted; return both and its first id.

    The second part, the last node, is not said.
    """
    first = core.requests.open_call()
    size = len(inputs)

    def part(start, stop, tasks=b""):
        count = stop - start
        zeros = bytes(4 * count)
        is_wanted = bytes(node >= size for node in range(start, stop))
        uses = b"".join(one.to_bytes(4, "little") for one in is_wanted)
        batch = payloads_of(start, count)
        said = (options,) if not start else ()
        return m.Graph(
            first,
            start,
            function,
            said,
            batch,
            zeros,
            b"",
            uses,
            is_wanted,
            tasks,
            (),
            b"",
            stop == nodes,
        )

    numbers = b"".join(one.to_bytes(8, "little") for one in inputs)
    begin, rest = part(0, nodes - 1, numbers), part(nodes - 1, nodes)
    waiters = {first + node: str(node) for node in range(size, nodes)}
    held = [f"input {node}" for node in range(size)]
    core.submit_graph((function, b"pickle", objects, "name"), begin, waiters, held)
    return first, rest


def test_a_graph_is_asked_for_again(core):
    """All of it is, but nodes that came back are given up; the rest of it follows."""
    first, rest = ask_graph(core, 5)
    _, name = sent(core)
    core.receive([results(first + 1, 2)], 0.5)
    given_up = describe(m.Cancel(first + 1, 2))
    last = describe(rest)

    assert come_back(core) == ["Function f", name, given_up]
    core.requests.go_on_with(rest)
    assert sent(core) == [last]
    assert come_back(core) == ["Function f", name, last, given_up]
    core.receive([results(first), results(first + 3, 2)], 2.0)
    assert sorted(who for who, _ in settled(core)) == ["0", "1", "2", "3", "4"]
    assert come_back(core) == []
    assert core.requests.unfinished.is_empty


def test_a_graph_that_was_given_up_is_not_asked_for_again(core):
    """Once nobody waits for any of its nodes, sent or not, it is forgotten."""
    first, rest = ask_graph(core, 3)
    core.requests.go_on_with(rest)
    core.cancel([first, first + 2])
    sent(core)
    core.cancel([first + 1])
    sent(core)

    assert come_back(core) == []
    assert core.requests.unfinished.is_empty


def test_a_linked_task_is_asked_for_again(core):
    """A single task that takes the results of others is a graph, numbered as single tasks are."""
    submit(core)
    first = core.requests.reserve(2)
    ends, uses = bytes(4) + b"\1\0\0\0", b"\1\0\0\0" * 2
    batch, before = payloads_of(first, 2), (0).to_bytes(8, "little")
    part = m.Graph(
        first, 0, F, (m.DEFAULT_OPTIONS,), batch, ends, bytes(4), uses, b"\0\1", before, (), b"",
        True,
    )  # fmt: skip
    core.submit_graph((F, b"pickle", (), "name"), part, {2: "linked"}, ["0"])
    sent(core)
    core.receive([m.RequestInputs(first, b"")], 0.2)

    again = ["Function f", "Submit 0 f", "Graph 1-2 f"]
    assert come_back(core) == again
    core.receive([results(0)], 1.5)
    core.receive([m.RequestInputs(first, bytes(4))], 1.5)
    assert InputWanted(first, "0") in core.events.take()
    assert come_back(core) == ["Function f", "Graph 1-2 f"]
    core.receive([results(2)], 2.5)
    assert come_back(core) == []


def test_inputs_are_supplied_again(core):
    """What was supplied to a graph before is gone with the scheduler, and is supplied once more."""
    first, _ = ask_graph(core, 4, inputs=[m.SUPPLIED, 7])
    core.requests.say(m.ProvideInputs(first, "", b"r"))
    sent(core)
    core.receive([m.RequestInputs(first, b"")], 0.2)

    come_back(core)
    assert InputWanted(first, "input 0") in core.events.take()
    core.receive([m.RequestInputs(first, (1).to_bytes(4, "little"))], 2.0)
    assert core.events.take() == [InputWanted(first + 1, "input 1")]


@pytest.mark.parametrize(
    ("how", "kind"), [({"options": ONCE}, m.FAILED_LOST), ({"objects": (b"o" * 16,)}, "missing")]
)
def test_a_graph_that_cannot_run_again_fails(core, how, kind):
    """With a node that must not start twice, or functions in a storage; its rest is not said."""
    _, rest = ask_graph(core, 3, **how)
    sent(core)

    assert come_back(core) == []
    core.requests.go_on_with(rest)
    assert sent(core) == []
    assert [(who, what.kind) for who, what in settled(core)] == [
        (str(node), kind) for node in range(3)
    ]
    assert not core.busy


def test_a_graph_that_was_not_sent_is_asked_for(core):
    """It may run though it must not start twice; without its functions' objects it cannot."""
    core.start_over(HELLO)
    _, rest = ask_graph(core, 3, options=ONCE)
    core.requests.go_on_with(rest)
    _, gone = ask_graph(core, 3, objects=(object_id("a"),), function=G)
    core.take_actions()
    core.receive([m.Welcome(2, 4)], 1.0)
    core.requests.go_on_with(gone)

    assert [text[:5] for text in sent(core)] == [
        "Resum", "Funct", "Graph", "Graph", "Funct", "Forge",
    ]  # fmt: skip
    assert [what.kind for _, what in settled(core)] == 3 * [m.FAILED_MISSING]


def test_what_was_taken_back_is_taken_back_again(core):
    """The scheduler that forgot the client had not yet answered that everything is wanted back."""
    submit(core, 2)
    sent(core)
    core.take_back()
    sent(core)

    assert come_back(core)[-1].endswith("queued only")


def test_functions_with_objects_are_taught_anew(core):
    """The objects of a function are gone, so it is not taken for known any more."""
    submit(core, objects=(object_id("a"),))
    sent(core)

    assert come_back(core) == ["Function f with a", "Submit 0 f", "Forget f"]
    submit(core, objects=(object_id("a"),))
    assert sent(core) == ["Function f with a", "Submit 1 f"]


def test_what_names_old_objects_is_not_said(core):
    """Objects that were offered, released or supplied before mean nothing to the scheduler."""
    core.start_over(HELLO)
    core.requests.offer(object_id("a"), b"segment", 1)
    core.release((object_id("b"),))
    core.requests.say(m.ProvideInputs(1 << CALL_BITS, "", b""))
    core.requests.say(m.Heartbeat())
    core.take_actions()
    core.receive([m.Welcome(2, 4)], 1.0)

    assert sent(core) == ["Resumed"]


def test_who_must_ask_first_asks_again(core):
    """A scheduler that has room for few tasks is asked before they are sent to it again."""
    core.requests.ask_first()
    submit(core, 3)
    assert sent(core) == ["Function f", "RequestCredit 3"]
    core.receive([m.GrantCredit(1)], 0.5)
    assert sent(core) == ["Submit 0 f"]

    welcome = m.Welcome(2, 4, asks_first=True)
    assert come_back(core, welcome) == ["Function f", "RequestCredit 3"]
    core.receive([m.GrantCredit(9)], 2.0)
    assert sent(core) == ["Submit 0 f", "Submit 1-2 f"]


def test_who_comes_back_is_told_once(core):
    """The shell hears once that it was forgotten, and when it is known again."""
    core.receive([m.Unknown(), m.Unknown()], 0.5)
    assert core.events.take() == [m.Unknown()]
    core.start_over(HELLO)
    core.take_actions()
    assert core.welcome.session == 0

    core.receive([m.Welcome(2, 4)], 1.0)
    assert [type(one) for one in core.events.take()] == [m.Welcome]


@given(st.data())
def test_it_knows_what_has_not_come_back(data):
    """Whatever is sent, comes back and is cancelled: the rest is asked for again, all of it."""
    waiters: set[int] = set()
    kept = Unfinished(waiters)
    kept.sent([m.Function(F, b"", (), "")])
    ends = {0: 0, 1: first_task_id(1), 2: first_task_id(2)}
    open_tasks: set[int] = set()
    for _ in range(data.draw(st.integers(1, 30))):
        number = data.draw(st.sampled_from(sorted(ends)))
        act = data.draw(st.sampled_from(["send", "come", "cancel", "node"]))
        tasks = sorted(task for task in open_tasks if task >> CALL_BITS == number)
        if act == "send":
            first, count = ends[number], data.draw(st.integers(1, 5))
            ends[number] = first + count
            open_tasks.update(range(first, first + count))
            waiters.update(range(first, first + count))
            batch = payloads_of(first, count)
            kept.sent([m.Submit(first, F, m.CALL_ARGS, m.DEFAULT_OPTIONS, batch)])
        elif act == "node":
            # A node of a graph has the next number of a single task, and comes back as well.
            kept.came(ends[0], 1)
            ends[0] += 1
        elif tasks and act == "come":
            first = data.draw(st.sampled_from(tasks))
            most = next(n for n in range(1, 99) if first + n not in open_tasks)
            count = data.draw(st.integers(1, most))
            open_tasks.difference_update(range(first, first + count))
            waiters.difference_update(range(first, first + count))
            kept.came(first, count)
        elif tasks:
            gone = tasks if number else data.draw(st.lists(st.sampled_from(tasks), max_size=3))
            open_tasks.difference_update(gone)
            waiters.difference_update(gone)
            kept.sent([m.Cancel(task, 1) for task in gone])

    again, lost = kept.again((), (), 0, is_judged=False)
    runs = [one for one in again if isinstance(one, m.Submit)]
    asked = [task for one in runs for task in range(one.first, one.first + len(one.batch))]
    assert asked == sorted(open_tasks)
    payloads = [bytes(payload) for one in runs for payload in one.batch]
    assert payloads == [f"p{task}".encode() for task in asked]
    assert not lost
    assert kept.is_empty


def test_a_long_life_leaves_nothing():
    """What came back is forgotten, in whatever order it comes."""
    start, count = first_task_id(1), 6 * DEAD_MIN
    kept = Unfinished(set())
    kept.sent([m.Function(F, b"", (), "")])
    for task in range(start, start + count, 2):
        kept.sent([m.Submit(task, F, m.CALL_ARGS, m.DEFAULT_OPTIONS, payloads_of(task, 2))])
    (call,) = kept._calls.values()
    for task in reversed(range(start + 2, start + count)):
        kept.came(task, 1)
    assert len(call._firsts) <= DEAD_MIN + 1

    kept.came(start, 2)
    assert kept.is_empty


def test_what_was_cancelled_is_kept_no_longer():
    """Once nobody waits for a single task any more, none of them is kept."""
    waiters = {0, 1}
    kept = Unfinished(waiters)
    kept.sent([m.Function(F, b"", (), "")])
    kept.sent([m.Submit(0, F, m.CALL_ARGS, m.DEFAULT_OPTIONS, payloads_of(0, 2))])
    waiters.remove(0)
    kept.came(0, 1)
    assert kept._plain
    waiters.remove(1)
    kept.sent([m.Cancel(1, 1)])
    assert not kept._plain


def test_a_task_that_does_not_end_keeps_no_others():
    """While one task is waited for, thousands of others come back, and are not kept."""
    waiters = {0}
    kept = Unfinished(waiters)
    kept.sent([m.Function(F, b"", (), "")])
    kept.sent([m.Submit(0, F, m.CALL_ARGS, m.DEFAULT_OPTIONS, payloads_of(0, 1))])
    for task in range(1, 100 * DEAD_MIN):
        kept.sent([m.Submit(task, F, m.CALL_ARGS, m.DEFAULT_OPTIONS, payloads_of(task, 1))])
        kept.came(task, 1)
        assert len(kept._plain) <= 2 * DEAD_MIN
    waiters.clear()
    kept.came(0, 1)
    assert not kept._plain


# -- what was stored -------------------------------------------------------------------------------

A, B = object_id("a"), object_id("b")
ADOPTS = m.Welcome(2, 4, adopts=True)


def offer(core, one, number=0):
    """Say that an object is stored, in the client's segment of that number."""
    core.requests.offer(one, f"c-{number}".encode(), 1000)


def submit_with(core, *objects):
    """Ask for a task that needs objects."""
    task = core.requests.next_task
    core.submit((F, b"f", (), "name"), m.CALL_ARGS, m.DEFAULT_OPTIONS, objects, b"p", str(task))


def test_what_is_stored_is_named_again(core):
    """Objects, results and functions with objects are as they were for a scheduler that adopts."""
    offer(core, A)
    offer(core, B, 1)
    submit(core, objects=(A,))
    core.release((B,))
    sent(core)
    ask_map(core, Call(), 1, G)
    core.receive([m.Returned(0, b"r", (b"w-1", b"w-2"), "", (7, 8))], 0.5)
    sent(core)

    assert come_back(core, ADOPTS)[0] == "Keep a w-1 w-2 in c-0 w-1 w-2"
    submit(core, objects=(A,))
    core.release((A, b"w-1", b"w-2"))
    assert sent(core) == ["Function f with a", "Submit 1 f", "Release w-1 w-2"]


def test_what_unfinished_tasks_need_is_not_released(core):
    """An object is released when the last task that needs it has come back, cancelled or not."""
    offer(core, A)
    submit_with(core, A)
    submit_with(core, A)
    core.release((A,))
    assert sent(core) == ["Object a in c-0", "Function f", "Submit 0-1 f with a"]

    assert come_back(core, ADOPTS) == ["Keep a in c-0", "Function f", "Submit 0-1 f with a"]
    core.receive([results(0)], 2.0)
    assert not core.requests.has_some
    core.cancel([1])
    assert sent(core) == ["Cancel 1"]
    assert sent(core) == ["Release a"]
    assert come_back(core, ADOPTS) == []


def test_what_was_released_may_be_stored_again(core):
    """While a task needs it, the scheduler drops the second segment; after that, it is a new one."""
    offer(core, A)
    submit_with(core, A)
    core.release((A,))
    sent(core)
    offer(core, A, 1)
    assert sent(core) == ["Object a in c-1"]
    core.receive([results(0)], 0.5)
    assert sent(core) == []
    submit_with(core, A)
    core.release((A,))
    sent(core)
    core.receive([results(1)], 1.0)
    offer(core, A, 2)
    assert sent(core) == ["Release a", "Object a in c-2"]
    assert come_back(core, ADOPTS) == ["Keep a in c-2"]


def test_what_another_client_stored_is_named_as_it_lies(core):
    """Equal content lies in one segment, which each client names; it lets go of its own."""
    offer(core, A)
    sent(core)
    core.receive([m.Object(A, b"d-7", 1000, b"c-0"), m.Object(B, b"d-8", 1000, b"c-1")], 0.5)

    assert sent(core) == ["Release c-0", "Release c-1"]
    assert come_back(core, ADOPTS) == ["Keep a in d-7"]


def test_a_segment_of_another_client_may_come_too_late(core):
    """What was released and stored anew meanwhile is named as it lies now."""
    offer(core, A)
    sent(core)
    core.release((A,))
    offer(core, A, 1)
    assert sent(core) == ["Release a", "Object a in c-1"]
    core.receive([m.Object(A, b"d-7", 1000, b"c-0")], 0.5)

    assert sent(core) == ["Release c-0"]
    assert come_back(core, ADOPTS) == ["Keep a in c-1"]


def test_a_scheduler_is_not_told_what_only_the_one_before_asked_for(core):
    """The next one knows nothing of a segment that was to be released."""
    offer(core, A)
    sent(core)
    core.receive([m.Object(A, b"d-7", 1000, b"c-0")], 0.5)

    assert come_back(core, ADOPTS) == ["Keep a in d-7"]


def test_each_storage_is_named_what_it_has(core):
    """Objects lie in the home that their id says, results where the scheduler said."""
    homes = tuple(m.StorageEndpoint(f"tcp://h{n}", disk="/d") for n in range(2))
    core.receive([m.Welcome(1, 4, homes)], 0.1)
    for number, one in enumerate((A, B)):
        offer(core, one, number)
    sent(core)
    submit(core)
    core.receive([m.Returned(0, b"r", (b"w-1",), "tcp://far", (7,))], 0.5)
    core.start_over(HELLO)
    core.take_actions()
    core.receive([m.Welcome(2, 4, homes, adopts=True)], 1.0)

    keeps = [one for one in core.take_actions() if isinstance(one, m.Keep)]
    assert [(one.address, one.objects, one.sizes) for one in keeps] == [
        ("tcp://h1", (A,), (1000,)),
        ("tcp://h0", (B,), (1000,)),
        ("tcp://far", (b"w-1",), (7,)),
    ]
    assert core.is_stored


@pytest.mark.parametrize(
    "welcome", [m.Welcome(2, 4), m.Welcome(2, 4, (m.StorageEndpoint("elsewhere"),), adopts=True)]
)
def test_what_lay_elsewhere_is_gone(core, welcome):
    """A scheduler with other storages, or that had given the client up, knows nothing of it."""
    offer(core, A)
    submit_with(core, A)
    sent(core)
    core.start_over(HELLO)
    offer(core, B, 1)
    core.release((A,))
    core.take_actions()
    core.receive([welcome], 1.0)

    assert sent(core) == ["Function f", "Submit 0 f with a", "Resumed"]
    assert not core.is_stored
    core.receive([results(0)], 2.0)
    core.release((B,))
    assert sent(core) == []


def test_a_graph_holds_what_it_needs(core):
    """Objects of nodes and of functions are released when all that is wanted has come back."""
    offer(core, A)
    first, _ = ask_graph(core, 2, objects=(A,))
    core.release((A,))
    sent(core)

    assert [text[:5] for text in come_back(core, ADOPTS)] == ["Keep ", "Funct", "Graph"]
    core.receive([results(first, 2)], 2.0)
    assert sent(core) == ["Release a"]


def test_a_scheduler_may_die_before_it_answers(core):
    """While no Welcome comes, the client goes on asking; who does not know it hears Hello anew."""
    submit(core)
    sent(core)
    core.start_over(HELLO)
    sent(core)
    core.requests.beat()
    assert sent(core) == ["Heartbeat"]

    core.receive([m.Unknown()], 0.5)
    assert core.events.take() == [m.Unknown()]
    core.start_over(HELLO)
    assert [type(one) for one in core.take_actions()] == [m.Hello]
    core.receive([m.Welcome(2, 4)], 1.0)
    assert sent(core) == ["Function f", "Submit 0 f", "Resumed"]


@pytest.mark.parametrize("is_unsent", [True, False])
def test_it_says_what_it_may_still_offer(core, is_unsent):
    """Segments of offers that were not sent are to stay, as those that are being written."""
    core.first_segment = lambda: 5
    if is_unsent:
        core.start_over(HELLO)
        core.take_actions()
    offer(core, A, number=3)
    if not is_unsent:
        core.take_actions()
        core.start_over(HELLO)
        core.take_actions()
    core.receive([ADOPTS], 1.0)

    said = [one for one in core.take_actions() if isinstance(one, m.Resumed)]
    assert said == [m.Resumed(3 if is_unsent else 5)]
