"""One scheduler core on the bench: a line feeds it, and what it answers can be read and compared.

Time moves only by :meth:`SchedulerBench.wait`. Peers are named by bytes such as ``b"W1"``, the
payload of a task is ``p`` and its result ``r``, each with the task's id.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.scheduler import invariants
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.scheduler import SchedulerCore
from scaler_cluster.ids import OBJECT_ID_BYTES, SNAPSHOT, segment_prefix
from scaler_cluster.ids import function_id as digest_of_function
from scaler_cluster.testing.describe import describe_all
from scaler_cluster.wire import feed as f
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTHON = "3.11"
"""Version of Python that the bench's peers claim to run."""
TURNS_MAX = 100_000
"""More turns in one wait are an endless loop."""


def function_id(letter: str) -> bytes:
    """Return the digest that a function of one letter is known by on the bench."""
    return digest_of_function(letter.encode())


def named(function: m.Function, submit: m.Message) -> m.Submit:
    """Return a submission of another function."""
    assert isinstance(submit, m.Submit)
    return replace(submit, function=function.function)


def object_id(letter: str) -> bytes:
    """Return the id that an object of one letter has on the bench."""
    return letter.encode() * OBJECT_ID_BYTES


def segment(owner: bytes, number: int) -> bytes:
    """Return the name of a segment that a peer made."""
    return segment_prefix(owner) + f"{number:x}".encode()


def payloads_of(first: int, count: int, prefix: str = "p") -> Batch:
    """Return the payloads, or with another prefix the results, of contiguous tasks."""
    return Batch.of([f"{prefix}{task}".encode() for task in range(first, first + count)])


class SchedulerBench:
    """Drives a SchedulerCore; every step checks its invariants."""

    def __init__(self, config: SchedulerConfig | None = None) -> None:
        self.now = 100.0
        self.users: dict[bytes, str] = {}
        """Whose key each peer has; others have none."""
        self.core = SchedulerCore(
            config or SchedulerConfig(PYTHON), self.now, lambda peer: self.users.get(peer, "")
        )
        self.published: list[f.Snapshot | f.Events | f.Logs | f.Samples] = []
        """What the core has told watchers."""

    # -- doors -------------------------------------------------------------------------------

    def feed(self, peer: bytes, *messages: m.Message) -> dict[str, list[str]]:
        """Let a peer send messages; return what the core answers in that turn."""
        self.core.receive(peer, messages, self.now)
        return self.act()

    def lose(self, peer: bytes) -> dict[str, list[str]]:
        """Give a peer up, as the shell does with one that broke the protocol."""
        self.core.peer_lost(peer, self.now)
        return self.act()

    def act(self) -> dict[str, list[str]]:
        """Return what the core has to send, by peer, in one line each."""
        return describe_all(self.act_raw())

    def act_raw(self) -> dict[bytes, list[m.Message]]:
        """Return what the core has to send, by peer."""
        actions = self.core.take_actions(self.now)
        if self.now >= self.core.feed.due:
            self.published += self.core.feed.take(self.now)
        invariants.check(self.core)
        return actions

    def wait(self, duration_s: float) -> dict[str, list[str]]:
        """Let time pass from deadline to deadline; return everything the core sends meanwhile."""
        end = self.now + duration_s
        sent: dict[str, list[str]] = {}
        for _ in range(TURNS_MAX):
            due = self.core.deadline
            if due > end:
                self.now = end
                return sent
            self.now = max(due, self.now)
            self.core.tick(self.now)
            for peer, lines in self.act().items():
                sent.setdefault(peer, []).extend(lines)
        raise AssertionError("the core's deadline does not move")

    def sleep(self, duration_s: float) -> dict[str, list[str]]:
        """Let time pass at once, as if this process had been stopped meanwhile."""
        self.now += duration_s
        self.core.tick(self.now)
        return self.act()

    # -- watching ----------------------------------------------------------------------------

    def watch(self, *topics: bytes) -> dict[str, list[str]]:
        """Let a watcher of these topics come, and empty :attr:`published`."""
        self.published.clear()
        self.core.feed.watch(topics, self.now)
        return self.act()

    def snapshot(self) -> f.Snapshot:
        """Return what the core tells a watcher that comes just now."""
        self.watch(SNAPSHOT)
        self.wait(1.0)
        first = self.published[0]
        assert isinstance(first, f.Snapshot)
        return first

    def events(self) -> list[f.Event]:
        """Return the events of a while."""
        self.wait(0.2)
        batches = [one for one in self.published if isinstance(one, f.Events)]
        self.published.clear()
        return [event for batch in batches for event in batch.events]

    # -- peers -------------------------------------------------------------------------------

    def client(self, peer: bytes = b"C1") -> dict[str, list[str]]:
        """Let a client come."""
        return self.feed(peer, hello(m.CLIENT))

    def supervisor(
        self, peer: bytes = b"S1", workers: int = 1, capabilities: m.Capabilities = ()
    ) -> dict[str, list[str]]:
        """Let a supervisor come, whose workers share these capabilities."""
        return self.feed(peer, hello(m.SUPERVISOR, workers=workers, capabilities=capabilities))

    def worker(
        self,
        peer: bytes = b"W1",
        supervisor: bytes = b"S1",
        disk: str = "",
        **fields: Any,
    ) -> dict[str, list[str]]:
        """Let a worker come; with a ``disk`` its objects are not where the scheduler's are."""
        place = m.StorageEndpoint(f"tcp://{supervisor.decode()}", disk=disk) if disk else m.NOWHERE
        hi = hello(m.WORKER, supervisor=supervisor, place=place, **fields)
        return self.feed(peer, hi)

    def storage(
        self,
        peer: bytes = b"O1",
        *segments: bytes,
        supervisor: bytes = b"",
        memory_limit: int = 0,
    ) -> dict[str, list[str]]:
        """Let a storage come that has these segments; with a supervisor, of its machine."""
        place = self.core.config.homes[0]
        if supervisor:
            place = m.StorageEndpoint(f"tcp://{supervisor.decode()}", memory_limit=memory_limit)
        hi = hello(m.STORAGE, supervisor=supervisor, place=place)
        return self.feed(peer, hi, m.Inventory(segments))

    # -- objects -----------------------------------------------------------------------------

    def store(
        self, letter: str, *, peer: bytes = b"C1", number: int = 0, nbytes: int = 1000
    ) -> dict[str, list[str]]:
        """Let a client store the object of a letter, in its segment of that number."""
        return self.feed(peer, m.Object(object_id(letter), segment(peer, number), nbytes))

    def release(self, letters: str, *, peer: bytes = b"C1") -> dict[str, list[str]]:
        """Let a client release objects."""
        return self.feed(peer, m.Release(tuple(map(object_id, letters))))

    # -- tasks -------------------------------------------------------------------------------

    def submit(
        self,
        first: int,
        count: int = 1,
        *,
        peer: bytes = b"C1",
        function: str = "f",
        options: m.TaskOptions = m.DEFAULT_OPTIONS,
        objects: str = "",
    ) -> dict[str, list[str]]:
        """Let a client submit contiguous tasks."""
        return self.feed(peer, *submission(first, count, function, options, objects))

    def graph(
        self, first: int, *nodes: str, wanted: str = "", peer: bytes = b"C1",
        options: Sequence[m.TaskOptions] = (m.DEFAULT_OPTIONS,), inputs: Sequence[int] = (),
        kinds: Sequence[int] = (),
    ) -> dict[str, list[str]]:  # fmt: skip
        """Let a client submit a graph: see :func:`graph_of`."""
        function = m.Function(function_id("g"), b"g", name="g")
        made = graph_of(first, *nodes, wanted=wanted, options=options, inputs=inputs, kinds=kinds)
        return self.feed(peer, function, made)

    def done(
        self, first: int, count: int = 1, *, peer: bytes = b"W1", session: int = 1,
        each_s: float = 0.001,
    ) -> dict[str, list[str]]:  # fmt: skip
        """Let a worker report that contiguous tasks returned."""
        results = payloads_of(first, count, "r")
        return self.feed(peer, m.Done(session, first, count * each_s, results))

    def erred(
        self, task: int, *, peer: bytes = b"W1", session: int = 1, kind: str = m.FAILED_EXCEPTION
    ) -> dict[str, list[str]]:
        """Let a worker report that a task failed."""
        return self.feed(peer, m.Erred(session, task, 0.001, kind, b"", {}))

    def died(
        self, task: int | None = None, *, worker: bytes = b"W1", supervisor: bytes = b"S1",
        session: int = 1,
    ) -> dict[str, list[str]]:  # fmt: skip
        """Let a supervisor report a worker's death while it ran a task (None: nothing yet)."""
        ran = (0, 0) if task is None else (session, task)
        return self.feed(supervisor, m.WorkerLost(worker, *ran, {"signal": 9}))


def hello(role: str, **fields: Any) -> m.Hello:
    """Return the Hello of a peer that fits the bench."""
    return m.Hello(role, m.PROTOCOL_VERSION, PYTHON, 1, "host", **fields)


def submission(
    first: int,
    count: int = 1,
    function: str = "f",
    options: m.TaskOptions = m.DEFAULT_OPTIONS,
    objects: str = "",
) -> Sequence[m.Message]:
    """Return what a client sends to submit contiguous tasks."""
    digest, ids = function_id(function), tuple(map(object_id, objects))
    return (
        m.Function(digest, function.encode(), name=function),
        m.Submit(first, digest, m.CALL_ARGS, options, payloads_of(first, count), ids),
    )


def graph_of(
    first: int,
    *nodes: str,
    wanted: str = "",
    options: Sequence[m.TaskOptions] = (m.DEFAULT_OPTIONS,),
    inputs: Sequence[int] = (),
    kinds: Sequence[int] = (),
    names: str = "",
) -> m.Graph:
    """Return a graph whose nodes are given by the numbers they depend on, as "0 1".

    ``wanted`` names nodes in the same way; without it that is the last one. ``kinds`` says which
    of the ``options`` each node has, ``names`` what each is called.
    """
    below = [[int(one) for one in node.split()] for node in nodes]
    is_wanted = bytearray(len(nodes))
    for one in map(int, wanted.split() or [str(len(nodes) - 1)]):
        is_wanted[one] = 1
    flat = list(chain.from_iterable(below))
    uses = [flat.count(node) + is_wanted[node] for node in range(len(nodes))]
    return m.Graph(
        first,
        0,
        function_id("g"),
        tuple(options),
        payloads_of(first, len(nodes)),
        array("I", accumulate(map(len, below))).tobytes(),
        array("I", flat).tobytes(),
        array("I", uses).tobytes(),
        bytes(is_wanted),
        array("Q", inputs).tobytes(),
        (),
        b"",
        is_last=True,
        kinds=array("I", kinds).tobytes(),
        names=tuple(dict.fromkeys(names.split())),
        layers=bytes(map(list(dict.fromkeys(names.split())).index, names.split())),
    )
