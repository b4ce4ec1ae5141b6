"""Objects among clients, workers, machines and storages that come and go in any order.

After each step the invariants are checked: who may name what is counted right. At the end nothing
is left of what everybody let go of, and every segment was given to a storage to be removed.
"""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.ids import function_id
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, object_id, segment
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

LETTERS = "abc"
FUNCTIONS = "fgh"
HOME = b"S1"
FAR = b"S2"
FAR_BYTES = 2
"""Fewer than there are objects: copies are removed to make room for others."""
WORKERS = {b"W1": HOME, b"W2": FAR, b"W3": FAR}


class ObjectsMachine(RuleBasedStateMachine):
    """Two clients, workers on two machines, a storage on each."""

    @initialize()
    def start(self) -> None:
        config = SchedulerConfig(PYTHON, homes=(m.StorageEndpoint("tcp://home"),))
        self.bench = SchedulerBench(config)
        self.made = 0
        self.next_task = 0
        self.written: set[bytes] = set()
        self.removed: set[bytes] = set()
        self.purged: list[tuple[bytes, tuple[bytes, ...]]] = []
        self.copying: dict[bytes, list[bytes]] = {}
        for machine in (HOME, FAR):
            self.bench.supervisor(machine, workers=3)
        for client in (b"C1", b"C2"):
            self.bench.client(client)
        for worker in (b"W1", b"W2"):
            self.come_or_die(worker)
        for machine in (HOME, FAR):
            self.storage_comes_or_dies(machine)
        self.feed(b"C1", m.Object(object_id("a"), self.new_segment(b"C1"), 1))

    # -- driving -----------------------------------------------------------------------------

    def feed(self, peer: bytes, *messages: m.Message) -> None:
        self.bench.core.receive(peer, list(messages), self.bench.now)
        self.take(self.bench.act_raw())

    def take(self, sent: dict[bytes, list[m.Message]]) -> None:
        """Do what storages are told."""
        for peer, messages in sent.items():
            for message in messages:
                if isinstance(message, m.Release) and peer.startswith(b"O"):
                    self.removed.update(message.objects)
                    asked = self.copying.get(peer, [])
                    self.copying[peer] = [one for one in asked if one not in message.objects]
                elif isinstance(message, m.Purge):
                    self.purged.append((message.prefix, message.keep))
                elif isinstance(message, m.Copy):
                    self.copying.setdefault(peer, []).append(message.segment)

    @property
    def table(self):
        return self.bench.core.table

    def new_segment(self, peer: bytes) -> bytes:
        self.made += 1
        name = segment(peer, self.made)
        self.written.add(name)
        return name

    # -- clients -----------------------------------------------------------------------------

    @rule(client=st.sampled_from([b"C1", b"C2"]))
    def come_or_leave(self, client):
        if client in self.table.sessions:
            self.feed(client, m.Goodbye())
        else:
            self.take_lines(self.bench.client, client)

    def take_lines(self, step, *args, **options) -> None:
        """Do what the bench has a line for; what it answers is looked at as messages."""
        with mock.patch.object(self.bench, "act", dict):
            step(*args, **options)
        self.take(self.bench.act_raw())

    @precondition(lambda self: self.table.sessions)
    @rule(data=st.data(), letter=st.sampled_from(LETTERS))
    def store(self, data, letter):
        client = data.draw(st.sampled_from(sorted(self.table.sessions)))
        self.feed(client, m.Object(object_id(letter), self.new_segment(client), 1))

    @precondition(lambda self: any(one.objects for one in self.table.sessions.values()))
    @rule(data=st.data())
    def release(self, data):
        clients = [one for one in self.table.sessions.values() if one.objects]
        session = data.draw(st.sampled_from(clients))
        one = data.draw(st.sampled_from(sorted(session.objects)))
        self.feed(session.peer, m.Release((one,)))

    @precondition(lambda self: self.table.sessions)
    @rule(data=st.data(), letters=st.sets(st.sampled_from(LETTERS), max_size=2),
          function=st.sampled_from(FUNCTIONS), heavy=st.booleans(), count=st.integers(1, 3),
          retries=st.integers(0, 1))  # fmt: skip
    def submit(self, data, letters, function, heavy, count, retries):
        client = data.draw(st.sampled_from(sorted(self.table.sessions)))
        objects = (object_id("a"),) if heavy else ()
        digest = function_id(function.encode(), objects)
        ids = tuple(map(object_id, sorted(letters)))
        batch = Batch.of([b"p"] * count)
        options = m.TaskOptions(retries=retries)
        first, self.next_task = self.next_task, self.next_task + count
        self.feed(
            client,
            m.Function(digest, function.encode(), objects),
            m.Submit(first, digest, m.CALL_ARGS, options, batch, ids),
        )

    @precondition(lambda self: any(one.functions for one in self.table.sessions.values()))
    @rule(data=st.data())
    def forget(self, data):
        clients = [one for one in self.table.sessions.values() if one.functions]
        session = data.draw(st.sampled_from(clients))
        self.feed(session.peer, m.Forget(data.draw(st.sampled_from(sorted(session.functions)))))

    @precondition(lambda self: any(one.runs for one in self.table.sessions.values()))
    @rule(data=st.data())
    def cancel(self, data):
        clients = [one for one in self.table.sessions.values() if one.runs]
        session = data.draw(st.sampled_from(clients))
        run = data.draw(st.sampled_from(list(session.runs.values())))
        self.feed(session.peer, m.Cancel(run.first, run.count))

    # -- workers -----------------------------------------------------------------------------

    @rule(worker=st.sampled_from(sorted(WORKERS)))
    def come_or_die(self, worker):
        supervisor = WORKERS[worker]
        if supervisor not in self.table.supervisors:
            self.take_lines(self.bench.supervisor, supervisor, workers=3)
        name = [peer for peer in self.table.workers if peer.startswith(worker)]
        if name:
            self.feed(supervisor, m.WorkerLost(name[0], 0, 0, {"signal": 9}))
        else:
            self.made += 1
            name = worker + str(self.made).encode()
            disk = "/far" if supervisor == FAR else ""
            self.take_lines(self.bench.worker, name, supervisor, disk=disk)

    @precondition(lambda self: any(one.runs for one in self.table.workers.values()))
    @rule(data=st.data(), how=st.sampled_from(["done", "stored", "erred"]))
    def end_task(self, data, how):
        workers = [one for one in self.table.workers.values() if one.runs]
        worker = data.draw(st.sampled_from(workers))
        run = worker.runs[0]
        session, task = run.session, run.first
        if how == "done":
            message: m.Message = m.Done(session, task, 0.1, Batch.of([b"r"]))
        elif how == "stored":
            segments = (self.new_segment(worker.peer), self.new_segment(worker.peer))
            message = m.Stored(session, task, 0.1, b"r", segments, (1, 1))
        else:
            message = m.Erred(session, task, 0.1, m.FAILED_MISSING, b"", {})
        self.feed(worker.peer, message)

    # -- machines ----------------------------------------------------------------------------

    @rule(machine=st.sampled_from([HOME, FAR]))
    def storage_comes_or_dies(self, machine):
        key = b"" if machine == HOME else machine
        store = self.table.objects.stores.get(key)
        if store is not None and store.peer is not None:
            self.copying.pop(store.peer, None)
            self.bench.core.peer_lost(store.peer, self.bench.now)
            self.take(self.bench.act_raw())
        elif not key or key in self.table.supervisors:
            self.made += 1
            name = b"O" + str(self.made).encode()
            there = sorted(self.written - self.removed)
            self.take_lines(
                self.bench.storage, name, *there, supervisor=key, memory_limit=FAR_BYTES
            )

    @precondition(lambda self: any(self.copying.values()))
    @rule(data=st.data(), error=st.sampled_from(["", "cut"]))
    def transferred(self, data, error):
        peer = data.draw(st.sampled_from([one for one, left in self.copying.items() if left]))
        name = data.draw(st.sampled_from(self.copying[peer]))
        self.copying[peer].remove(name)
        if peer in self.table.objects.storages:
            self.feed(peer, m.Transferred(name, error))

    @precondition(lambda self: any(self.copying.values()))
    @rule()
    def everything_arrives(self):
        for peer in list(self.copying):
            names, self.copying[peer] = self.copying[peer], []
            if peer in self.table.objects.storages:
                self.feed(peer, *map(m.Transferred, names))

    @precondition(lambda self: FAR in self.table.supervisors)
    @rule()
    def lose_machine(self):
        self.bench.core.peer_lost(FAR, self.bench.now)
        self.take(self.bench.act_raw())

    # -- the end -----------------------------------------------------------------------------

    def teardown(self):
        if not hasattr(self, "bench"):
            return
        for client in list(self.table.sessions):
            self.feed(client, m.Goodbye())
        for worker in list(self.table.workers.values()):
            self.feed(worker.supervisor, m.WorkerLost(worker.peer, 0, 0, {"signal": 9}))
        assert self.table.objects.records == {}
        assert self.table.objects.copying == {}
        assert self.table.functions == {}
        self.take_lines(self.bench.storage, b"O", *sorted(self.written - self.removed))
        assert self.written == self.removed


TestObjects = pytest.mark.slow(ObjectsMachine.TestCase)
TestObjects.settings = settings(max_examples=150, stateful_step_count=60)
