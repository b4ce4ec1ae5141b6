"""The client: what it asked for, what came back, who waits for it.

A future is resolved once: who is not pending any more is not resolved again, whatever arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from scaler_cluster.core.submit_window import SubmitWindow
from scaler_cluster.errors import LocalProtocolError, RemoteProtocolError
from scaler_cluster.ids import (
    CALL_BITS,
    CALL_MAX,
    FUNCTION_NAME_CHARS_MAX,
    INDEX_MASK,
    TASK_ID_MAX,
    first_task_id,
)
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch, numbers
from scaler_cluster.wire.codec import FRAME_BYTES, in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RUN_TASKS_MAX = 4096
"""Tasks of one Submit at most: about what a worker is given at once."""
RUN_BYTES_MAX = 256 * 1024
"""Payload of one Submit of small tasks at most: keeps turns short for other clients."""
OUTPUT_CHARS_MAX = 1 << 26
"""What tasks printed and nobody has shown yet: a slow terminal must not fill the memory."""
FUNCTIONS_MAX = 1024
"""Functions the scheduler keeps for a client; the least recently used one is forgotten."""

Objects: TypeAlias = tuple[bytes, ...]
"""Ids of objects."""
Function: TypeAlias = tuple[bytes, bytes, Objects, str]
"""Digest and pickle of a function, the objects that hold the buffers of that, and its name."""
Key: TypeAlias = tuple[Function, int, m.TaskOptions, Objects]
"""What tasks of one Submit share."""
Handlers: TypeAlias = "dict[type[m.Message], Callable[[Any, Any], None]]"
"""Which method of a core takes in which message."""


class MapSink(Protocol):
    """Many tasks whose results one caller takes in order: a map."""

    def settle(self, index: int, batch: Batch) -> None:
        """Tasks from ``index`` on returned these."""

    def returned(self, index: int, result: object) -> None:
        """One task returned a value with large buffers."""

    def fail(self, index: int, failure: m.Failed) -> None:
        """One task failed."""

    def cancelled(self, index: int, count: int) -> None:
        """Tasks from ``index`` on will not run."""

    @property
    def outstanding(self) -> int:
        """Number of tasks that have not come back."""


class ClientCore:
    """The client's side of the protocol. ``Waiter`` is what stands for a submitted task."""

    def __init__(self) -> None:
        self.welcome = m.Welcome(0, 0)
        """What the scheduler said; its session is 0 before."""
        self.lazy_result: Callable[[m.Returned], object] = lambda message: message
        """Makes what is handed on for a value that lies in segments."""
        self.refused = ""
        self.broken = ""
        self.lost = False
        """True once the scheduler did not know this client any more."""
        self.waiters: dict[int, object] = {}
        """Who waits for a single task, by its id."""
        self.calls: dict[int, MapSink] = {}
        self.settled: list[tuple[object, object]] = []
        """Single tasks that came back, and with what (None: cancelled); the shell empties it."""
        self.printed: list[m.Output] = []
        """What tasks printed; the shell takes it with :meth:`take_printed`."""
        self._printed_chars = 0
        self._dropped_chars = 0
        self.unplaced: list[str] = []
        """Why no worker can run some tasks, as the scheduler said; the shell empties it."""
        self.waits_as = ""
        """Why no worker can run some tasks now; empty: all are run in time."""
        self.unmet: list[tuple[int, object]] = []
        """Inputs of graphs that the scheduler asks for: the node's task, and what stands for it;
        the shell empties it."""
        self.profiles: list[tuple[object, m.Profile]] = []
        """Who waits for single tasks, and what they took; the shell empties it before it settles
        any."""
        self._inputs: dict[int, Sequence[object]] = {}
        """What stands for the inputs of graphs that the scheduler has not said it knows."""
        self.heard_at = 0.0
        self.next_task = 0
        """Id that the next single task will have."""
        self._next_call = 1
        self._functions: dict[bytes, None] = {}
        self._asked: list[tuple[int, Key, bytes, object]] = []
        """Tasks submitted one by one that are not in the outbox yet."""
        self._outbox: list[m.Message] = []
        self._window: SubmitWindow | None = None
        """What may not be sent yet; None if everything may."""

    # -- asking ------------------------------------------------------------------------------

    def teach(self, function: bytes, payload: bytes, objects: Objects, name: str) -> None:
        """Send a function unless the scheduler has it; its objects were offered before."""
        known = self._functions
        if function in known:
            if len(known) > FUNCTIONS_MAX // 2:
                del known[function]
                known[function] = None
            return
        known[function] = None
        name = name[:FUNCTION_NAME_CHARS_MAX]
        self._outbox.append(m.Function(function, payload, objects, name))
        if len(known) > FUNCTIONS_MAX:
            oldest = next(iter(known))
            del known[oldest]
            self._outbox.append(m.Forget(oldest))

    def forget(self, function: bytes) -> None:
        """Say that a function will not be named again by what is asked for from now on.

        Should it be all the same, it is taught anew.
        """
        self._pack_asked()
        if function in self._functions:
            del self._functions[function]
            self._outbox.append(m.Forget(function))

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
        task = self.next_task
        self.next_task = task + 1
        self._asked.append((task, (function, call, options, objects), payload, waiter))
        return task

    @property
    def unsent(self) -> int:
        """Return how many single tasks were submitted since :meth:`take_actions`."""
        return len(self._asked)

    @property
    def unsent_messages(self) -> int:
        """Return how many messages wait for :meth:`take_actions`."""
        return len(self._outbox)

    def pending(self) -> list[int]:
        """Return the ids of the single tasks that have not come back."""
        self._pack_asked()
        return list(self.waiters)

    def open_call(self, call: MapSink) -> int:
        """Return the id that the first task of a new map will have."""
        first = self.open_graph()
        self.calls[first >> CALL_BITS] = call
        return first

    def open_graph(self) -> int:
        """Return the id that the first node of a new graph will have."""
        number = self._next_call
        if number >= CALL_MAX:
            raise LocalProtocolError("too many calls in one session: make a new one")
        self._next_call += 1
        return first_task_id(number)

    def reserve(self, count: int) -> int:
        """Return the id of the first of contiguous tasks that nobody else will have."""
        first = self.next_task
        self.next_task = first + count
        return first

    def submit_graph(
        self,
        function: Function,
        part: m.Graph,
        waiters: dict[int, object],
        inputs: Sequence[object],
    ) -> None:
        """Ask for a graph, whose objects were offered before; ``waiters`` are those of its nodes.

        ``part`` is its first message; the others are said after that.
        ``inputs`` stand for what its first nodes are; see ``unmet``.
        """
        self._pack_asked()
        self.teach(*function)
        self._outbox.append(part)
        self.waiters.update(waiters)
        if inputs:
            self._inputs[part.first] = inputs

    def close_call(self, first: int, asked: int) -> None:
        """Nobody waits for a map any more: forget it, and cancel what has not come back."""
        call = self.calls.pop(first >> CALL_BITS, None)
        if call is not None and call.outstanding:
            self._outbox.append(m.Cancel(first, asked))

    def submit_run(
        self,
        first: int,
        function: bytes,
        call: int,
        options: m.TaskOptions,
        objects: Objects,
        batch: Batch,
    ) -> None:
        """Ask for contiguous tasks of an open call that share their objects."""
        self._outbox.append(m.Submit(first, function, call, options, batch, objects))

    def offer(self, one: bytes, segment: bytes, nbytes: int) -> None:
        """Say that an object is stored."""
        self._outbox.append(m.Object(one, segment, nbytes))

    def release(self, objects: Objects) -> None:
        """Say that objects will not be named again by what is asked for from now on."""
        for piece in in_pieces(objects):
            self.say(m.Release(piece))

    def cancel(self, tasks: Sequence[int]) -> list[object]:
        """Give single tasks up; return who waited for them, without those that came back."""
        self._pack_asked()
        waiters = []
        for task in tasks:
            waiter = self.waiters.pop(task, None)
            if waiter is None:
                continue
            waiters.append(waiter)
            last = self._outbox[-1] if self._outbox else None
            if type(last) is m.Cancel and last.first + last.count == task:
                last.count += 1
            else:
                self._outbox.append(m.Cancel(task, 1))
        return waiters

    def take_back(self) -> None:
        """Ask for everything back that has not gone to a worker yet."""
        self._pack_asked()
        if self.busy:
            self._outbox.append(m.Cancel(0, TASK_ID_MAX, queued_only=True))

    def say(self, message: m.Message) -> None:
        """Send something that has no state here (a Hello, a Heartbeat, a Goodbye)."""
        self._pack_asked()
        self._outbox.append(message)

    @property
    def busy(self) -> bool:
        """Return True while somebody waits for something."""
        return bool(self.waiters or self._asked) or any(
            call.outstanding for call in self.calls.values()
        )

    @property
    def single_in_flight(self) -> bool:
        """Return True if one single task is all that is waited for."""
        return len(self.waiters) + len(self._asked) == 1 and not self.calls

    @property
    def has_actions(self) -> bool:
        """Return True if :meth:`take_actions` has something."""
        window = self._window
        return bool(self._asked or self._outbox) or (window is not None and window.is_open)

    def take_actions(self) -> list[m.Message]:
        """Return what is to be sent to the scheduler."""
        self._pack_asked()
        outbox = self._outbox
        self._outbox = []
        if self._window is not None:
            outbox = self._window.pass_on(outbox)
            while self._window.cancelled:
                self._on_cancelled(self._window.cancelled.pop())
        return outbox

    def _pack_asked(self) -> None:
        """Make Submits of the tasks submitted one by one so far."""
        asked = self._asked
        if not asked:
            return
        self._asked = []
        waiters = self.waiters
        run: list[bytes] = []
        key: Key | None = None
        first = nbytes = 0
        for task, asked_key, payload, waiter in asked:
            waiters[task] = waiter
            if (
                key != asked_key
                or task != first + len(run)
                or nbytes + len(payload) > RUN_BYTES_MAX
                or len(run) >= RUN_TASKS_MAX
                or len(payload) >= FRAME_BYTES
            ):
                self._send_run(first, key, run)
                self.teach(*asked_key[0])
                key = asked_key
                first, run, nbytes = task, [], 0
            run.append(payload)
            nbytes += len(payload)
        self._send_run(first, key, run)

    def _send_run(
        self,
        first: int,
        key: Key | None,
        payloads: list[bytes],
    ) -> None:
        if key is None:
            return
        function, call, options, objects = key
        batch = Batch.of(payloads) if len(payloads) > 1 else Batch.single(payloads[0])
        self._outbox.append(m.Submit(first, function[0], call, options, batch, objects))

    # -- answers -----------------------------------------------------------------------------

    def receive(self, messages: Sequence[m.Message], now: float) -> None:
        """Take in what the scheduler sent; the shell then empties ``settled``.

        Raises RemoteProtocolError if it must not send this.
        """
        self.heard_at = now
        handlers = self._HANDLERS
        for message in messages:
            handler = handlers.get(type(message))
            if handler is None:
                raise RemoteProtocolError(f"{type(message).__name__} is not for a client")
            handler(self, message)

    def take_printed(self) -> tuple[list[m.Output], int]:
        """Return what tasks printed, and how many characters more were dropped."""
        printed, dropped = self.printed, self._dropped_chars
        self.printed = []
        self._printed_chars = self._dropped_chars = 0
        return printed, dropped

    def _on_welcome(self, message: m.Welcome) -> None:
        self.welcome = message
        if message.asks_first:
            self._window = SubmitWindow()

    def _on_grant_credit(self, message: m.GrantCredit) -> None:
        if self._window is not None:
            self._window.allow(message.count)

    def _on_unplaced(self, message: m.Unplaced) -> None:
        self.waits_as = message.reason
        if message.reason:
            self.unplaced.append(message.reason)

    def _on_profile(self, message: m.Profile) -> None:
        waiter = self.waiters.get(message.task)
        if waiter is not None:
            self.profiles.append((waiter, message))

    def _on_refused(self, message: m.Refused) -> None:
        self.refused = message.reason

    def _on_broken(self, message: m.Broken | m.Goodbye) -> None:
        self.broken = message.reason

    def _on_unknown(self, _: m.Unknown) -> None:
        self.lost = True

    def _on_heartbeat(self, _: m.Heartbeat) -> None:
        """Take nothing: that something was heard is what counts."""

    def _on_request_inputs(self, message: m.RequestInputs) -> None:
        inputs = self._inputs.pop(message.graph, ())
        for node in numbers(message.inputs):
            if node >= len(inputs):
                raise RemoteProtocolError("asked for an input of no graph")
            self.unmet.append((message.graph + node, inputs[node]))

    def _on_output(self, message: m.Output) -> None:
        if self._printed_chars > OUTPUT_CHARS_MAX:
            self._dropped_chars += len(message.text)
        else:
            self._printed_chars += len(message.text)
            self.printed.append(message)

    def _on_results(self, message: m.Results) -> None:
        number = message.first >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.settle(message.first & INDEX_MASK, message.batch)
                return
        waiters = self.waiters
        settled = self.settled
        for task, payload in enumerate(message.batch, message.first):
            waiter = waiters.pop(task, None)
            if waiter is not None:
                settled.append((waiter, payload))

    def _on_returned(self, message: m.Returned) -> None:
        number = message.task >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.returned(message.task & INDEX_MASK, self.lazy_result(message))
                return
        waiter = self.waiters.pop(message.task, None)
        if waiter is not None:
            self.settled.append((waiter, self.lazy_result(message)))
            return
        # Nobody waits for it any more.
        self.release(message.objects)

    def _on_failed(self, message: m.Failed) -> None:
        number = message.task >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.fail(message.task & INDEX_MASK, message)
                return
        waiter = self.waiters.pop(message.task, None)
        if waiter is not None:
            self.settled.append((waiter, message))

    def _on_cancelled(self, message: m.Cancelled) -> None:
        number = message.first >> CALL_BITS
        if number:
            call = self.calls.get(number)
            if call is not None:
                call.cancelled(message.first & INDEX_MASK, message.count)
                return
        for task in range(message.first, message.first + message.count):
            waiter = self.waiters.pop(task, None)
            if waiter is not None:
                self.settled.append((waiter, None))

    _HANDLERS: ClassVar[Handlers] = {
        m.Results: _on_results,
        m.Returned: _on_returned,
        m.Failed: _on_failed,
        m.Cancelled: _on_cancelled,
        m.RequestInputs: _on_request_inputs,
        m.Unplaced: _on_unplaced,
        m.Output: _on_output,
        m.Profile: _on_profile,
        m.Welcome: _on_welcome,
        m.GrantCredit: _on_grant_credit,
        m.Heartbeat: _on_heartbeat,
        m.Refused: _on_refused,
        m.Broken: _on_broken,
        m.Goodbye: _on_broken,
        m.Unknown: _on_unknown,
    }
