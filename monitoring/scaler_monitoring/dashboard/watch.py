"""Keeps one model, for all tabs, up to date: from a scheduler, or from a recording."""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError, RemoteProtocolError, ScalerError
from scaler_cluster.ids import LOGS
from scaler_monitoring.activity import Activity
from scaler_monitoring.dashboard.profiling import Profiling
from scaler_monitoring.feed import OWN_KEYS, Feed
from scaler_monitoring.model import Model
from scaler_monitoring.recording import Recorder, parts_of
from scaler_monitoring.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.security.credentials import Credentials
    from scaler_cluster.wire.feed_codec import Message
    from scaler_monitoring.history import History
    from scaler_monitoring.profiled import Profiled

log = logging.getLogger("scaler.dashboard")

LOGS_S = 10.0
"""Nobody listens to what tasks print any more once no tab has asked for it for so long."""
LOOK_S = 0.5
"""How often it is looked whether there is something, should a wake-up have been lost."""
SLICE_S = 0.05
"""A replay that goes to another moment lets everything else have its turn after so long."""
TICK_S = 0.5
"""How often one that is played moves on."""


class Watch:
    """What is known, and of whom."""

    is_live = True
    """It goes on by itself, with what happens now."""

    def __init__(self, source: str) -> None:
        self.past: Replay | None = None
        """What was before, if that can be looked at as well."""
        self.activity = Activity()
        """How busy workers were."""
        self.model = Model(follower=self.activity)
        self.profiling: Profiling | None = None
        """Has tasks sampled while a tab shows it; None: they cannot be."""
        self.profiled: Profiled | None = None
        """What was seen of tasks that were sampled; None: nothing could be."""
        self.source = source
        """The address that is listened to, or the file that was read."""

    @property
    def now(self) -> float:
        """The moment that is shown, by the clock that :meth:`Model.apply` was told."""
        raise NotImplementedError

    def time_of(self, now: float) -> float:
        """Return a moment of that clock in seconds since 1970."""
        raise NotImplementedError

    def said_of(self, source: str) -> str:
        """Return HTML that says what is shown, of this source."""
        return f"<b>Connected</b> to {source}"

    def said_of_nothing(self, source: str) -> str:
        """Return HTML that says why there is nothing to show."""
        about = f"Listening to {source}: no scheduler was heard yet."
        return f"{about} Is that the monitor address that it printed?"

    def said_of_silence(self, source: str, ago: str) -> str:
        """Return HTML that says that it was heard so long ago."""
        return f"<b>Disconnected</b>: {source} was heard {ago} ago; what is shown is old."

    def want_logs(self) -> None:
        """Take in what tasks print as well, for a while; a tab that shows it calls this often."""

    def listen(self, end: asyncio.Future[None]) -> None:
        """Take in what comes from now on; ``end`` gets the error with which that ends."""

    async def hear(self, end: asyncio.Future[None], within_s: float) -> None:
        """Wait so long at most until there is something to be shown, or an ``end``."""

    def close(self) -> None:
        """Take in no more."""


class LiveWatch(Watch):
    """Listens to a scheduler, from within the running event loop, until it is closed.

    With a ``record`` file, what is heard is written there as well. With a ``history``, it knows
    what an earlier watch had heard, and keeps what it hears. Raises ConfigError if something cannot
    be written, ClusterUnreachableError if nothing can ever answer at the address.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials = OWN_KEYS,
        record: str | None = None,
        history: History | None = None,
    ) -> None:
        super().__init__(address)
        self._history = history
        self._restoring: Iterator[None] | None = None
        """Takes in what was kept, a message a step; None: all of it was."""
        if history is not None:
            self._restoring = history.restore(self.model)
            self.past = Replay(address, Tape(history.parts, lambda: history.ended))
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Future[None] = self._loop.create_future()
        """Done once the scheduler has said something."""
        self._feed = Feed(address, credentials=credentials)
        self._profiling = self.profiling = Profiling(address, credentials)
        self.profiled = self.profiling.profiled
        self._recorder = Recorder(record) if record else None
        self._timer: asyncio.TimerHandle | None = None
        """There is one while it listens."""
        self._logs_until: float | None = None
        """Until when it listens to what tasks print; None: it does not."""

    @property
    def now(self) -> float:
        """This moment."""
        return clock()

    def time_of(self, now: float) -> float:
        """Return a moment in seconds since 1970."""
        return time.time() + now - clock()

    def listen(self, end: asyncio.Future[None]) -> None:
        """Take in what comes; ``end`` gets a ConfigError if it cannot be recorded."""
        self._end = end
        self._begin()

    def _begin(self) -> None:
        """Read what was kept, for no longer at once than others can wait; then listen."""
        until = clock() + SLICE_S
        try:
            for _ in self._restoring or ():
                if clock() >= until:
                    self._timer = self._loop.call_later(0.0, self._begin)
                    return
        except ScalerError as error:
            self._fail(error)
            return
        self._restoring = None
        self._loop.add_reader(self._feed.fd, self._read)
        self._look()

    def said_of_silence(self, source: str, ago: str) -> str:
        """Return HTML that says so, or how far what was kept has been read."""
        if self._restoring is not None:
            return f"<b>Reading</b> what was kept of {source}: until {ago} ago."
        return super().said_of_silence(source, ago)

    async def hear(self, end: asyncio.Future[None], within_s: float) -> None:
        """Wait so long at most until the scheduler has said something, or for the ``end``."""
        either = asyncio.FIRST_COMPLETED
        await asyncio.wait([end, self._heard], timeout=within_s, return_when=either)

    def _look(self) -> None:
        """Read, also if no wake-up came."""
        self._timer = self._loop.call_later(LOOK_S, self._look)
        if self._logs_until is not None and clock() > self._logs_until:
            self._logs_until = None
            self._feed.listen(LOGS, is_on=False)
            self.model.logs.left()
        self._read()

    def want_logs(self) -> None:
        """Let workers tell what tasks print, for a while."""
        if self._logs_until is None:
            self._feed.listen(LOGS, is_on=True)
        self._logs_until = clock() + LOGS_S

    def _read(self) -> None:
        try:
            while (message := self._next()) is not None:
                now = clock()
                if self._history is not None:
                    self._history.add(message, now, self.model)
                self.model.apply(message, now)
                if not self._heard.done():
                    self._heard.set_result(None)
                if self._recorder is not None:
                    self._recorder.apply(message, now)
        except ConfigError as error:
            self._fail(error)

    def _fail(self, error: ScalerError) -> None:
        self._stop()
        if not self._end.done():
            self._end.set_exception(error)

    def _next(self) -> Message | None:
        while True:
            try:
                return self._feed.next()
            except RemoteProtocolError as error:
                log.warning("what the scheduler publishes cannot be read: %s", error)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._loop.remove_reader(self._feed.fd)
            self._timer = None

    def close(self) -> None:
        """Listen no more, and let go of the file."""
        self._stop()
        self._feed.close()
        self._profiling.close()
        if self.past is not None:
            self.past.close()
        if self._recorder is not None:
            self._recorder.close()


class Replay(Watch):
    """Shows one moment of a recording, to all tabs, and reads as much as that takes, in slices.

    Once it listens, it goes to the last moment.
    """

    is_live = False

    def __init__(self, source: str, tape: Tape) -> None:
        super().__init__(source)
        self._tape = tape
        self._asked = inf
        """The moment that somebody wants, which may be beyond an end."""
        self.wanted = self.last
        """The moment that is shown, or is on its way."""
        self.speed = 0
        """How many of its seconds pass in one of ours; 0: it stands still."""
        self.is_moving = False
        """What there is, is of no moment yet that anybody asked for."""
        self.failure = ""
        """Why the moment that is wanted cannot be shown; empty: it can."""
        self._end: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """There is one while it has something to do."""

    @classmethod
    def of(cls, path: str) -> Replay:
        """Return one of a recording, a file or a directory; raises as :class:`Tape` does."""
        return cls(path, Tape(parts_of(path)))

    @property
    def first(self) -> float:
        """The first moment, as :class:`Tape` counts them."""
        return self._tape.first

    @property
    def last(self) -> float:
        """The last moment so far."""
        return self._tape.last

    @property
    def has_dates(self) -> bool:
        """Whether moments are seconds since 1970."""
        return self._tape.is_in_parts

    def go(self, moment: float, speed: int = 0) -> None:
        """Show another moment soon, and go on from there at this speed; from the end, anew."""
        self._want(self.first if speed and moment >= self.last else moment, speed)

    def _want(self, moment: float, speed: int) -> None:
        self._asked, self.wanted = moment, self._within(moment)
        self.speed, self.is_moving, self.failure = speed, True, ""
        self._call(0.0)

    def _within(self, moment: float) -> float:
        return round(min(max(moment, self.first), self.last), 1)

    def _call(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._go_on)

    def _go_on(self) -> None:
        """Come nearer to what is wanted, for no longer than other tabs can wait."""
        self._timer, until = None, clock() + SLICE_S

        def is_over() -> bool:
            return clock() >= until

        try:
            is_found = self._tape.find_end(is_over)
            self.wanted = self._within(self._asked)
            is_there = is_found and self._tape.go(self.wanted, is_over)
        except ScalerError as error:
            if self._end is None:
                # What happens is shown all the same; those who look back are told.
                self.speed, self.is_moving, self.failure = 0, False, str(error)
            elif not self._end.done():
                self._end.set_exception(error)
            return
        if not is_there:
            self._call(0.0)
        elif self.is_moving:
            self.is_moving = False
            self._show()
            if self.wanted >= self.last:
                # What is still written goes on as fast as it happens.
                self.speed = 1 if self.speed and self._tape.is_growing else 0
            if self.speed:
                self._call(TICK_S)
        else:
            self._want(self.wanted + self.speed * TICK_S, self.speed)

    def _show(self) -> None:
        scene = self._tape.scene
        if scene is not None:
            self.model, self.activity = scene.model, scene.activity
            self.profiled = scene.profiled

    def listen(self, end: asyncio.Future[None]) -> None:
        """Show the last moment soon; ``end`` gets the error if a file is damaged."""
        self._end = end
        self._want(inf, 0)

    def said_of(self, source: str) -> str:
        """Return HTML that says of when it is."""
        is_end = self.wanted >= self.last and not self._tape.is_growing
        what, how = "Before" if self._tape.is_growing else "Recording", "ended" if is_end else "was"
        return f"<b>{what}</b> {source}, as it {how} at {self._date(self.wanted)}"

    def said_of_nothing(self, source: str) -> str:
        """Return HTML that says how far it has come, or that there is nothing."""
        if not self.is_moving:
            return f"<b>Nothing to show</b>: no scheduler was heard in {source}."
        reached, wanted = self._date(self._tape.reached), self._date(self.wanted)
        return f"<b>Reading</b> {source}: until {reached}, to show how it was at {wanted}."

    def _date(self, moment: float) -> str:
        at = time.localtime(self._tape.time_of(moment))
        return time.strftime("%Y-%m-%d %H:%M:%S", at)

    def said_of_silence(self, source: str, ago: str) -> str:
        """Return HTML that says so of the moment that is shown."""
        return f"{self.said_of(source)}: the scheduler had been silent for {ago}."

    @property
    def now(self) -> float:
        """The moment that is shown, by the clock of whoever recorded it."""
        return self._tape.arrival_of(self.wanted)

    def time_of(self, now: float) -> float:
        """Return a moment of that clock in seconds since 1970."""
        return self._tape.time_of(now - self._tape.arrival_of(0.0))

    def close(self) -> None:
        """Go nowhere any more."""
        if self._timer is not None:
            self._timer.cancel()
