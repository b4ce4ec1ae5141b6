"""Strangers say anything: ``python -m scaler_cluster.testing.fuzz COUNT [SEED]``.

Inputs follow the grammar of the protocol: messages of all kinds with fields of the right types, and
ids that may be somebody's. Others are the bytes of such messages, damaged. Whatever they say, a
core raises RemoteProtocolError or nothing, its books stay right, and an honest client beside them
gets its results. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.storage.storage import UPSTREAM, StorageCore
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import (
    PYTHON,
    SchedulerBench,
    function_id,
    hello,
    object_id,
    payloads_of,
    segment,
)
from scaler_cluster.testing.graphs import SimulatedGraph
from scaler_cluster.testing.memory_files import MemoryFiles
from scaler_cluster.wire import feed, feed_codec
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_cluster.wire.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.wire.batch import Buffer

MEMORY_BYTES_MAX = 50 << 20
"""What the inputs may make this process grow by."""
HONEST_EVERY = 200
"""After so many inputs an honest client asks for a task, and the books are looked at."""
STRANGERS = [b"X%d" % n for n in range(6)]
HONEST = b"C1", b"S1", b"W1", b"O1"
KINDS: list[type[m.Message]] = [
    one
    for one in vars(m).values()
    if isinstance(one, type) and issubclass(one, m.Message) and one is not m.Message
]
EDGES = 0, 1, 2, 7, 255, 4096, (1 << 32) - 1, 1 << 40, (1 << 63) - 1
PORTION = m.Portion((("gpu", 1),), (0,), 2, is_whole=True)
TEXTS = "", "client", "worker", "supervisor", "storage", "scheduler", "x" * 300, "\ud800", "\x1b[2J"


class Grammar:
    """Draws messages, and damages their bytes."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._draws: dict[str, Callable[[], object]] = {
            "int": lambda: dice.choice((dice.randrange(10), dice.choice(EDGES))),
            "float": lambda: dice.choice((0.0, 0.001, 1.5, 1e9)),
            "bool": lambda: dice.random() < 0.5,
            "str": lambda: dice.choice(TEXTS),
            "bytes": self._name,
            "tuple[str, ...]": lambda: dice.choice(((), ("x",), ("x", "y" * 300))),
            "Buffer": lambda: dice.choice((b"", b"f", b"g", b"\x80\x05K\x01.", bytes(10_000))),
            "Batch": lambda: payloads_of(dice.randrange(9), dice.randint(1, 5)),
            "StorageEndpoint": self._endpoint,
            "tuple[StorageEndpoint, ...]": lambda: (self._endpoint(),),
            "tuple[int, ...]": lambda: tuple(dice.choices(EDGES, k=dice.randrange(4))),
            "tuple[bytes, ...]": lambda: tuple(self._name() for _ in range(dice.randrange(4))),
            "TaskOptions": self._options,
            "tuple[TaskOptions, ...]": lambda: (self._options(), m.DEFAULT_OPTIONS),
            "Capabilities": lambda: dice.choice(((), (("gpu", 1),))),
            "Portion | None": lambda: dice.choice((None, m.Portion(), PORTION)),
            "dict[str, Any]": lambda: dice.choice(({}, {"type": "X", "signal": 9, "y": None})),
        }

    def message(self) -> m.Message:
        """Return a message, half of the time a Hello or one that clients say."""
        dice = self._dice
        if dice.random() < 0.1:
            role = dice.choice((m.CLIENT, m.WORKER, m.SUPERVISOR, m.STORAGE, m.SCHEDULER))
            who = dice.choice((b"", *STRANGERS, *HONEST))
            return hello(role, supervisor=who if role != m.CLIENT else b"", workers=1)
        if dice.random() < 0.1:
            letter = dice.choice("fgh")
            return m.Function(function_id(letter), letter.encode(), (), letter)
        if dice.random() < 0.05:
            return self._graph()
        kind = dice.choice(KINDS)
        # Any: the classes of messages are dataclasses, their base is none.
        some: Any = kind
        return kind(*[self._field(one.name, str(one.type)) for one in dataclasses.fields(some)])

    def _graph(self) -> m.Message:
        """Return a part of a graph that is right as a whole."""
        dice = self._dice
        inputs = dice.randint(0, 1)
        size = inputs + dice.randint(1, 5), inputs, 0
        graph = SimulatedGraph.draw(dice, b"t", *size, [m.DEFAULT_OPTIONS], is_large=False)
        first, taken = dice.randrange(1, 4) << 40, [dice.randrange(9)] * inputs
        return dice.choice(list(graph.messages(first, function_id("f"), taken, {}, 2)))

    def _field(self, name: str, kind: str) -> object:
        if name == "function":
            return function_id(self._dice.choice("fgh"))
        return self._draws[kind]()

    def _name(self) -> bytes:
        dice = self._dice
        owner = dice.choice((*STRANGERS, *HONEST))
        return dice.choice((owner, segment(owner, dice.randrange(4)), object_id("a"), b"", b"../x"))

    def _endpoint(self) -> m.StorageEndpoint:
        return m.StorageEndpoint(self._dice.choice(("", "tcp://127.0.0.1:1")), "", "/d", 1000)

    def _options(self) -> m.TaskOptions:
        dice = self._dice
        limits = dice.choice((None, 0.0, 1.0)), dice.randrange(3)
        return m.TaskOptions(dice.randint(-2, 2), *limits, dice.random() < 0.2)

    def frames(self) -> list[Buffer]:
        """Return the frames of an envelope."""
        dice = self._dice
        said = [self.message() for _ in range(dice.randrange(4))]
        return encode(dice.choice((1, 2)), dice.randrange(6), dice.randrange(4), said)

    def damaged(self, frames: list[Buffer]) -> list[Buffer]:
        """Return frames with some bytes changed, cut off, doubled, or in another order."""
        dice = self._dice
        made = [bytearray(one) for one in frames]
        for _ in range(dice.randrange(4)):
            one = dice.choice(made)
            at = dice.randrange(len(one) + 1)
            how = dice.randrange(5)
            if how == 0 and at < len(one):
                one[at] ^= 1 << dice.randrange(8)
            elif how == 1:
                del one[at:]
            elif how == 2:
                one[at:at] = bytes(dice.choices(range(256), k=dice.randrange(9)))
            elif how == 3:
                one[at:at] = one[: dice.randrange(32)]
            else:
                dice.shuffle(made)
        return [bytes(one) for one in made]


class Envelopes:
    """Bytes for an exchange, which decodes them."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._exchange = Exchange(1)
        self._now = 100.0

    def say(self, dice: random.Random) -> None:
        """Let a stranger send an envelope, mostly a damaged one."""
        self._now += 0.001
        frames = self._grammar.frames()
        if dice.random() < 0.9:
            frames = self._grammar.damaged(frames)
        peer = dice.choice(STRANGERS)
        try:
            self._exchange.receive(peer, frames, self._now)
        except RemoteProtocolError:
            self._exchange.drop(peer)
        for _, _ in self._exchange.tick(self._now):
            continue


class Scheduler:
    """A scheduler with an honest client and worker."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._bench = bench = SchedulerBench(SchedulerConfig(PYTHON, protected=True))
        bench.core.expect_storage(b"O1")
        bench.supervisor()
        bench.client()
        bench.worker(name="honest")
        bench.storage()
        self._task = 0
        self._inputs = 0

    def say(self, dice: random.Random) -> None:
        """Let a stranger say something."""
        core, bench = self._bench.core, self._bench
        bench.now += 0.001
        peer = dice.choice(STRANGERS)
        try:
            core.receive(peer, [self._grammar.message()], bench.now)
        except RemoteProtocolError:
            core.peer_lost(peer, bench.now)
        self._take()
        self._inputs += 1
        if not self._inputs % HONEST_EVERY:
            self._check()

    def _check(self) -> None:
        """Let the honest client ask for a task, which its worker runs."""
        core, bench = self._bench.core, self._bench
        first, self._task = self._task, self._task + 1
        core.receive(b"S1", [m.Heartbeat()], bench.now)
        options = m.TaskOptions(workers=("honest",), priority=100)
        said = (
            m.Heartbeat(),
            m.Function(function_id("f"), b"f"),
            m.Submit(first, function_id("f"), m.CALL_ARGS, options, payloads_of(first, 1)),
        )
        core.receive(b"C1", said, bench.now)
        (result,) = [one for one in self._take() if isinstance(one, m.Results)]
        assert (result.first, bytes(next(iter(result.batch)))) == (first, b"of p%d" % first)
        bench.now += 0.1
        core.tick(bench.now)
        self._take()
        invariants.check(core)

    def _take(self) -> list[m.Message]:
        """Let the honest worker run what it is given; return what the honest client is sent."""
        core, now = self._bench.core, self._bench.now
        heard: list[m.Message] = []
        while True:
            sent = core.take_actions(now)
            core.take_gone()
            heard += sent.get(b"C1", ())
            said: list[m.Message] = []
            for one in sent.get(b"W1", ()):
                if isinstance(one, m.Assign):
                    results = Batch.of([b"of " + bytes(payload) for payload in one.batch])
                    said.append(m.Done(one.session, one.first, 0.001, results))
                elif isinstance(one, m.AssignNodes):
                    tasks = range(one.first, one.first + len(one.batch))
                    said += [
                        m.Erred(one.session, n, 0.001, m.FAILED_EXCEPTION, b"", {}) for n in tasks
                    ]
            if not said:
                return heard
            core.receive(b"W1", said, now)


class Storage:
    """An object storage that has one segment of an honest client."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._files = MemoryFiles(m.NOWHERE)
        self._kept = segment(b"C1", 0)
        self._files.write(self._kept, b"kept")
        self._core = StorageCore(self._files, hello(m.STORAGE), waits=False)
        self._core.receive(UPSTREAM, [m.Welcome(0, 0)], 100.0)
        self._now = 100.0

    def say(self, dice: random.Random) -> None:
        """Let a stranger say something, and an honest peer fetch."""
        self._now += 0.001
        peer = dice.choice(STRANGERS)
        try:
            self._core.receive(peer, [self._grammar.message()], self._now)
        except RemoteProtocolError:
            self._core.peer_lost(peer)
        self._core.receive(b"F1", [m.Fetch(self._kept, 0, 10)], self._now)
        self._core.tick(self._now)
        (answer,) = self._core.take_actions()[b"F1"]
        assert isinstance(answer, m.Part)
        assert bytes(answer.data) == b"kept"
        self._core.take_requests()
        self._core.take_gone()


class FeedReader:
    """The reader of a feed."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        bench = SchedulerBench()
        bench.supervisor()
        bench.client()
        bench.worker()
        bench.submit(0, 3)
        snapshot = bench.snapshot()
        events = feed.Events("run", 1, 1.0, {}, [feed.ClientLeft(1.0, 1, "h", 2)])
        self._frames = [feed_codec.encode(snapshot), feed_codec.encode(events)]

    def say(self, dice: random.Random) -> None:
        """Let a stranger publish something."""
        frames = self._grammar.damaged(list(dice.choice(self._frames)))
        with contextlib.suppress(RemoteProtocolError):
            feed_codec.decode([bytes(one) for one in frames])


TARGETS = Envelopes, Scheduler, Storage, FeedReader


def fuzz(count: int, seed: int) -> int:
    """Give so many inputs to all targets in turn; return how many bytes this process grew by.

    Raises AssertionError with the target, the seed and the number of the input where one failed.
    """
    dice = random.Random(seed)  # noqa: S311 - to be repeated
    grammar = Grammar(dice)
    targets = [one(grammar) for one in TARGETS]
    process = psutil.Process()
    before = 0
    for number in range(count):
        if number == count // 10:
            # Not from the beginning: by now all that is cached is there.
            before = process.memory_info().rss
        target = targets[number % len(targets)]
        try:
            target.say(dice)
        except Exception as error:
            where = f"{type(target).__name__}, seed {seed}, input {number}"
            raise AssertionError(where) from error
    grown: int = process.memory_info().rss - before
    return grown


def main() -> int:
    """Fuzz as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scaler_cluster.testing.fuzz")
    parser.add_argument("count", type=int, help="how many inputs")
    parser.add_argument("seed", type=int, nargs="?", default=int.from_bytes(os.urandom(4), "big"))
    wanted = parser.parse_args()
    began = time.monotonic()
    grown = fuzz(wanted.count, wanted.seed)
    took_s = time.monotonic() - began
    sys.stdout.write(
        f"{wanted.count} inputs of seed {wanted.seed} in {took_s:.0f} s: no fault, "
        f"{grown / 1e6:+.1f} MB\n"
    )
    return int(grown > MEMORY_BYTES_MAX)


if __name__ == "__main__":
    raise SystemExit(main())
