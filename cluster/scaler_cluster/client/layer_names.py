"""The names under which the nodes of a graph are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_cluster.ids import FUNCTION_NAME_CHARS_MAX, LAYERS_MAX

if TYPE_CHECKING:
    from scaler_cluster.client.graph import Arrangement

OTHERS = "(others)"
"""The name of the nodes whose own name there is no room for."""


class LayerNames:
    """Gives the nodes of a graph their names, in order."""

    __slots__ = ("_arrangement", "_known", "_names", "_numbers")

    def __init__(self, arrangement: Arrangement, inputs: int) -> None:
        self._arrangement = arrangement
        self._names: dict[str, int] = {}
        self._known: dict[Any, int] = {}
        """The number of a name, by what the name is made of."""
        self._numbers = bytearray(inputs)
        """Inputs are not counted, and have any name."""

    def add(self, number: int) -> None:
        """Name the next node after this call."""
        kind = self._arrangement.kind_of(number)
        name = self._known.get(kind)
        if name is None:
            name = self._known[kind] = self._find(self._arrangement.name_of(number))
        self._numbers.append(name)

    def _find(self, name: str) -> int:
        names = self._names
        name = name[:FUNCTION_NAME_CHARS_MAX]
        if name not in names and len(names) >= LAYERS_MAX - 1:
            name = OTHERS
        return names.setdefault(name, len(names))

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of their numbers."""
        return tuple(self._names)

    @property
    def numbers(self) -> bytes:
        """The number of the name of each node; empty: all have the first."""
        return bytes(self._numbers) if len(self._names) > 1 else b""
