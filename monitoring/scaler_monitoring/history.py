"""What a dashboard has heard, kept on disk from one start of it to the next, up to a size.

A history is a recording in parts. The newest part grows, and the oldest ones go. A model may begin
with each of them: once its window has passed, it knows what it had known with all those before.
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import ceil
from pathlib import Path
from time import perf_counter as clock
from time import time as wall_clock
from typing import TYPE_CHECKING

from scaler_cluster.errors import ConfigError
from scaler_cluster.wire import feed
from scaler_monitoring.model import WINDOW_S
from scaler_monitoring.recording import (
    SUFFIX,
    Part,
    Recorder,
    cut_off,
    earlier_of,
    messages,
    parts_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler_cluster.wire.feed_codec import Message
    from scaler_monitoring.model import Model

PARTS = 16
"""No part is larger than this share of all that may be kept."""
PART_S = 600.0
"""Nor longer than this: to go to a moment, all since the beginning of a part is read."""
REACH_S = WINDOW_S + 60.0
"""So much before a moment all is read: what happened within the window may have been told later."""
LOCK = "lock"


class History:
    """Keeps what is heard in a directory, which it makes if there is none.

    Raises ConfigError if that cannot be written, another dashboard uses it, or what it has is
    damaged.
    """

    def __init__(self, directory: str, bytes_max: int) -> None:
        self._directory = Path(directory)
        self._bytes_max = bytes_max
        self._lock = _lock(self._directory)
        try:
            self.parts, self.ended = _left_in(self._directory)
            """The files that there are, in their order; and when the last message had arrived, in
            seconds since 1970."""
            self._sizes = [Path(one.path).stat().st_size for one in self.parts]
            self._recorder = Recorder(self.parts[-1].path, goes_on=True) if self.parts else None
        except BaseException:
            os.close(self._lock)
            raise
        self._shift_s = max(wall_clock(), self.ended) - clock()
        """What makes of a moment of this process one since 1970, whoever sets a clock meanwhile."""

    def restore(self, model: Model) -> Iterator[None]:
        """Tell a new model what it would know, had it listened all the time: a message a step."""
        told = parts_since(self.parts, self.ended - REACH_S)
        for part in told[:1]:
            begin_with(model, part)
        for part in told:
            for _, arrived_at, message in messages(part.path):
                model.apply(message, arrived_at - self._shift_s)
                yield

    def add(self, message: Message, now: float, model: Model) -> None:
        """Keep a message that arrived at this moment, which the model will take in next.

        Raises ConfigError if there is no room.
        """
        at = now + self._shift_s
        if self._recorder is None or self._is_part_over(message, at, model):
            if not isinstance(message, feed.Snapshot):
                # Nothing can be shown as yet.
                return
            self._recorder = self._begin(at, model)
        self._recorder.apply(message, at)
        self._sizes[-1] = self._recorder.nbytes
        self.ended = at

    def _is_part_over(self, message: Message, at: float, model: Model) -> bool:
        # What is heard of a scheduler that takes the place of another one needs what was before.
        if not isinstance(message, feed.Snapshot) or message.run != model.run:
            return False
        is_long = at - self.parts[-1].began >= PART_S
        return is_long or self._sizes[-1] >= self._bytes_max // PARTS

    def _begin(self, at: float, model: Model) -> Recorder:
        """Begin another part, and remove those that there is no room for any more."""
        if self._recorder is not None:
            self._recorder.close()
        began_ms = ceil(at * 1000)
        path = str(self._directory / f"{began_ms:015}{SUFFIX}")
        recorder = Recorder(path, model.earlier())
        self.parts.append(Part(path, began_ms / 1000))
        self._sizes.append(0)
        room = self._bytes_max - self._bytes_max // PARTS
        while sum(self._sizes) > room and len(self.parts) > 1:
            # Whoever reads it goes on.
            with suppress(FileNotFoundError):
                Path(self.parts[0].path).unlink()
            del self.parts[0], self._sizes[0]
        return recorder

    def close(self) -> None:
        """Let go of the files."""
        if self._recorder is not None:
            self._recorder.close()
        os.close(self._lock)


def begin_with(model: Model, part: Part) -> None:
    """Let a new model know what schedulers had counted before a part began."""
    earlier = earlier_of(part.path)
    if earlier is not None:
        model.begin_after(earlier)


def parts_since(parts: Sequence[Part], moment: float) -> Sequence[Part]:
    """Return the parts from the last one on that had begun at a moment; all, if none had."""
    first = max((n for n, part in enumerate(parts) if part.began <= moment), default=0)
    return parts[first:]


def _lock(directory: Path) -> int:
    """Return a descriptor that lets nobody else write there as long as it is open."""
    try:
        import fcntl  # Windows has none
    except ImportError:
        raise ConfigError("a history is kept on Linux and macOS only") from None
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot keep a history in {directory}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise ConfigError(
            f"another dashboard keeps its history in {directory}: name another directory"
        ) from None
    return fd


def _left_in(directory: Path) -> tuple[list[Part], float]:
    """Return what an earlier dashboard left there, killed or not, and when its end had arrived."""
    parts = parts_of(str(directory)) if any(directory.glob("*" + SUFFIX)) else []
    while parts:
        ended = cut_off(parts[-1].path)
        if ended is not None:
            return parts, max(ended, parts[-1].began)
        Path(parts.pop().path).unlink()
    return [], wall_clock()
