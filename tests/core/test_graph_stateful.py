"""Graphs among peers that come, go and die: what is wanted is what running it in order makes.

The machine of ``test_scheduler_stateful`` with graphs beside its tasks. A node's payload says what
it depends on and whether it raises; its result is made from theirs. So whatever is moved, stolen,
lost and run again, a wanted node must return what a sequential evaluation says, or fail with the
exception of the first that raised. Where workers die, it may also fail with that.

Workers keep some of the results, and are slow to send what others ask for; some of it cannot be
sent at all. Some workers leave after a few tasks.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict, deque
from itertools import accumulate, chain
from zlib import crc32

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from scaler_cluster.core.worker.reports import Kept
from scaler_cluster.ids import first_task_id
from scaler_cluster.testing.bench import function_id, hello, segment
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch, numbers
from tests.core import test_scheduler_stateful as base

G = function_id("g")
GRAPH_OPTIONS = [m.DEFAULT_OPTIONS, m.DEFAULT_OPTIONS, m.TaskOptions(retries=1),
                 m.TaskOptions(priority=1), m.TaskOptions(timeout_s=0.3),
                 m.TaskOptions(capabilities=(("gpu", 1),)),
                 m.TaskOptions(capabilities=(("gpu", 2),))]  # fmt: skip
HOW = [*["returns"] * 4, *["stores"] * 3, *["keeps"] * 7, "keeps alone", "raises"]
"""What a node does; what is kept alone cannot be sent, but is sent if it must be."""
LOSSES = {m.FAILED_WORKER_DIED, m.FAILED_LOST, m.FAILED_TIMEOUT, m.FAILED_MISSING,
          m.FAILED_UNPLACED, m.FAILED_RESULT}  # fmt: skip
"""How a node may fail that raises nothing."""


LIMIT = 7
"""Tasks after which some of the workers leave."""


def value_of(task: int, below: list[bytes]) -> bytes:
    return b"v%d" % crc32(b"%d:" % task + b",".join(below))


class Live:
    """What a worker keeps of a node."""

    def __init__(self, value: bytes, *, can_be_sent: bool) -> None:
        self.value = value
        self.can_be_sent = can_be_sent


class GraphMachine(base.SchedulerMachine):
    """Each wanted node is answered once, with the right value or for the right reason."""

    def __init__(self) -> None:
        super().__init__()
        self.segments = 0
        self.is_ending = False
        self.under_way: dict[bytes, deque] = defaultdict(deque)
        """What each worker was asked for, and has not sent yet."""

    @precondition(lambda self: self.of_kind(base.Machine))
    @rule()
    def add_worker(self):
        """Each machine has files of its own."""
        machines = self.of_kind(base.Machine)
        if len(self.of_kind(base.Worker)) < 5:
            machine = machines[self.made % len(machines)]
            peer = base.Worker(self.new_name("W"), machine)
            hi = hello(m.WORKER, supervisor=machine.name, place=m.StorageEndpoint(disk=machine.name.decode()),
                       capabilities=peer.capabilities,
                       task_limit=LIMIT if self.made % 3 == 0 else 0)  # fmt: skip
            peer.outbox.clear()
            peer.outbox.append(hi)
            self.peers[peer.name] = peer

    def model(self, client):
        """What a client knows of its graphs."""
        if not hasattr(client, "expected"):
            client.expected = {}
            client.calls = 0
            client.given_up = set()
            client.inputs = {}
            client.values = {}
            client.handed_over = []
            client.outbox.append(m.Function(G, b"g"))
        return client

    # -- graphs ------------------------------------------------------------------------------

    @precondition(lambda self: self.of_kind(base.Client))
    @rule(data=st.data(), count=st.integers(1, 25), parts=st.integers(1, 3),
          options=st.lists(st.sampled_from(GRAPH_OPTIONS), min_size=1, max_size=3))  # fmt: skip
    def submit_graph(self, data, count, options, parts):
        client = self.model(self.pick(data, base.Client))
        client.calls += 1
        first = first_task_id(client.calls)
        known = [*client.pending, *client.values]
        inputs = (
            data.draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
        )
        below: list[list[int]] = [[] for _ in inputs]
        payloads: list[bytes] = [b"" for _ in inputs]
        expected: dict[int, object] = {}
        for node, task in enumerate(inputs):
            expected[first + node] = client.expected.get(task, b"r%d" % task)
        for node in range(len(inputs), len(inputs) + count):
            some = st.lists(st.integers(0, node - 1), max_size=3, unique=True)
            needs = data.draw(some) if node else []
            if node == len(inputs):
                # A client sends no input that nothing needs.
                needs = list(range(node))
            how = data.draw(st.sampled_from(HOW))
            below.append(needs)
            payloads.append(json.dumps([needs, how]).encode())
            values = [expected[first + one] for one in needs]
            failed = [value for value in values if isinstance(value, frozenset)]
            if failed:
                expected[first + node] = frozenset().union(*failed)
            elif how == "raises":
                expected[first + node] = frozenset([b"x%d" % (first + node)])
            else:
                expected[first + node] = value_of(first + node, values)
        every = st.integers(len(inputs), len(below) - 1)
        wanted = data.draw(st.lists(every, min_size=1, max_size=4, unique=True))
        # What nobody needs was culled: a client does not send it.
        kept = set(wanted)
        for node in range(len(below) - 1, len(inputs) - 1, -1):
            if node not in kept:
                wanted.append(node)
            kept.update(below[node])
        client.expected |= {first + node: expected[first + node] for node in wanted}
        client.pending |= dict.fromkeys([first + node for node in wanted])
        self.send_graph(client, first, payloads, below, wanted, inputs, options, parts)

    def send_graph(self, client, first, payloads, below, wanted, inputs, options, parts) -> None:
        flat = list(chain.from_iterable(below))
        uses = [flat.count(node) + (node in wanted) for node in range(len(below))]
        tasks = [m.SUPPLIED if task in client.values else task for task in inputs]
        client.inputs[first] = inputs
        kinds = [node // 2 % len(options) for node in range(len(below))]
        size = max(-(-len(below) // parts), len(inputs), 1)
        for start in range(0, len(below), size):
            part = below[start : start + size]
            client.outbox.append(m.Graph(
                first, start, G, () if start else tuple(options), Batch.of(payloads[start : start + size]),
                array("I", accumulate(map(len, part))).tobytes(),
                array("I", chain.from_iterable(part)).tobytes(),
                array("I", uses[start : start + size]).tobytes(),
                bytes(node in wanted for node in range(start, start + len(part))),
                array("Q", tasks if not start else []).tobytes(), (), b"",
                is_last=start + size >= len(below),
                kinds=array("I", kinds[start : start + size]).tobytes(),
            ))  # fmt: skip
        for node, task in enumerate(tasks):
            if task == m.SUPPLIED:
                self.supply(client, first + node, inputs[node])

    def supply(self, client, task: int, of: int) -> None:
        outcome = client.values.get(of)
        if outcome is None:
            client.outbox.append(m.ProvideInputs(task, m.INPUT_CANCELLED, b""))
        elif isinstance(outcome, m.Failed):
            client.outbox.append(m.ProvideInputs(task, outcome.kind, outcome.payload))
        else:
            client.outbox.append(m.ProvideInputs(task, "", outcome))

    def cancel_tasks(self, client, tasks) -> None:
        for task in tasks:
            if client.pending.pop(task, None) is not None:
                client.values[task] = None
        client.outbox.append(m.Cancel(tasks[0], len(tasks)))

    # -- nodes that a task runs itself ---------------------------------------------------------

    @precondition(lambda self: any(one.worker and one.pending for one in self.of_kind(base.Client)))
    @rule(data=st.data())
    def recall(self, data):
        """A task that waits for a node would run what comes before it."""
        able = [one for one in self.of_kind(base.Client) if one.worker and one.pending]
        client = self.model(data.draw(st.sampled_from(able)))
        task = data.draw(st.sampled_from(list(client.pending)))
        client.outbox.append(m.Cancel(task, 1, queued_only=True))
        for _ in range(4):
            if client.name in self.peers:
                self.exchange(client)

    @precondition(
        lambda self: any(self.model(one).handed_over for one in self.of_kind(base.Client))
    )
    @rule(data=st.data(), gives_back=st.booleans())
    def run_lent(self, data, gives_back):
        """It does, or gives it back."""
        able = [one for one in self.of_kind(base.Client) if self.model(one).handed_over]
        self.run_here(data.draw(st.sampled_from(able)), gives_back=gives_back)

    def run_here(self, client, *, gives_back: bool) -> None:
        message = client.handed_over.pop(0)
        task = message.first
        needs, how = json.loads(bytes(message.batch.data))
        values = dict(zip(numbers(message.inputs), map(bytes, message.results), strict=False))
        assert values.keys() >= set(needs)
        if gives_back:
            client.outbox.append(m.ProvideInputs(task, m.NOT_RUN, b""))
        elif how == "raises":
            client.outbox.append(m.ProvideInputs(task, m.FAILED_EXCEPTION, b"x%d" % task))
        else:
            result = value_of(task, [values[one] for one in needs])
            client.outbox.append(m.ProvideInputs(task, "", result))
            if task in client.pending:
                self.settle(client, task, result)

    @precondition(lambda self: len(self.of_kind(base.Machine)) > 1)
    @rule(data=st.data(), turns=st.integers(1, 8))
    def lose_machine_under_way(self, data, turns):
        """A machine is lost in the middle of things, with results that lie there."""
        for _ in range(turns):
            for peer in list(self.peers.values()):
                if isinstance(peer, base.Worker) and peer.name in self.peers:
                    self.work_once(peer, "returns")
                for _ in range(3):
                    if peer.name in self.peers:
                        self.exchange(peer)
        if len(self.of_kind(base.Machine)) > 1:
            self.lose_machine(data)

    @precondition(lambda self: any(client.pending for client in self.of_kind(base.Client)))
    @rule(data=st.data(), count=st.integers(1, 10))
    def cancel(self, data, count):
        able = [one for one in self.of_kind(base.Client) if one.pending]
        client = self.model(data.draw(st.sampled_from(able)))
        first = data.draw(st.sampled_from(list(client.pending)))
        self.cancel_tasks(client, range(first, first + count))

    # -- what the client is told -----------------------------------------------------------------

    def read(self, client) -> None:
        self.model(client)
        while client.inbox:
            message = client.inbox.popleft()
            if isinstance(message, m.Results):
                client.came["done"] += len(message.batch)
                for task, payload in enumerate(message.batch, message.first):
                    self.settle(client, task, bytes(payload))
            elif isinstance(message, m.Returned):
                client.came["done"] += 1
                self.settle(client, message.task, bytes(message.payload))
                client.outbox.append(m.Release(message.objects))
            elif isinstance(message, m.Failed):
                client.came["failed"] += 1
                self.settle(client, message.task, message)
            elif isinstance(message, m.Cancelled):
                for task in range(message.first, message.first + message.count):
                    self.settle(client, task, None)
                if client.worker:
                    self.supply_recalled(client, message)
            elif isinstance(message, m.AssignNodes):
                assert client.worker
                client.handed_over.append(message)
            elif isinstance(message, m.RequestInputs):
                for node in numbers(message.inputs):
                    of = client.inputs[message.graph][node]
                    assert of not in client.pending, "asked for what it should know"
                    self.supply(client, message.graph + node, of)

    def supply_recalled(self, client, message) -> None:
        """What a task took back, it tells the scheduler of, which does not look any more."""
        for first, inputs in client.inputs.items():
            for node, task in enumerate(inputs):
                if message.first <= task < message.first + message.count:
                    self.supply(client, first + node, task)

    def settle(self, client, task: int, outcome) -> None:
        self.answered(client, [task])
        if task not in client.values:
            client.values[task] = outcome
        expected = client.expected.get(task, b"r%d" % task)
        if isinstance(outcome, bytes):
            assert outcome == expected
        elif outcome is not None and task in client.expected:
            if outcome.kind != m.FAILED_EXCEPTION:
                assert outcome.kind in LOSSES
            elif outcome.payload:
                assert isinstance(expected, frozenset)
                assert bytes(outcome.payload) in expected
            # else it is that of a plain task, an input: those raise as they like.

    def check_totals(self, client, totals) -> None:
        """Of nodes the client is told only those that it wants."""
        if not client.inputs:
            super().check_totals(client, totals)

    # -- workers -----------------------------------------------------------------------------

    def exchange(self, peer) -> None:
        """In the end nothing stays handed over."""
        if self.is_ending and isinstance(peer, base.Worker):
            self.share_all(peer)
        super().exchange(peer)
        if isinstance(peer, base.Worker) and self.peers.get(peer.name) is peer:
            core = peer.hands.core
            if core.leave == "" and not core.queue:
                self.leave(peer)
        if self.is_ending and isinstance(peer, base.Client):
            while self.model(peer).handed_over:
                self.run_here(peer, gives_back=True)

    def work_once(self, worker, how: str) -> None:
        hands = worker.hands
        work = hands.take_up(self.now)
        if work is None or work.values is None:
            super().work_once(worker, how)
            return
        if how == "stops":
            if hands.core.interrupt_due():
                hands.stopped(self.now)
            return
        needs, how = json.loads(hands.payload)
        node, values = work.node, work.values | work.kept.values
        if not values.keys() >= set(needs):
            hands.skipped(self.now)
            return
        found = [values[one] for one in needs]
        task = work.first + work.cursor
        lacks = any(
            segment in hands.core.missing
            for one in found
            if not isinstance(one, Live)
            for segment in one[1]
        )
        if lacks:
            hands.raised(m.FAILED_MISSING, b"", {}, self.now)
        elif how == "raises":
            hands.raised(m.FAILED_EXCEPTION, b"x%d" % task, {}, self.now)
        else:
            below = [one.value if isinstance(one, Live) else bytes(one[0]) for one in found]
            result = value_of(task, below)
            # What was kept by an earlier run is not there any more.
            work.kept.values.pop(node, None)
            if how == "stores":
                self.segments += 1
                hands.stored(result, (segment(worker.name, self.segments),), self.now)
            elif how.startswith("keeps") and not work.must_send:
                work.kept.values[node] = Live(result, can_be_sent=how == "keeps")
                hands.end(Kept(len(result) * 10_000), self.now)
            else:
                hands.returned(result, self.now)

    @precondition(lambda self: self.of_kind(base.Worker))
    @rule(data=st.data(), count=st.integers(1, 3))
    def pickle(self, data, count):
        """A worker begins to send what others asked for."""
        worker = self.pick(data, base.Worker)
        for _ in range(count):
            found = worker.hands.core.kept.take_to_share()
            if found is not None:
                self.under_way[worker.name].append(found)

    @precondition(lambda self: any(self.under_way[one.name] for one in self.of_kind(base.Worker)))
    @rule(data=st.data())
    def share(self, data):
        """It has sent it."""
        able = [one for one in self.of_kind(base.Worker) if self.under_way[one.name]]
        self.share_one(data.draw(st.sampled_from(able)))

    def share_one(self, worker) -> None:
        session, task, live = self.under_way[worker.name].popleft()
        if live is None:
            said = m.Shared(session, task, m.FAILED_MISSING, b"", (), (), {})
        elif not live.can_be_sent:
            said = m.Shared(session, task, m.FAILED_RESULT, b"", (), (), {})
            if worker.hands.core.leave is None:
                worker.hands.core.kept.put_back(session, task)
        elif task % 2:
            said = m.Shared(session, task, "", live.value, (), (), {})
        else:
            self.segments += 1
            names = (segment(worker.name, self.segments),)
            said = m.Shared(session, task, "", live.value, names, (7,), {})
        worker.hands.core.reports.shared(said)

    def share_all(self, worker) -> None:
        core = worker.hands.core
        while (found := core.kept.take_to_share()) is not None:
            self.under_way[worker.name].append(found)
        while self.under_way[worker.name]:
            self.share_one(worker)

    def leave(self, worker) -> None:
        """A worker that was retired has nothing left to run."""
        core = worker.hands.core
        core.reports.flush()
        self.share_all(worker)
        worker.outbox += core.take_actions()
        worker.outbox.append(m.Goodbye())
        worker.machine.outbox.append(m.WorkerLost(worker.name, 0, 0, {"exit_code": 0}))
        for gone in [worker, *self.sessions_of(worker)]:
            self.peers[gone.name] = ghost = base.Peer(gone.name)
            ghost.outbox = gone.outbox

    def teardown(self):
        self.is_ending = True
        super().teardown()
        if hasattr(self, "core"):
            assert not any(session.graphs for session in self.core.table.sessions.values())


GraphMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestGraphMachine = pytest.mark.slow(GraphMachine.TestCase)
