"""Starts processes of an embedded cluster again when they are killed."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from scaler_cluster.errors import ScalerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scaler_cluster.process.child import ChildProcess

log = logging.getLogger("scaler_cluster.client")

LOOK_S = 0.25
"""How often it looks whether they live."""
START_TIMEOUT_S = 60.0
"""A process that was killed, and whose successor could not start for so long, stays dead."""


class Restarts:
    """Decides whether one more process that was killed is started again.

    One that is killed again and again, say for want of memory, is not.
    """

    MOST = 5
    WITHIN_S = 60.0

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def may_start(self, now: float) -> bool:
        """Return True, and count it, unless there were so many within so short a time."""
        while self._times and self._times[0] <= now - self.WITHIN_S:
            self._times.popleft()
        if len(self._times) >= self.MOST:
            return False
        self._times.append(now)
        return True


class Keeper:
    """Looks after the ``names`` of ``children`` in a thread; ``start`` starts one again."""

    def __init__(
        self,
        names: Sequence[str],
        children: Mapping[str, ChildProcess],
        start: Callable[[str], None],
    ) -> None:
        self.broken = ""
        """How a child ended that is not started again; empty: none."""
        self.over = threading.Event()
        """Set when children end because they are to end."""
        self._names = names
        self._children = children
        self._start = start
        self._lock = threading.RLock()
        """Held while children are started or stopped. A finalizer may come in between."""
        self._restarts = Restarts()
        self._dead = ""
        """Which child ended whose successor has not started; empty: all have."""
        self._death = ""
        """How it ended."""
        self._died_at = 0.0

    def begin(self, stop: Callable[[], None]) -> None:
        """Look after the children from now on; ``stop`` ends what was started too late."""
        threading.Thread(target=self._keep, args=(stop,), name="scaler-keeper", daemon=True).start()

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """From now on nothing is started; meanwhile, nothing is about to be."""
        self.over.set()
        with self._lock:
            yield

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Meanwhile nothing is started again; raises RuntimeError if the children are to end."""
        with self._lock:
            if self.over.is_set():
                raise RuntimeError("the cluster was shut down")
            yield

    def _keep(self, stop: Callable[[], None]) -> None:
        while not self.over.wait(LOOK_S) and not self.broken:
            with self._lock:
                self._look(time.monotonic())
            if self.over.is_set():
                # A finalizer may have come in this thread, while a child was started.
                stop()

    def _look(self, now: float) -> None:
        if not self._dead:
            self._find_dead(now)
        if not self._dead:
            return
        try:
            self._start(self._dead)
            self._dead = ""
        except (ScalerError, OSError) as error:
            # A storage server may take a dead scheduler for one that is only silent.
            if now > self._died_at + START_TIMEOUT_S:
                self.broken = f"{self._death}, and no other one can be started: {error}"

    def _find_dead(self, now: float) -> None:
        for name in self._names:
            child = self._children[name]
            code = child.process.poll()
            if code is None or self.over.is_set():
                continue
            death = f"the cluster's {name} process {child.pid} ended with code {code}"
            # What ends by itself has its reasons.
            if code >= 0 or not self._restarts.may_start(now):
                self.broken = death
            else:
                log.warning("%s: another one takes its place", death)
                self._dead, self._death, self._died_at = name, death, now
            return
