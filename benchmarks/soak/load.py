"""What a client of the soak asks for, and how it judges what comes back.

Each kind of load has a thread, which starts runs, some at once, and judges the oldest. What a run
is to return is known from the start: the values come from a sequential evaluation.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.expected import DIED, FINE, RIGHT, UNRESOLVED, Expected
from benchmarks.random_graphs import RandomGraphs
from benchmarks.soak.allowed import AT_MOST_ONCE, LARGE, Failure
from benchmarks.soak.tasks import add_up, at_second_try, double, hang, make, marked, raising
from benchmarks.tasks import plain_tree, short_task, tree
from scaler_exec import (
    Client,
    MissingObjectsError,
    StorageUnreachableError,
    TaskTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from scaler_exec import ScalerExecutor

DEPTH = 4
MAP_ITEMS = (1, 50, 2_000)
WORDS = (20_000, 60_000, 200_000)
"""Of 8 bytes: all are stored beside messages."""
NAPS_S = (0.0,) * 8 + (0.01, 0.05, 0.3)
WAYS = *("plain",) * 8, "raises", "hangs", "tried twice", "cancelled", "bounded"
"""Of the short tasks."""
GENERATION = 20
"""Graphs take each other's results; after so many, others begin, by new clients."""
PAUSE_S = 0.02
"""Between runs of a kind: the soak is to find faults, not to measure throughput."""
AGAIN_S = 0.5
LOOK_S = 1.0
STARVES = 4
"""So many times as long something may take while faults go on."""
CALLBACK_S = 10.0
UNREACHABLE_MAX = 2
"""So many results of a run are waited for in vain, for 30 s each; others of it may be there too."""
TEXT_CHARS = 400


class Failing(Expected):
    """A future that must fail with this error."""

    def __init__(self, future: Future[Any], name: int, kind: type[BaseException]) -> None:
        super().__init__(future, name, None)
        self._kind = kind

    def is_right(self, value: Any) -> bool:
        return False

    def may_fail_with(self, error: BaseException) -> bool:
        return type(error) is self._kind


class Cancelled(Expected):
    """A future that was cancelled by us, if that came before its result."""

    def may_be_cancelled(self) -> bool:
        return True


class Large(Expected):
    """A future whose value is an array that is full of a number."""

    def is_right(self, value: Any) -> bool:
        return len(value) == self.value and bool((value == self.name).all())


class Load(Protocol):
    """One kind of what a client asks for."""

    kind: str
    traits: tuple[str, ...]
    at_once: int
    since: float
    """When the oldest thing that new runs need was asked for; 0: they need nothing old."""

    def start(self, number: int) -> Sequence[Expected]:
        """Start a run; return what is to become of it."""

    def forget(self) -> None:
        """Begin anew with what new runs need: it is gone."""

    def close(self) -> None:
        """Let go of what was needed, once all runs have ended."""


@dataclass(frozen=True)
class Order:
    """What a client is to do."""

    executor: ScalerExecutor
    seed: int
    marks: str
    """A directory of its own, which all machines share."""
    timeout_s: float
    """What takes longer hangs, once nothing goes wrong any more."""


class Plain:
    """What loads have in common that need nothing old."""

    traits: tuple[str, ...] = ()
    at_once = 30
    since = 0.0

    def __init__(self, order: Order) -> None:
        self.order = order
        self.executor = order.executor
        self.marks = order.marks

    def dice(self, number: int) -> random.Random:
        return random.Random(f"{self.order.seed} {number}")

    def forget(self) -> None:
        """Begin anew with what new runs need: it is gone."""

    def close(self) -> None:
        pass


class Tasks(Plain):
    """Short tasks: right, raising, with a timeout that ends them, tried twice, or cancelled."""

    kind = "tasks"

    def start(self, number: int) -> Sequence[Expected]:
        executor, dice = self.executor, self.dice(number)
        way = dice.choice(
            ("plain",) * 8 + ("raises", "hangs", "tried twice", "cancelled", "bounded")
        )
        if way == "raises":
            return [Failing(executor.submit(raising, number), number, ValueError)]
        if way == "hangs":
            future = executor.options(timeout=0.3).submit(hang)
            return [Failing(future, number, TaskTimeoutError)]
        if way == "tried twice":
            future = executor.options(retries=8).submit(at_second_try, self.marks, number)
            return [Expected(future, number, number)]
        if way == "cancelled":
            # Some before they start, some while they run.
            future = executor.submit(short_task, number, dice.choice((0, 200, 60_000)))
            time.sleep(dice.choice((0, 0.01, 0.1)))
            future.cancel()
            return [Cancelled(future, number, number)]
        if way == "bounded":
            future = executor.options(timeout=300, retries=8).submit(short_task, number, 20)
            return [Expected(future, number, number)]
        future = executor.submit(short_task, number, 1_000 * dice.choice(NAPS_S))
        return [Expected(future, number, number)]


class AtMostOnce(Plain):
    """Tasks that must not start twice, each of which leaves a mark."""

    kind = "at_most_once"
    traits = (AT_MOST_ONCE,)
    at_once = 10

    def start(self, number: int) -> Sequence[Expected]:
        # Some always run, whenever something is killed.
        nap_s = self.dice(number).choice((0.0, 0.1, 0.5))
        once = self.executor.options(at_most_once=True)
        return [Expected(once.submit(marked, self.marks, number, nap_s), number, number)]


class Maps(Plain):
    """Maps, which return when they are over."""

    kind = "maps"
    at_once = 1

    def start(self, number: int) -> Sequence[Expected]:
        dice = self.dice(number)
        items = range(number, number + dice.choice(MAP_ITEMS))
        nap_s = dice.choice((0.0, 0.0, 0.001)) if len(items) > 50 else dice.choice(NAPS_S)
        chunksize = dice.choice((1, 1, 7))
        naps = [nap_s] * len(items)
        timeout_s = (1 + STARVES) * self.order.timeout_s
        results = self.executor.map(double, items, naps, chunksize=chunksize, timeout=timeout_s)
        found = list(results)
        if found != [2 * item for item in items]:
            raise WrongValue(f"a map of {len(items)} items from {number}: {found!r:.100}")
        return []


class WrongValue(Exception):
    """A map returned something else."""


class Objects(Plain):
    """Large arguments, passed as they are or sent before, and large results."""

    kind = "objects"
    traits = (LARGE,)
    at_once = 4

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._sent: Any = None
        self._sum = 0

    def start(self, number: int) -> Sequence[Expected]:
        import numpy as np

        executor, dice = self.executor, self.dice(number)
        words, way = dice.choice(WORDS), dice.randrange(4)
        if way == 0:
            return [Large(executor.submit(make, words, number), number, words)]
        if way == 1 or self._sent is None:
            self._sent, self._sum = executor.send_object(np.full(words, number)), words * number
            self.since = time.monotonic()
        if way < 3:
            future = executor.submit(add_up, self._sent, number)
            return [Expected(future, number, (self._sum, number))]
        value = np.full(words, number)
        futures = [executor.submit(add_up, value, number + step) for step in range(3)]
        return [
            Expected(future, number + step, (words * number, number + step))
            for step, future in enumerate(futures)
        ]

    def forget(self) -> None:
        self._sent = None

    close = forget


class Trees(Plain):
    """Trees of tasks, which submit and wait in random ways."""

    kind = "nested"
    at_once = 2

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._client = Client(order.executor.address)

    def start(self, number: int) -> Sequence[Expected]:
        seed = self.order.seed + number
        future = self._client.submit(tree, self._client, seed, DEPTH)
        return [Expected(future, number, plain_tree(seed, DEPTH))]

    def close(self) -> None:
        self._client.disconnect()


class Graphs(Plain):
    """Random graphs of clients that come and go."""

    kind = "graphs"
    traits = (LARGE,)
    at_once = 2
    _graphs: RandomGraphs | None = None
    _before: RandomGraphs | None = None
    """Its last graphs may still be under way."""
    _age = 0

    def start(self, number: int) -> Sequence[Expected]:
        if self._graphs is None or self._age >= GENERATION:
            if self._before is not None:
                self._before.close()
            self._before = self._graphs
            self.since = time.monotonic()
            self._graphs = RandomGraphs(self.executor, self.order.seed)
            self._age = 0
        self._age += 1
        return self._graphs.start(number)

    def forget(self) -> None:
        if self._age > self.at_once:
            self._age = GENERATION

    def close(self) -> None:
        for graphs in (self._before, self._graphs):
            if graphs is not None:
                graphs.close()


KINDS = (Tasks, AtMostOnce, Maps, Objects, Trees, Graphs)


class Watched:
    """Counts how often a future called back, and when it did last."""

    late = 0
    """Calls after a future was judged."""

    def __init__(self) -> None:
        self.calls = 0
        self.at = 0.0
        self.has_called = threading.Event()
        self.is_judged = False

    def __call__(self, _: Future[Any]) -> None:
        self.calls += 1
        self.at = time.monotonic()
        self.has_called.set()
        if self.is_judged:
            Watched.late += 1


class Runner(threading.Thread):
    """Starts runs of one kind until told to stop, and judges each."""

    def __init__(
        self,
        load: Load,
        tell: Callable[[dict[str, Any]], None],
        over: threading.Event,
        timeout_s: float,
    ) -> None:
        super().__init__(name=load.kind)
        self.outcomes: Counter[str] = Counter()
        self.runs = 0
        self._load = load
        self._tell = tell
        self._over = over
        self._timeout_s = timeout_s
        self._pending: deque[tuple[float, list[tuple[Expected, Watched]]]] = deque()
        """When each run began, or what it needs, and its futures."""

    def run(self) -> None:
        try:
            while not self._over.wait(PAUSE_S):
                self._start()
                if len(self._pending) >= self._load.at_once:
                    self._judge(*self._pending.popleft())
            while self._pending:
                self._judge(*self._pending.popleft())
            self._load.close()
        except Exception as error:
            self._tell({"problem": f"{self._load.kind}: the client itself failed: {error!r}"})
            raise

    def _start(self) -> None:
        began = time.monotonic()
        try:
            expected = self._load.start(self.runs)
        except WrongValue as error:
            self._tell({"problem": str(error)})
        except FutureTimeoutError:
            self._hangs(f"run {self.runs}")
        except Exception as error:
            self._fail(error, self._load.since or began, time.monotonic())
            self._over.wait(AGAIN_S)
        else:
            self.outcomes[RIGHT] += not expected
            watched = []
            for one in expected:
                watcher = Watched()
                one.future.add_done_callback(watcher)
                watched.append((one, watcher))
            # The future of a graph may need what was sent when its clients came.
            self._pending.append((self._load.since or began, watched))
        self.runs += 1

    def _judge(self, began: float, run: list[tuple[Expected, Watched]]) -> None:
        self._await([one.future for one, _ in run])
        unreachable = 0
        for one, watched in run:
            if unreachable >= UNREACHABLE_MAX and one.future.done():
                self.outcomes["not fetched"] += 1
                continue
            if one.future.done():
                # Who waits is woken before callbacks are called.
                watched.has_called.wait(CALLBACK_S)
            try:
                how = one.verdict()
            except Exception as error:
                self._fail(error, began, time.monotonic())
                continue
            if how == UNRESOLVED:
                self._hangs(f"the future of {one.name}")
                continue
            if how in FINE and how != DIED:
                self.outcomes[how] += 1
            elif one.future.cancelled():
                self._tell_failure("CancelledError", "", began, watched.at)
            elif (failed := one.future.exception()) is not None:
                # A large result is fetched only now, and what fails then is the future's exception.
                unreachable += isinstance(failed, StorageUnreachableError)
                is_late = LARGE in self._load.traits
                self._fail(failed, began, time.monotonic() if is_late else watched.at)
            else:
                self._tell({"problem": f"{self._load.kind} {one.name}: {how}"})
            if watched.calls != 1:
                name = f"{self._load.kind} {one.name}"
                self._tell({"problem": f"{name}: called back {watched.calls} times"})
            watched.is_judged = True

    def _await(self, futures: list[Future[Any]]) -> None:
        """Wait for all: for long while faults go on, as they may starve what they do not hurt."""
        end = time.monotonic() + STARVES * self._timeout_s
        is_over = False
        while time.monotonic() < end and wait(futures, LOOK_S).not_done:
            if self._over.is_set() and not is_over:
                is_over = True
                end = time.monotonic() + self._timeout_s

    def _hangs(self, what: str) -> None:
        self._over.set()
        self._tell({"hang": f"{self._load.kind}: {what} does not come back"})

    def _fail(self, error: BaseException, began: float, ended: float) -> None:
        if isinstance(error, MissingObjectsError):
            self._load.forget()
        pid = getattr(getattr(error, "death", None), "pid", 0)
        self._tell_failure(type(error).__name__, str(error), began, ended, pid)

    def _tell_failure(self, name: str, text: str, began: float, ended: float, pid: int = 0) -> None:
        self.outcomes["failed by a fault"] += 1
        kind, traits = self._load.kind, list(self._load.traits)
        failure = Failure(name, text[:TEXT_CHARS], kind, traits, began, ended, pid)
        self._tell({"failure": asdict(failure)})
