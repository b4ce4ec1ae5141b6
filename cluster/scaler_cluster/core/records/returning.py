"""What the scheduler remembers of peers that another scheduler knew, until they are taken in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_cluster.wire import messages as m


@dataclass(slots=True)
class Deferred:
    """What a client has said since its Hello."""

    messages: list[m.Message] = field(default_factory=list)
    is_complete: bool = False
    """True once it has named all that it asked another scheduler."""


@dataclass(slots=True)
class Returning:
    """A worker that is not taken in yet."""

    hello: m.Hello
    until: float
    """It waits no longer than until then."""
    holdings: list[m.Holding] = field(default_factory=list)
    is_complete: bool = False
    """True once it has named all that it holds."""
    is_whole: bool = True
    """Whether it knows all tasks that it has started and that must not start twice."""
    hosts: m.Hosts | None = None
    """The actor that lives there; None: none does."""
    first_segment: int = 0
    devices: tuple[int, ...] = ()
    """For both see :class:`Held`."""
