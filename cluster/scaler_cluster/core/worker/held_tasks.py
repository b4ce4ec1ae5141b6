"""Tasks that the tasks of a worker submitted: which are held here, and which the scheduler has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from sortedcontainers import SortedDict

from scaler_cluster.ids import CALL_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_cluster.core.worker.subtasks import HandedOver, Subtask

HOLD_S, HOLD_MAX_S = 0.001, 0.016
"""How long a new task is held. Three round trips, which is what it costs to send a task away and
to take it back; longer, as long as others have no time for what is sent away."""
LINGER_S = 0.005
"""So long after the last task was submitted the next is expected: somebody looks then anyway."""

Pieces: TypeAlias = "SortedDict[int, Subtask]"


class HeldTasks:
    """Single tasks, pieces of maps, and nodes of graphs; a piece may be split."""

    def __init__(self) -> None:
        self._here: dict[int, Subtask] = {}
        """What may run here, by its first task; the oldest first."""
        self._pieces_here: Pieces = SortedDict()
        """Those of maps."""
        self._away: dict[int, Subtask] = {}
        """Single tasks that the scheduler has."""
        self._pieces_away: Pieces = SortedDict()
        """Pieces of maps that the scheduler was sent, or of which a part ran here; some of their
        tasks may have come back. Their payloads are kept until the map has ended."""
        self._hold_s = HOLD_S
        self._linger_until = -math.inf
        self._looked_at = 0.0

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is here or away."""
        return not (self._here or self._pieces_here or self._away or self._pieces_away)

    def is_away(self, task: int) -> bool:
        """Return True for a single task that the scheduler has."""
        return task in self._away

    def find_away(self, task: int) -> Subtask | None:
        """Return what the scheduler has of which this task is one."""
        return self._away.get(task) or _find(self._pieces_away, task)

    def is_here(self, task: int) -> bool:
        """Return True if :meth:`take` returns a single task, or one of a map."""
        return task in self._here or (task >> CALL_BITS > 0 and self._piece(task) is not None)

    # -- here --------------------------------------------------------------------------------

    def hold(self, child: Subtask, now: float) -> None:
        """Hold a single task or a piece of a map."""
        child.at = now
        self._here[child.first] = child
        if child.first >> CALL_BITS:
            self._pieces_here[child.first] = child
        self._linger_until = now + LINGER_S

    def hold_node(self, node: HandedOver, now: float) -> None:
        """Hold a node of a graph that the scheduler handed over."""
        node.at = now
        self._here[node.first] = node

    def drop_node(self, node: HandedOver) -> None:
        """A node runs here, or goes back."""
        del self._here[node.first]

    def take(self, task: int) -> Subtask | None:
        """Take one task out, to run it here; None if it is not held."""
        if not task >> CALL_BITS:
            return self._here.pop(task, None)
        piece = self._piece(task)
        if piece is None:
            return None
        index = task - piece.first
        del self._pieces_here[piece.first], self._here[piece.first]
        # What is before it is there only if somebody waits for a map out of order.
        for part in (piece.part(0, index), piece.part(index + 1, len(piece.batch))):
            if len(part.batch):
                part.at = piece.at
                self._here[part.first] = self._pieces_here[part.first] = part
        self._keep(piece)
        return piece.part(index, index + 1)

    def drop_map(self, first: int, stop: int) -> Iterator[tuple[Subtask, bool]]:
        """Forget the pieces of a map, and yield each with whether it was held here."""
        for pieces in (self._pieces_here, self._pieces_away):
            for key in list(pieces.irange(first, stop, inclusive=(True, False))):
                is_here = self._here.pop(key, None) is not None
                yield pieces.pop(key), is_here

    def _piece(self, task: int) -> Subtask | None:
        """Return the piece of a map that is here and has this task."""
        return _find(self._pieces_here, task)

    def _keep(self, piece: Subtask) -> None:
        if _find(self._pieces_away, piece.first) is None:
            self._pieces_away[piece.first] = piece

    # -- away --------------------------------------------------------------------------------

    def goes_away(self, child: Subtask) -> None:
        """The scheduler is sent a single task or a piece of a map, which is not here any more."""
        if child.first >> CALL_BITS:
            self._keep(child)
        else:
            self._away[child.first] = child

    def comes_back(self, task: int) -> Subtask | None:
        """Return a single task that the scheduler had, if it had: it has ended there."""
        child = self._away.pop(task, None)
        if child is not None:
            self._hold_s = max(self._hold_s / 2, HOLD_S)
        return child

    def give_up(self, task: int) -> tuple[Subtask | None, bool]:
        """Forget a single task; return it, and whether the scheduler had it."""
        child = self._here.pop(task, None)
        if child is not None:
            return child, False
        child = self._away.pop(task, None)
        return child, child is not None

    def take_back(self, first: int, stop: int) -> Iterator[Subtask]:
        """Yield tasks that were recalled: the scheduler has them no longer."""
        self._hold_s = min(2 * self._hold_s, HOLD_MAX_S)
        task = first
        while task < stop:
            if not task >> CALL_BITS:
                child = self._away.pop(task, None)
                if child is not None:
                    child.is_recalled = True
                    yield child
                task += 1
                continue
            piece = _find(self._pieces_away, task)
            if piece is None:
                return
            end = min(stop, piece.stop)
            part = piece.part(task - piece.first, end - piece.first)
            part.is_recalled = True
            yield part
            task = end

    # -- time --------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When :meth:`take_due` is to be called."""
        for child in self._here.values():
            return child.at + self._hold_s
        # Not only when there is something: to be woken for each new task would cost more.
        return self._linger_until if self._linger_until > self._looked_at else math.inf

    def take_due(self, now: float) -> list[Subtask]:
        """Return what has been held for long enough; it is not held any more."""
        self._looked_at = now
        due = []
        for child in self._here.values():
            if child.at + self._hold_s > now:
                break
            due.append(child)
        for child in due:
            del self._here[child.first]
            self._pieces_here.pop(child.first, None)
        return due

    def take_single(self, task: int) -> Subtask | None:
        """Take out a single task that is to run elsewhere; None if it is not held."""
        return self._here.pop(task, None)


def _find(pieces: Pieces, task: int) -> Subtask | None:
    index = pieces.bisect_right(task) - 1
    if index < 0:
        return None
    child: Subtask = pieces.peekitem(index)[1]
    return child if task < child.stop else None
