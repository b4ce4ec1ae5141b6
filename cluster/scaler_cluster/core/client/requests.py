"""What a client asks of the scheduler, as messages in the order in which they were asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from scaler_cluster.core.client.submit_window import SubmitWindow
from scaler_cluster.core.client.unfinished import Unfinished
from scaler_cluster.errors import LocalProtocolError
from scaler_cluster.ids import CALL_MAX, FUNCTION_NAME_CHARS_MAX, first_task_id
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_cluster.wire.codec import FRAME_BYTES, in_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

RUN_TASKS_MAX = 4096
"""Tasks of one Submit at most: about what a worker is given at once."""
RUN_BYTES_MAX = 256 * 1024
"""Payload of one Submit of small tasks at most: keeps turns short for other clients."""
FUNCTIONS_MAX = 1024
"""Functions the scheduler keeps for a client; the least recently used one is forgotten."""

Objects: TypeAlias = tuple[bytes, ...]
"""Ids of objects."""
Function: TypeAlias = tuple[bytes, bytes, Objects, str]
"""Digest and pickle of a function, the objects that hold the buffers of that, and its name."""
Key: TypeAlias = tuple[Function, int, m.TaskOptions, Objects]
"""What tasks of one Submit share."""


class Requests:
    """The client's outbox, which numbers tasks and joins those that were submitted one by one.

    ``waiters`` gets what stands for each single task as soon as its message is made. What is sent
    is kept until it comes back, if it ``asks_again``.
    """

    def __init__(self, waiters: dict[int, object], *, asks_again: bool) -> None:
        self._waiters = waiters
        self.unfinished = Unfinished(waiters) if asks_again else None
        self._greeting: list[m.Message] | None = None
        """What alone may be said until the scheduler has answered it; None: it has."""
        self.next_task = 0
        """Id that the next single task will have."""
        self._next_call = 1
        self._functions: dict[bytes, None] = {}
        self.asked: list[tuple[int, Key, bytes, object]] = []
        """Tasks submitted one by one that are in no message yet."""
        self._outbox: list[m.Message] = []
        self._window: SubmitWindow | None = None
        """What may not be sent yet; None if everything may."""

    # -- numbers -----------------------------------------------------------------------------

    def reserve(self, count: int) -> int:
        """Return the id of the first of contiguous tasks that nobody else will have."""
        first = self.next_task
        self.next_task = first + count
        return first

    def open_call(self) -> int:
        """Return the id that the first task of a new map, or node of a new graph, will have."""
        number = self._next_call
        if number >= CALL_MAX:
            raise LocalProtocolError("too many calls in one session: make a new one")
        self._next_call += 1
        return first_task_id(number)

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
        self.pack_asked()
        if function in self._functions:
            del self._functions[function]
            self._outbox.append(m.Forget(function))

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

    def say(self, message: m.Message) -> None:
        """Send a message after all that was asked for before it."""
        self.pack_asked()
        self._outbox.append(message)

    def go_on_with(self, part: m.Graph) -> None:
        """Send more of a graph, unless the graph was lost meanwhile."""
        if self.unfinished is None or not self.unfinished.graphs.is_void(part):
            self.say(part)

    def cancel(self, task: int) -> None:
        """Give a single task up, in one message with the one before it if that is its neighbour."""
        last = self._outbox[-1] if self._outbox else None
        if type(last) is m.Cancel and last.first + last.count == task:
            last.count += 1
        else:
            self._outbox.append(m.Cancel(task, 1))

    def pack_asked(self) -> None:
        """Make Submits of the tasks submitted one by one so far."""
        asked = self.asked
        if not asked:
            return
        self.asked = []
        waiters = self._waiters
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
                if key is not None:
                    self._send_run(first, key, run)
                self.teach(*asked_key[0])
                key = asked_key
                first, run, nbytes = task, [], 0
            run.append(payload)
            nbytes += len(payload)
        assert key is not None
        self._send_run(first, key, run)

    def _send_run(self, first: int, key: Key, payloads: Sequence[bytes]) -> None:
        function, call, options, objects = key
        batch = Batch.of(payloads) if len(payloads) > 1 else Batch.single(payloads[0])
        self._outbox.append(m.Submit(first, function[0], call, options, batch, objects))

    # -- sending -----------------------------------------------------------------------------

    def ask_first(self) -> None:
        """From now on ask the scheduler before tasks are sent."""
        self._window = SubmitWindow()

    def start_over(self, hello: m.Hello) -> None:
        """Say this to a scheduler that forgot this client, and nothing else until it answers."""
        self._greeting = [hello]

    def beat(self) -> None:
        """Ask the scheduler for a sign of life, also one that has not answered the Hello yet.

        That may have died since it took the Hello in: then the next one says so.
        """
        (self._outbox if self._greeting is None else self._greeting).append(m.Heartbeat())

    @property
    def starts_over(self) -> bool:
        """Return True if :meth:`go_on` is to be called when the scheduler answers."""
        return self._greeting is not None

    def go_on(
        self,
        homes: Sequence[m.StorageEndpoint],
        first_segment: int,
        also: Sequence[m.Message] = (),
        *,
        asks_first: bool = False,
    ) -> list[m.Failed]:
        """Ask again for what has not come back; return what became of the rest.

        What was stored is still in the ``homes``; without any, it is gone. What is about to be
        offered is in segments from the ``first_segment`` on. What is ``also`` to be said comes
        first.
        """
        assert self.unfinished is not None
        self._greeting = None
        self.pack_asked()
        unsent = self._outbox if self._window is None else self._window.give_back() + self._outbox
        self._window = None
        self._outbox, failed = self.unfinished.again(
            unsent, homes, first_segment, is_judged=not asks_first
        )
        self._outbox[:0] = also
        self._functions = {}
        for one in self._outbox:
            if isinstance(one, m.Function):
                self._functions[one.function] = None
            elif isinstance(one, m.Forget):
                self._functions.pop(one.function, None)
        return failed

    def unsent_graphs(self) -> list[m.Graph]:
        """Return the first messages of all graphs that :meth:`take` is about to return."""
        return [one for one in self._outbox if isinstance(one, m.Graph) and not one.start]

    def allow(self, count: int) -> None:
        """The scheduler has room for so many tasks more."""
        if self._window is not None:
            self._window.allow(count)

    @property
    def unsent_messages(self) -> int:
        """Return how many messages wait for :meth:`take`."""
        return len(self._outbox)

    @property
    def has_some(self) -> bool:
        """Return True if :meth:`take` has something."""
        if self._greeting is not None:
            return bool(self._greeting)
        if self.asked or self._outbox:
            return True
        window, kept = self._window, self.unfinished
        if window is not None and window.is_open:
            return True
        return kept is not None and bool(kept.objects.due)

    def take(self) -> tuple[list[m.Message], list[m.Cancelled]]:
        """Return what is to be sent, and tasks that were taken back before they were sent."""
        if self._greeting is not None:
            outbox, self._greeting = self._greeting, []
            return outbox, []
        self.pack_asked()
        outbox, self._outbox = self._outbox, []
        cancelled: list[m.Cancelled] = []
        window = self._window
        if window is not None:
            outbox = window.pass_on(outbox)
            cancelled, window.cancelled = window.cancelled, []
        if self.unfinished is not None:
            # Not later: the same may have been stored anew meanwhile.
            objects = self.unfinished.objects
            releases = list(map(m.Release, in_pieces(objects.take_due()))) if objects.due else []
            outbox = self.unfinished.sent(outbox)
            if releases:
                outbox = releases + outbox
        return outbox, cancelled
