"""A recording in which one can go to any moment. Nothing here knows of a clock or an event loop.

A model cannot go back: it keeps what it was told. So copies of it are kept from time to time, and
from the last one before the moment that is wanted, it goes on with what the file has. Copies are in
memory alone, and share what never changes.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, inf
from typing import TYPE_CHECKING

from scaler_cluster.wire import feed
from scaler_monitoring.activity import Activity
from scaler_monitoring.model import Model
from scaler_monitoring.recording import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scaler_cluster.wire.feed_codec import Message

SPACING_S = 20.0
"""So far apart copies are at first. If there are too many, each second one goes."""
COPIES_MAX = 32
TRACKS_MAX = 20_000
"""Of all copies together, with 20 KB each: they are nearly all that a copy does not share."""
JUMP_S = 60.0
"""Whoever goes forward by less goes on with what there is: that is quicker than another copy."""


@dataclass
class Scene:
    """The cluster as those who watched it knew it at one moment."""

    model: Model
    activity: Activity
    count: int = 0
    """How many messages of the recording were taken in."""
    arrived_at: float = -inf
    """When the last of these had arrived."""

    def apply(self, arrived_at: float, message: Message) -> None:
        """Take the next message in."""
        self.model.apply(message, arrived_at)
        self.count += 1
        self.arrived_at = arrived_at

    def copy(self) -> Scene:
        """Return another one, which goes its own way from here."""
        model, activity = self.model, self.activity
        works = chain(model.stream, model.ledger.failed, activity.long, activity.troubles)
        still = chain(
            # What was printed of a failure is let go of later on.
            (one for one in works if not one.message and not one.traceback),
            model.ledger.assigned,
            model.history,
            model.worker_samples.taken,
            model.machine_samples.taken,
            model.store_samples.taken,
            model.logs.lines,
            model.news,
            model.deaths,
            () if model.snapshot is None else (model.snapshot,),
        )
        return deepcopy(self, {id(one): one for one in still})


def _first_scene() -> Scene:
    activity = Activity()
    return Scene(Model(follower=activity), activity)


@dataclass
class _Copies:
    """Scenes from time to time, in their order, never more than there is room for."""

    kept: list[Scene] = field(default_factory=list)
    _spacing_s: float = SPACING_S

    def offer(self, scene: Scene) -> None:
        """Keep a copy of it, if the last one is long ago."""
        if self.kept and scene.arrived_at - self.kept[-1].arrived_at < self._spacing_s:
            return
        self.kept.append(scene.copy())
        while len(self.kept) > COPIES_MAX or (
            len(self.kept) > 2 and sum(one.activity.tracks for one in self.kept) > TRACKS_MAX
        ):
            del self.kept[1::2]
            self._spacing_s *= 2

    def before(self, moment: float) -> Scene:
        """Return the last one that is not after this moment."""
        return next(one for one in reversed(self.kept) if one.arrived_at <= moment)


class Tape:
    """A recording, of which one moment is shown: at first its end.

    Moments are seconds since its first snapshot. Raises as :func:`read` does.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.scene = _first_scene()
        """What is shown, or is on its way to what was asked for."""
        self._messages: Iterator[tuple[float, Message]] = iter(())
        """What comes after it."""
        self._ahead: tuple[float, Message] | None = None
        """The next of these, if it was read already."""
        self._copies = _Copies()
        self.began_at: float | None = None
        """When the first snapshot had arrived; None: there is none, so there is one moment only."""
        self.began_time = 0.0
        """The same in seconds since 1970."""
        for arrived_at, message in read(path):
            self.scene.apply(arrived_at, message)
            if self.began_at is None and isinstance(message, feed.Snapshot):
                self.began_at, self.began_time = arrived_at, message.time
            if self.began_at is not None:
                self._copies.offer(self.scene)
        length_s = self.scene.arrived_at - self.began_at if self.began_at is not None else 0.0
        self.length_s = max(ceil(length_s * 10), 0) / 10
        """The last moment."""

    def go(self, moment: float, is_over: Callable[[], bool]) -> bool:
        """Go to a moment, 0 at least; return True once it is there, False if it ``is_over`` before.

        Then the next call goes on from there, to the same moment or to another one. Raises as
        :func:`read` does, if the file is not what it was.
        """
        if self.began_at is None:
            return True
        until = self.began_at + moment
        copy, scene = self._copies.before(until), self.scene
        if scene.arrived_at > until or copy.arrived_at - scene.arrived_at > JUMP_S:
            self.scene = scene = copy.copy()
            self._messages, self._ahead = read(self._path, scene.count), None
        while not is_over():
            self._ahead = self._ahead or next(self._messages, None)
            if self._ahead is None or self._ahead[0] > until:
                return True
            scene.apply(*self._ahead)
            self._ahead = None
        return False
