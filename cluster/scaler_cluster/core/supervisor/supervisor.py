"""The supervisor: keeps its workers alive, and tells the scheduler how they died.

The core decides, and puts what is to be done into one outbox, as actions in their order. The shell
in ``runtime/supervisor.py`` takes them once per turn and does them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from scaler_cluster.core.supervisor.headcount import Headcount, places_of
from scaler_cluster.core.supervisor.slots import WorkerSlot
from scaler_cluster.core.supervisor.stuck import TELL_S, Look, look_after_s
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.texts import last_line
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from scaler_cluster.core.supervisor.config import SupervisorConfig

LAG_S = 1.0
"""A tick this long after its deadline means that this process was slow, not the scheduler."""
BACKOFF_S = 0.1
"""First pause before a worker that died before it was ready is started again; it doubles."""
BACKOFF_MAX_S = 10.0
STARTS_MAX = 16
"""Workers whose start is under way at once. They keep the fork server busy, and are far too few to
fill the socket to it: then the supervisor would wait there, and hear nothing."""
STILLBORN_MAX = 5
"""If so many workers in a row die before they are ready, no worker can start here."""
GROWTH_BYTES_PER_S = 4e9
"""No process grows much faster: the system has to clear each page that it hands out."""
SAMPLE_MIN_S, SAMPLE_MAX_S = 0.02, 0.5
"""How often memory is looked at, where there is a limit."""


# -- actions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send a message to the scheduler."""

    message: m.Message


@dataclass(frozen=True)
class Spawn:
    """Start a worker in a slot; :meth:`SupervisorCore.spawned` is then called with its pid."""

    slot: int
    peer: bytes


@dataclass(frozen=True)
class Kill:
    """Kill the worker of a slot; :meth:`SupervisorCore.died` is called when it has ended."""

    slot: int
    pid: int


@dataclass(frozen=True)
class Leave:
    """End this supervisor with its workers; the reason is empty if the scheduler asked for it."""

    reason: str


@dataclass(frozen=True)
class ComeBack:
    """Say Hello anew to a scheduler that does not know this machine, and then some words."""

    messages: tuple[m.Message, ...]

    def words(self, said: Sequence[m.Message]) -> list[m.Message]:
        """Return what to say, if this was said before and may not have arrived.

        The Hello of a worker that has died may still arrive: the scheduler must know better.
        """
        return [*self.messages, *(one for one in said if isinstance(one, m.WorkerLost))]


Action: TypeAlias = "Send | Spawn | Kill | Leave | ComeBack"


# -- records -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exit:
    """How a worker process ended, as the operating system tells it."""

    pid: int
    exit_code: int | None
    signal: int | None
    peak_rss_bytes: int
    stderr_tail: str
    ready: bool
    """Whether the worker ever was ready for tasks."""
    initializer_failed: bool
    session: int
    """Session of the task that it ran last; 0: it ran none."""
    task: int
    oom: str = ""
    """Why it was killed, if that was for lack of memory, and not by the supervisor."""


class SupervisorCore:
    """Decides which workers are started and killed; the shell does it."""

    def __init__(self, config: SupervisorConfig, peer: bytes, host: str, now: float) -> None:
        self.config = config
        self.slots = [WorkerSlot(spawn_at=math.inf) for _ in range(places_of(config.places))]
        """Places of the workers, then those of the spare ones."""
        self.look_after_s = look_after_s(config.stopped_timeout_s, config.hang_timeout_s)
        """How often :meth:`looked` is to be told of each worker."""
        self.restarts = 0
        """How many workers were started in the place of one that died."""
        self._peer = peer
        self._host = host
        self._made = 0
        self.headcount = Headcount(config.workers, config.places)
        self._stillborn = 0
        self._heartbeat_at = now + config.heartbeat_s
        self._heard_at = now
        self._is_leaving = False
        self._is_whole = True
        """Whether every worker that was ever started lives."""
        self._broken: m.InitializerFailed | None = None
        """Why no worker can start; None: they can."""
        self._outbox: list[Action] = []

    def start(self, now: float) -> None:
        """Begin to start workers."""
        for slot in self.slots:
            slot.spawn_at = now

    # -- from the scheduler ------------------------------------------------------------------

    def heard(self, now: float) -> None:
        """Something came from the scheduler, if only that it has heard this machine."""
        self._heard_at = now

    def receive(self, messages: Sequence[m.Message]) -> None:
        """Take in what the scheduler sent; raises RemoteProtocolError if it must not."""
        for message in messages:
            handler = self._HANDLERS.get(type(message))
            if handler is None:
                raise RemoteProtocolError(f"{type(message).__name__} is not for a supervisor")
            handler(self, message)

    def _on_kill(self, message: m.Kill) -> None:
        for index, slot in enumerate(self.slots):
            if slot.peer == message.worker and not slot.reason:
                self._kill(index, message.reason)

    def _on_wanted(self, message: m.Wanted) -> None:
        self.headcount.want(message.workers)

    def _on_spares(self, message: m.Spares) -> None:
        self.headcount.spares = message.count

    def _on_refused(self, message: m.Refused) -> None:
        self._leave(message.reason)

    def _on_goodbye(self, _: m.Goodbye) -> None:
        self._leave("")

    def _on_unknown(self, _: m.Unknown) -> None:
        # It was started anew, or gave this machine up while nothing got through. Each message that
        # was under way is answered so.
        if self._is_leaving or any(type(one) is ComeBack for one in self._outbox):
            return
        self.headcount.forget_scheduler()
        living = tuple(slot.peer for slot in self.slots if slot.peer and not slot.reason)
        words: list[m.Message] = [m.Roll(living, self._is_whole)]
        words += self.headcount.words()
        if self._broken is not None:
            words.append(self._broken)
        self._outbox.append(ComeBack(tuple(words)))

    def _on_other(self, _: m.Welcome | m.Examine) -> None:
        """Take nothing: what an Examine asks for, the shell knows."""

    _HANDLERS: ClassVar[dict[type[m.Message], Callable[[Any, Any], None]]] = {
        m.Kill: _on_kill,
        m.Wanted: _on_wanted,
        m.Spares: _on_spares,
        m.Refused: _on_refused,
        m.Goodbye: _on_goodbye,
        m.Unknown: _on_unknown,
        m.Welcome: _on_other,
        m.Examine: _on_other,
    }

    # -- from the operating system -----------------------------------------------------------

    def spawned(self, index: int, pid: int) -> None:
        """A worker was started."""
        self.slots[index].pid = pid
        if self.slots[index].reason:
            # It was to be killed before its pid was known.
            self._outbox.append(Kill(index, pid))

    def sampled(self, index: int, rss_bytes: int) -> None:
        """A worker's resident set is this large."""
        limit = self.config.memory_limit_bytes
        slot = self.slots[index]
        if limit and rss_bytes > limit and not slot.reason:
            slot.out_of_memory = True
            self._kill(
                index,
                f"its memory of {rss_bytes / 1e6:.0f} MB exceeded the limit of "
                f"{limit / 1e6:.0f} MB per worker",
            )

    def sample_after_s(self, rss_bytes: int) -> float:
        """Return when to look at memory again, if the largest resident set is this large."""
        left_s = (self.config.memory_limit_bytes - rss_bytes) / GROWTH_BYTES_PER_S
        return min(max(left_s, SAMPLE_MIN_S), SAMPLE_MAX_S)

    def seen(self, index: int, ran: tuple[int, int, int], now: float) -> None:
        """A worker runs this task, or ran it last; asked for often if there is a timeout."""
        slot = self.slots[index]
        if ran != slot.ran:
            slot.ran = ran
            slot.overdue_at = now + self.config.task_timeout_s
        elif now >= slot.overdue_at and ran[0]:
            slot.overdue_at = math.inf
            self._say(m.Overdue(slot.peer, *ran[:2], self.config.task_timeout_s))

    def looked(self, index: int, look: Look, now: float) -> None:
        """A worker was looked at. If it is stuck, the scheduler hears of it, or it is killed."""
        slot, config = self.slots[index], self.config
        still = slot.stillness
        still.take(look, now, self.look_after_s)
        stopped_s, quiet_s = now - still.stopped_at, now - still.quiet_at
        if slot.reason:
            return
        if not still.is_told and stopped_s >= min(TELL_S, config.stopped_timeout_s):
            still.is_told = True
            is_doomed = config.stopped_timeout_s < math.inf
            left_s = max(config.stopped_timeout_s - stopped_s, 0.0) if is_doomed else 0.0
            who = slot.peer, slot.pid, *look.ran[:2]
            self._say(m.Stuck(*who, stopped_s, m.STOPPED, is_doomed, left_s))
        if stopped_s >= config.stopped_timeout_s:
            self._kill(index, f"its process was stopped (SIGSTOP) for {stopped_s:.1f} s")
        elif quiet_s >= config.hang_timeout_s and stopped_s < 0:
            # Only the scheduler knows whether the task is over. If it is, this comes again.
            still.quiet_at, still.quiet_cpu_s = now, look.cpu_s
            self._say(m.Stuck(slot.peer, slot.pid, *look.ran[:2], quiet_s, m.QUIET, True, 0.0))

    def died(self, index: int, end: Exit, now: float) -> None:
        """A worker process ended."""
        slot = self.slots[index]
        death: dict[str, Any] = {
            "pid": end.pid,
            "host": self._host,
            "exit_code": end.exit_code,
            "signal": end.signal,
            "peak_rss_bytes": end.peak_rss_bytes,
            "out_of_memory": slot.out_of_memory or bool(end.oom),
            "stderr_tail": end.stderr_tail,
            "reason": slot.reason or end.oom,
        }
        self._is_whole = False
        lost = m.WorkerLost(slot.peer, end.session, end.task, death)
        self._say(lost)
        self.slots[index] = WorkerSlot(spawn_at=now, follows_death=not lost.is_orderly)
        if slot.out_of_memory and not end.session:
            # So will be every other: it is what each loads before its first task.
            pass
        elif end.ready or slot.reason:
            self._stillborn = 0
            return
        self._stillborn += 1
        if end.initializer_failed or self._stillborn >= STILLBORN_MAX:
            text = end.stderr_tail
            if not end.initializer_failed:
                how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
                how = slot.reason or how
                text = (
                    f"{STILLBORN_MAX} workers in a row died before their first task ({how})\n{text}"
                )
            self._broken = m.InitializerFailed(text)
            self._say(self._broken)
            if self.config.leaves_if_broken:
                self._leave(f"the workers cannot start: {last_line(text) or 'no word was said'}")
            self.slots = [replace(one, spawn_at=math.inf) for one in self.slots]
        else:
            pause_s = min(BACKOFF_S * 2 ** (self._stillborn - 1), BACKOFF_MAX_S)
            self.slots[index].spawn_at = now + pause_s

    # -- time --------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When :meth:`tick` is next due."""
        due = min(self._heartbeat_at, self._heard_at + self.config.death_timeout_s)
        if self._startable():
            due = min([due, *(slot.spawn_at for _, slot in self.headcount.vacant(self.slots))])
        return due

    def _startable(self) -> int:
        """Return how many workers may be started now."""
        return STARTS_MAX - sum(bool(slot.peer) and not slot.pid for slot in self.slots)

    def tick(self, now: float) -> None:
        """Start workers that are due, and tell the scheduler that this machine lives."""
        if now >= self._heartbeat_at:
            if now - self._heartbeat_at > LAG_S:
                self._heard_at += now - self._heartbeat_at
            self._heartbeat_at = now + self.config.heartbeat_s
            self._say(m.Heartbeat())
        self._check_scheduler(now)
        due = [
            (index, slot)
            for index, slot in self.headcount.vacant(self.slots)
            if slot.spawn_at <= now
        ]
        for index, slot in due[: self._startable()] if due else ():
            self._made += 1
            self.restarts += slot.follows_death
            slot.peer = b"W" + self._peer[1:] + self._made.to_bytes(4, "big")
            self._outbox.append(Spawn(index, slot.peer))

    def _check_scheduler(self, now: float) -> None:
        silence_s = now - self._heard_at
        if silence_s >= self.config.death_timeout_s and not self._is_leaving:
            self._leave(
                f"the scheduler at {self.config.address} has not answered for {silence_s:.1f} s: "
                "is it running, and is this its address?"
            )

    # -- the outbox --------------------------------------------------------------------------

    def take_actions(self) -> list[Action]:
        """Return what is to be done since this was called last, in this order."""
        outbox = self._outbox
        self._outbox = []
        return outbox

    def _kill(self, index: int, reason: str) -> None:
        slot = self.slots[index]
        slot.reason = reason
        if slot.pid:
            self._outbox.append(Kill(index, slot.pid))

    def _leave(self, reason: str) -> None:
        self._is_leaving = True
        self._outbox.append(Leave(reason))

    def _say(self, message: m.Message) -> None:
        self._outbox.append(Send(message))
