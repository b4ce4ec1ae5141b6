"""Schedulers whose work takes time, workers that do little, and clients that ask for much.

For measurements: what the cores of a scheduler take is measured, and what is sent is counted. In
simulated time an envelope and a message cost what they cost in a real process, about, so that
a scheduler saturates, and takes in together what has arrived meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.core.client.events import Settled
from scaler_cluster.ids import HUB, function_id
from scaler_cluster.testing.bench import PYTHON
from scaler_cluster.testing.local_world import LocalScheduler
from scaler_cluster.testing.nodes import Node, SchedulerNode
from scaler_cluster.testing.sessions import HEARTBEAT_S
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scaler_cluster.testing.world import World
    from scaler_cluster.wire.batch import Buffer

    Send = Callable[[bytes, Sequence[m.Message], float], list[list[Buffer]]]

ENVELOPE_S = 10e-6
"""What an envelope costs a scheduler, received or sent: the socket, the codec, the channel."""
MESSAGE_S = 10e-6
"""What a message costs it. A lone task is 4 envelopes with 4 messages: 80 us in all, between the 20
us of a busy scheduler and the 130 us of one that was asleep."""
FLUSH_S = 0.004
"""How long results of a worker wait for others, as in the real one."""
WHO = m.PROTOCOL_VERSION, PYTHON, 1, "simulated"
FUNCTION = (function_id(b"work"), b"work", (), "work")


class Paced(SchedulerNode):
    """A scheduler whose work takes time; it takes in at once all that came meanwhile."""

    def __init__(self, simulation: World) -> None:
        super().__init__(simulation)
        self.envelopes = 0
        """Received and sent."""
        self.messages = 0
        self.cpu_s = 0.0
        """What the cores took, measured, with codec and channels."""
        self.busy_s = 0.0
        """What it all took in simulated time."""
        self._arrived: list[tuple[bytes, list[Buffer]]] = []
        self._free_at = 0.0
        self._is_called = self._is_acting = False
        self.exchange.send = partial(  # type: ignore[method-assign]
            self._send, self.exchange.send
        )

    def _send(
        self, send: Send, peer: bytes, messages: Sequence[m.Message], now: float
    ) -> list[list[Buffer]]:
        """Send as ever, and count what is sent."""
        envelopes = send(peer, messages, now)
        self.messages += len(messages)
        self.envelopes += len(envelopes)
        return envelopes

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """See :class:`Node`."""
        self._arrived.append((source, frames))
        self._call()

    def turn(self) -> None:
        """See :class:`Node`."""
        if not self._is_acting:
            self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            now = self.simulation.now
            self.simulation.at(max(now, self._free_at), self._act)

    def _act(self) -> None:
        """Take in what has arrived, and act once."""
        self._is_called = False
        arrived, self._arrived = self._arrived, []
        envelopes, messages = self.envelopes, self.messages
        received = sum(self.core.table.received.values())
        began = time.process_time()
        self._is_acting = True
        for source, frames in arrived:
            super().receive(source, frames)
        self._is_acting = False
        super().turn()
        self.cpu_s += time.process_time() - began
        self.envelopes += len(arrived)
        self.messages += sum(self.core.table.received.values()) - received
        cost_s = (self.envelopes - envelopes) * ENVELOPE_S
        cost_s += (self.messages - messages) * MESSAGE_S
        self.busy_s += cost_s
        self._free_at = self.simulation.now + cost_s


class PacedLocal(Paced, LocalScheduler):
    """The scheduler of a machine, paced."""


class QuickMachine(Node):
    """A supervisor whose workers do nothing for as long as their tasks say."""

    def __init__(self, simulation: World, workers: int, capabilities: m.Capabilities = ()) -> None:
        super().__init__(simulation, simulation.name("S"))
        self._count = workers
        self._capabilities = capabilities
        self.workers: list[QuickWorker] = []
        self.tell_hub([m.Hello(m.SUPERVISOR, *WHO, workers=workers)])

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """See :class:`Node`."""
        heard = self.exchange.receive(HUB, frames, self.simulation.now)
        if any(isinstance(one, m.Welcome) for one in heard):
            for _ in range(self._count):
                worker = QuickWorker(self.simulation, self.name, self._capabilities)
                self.workers.append(worker)
            self._beat()
        self.tell_hub([])

    def turn(self) -> None:
        """See :class:`Node`."""
        self.tell_hub([])

    def _beat(self) -> None:
        if self.is_alive():
            self.tell_hub([m.Heartbeat()])
            self.simulation.at(self.simulation.now + HEARTBEAT_S, self._beat)

    def stop(self) -> None:
        """See :class:`Node`."""
        super().stop()
        for worker in self.workers:
            worker.stop()


class QuickWorker(Node):
    """A worker: the payload of a task says how many microseconds it takes."""

    def __init__(self, simulation: World, supervisor: bytes, offered: m.Capabilities) -> None:
        super().__init__(simulation, simulation.name("W"), supervisor)
        self.busy_s = 0.0
        self._queue: deque[tuple[int, int, bytes]] = deque()
        self._done: list[bytes] = []
        self._first = (0, 0)
        """Session and task of the first result that is not reported."""
        self._took_s = 0.0
        self._flush_at = 0.0
        self._attempt = 0
        self.tell_hub([m.Hello(m.WORKER, *WHO, supervisor, capabilities=offered)])

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """See :class:`Node`."""
        said: list[m.Message] = []
        for message in self.exchange.receive(HUB, frames, self.simulation.now):
            if isinstance(message, m.Assign):
                tasks = enumerate(message.batch, message.first)
                self._queue.extend((message.session, n, bytes(one)) for n, one in tasks)
                if len(self._queue) == len(message.batch):
                    self._begin()
            elif isinstance(message, m.Revoke):
                kept = message.count - len(self._drop(message, 1))
                said.append(m.Revoked(message.session, message.first, message.count, kept))
            elif isinstance(message, m.Abort):
                said += self._flush()
                runs = self._queue[0] if self._queue else None
                dropped = self._drop(message, 0)
                said += [m.Aborted(session, task, 1) for session, task, _ in dropped]
                if runs in dropped:
                    self._attempt += 1
                    self._begin()
        self.tell_hub(said)

    def _drop(self, message: m.Revoke | m.Abort, start: int) -> list[tuple[int, int, bytes]]:
        tasks = range(message.first, message.first + message.count)
        queue = list(self._queue)
        gone = [one for one in queue[start:] if one[0] == message.session and one[1] in tasks]
        self._queue = deque(one for one in queue if one not in gone)
        return gone

    def _begin(self) -> None:
        if self._queue:
            takes_s = int(self._queue[0][2]) * 1e-6
            attempt = self._attempt = self._attempt + 1
            self.simulation.at(self.simulation.now + takes_s, lambda: self._end(attempt, takes_s))

    def _end(self, attempt: int, took_s: float) -> None:
        if attempt != self._attempt or not self.is_alive():
            return
        now = self.simulation.now
        session, task, payload = self._queue.popleft()
        self.simulation.note_start((session, task))
        said: list[m.Message] = []
        if self._done and self._first != (session, task - len(self._done)):
            said += self._flush()
        if not self._done:
            self._first = session, task
            self._flush_at = now + FLUSH_S
        self._done.append(b"r" + payload)
        self._took_s += took_s
        self.busy_s += took_s
        if not self._queue or now >= self._flush_at:
            said += self._flush()
        if said:
            self.tell_hub(said)
        if self._done:
            self.set_timer(self._flush_at)
        self._begin()

    def _flush(self) -> list[m.Message]:
        if not self._done:
            return []
        said = m.Done(*self._first, self._took_s, Batch.of(self._done))
        self._done, self._took_s = [], 0.0
        return [said]

    def turn(self) -> None:
        """See :class:`Node`."""
        self.tell_hub(self._flush() if self.simulation.now >= self._flush_at else [])


class LoadClient(Node):
    """Has some tasks under way at any time, or one map; all come back once, and are right."""

    def __init__(
        self,
        simulation: World,
        tasks: Iterable[int],
        window: int,
        options: m.TaskOptions = m.DEFAULT_OPTIONS,
        on_result: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(simulation, simulation.name("C"))
        self.core = ClientCore()
        self.came = 0
        self.last_at = 0.0
        self.asked: dict[int, bytes] = {}
        """What has not come back, by the number that the client gave it."""
        self.numbers: dict[int, int] = {}
        """What the tasks are called, by the same number."""
        self._left = iter(tasks)
        self._window = window
        self._options = options
        self._on_result = on_result
        self._made = 0
        self._is_over = False
        self.core.requests.say(m.Hello(m.CLIENT, *WHO))
        self._fill()
        self.turn()

    @property
    def is_done(self) -> bool:
        """Return True if everything has come back."""
        return self._is_over and not self.asked

    def _fill(self) -> None:
        while len(self.asked) < self._window and not self._is_over:
            takes_us = next(self._left, None)
            if takes_us is None:
                self._is_over = True
                break
            payload = b"%d" % takes_us
            number = self._made
            self._made += 1
            self.asked[number] = payload
            self.numbers[number] = self.core.submit(
                FUNCTION, m.CALL_ARGS, self._options, (), payload, number
            )

    def cancel_all(self) -> None:
        """Cancel what has not come back, and ask for no more."""
        self._is_over = True
        for number in self.core.cancel([self.numbers[number] for number in self.asked]):
            assert isinstance(number, int)
            del self.asked[number]
        self.turn()

    def receive(self, source: bytes, frames: list[Buffer]) -> None:
        """See :class:`Node`."""
        now = self.simulation.now
        self.core.receive(self.exchange.receive(HUB, frames, now), now)
        for event in self.core.events.take():
            if not isinstance(event, Settled):
                continue
            for number, outcome in event.pairs:
                assert isinstance(number, int)
                assert isinstance(outcome, bytes | memoryview), f"came back with {outcome!r}"
                expected = b"r" + self.asked.pop(number)
                assert bytes(outcome) == expected, f"{bytes(outcome)!r}, not {expected!r}"
                self.came += 1
                self.last_at = now
                self._on_result()
        self._fill()
        self.turn()

    def turn(self) -> None:
        """See :class:`Node`."""
        self.tell_hub(self.core.take_actions())
