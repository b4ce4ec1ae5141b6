"""The client: what it asked for, what came back, who waits for it.

A future is resolved once: who is not pending any more is not resolved again, whatever arrives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from scaler_cluster.core.client.coordination import ClientCoordination
from scaler_cluster.core.client.events import EventOutbox, InputWanted
from scaler_cluster.core.client.graph_inputs import GraphInputs
from scaler_cluster.core.client.requests import Function, Objects, Requests
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.ids import CALL_BITS, INDEX_MASK, TASK_ID_MAX, first_task_id
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.core.client.events import News
    from scaler_cluster.wire.batch import Batch

Handlers: TypeAlias = "dict[type[m.Message], Callable[[Any, Any], None]]"
"""Which method of a core takes in which message."""


def _ignore(*_: object) -> None:
    """Take nothing: what is unfinished is not kept, and of a Heartbeat counts only that it came."""


def _on_object(core: ClientCore, message: m.Object) -> None:
    if core.requests.unfinished is not None:
        core.requests.unfinished.objects.moved(message)
    core.release((message.instead_of,))


def _on_failed_range(core: ClientCore, message: m.FailedRange) -> None:
    tasks = range(message.first, message.first + message.count)
    failed = [m.Failed(task, message.kind, b"", message.detail) for task in tasks]
    core.receive(failed, core.heard_at)


def _on_coordinated(core: ClientCore, message: m.Coordinated) -> None:
    core.coordination.answered(message)


def _on_lapsed(core: ClientCore, message: m.Lapsed) -> None:
    core.coordination.lapsed(message)


class MapSink(Protocol):
    """Many tasks whose results one caller takes in order: a map."""

    asked: int
    """Number of tasks asked for."""

    def settle(self, index: int, batch: Batch) -> None:
        """Tasks from ``index`` on returned these."""

    def returned(self, index: int, result: object) -> None:
        """One task returned a value with large buffers."""

    def fail(self, index: int, failure: m.Failed) -> None:
        """One task failed."""

    def cancelled(self, index: int, count: int) -> None:
        """Tasks from ``index`` on will not run."""

    def abort(self, error: BaseException) -> None:
        """Nothing more will come back."""

    @property
    def outstanding(self) -> int:
        """Number of tasks that have not come back."""


class ClientCore:
    """The client's side of the protocol. A *waiter* is what stands for a submitted task.

    If it ``asks_again``, it may :meth:`start_over` with a scheduler that has forgotten it.
    """

    def __init__(self, *, asks_again: bool = True) -> None:
        self.welcome = m.Welcome(0, 0)
        """What the scheduler said; its session is 0 before."""
        self._was = self.welcome
        """What the last one said that there was."""
        self.lazy_result: Callable[[m.Returned], object] = lambda message: message
        """Makes what is handed on for a value that lies in segments."""
        self.first_segment: Callable[[], int] = lambda: 0
        """Returns the number of the first segment here that may still be offered."""
        self.waiters: dict[int, object] = {}
        """Who waits for a single task, by its id."""
        self.calls: dict[int, MapSink] = {}
        self.requests = Requests(self.waiters, asks_again=asks_again)
        self.coordination = ClientCoordination(self.requests, asks_again=asks_again)
        unfinished = self.requests.unfinished
        self._came: Callable[[int, int], None] = unfinished.came if unfinished else _ignore
        self._recount: Callable[[int, int], None] = unfinished.recount if unfinished else _ignore
        self.heard_at = 0.0
        self.waits_as = ""
        """Why no worker can run some tasks now; empty: all are run in time."""
        self.is_stored = True
        """False if what was stored is gone: the scheduler that forgot this client knows nothing
        of it."""
        self.events = EventOutbox()
        self._inputs = GraphInputs()

    # -- asking ------------------------------------------------------------------------------

    def submit(
        self,
        function: Function,
        call: int,
        options: m.TaskOptions,
        objects: Objects,
        payload: bytes,
        waiter: object,
    ) -> int:
        """Ask for one task, whose objects were offered before; return its id.

        A KeyboardInterrupt may hit anywhere in here: then nothing was asked for.
        """
        requests = self.requests
        task = requests.next_task
        requests.next_task = task + 1
        requests.asked.append((task, (function, call, options, objects), payload, waiter))
        return task

    def open_call(self, call: MapSink) -> int:
        """Return the id that the first task of a new map will have."""
        first = self.requests.open_call()
        self.calls[first >> CALL_BITS] = call
        return first

    def submit_graph(
        self,
        function: Function,
        part: m.Graph,
        waiters: dict[int, object],
        inputs: Sequence[object],
    ) -> bool:
        """Ask for a graph, whose objects were offered before; ``waiters`` are those of its nodes.

        ``part`` is its first message; with the others, :meth:`Requests.go_on_with`. ``inputs``
        stand for what its first nodes are; see :class:`InputWanted`. Returns True if the scheduler
        will say which inputs it wants.
        """
        self.requests.pack_asked()
        self.requests.teach(*function)
        self.requests.say(part)
        self.waiters.update(waiters)
        if waiters and self.requests.unfinished is not None:
            self.requests.unfinished.graphs.begin(part.first, waiters, inputs)
        return self._inputs.expect(part, inputs)

    def release(self, objects: Objects) -> None:
        """Say that objects will not be named again by what is asked for from now on."""
        self.requests.release(objects)

    # -- giving up ---------------------------------------------------------------------------

    def cancel(self, tasks: Sequence[int]) -> list[object]:
        """Give single tasks up; return who waited for them, without those that came back."""
        self.requests.pack_asked()
        waiters = []
        for task in tasks:
            waiter = self.waiters.pop(task, None)
            if waiter is not None:
                waiters.append(waiter)
                self.events.profiles.pop(task, None)
                self.requests.cancel(task)
        return waiters

    def close_call(self, first: int, asked: int) -> None:
        """Nobody waits for a map any more: forget it, and cancel what has not come back."""
        call = self.calls.pop(first >> CALL_BITS, None)
        if call is not None and call.outstanding:
            self.requests.say(m.Cancel(first, asked))

    def abort_calls(self, error: BaseException) -> None:
        """Give every map up; whoever takes its results gets the error."""
        for number, call in list(self.calls.items()):
            # By its number: a map whose caller was interrupted may not know its first task.
            self.close_call(first_task_id(number), call.asked)
            call.abort(error)

    def start_over(self, hello: m.Hello) -> None:
        """Come anew to a scheduler that has forgotten this client, as its :attr:`welcome` tells.

        When the scheduler has answered, what has not come back is asked for again. It knows which
        tasks must not start twice. If it has this client ask first, or if they are nodes of graphs,
        it does not: then they fail as lost, and so do the graphs.
        """
        self.welcome = replace(self.welcome, session=0)
        self.waits_as = ""
        was = self._was
        self.requests.start_over(replace(hello, resume=was.session, proof=was.proof))

    def take_back(self) -> None:
        """Ask for everything back that has not gone to a worker yet."""
        if self.busy:
            self.requests.say(m.Cancel(0, TASK_ID_MAX, queued_only=True))

    # -- looks -------------------------------------------------------------------------------

    def pending(self) -> list[int]:
        """Return the ids of the single tasks that have not come back."""
        self.requests.pack_asked()
        return list(self.waiters)

    @property
    def busy(self) -> bool:
        """Return True while somebody waits for something."""
        return bool(self.waiters or self.requests.asked) or any(
            call.outstanding for call in self.calls.values()
        )

    @property
    def single_in_flight(self) -> bool:
        """Return True if one single task is all that is waited for."""
        return len(self.waiters) + len(self.requests.asked) == 1 and not self.calls

    # -- doors -------------------------------------------------------------------------------

    def receive(self, messages: Sequence[m.Message], now: float) -> None:
        """Take in what the scheduler sent; the shell then takes :attr:`events`.

        Raises RemoteProtocolError if it must not send this.
        """
        self.heard_at = now
        handlers = self._HANDLERS
        for message in messages:
            handler = handlers.get(type(message))
            if handler is None:
                raise RemoteProtocolError(f"{type(message).__name__} is not for a client")
            handler(self, message)

    def take_actions(self) -> list[m.Message]:
        """Return what is to be sent to the scheduler."""
        outbox, cancelled = self.requests.take()
        for message in cancelled:
            self._on_cancelled(message)
        return outbox

    # -- answers -----------------------------------------------------------------------------

    def _on_welcome(self, message: m.Welcome) -> None:
        before = self._was
        self._was = self.welcome = message
        if self.requests.starts_over and self.requests.unfinished is not None:
            self.events.news.append(message)
            self.is_stored = message.adopts and message.homes == before.homes
            homes = message.homes if self.is_stored else ()
            also = self.coordination.again()
            lost = self.requests.go_on(
                homes, self.first_segment(), also, asks_first=message.asks_first
            )
            for failed in lost:
                self._on_failed(failed)
            graphs, parts = self.requests.unfinished.graphs, self.requests.unsent_graphs()
            self.events.wanted += self._inputs.again(parts, graphs.inputs_of)
        if message.asks_first:
            self.requests.ask_first()

    def _on_grant_credit(self, message: m.GrantCredit) -> None:
        self.requests.allow(message.count)

    def _on_news(self, message: News) -> None:
        news = self.events.news
        # Each message that was under way is answered with Unknown.
        if type(message) is not m.Unknown or message not in news:
            news.append(message)

    def _on_unplaced(self, message: m.Unplaced) -> None:
        self.waits_as = message.reason
        if message.reason:
            self.events.news.append(message)

    def _on_profile(self, message: m.Profile) -> None:
        if message.task in self.waiters:
            self.events.profiles[message.task] = message

    def _on_request_inputs(self, message: m.RequestInputs) -> None:
        inputs = self._inputs.take(message.graph)
        for node in numbers(message.inputs):
            if node >= len(inputs):
                raise RemoteProtocolError("asked for an input of no graph")
            self.events.wanted.append(InputWanted(message.graph + node, inputs[node]))

    def _on_results(self, message: m.Results) -> None:
        number = message.first >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.settle(message.first & INDEX_MASK, message.batch)
                self._came(message.first, len(message.batch))
                return
        waiters, events = self.waiters, self.events
        settled, profiles = events.settled, events.profiles
        before = len(settled)
        for task, payload in enumerate(message.batch, message.first):
            waiter = waiters.pop(task, None)
            if waiter is None:
                continue
            if profiles:
                events.settle(task, waiter, payload)
            else:
                settled.append((waiter, payload))
        count = len(message.batch)
        if len(settled) - before == count:
            self._came(message.first, count)
        else:
            self._recount(message.first, message.first + count)

    def _on_returned(self, message: m.Returned) -> None:
        if self.requests.unfinished is not None:
            self.requests.unfinished.objects.returned(message)
        number = message.task >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.returned(message.task & INDEX_MASK, self.lazy_result(message))
                self._came(message.task, 1)
                return
        waiter = self.waiters.pop(message.task, None)
        if waiter is not None:
            self._came(message.task, 1)
            self.events.settle(message.task, waiter, self.lazy_result(message))
        else:
            # Nobody waits for it any more.
            self.release(message.objects)

    def _on_failed(self, message: m.Failed) -> None:
        number = message.task >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.fail(message.task & INDEX_MASK, message)
                self._came(message.task, 1)
                return
        waiter = self.waiters.pop(message.task, None)
        if waiter is not None:
            self._came(message.task, 1)
            self.events.settle(message.task, waiter, message)

    def _on_cancelled(self, message: m.Cancelled) -> None:
        number = message.first >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.cancelled(message.first & INDEX_MASK, message.count)
                self._came(message.first, message.count)
                return
        for task in range(message.first, message.first + message.count):
            waiter = self.waiters.pop(task, None)
            if waiter is not None:
                self._came(task, 1)
                self.events.settle(task, waiter, None)

    _HANDLERS: ClassVar[Handlers] = {
        m.Results: _on_results,
        m.Returned: _on_returned,
        m.Object: _on_object,
        m.Failed: _on_failed,
        m.FailedRange: _on_failed_range,
        m.Cancelled: _on_cancelled,
        m.Coordinated: _on_coordinated,
        m.Lapsed: _on_lapsed,
        m.RequestInputs: _on_request_inputs,
        m.Unplaced: _on_unplaced,
        m.Notice: _on_news,
        m.WorkerList: _on_news,
        m.Output: _on_news,
        m.Profile: _on_profile,
        m.Welcome: _on_welcome,
        m.GrantCredit: _on_grant_credit,
        m.Heartbeat: _ignore,
        m.Refused: _on_news,
        m.Broken: _on_news,
        m.Goodbye: _on_news,
        m.Unknown: _on_news,
    }
