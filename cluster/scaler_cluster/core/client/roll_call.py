"""A call that each worker is to make once: who makes it for one that leaves before it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler_cluster.wire import messages as m


class RollCall:
    """Knows the workers that were there, and finds those that are started in their places."""

    def __init__(self, listed: m.WorkerList) -> None:
        self._places = _places(listed)
        """Machine and name of each worker that was there, or makes a call for one that was."""

    def heirs(self, listed: m.WorkerList, lost: Iterable[str]) -> dict[str, str | None]:
        """Return who makes the calls of workers that are lost; None: nobody will.

        All workers go by their aliases. One of the lost whose machine is yet to start another
        worker is left out: ask again later.
        """
        fresh = {one: at for one, at in _places(listed).items() if one not in self._places}
        found: dict[str, str | None] = {}
        for alias in lost:
            place = self._places[alias]
            heir = next((one for one, at in fresh.items() if at == place), None)
            if heir is not None:
                self._places[heir] = fresh.pop(heir)
                found[alias] = heir
            elif place[0] not in listed.late:
                found[alias] = None
        return found


def _places(listed: m.WorkerList) -> dict[str, tuple[str, str]]:
    places = zip(listed.hosts, listed.names, strict=True)
    return dict(zip(listed.aliases, places, strict=True))
