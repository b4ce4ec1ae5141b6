"""A recording in which one can go to any moment. Nothing here knows of a clock or an event loop.

A model cannot go back: it keeps what it was told. So copies of it are kept from time to time, and
from the last one before the moment that is wanted, it goes on with what the file has. Copies are in
memory alone, and share what never changes. A recording of several files needs none at first: in
each of them a model may begin, and knows all that it would have known once its window has passed.
"""

from __future__ import annotations

from bisect import bisect
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from scaler_cluster.wire import feed
from scaler_monitoring.activity import Activity
from scaler_monitoring.history import REACH_S, begin_with, parts_since
from scaler_monitoring.model import Model
from scaler_monitoring.profiled import Profiled
from scaler_monitoring.recording import arrivals, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler_cluster.wire.feed_codec import Message
    from scaler_monitoring.recording import Part

SPACING_S = 20.0
"""So far apart copies are at first. If there are too many, each second one goes."""
COPIES_MAX = 32
TRACKS_MAX = 20_000
"""Of all copies together, with 20 KB each: they are nearly all that a copy does not share."""
NODES_OF_A_TRACK = 80
WORKS_OF_A_TRACK = 60
"""So many calls in what was sampled take as much, and so many pieces of work in the stream, were
none of them shared: what was done last is another in each copy, if much is done."""
JUMP_S = 60.0
"""Whoever goes forward by less goes on with what there is: that is quicker than another copy."""


@dataclass
class Scene:
    """The cluster as those who watched it knew it at one moment."""

    model: Model
    activity: Activity
    profiled: Profiled
    """What workers saw of their tasks, if that was recorded."""
    part: Part
    """The file that it goes on with."""
    whole_from: float
    """From this moment on, it knows what one knew who had listened for longer."""
    offset: int = 0
    """Where the next message begins in the file."""
    arrived_at: float = -inf
    """When the last message had arrived."""

    @classmethod
    def at_the_beginning_of(cls, part: Part, whole_from: float) -> Scene:
        """Return what was known as a file began."""
        activity = Activity()
        model = Model(follower=activity)
        begin_with(model, part)
        return cls(model, activity, Profiled(), part, whole_from, arrived_at=part.began)

    def apply(self, message: Message) -> None:
        """Take in what had arrived last."""
        if isinstance(message, feed.Samples):
            self.profiled.add(message, self.arrived_at)
        else:
            self.model.apply(message, self.arrived_at)

    @property
    def weight(self) -> float:
        """What a copy takes, in tracks."""
        calls = self.profiled.nodes / NODES_OF_A_TRACK
        return self.activity.tracks + calls + len(self.model.stream) / WORKS_OF_A_TRACK

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
        shared: dict[int, Any] = {id(one): one for one in still}
        return deepcopy(self, {**shared, id(self.profiled): self.profiled.copy()})


@dataclass
class _Copies:
    """Scenes from time to time, in their order, never more than there is room for."""

    kept: list[Scene] = field(default_factory=list)
    _spacing_s: float = SPACING_S

    def offer(self, scene: Scene) -> None:
        """Keep a copy of it, if there is none of about that moment."""
        place = self._place(scene.arrived_at)
        for other in self.kept[max(place - 1, 0) : place + 1]:
            if abs(scene.arrived_at - other.arrived_at) < self._spacing_s:
                return
        self.kept.insert(place, scene.copy())
        while len(self.kept) > COPIES_MAX or (
            len(self.kept) > 2 and sum(one.weight for one in self.kept) > TRACKS_MAX
        ):
            del self.kept[1::2]
            self._spacing_s *= 2

    def keep(self, parts: Sequence[Part]) -> None:
        """Let go of those that would go on with a file that is gone."""
        self.kept = [one for one in self.kept if one.part in parts]

    def before(self, moment: float) -> Iterator[Scene]:
        """Yield those that are not after this moment, the last one first."""
        return reversed(self.kept[: self._place(moment)])

    def _place(self, moment: float) -> int:
        return bisect([one.arrived_at for one in self.kept], moment)


class Tape:
    """A recording, of which one moment is shown.

    Moments of a single file are seconds since its first snapshot. Those of a recording in parts are
    seconds since 1970. If it is still written, ``ended`` returns when its last message had arrived;
    else :meth:`find_end` looks for that. Nothing is shown at first. Raises as :func:`read` does, if
    the first file is none.
    """

    def __init__(self, parts: Sequence[Part], ended: Callable[[], float] | None = None) -> None:
        self._parts = parts
        self._ended = ended
        self.scene: Scene | None = None
        """What is shown, or is on its way to what was asked for; None: nothing was, as yet."""
        self._messages: Iterator[tuple[Part, int, float, Message]] = iter(())
        """What comes after it."""
        self._ahead: tuple[Part, int, float, Message] | None = None
        """The next of these, if it was read already."""
        self._copies = _Copies()
        self.is_growing = ended is not None
        """It is still written."""
        self.is_in_parts = ended is not None or parts[0].began > -inf
        self._zero: float | None = 0.0 if self.is_in_parts else None
        """The moment 0, as messages tell when they arrived; None: there is nothing to show."""
        self._zero_time = 0.0
        """The same in seconds since 1970."""
        if not self.is_in_parts:
            self._zero, self._zero_time = _beginning_of(parts[0])
        self._end = -inf if self._zero is None else self._zero
        """When the last message of one that is not written any more had arrived, as far as that was
        looked for."""
        self._arrivals: Iterator[tuple[int, float]] = iter(())
        if ended is None:
            self._end = max(self._end, parts[-1].began)
            self._arrivals = arrivals(parts[-1].path)
            next(self._arrivals, None)

    @property
    def first(self) -> float:
        """The first moment."""
        if not self.is_in_parts:
            return 0.0
        return ceil(self._parts[0].began * 10) / 10 if self._parts else self.last

    @property
    def last(self) -> float:
        """The last moment, as far as it was looked for."""
        end = self._end if self._ended is None else self._ended()
        return ceil((end - self._zero) * 10) / 10 if self._zero is not None else 0.0

    @property
    def reached(self) -> float:
        """How far it has come on its way to the moment that was asked for."""
        if self.scene is None or self._zero is None:
            return self.first
        return max(self.scene.arrived_at - self._zero, self.first)

    def time_of(self, moment: float) -> float:
        """Return when a moment was, in seconds since 1970."""
        return self._zero_time + moment

    def arrival_of(self, moment: float) -> float:
        """Return a moment as messages tell when they arrived."""
        return (self._zero or 0.0) + moment

    def find_end(self, is_over: Callable[[], bool]) -> bool:
        """Look for the last moment; return True once it is known, False if it ``is_over`` before.

        Then the next call goes on. Raises as :func:`read` does.
        """
        for _, arrived_at in self._arrivals:
            self._end = max(self._end, arrived_at)
            if is_over():
                return False
        return True

    def go(self, moment: float, is_over: Callable[[], bool]) -> bool:
        """Go to a moment; return True once it is there, False if it ``is_over`` before.

        Then the next call goes on from there, to the same moment or to another one. Raises as
        :func:`read` does, if the file is not what it was.
        """
        if self._zero is None or not self._parts:
            return True
        until = self._zero + moment
        nearest = self._nearest(until)
        # More may have been written since.
        if nearest is not self.scene or self._ahead is None:
            self._start(nearest)
        return self._go_on(until, is_over)

    def _nearest(self, until: float) -> Scene:
        """Return from where it is quickest to a moment, if it is to be whole there."""
        scene = self.scene
        if scene is not None and not (scene.part in self._parts and _leads_to(scene, until)):
            scene = None
        self._copies.keep(self._parts)
        copy = next((one for one in self._copies.before(until) if _leads_to(one, until)), None)
        found = scene
        if copy is not None and (scene is None or copy.arrived_at - scene.arrived_at > JUMP_S):
            found = copy
        part = parts_since(self._parts, until - REACH_S)[0]
        if found is None or found.arrived_at < part.began:
            is_oldest = part is self._parts[0]
            return Scene.at_the_beginning_of(part, -inf if is_oldest else part.began + REACH_S)
        return found if found is scene else found.copy()

    def _start(self, scene: Scene) -> None:
        """Go on from what was known at another moment."""
        self.scene = scene
        self._messages, self._ahead = self._after(scene), None

    def _after(self, scene: Scene) -> Iterator[tuple[Part, int, float, Message]]:
        """Yield what comes after a scene, each with its file and where it goes on there."""
        offset = scene.offset
        for part in [one for one in self._parts if one.began >= scene.part.began]:
            for end, arrived_at, message in messages(part.path, offset):
                yield part, end, arrived_at, message
            offset = 0

    def _go_on(self, until: float, is_over: Callable[[], bool]) -> bool:
        scene = self.scene
        assert scene is not None
        while True:
            self._ahead = self._ahead or next(self._messages, None)
            if self._ahead is None or self._ahead[2] > until:
                return True
            scene.part, scene.offset, scene.arrived_at, message = self._ahead
            self._ahead = None
            scene.apply(message)
            self._copies.offer(scene)
            if is_over():
                return False


def _beginning_of(part: Part) -> tuple[float | None, float]:
    """Return when the first snapshot of a file had arrived, and when it was made; None: of none."""
    for _, arrived_at, message in messages(part.path):
        if isinstance(message, feed.Snapshot):
            return arrived_at, message.time
    return None, 0.0


def _leads_to(scene: Scene, until: float) -> bool:
    return scene.arrived_at <= until >= scene.whole_from
