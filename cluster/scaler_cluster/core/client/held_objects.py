"""What a client's scheduler has stored for it, to be announced again to one that forgot it.

An object is let go of only when all tasks that need it have come back: until then it may be needed
once more, by a scheduler that has to be asked for them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.ids import home_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.codec import OBJECTS_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


class HeldObjects:
    """The objects that a client may name, and how many unfinished requests need each."""

    def __init__(self) -> None:
        self._held: dict[bytes, tuple[bytes, int, str | None]] = {}
        """Segment, bytes and address of each; None for the address: its home's."""
        self._uses: dict[bytes, int] = {}
        """How many requests need an object that have not come back."""
        self._postponed: dict[bytes, None] = {}
        """What the client let go of while requests needed it."""
        self._spares: dict[bytes, None] = {}
        """Segments that are about to be released, as others hold the same."""
        self.due: list[bytes] = []
        """What of that no request needs any more, to be released."""

    def offered(self, message: m.Object) -> None:
        """The client says that an object is stored."""
        one = message.object
        # If the scheduler still has it, that drops the new segment.
        self._postponed.pop(one, None)
        self._held.setdefault(one, (message.segment, message.nbytes, None))

    def moved(self, message: m.Object) -> None:
        """Another client had stored the same before, in this segment, which serves both."""
        one, spare = message.object, message.instead_of
        # Meanwhile it may have been let go of, and stored anew.
        if one in self._held and self._held[one][0] == spare:
            self._held[one] = message.segment, message.nbytes, None
        self._spares[spare] = None

    def returned(self, message: m.Returned) -> None:
        """A result came back in segments."""
        for one, nbytes in zip(message.objects, message.sizes, strict=False):
            self._held[one] = one, nbytes, message.address

    def use(self, objects: Iterable[bytes]) -> None:
        """A request was sent that needs these."""
        uses = self._uses
        for one in objects:
            uses[one] = uses.get(one, 0) + 1

    def used(self, objects: Iterable[bytes]) -> None:
        """A request came back that needed these."""
        uses = self._uses
        for one in objects:
            uses[one] -= 1
            if not uses[one]:
                del uses[one]
                if one in self._postponed:
                    del self._postponed[one]
                    if self._held.pop(one, None) is not None:
                        self.due.append(one)

    def let_go(self, objects: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return what of these is to be released now, as no request needs it."""
        gone = []
        for one in objects:
            if one in self._uses:
                self._postponed[one] = None
            elif one in self._held or one in self._spares:
                self._held.pop(one, None)
                self._spares.pop(one, None)
                gone.append(one)
        return tuple(gone)

    def take_due(self) -> tuple[bytes, ...]:
        """Return what is to be released by now, before anything else is said."""
        due, self.due = self.due, []
        return tuple(due)

    def forget(self) -> None:
        """All of it is gone."""
        self._held = {}
        self._start_over()

    def again(
        self, needed: Collection[bytes], homes: Sequence[m.StorageEndpoint]
    ) -> list[m.Message]:
        """Return what announces all of it once more; requests are counted anew.

        What the client has let go of is announced only if it is ``needed``.
        """
        for one in [one for one in self._postponed if one not in needed]:
            self._held.pop(one, None)
        postponed = [one for one in self._postponed if one in needed]
        self._start_over()
        self._postponed = dict.fromkeys(postponed)
        by_address: dict[str, list[tuple[bytes, bytes, int]]] = {}
        for one, (segment, nbytes, address) in self._held.items():
            where = homes[home_of(one, len(homes))].address if address is None else address
            by_address.setdefault(where, []).append((one, segment, nbytes))
        return [
            m.Keep(address, *map(tuple, zip(*some[start : start + OBJECTS_MAX], strict=True)))
            for address, some in by_address.items()
            for start in range(0, len(some), OBJECTS_MAX)
        ]

    def _start_over(self) -> None:
        self._uses = {}
        self._postponed = {}
        self._spares = {}
        self.due = []
