"""What happened to a client: what its core hands on to the shell.

Where there is nothing to add to what the scheduler said, the event is the message itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from scaler_cluster.wire import messages as m


@dataclass(slots=True)
class Settled:
    """Single tasks came back."""

    pairs: list[tuple[object, object]]
    """What stands for each, and with what it came back: None if it was cancelled."""


@dataclass(slots=True)
class Profiled:
    """A single task that is about to come back was measured."""

    waiter: object
    profile: m.Profile


@dataclass(slots=True)
class InputWanted:
    """The scheduler asks for an input of a graph."""

    task: int
    """The node that the input is."""
    waiter: object
    """What stands for the task whose result it is."""


@dataclass(slots=True)
class NodeRan:
    """A node of a graph ran here and only other nodes wait for its result, or could not run."""

    task: int
    outcome: object


@dataclass(slots=True)
class Released:
    """Nothing here needs these objects any more."""

    objects: tuple[bytes, ...]


News: TypeAlias = (
    m.Output
    | m.Unplaced
    | m.Notice
    | m.WorkerList
    | m.Refused
    | m.Broken
    | m.Goodbye
    | m.Unknown
    | m.Welcome
)
ClientEvent: TypeAlias = Settled | Profiled | InputWanted | NodeRan | Released | News


class EventOutbox:
    """Collects what happened, in the order in which the shell is to handle it."""

    def __init__(self) -> None:
        self.news: list[ClientEvent] = []
        """What tasks printed and took, and what the scheduler says of itself."""
        self.settled: list[tuple[object, object]] = []
        """Single tasks that came back; see :class:`Settled`."""
        self.wanted: list[ClientEvent] = []
        """What follows from what came back."""
        self.profiles: dict[int, m.Profile] = {}
        """What single tasks took that are about to come back."""

    def settle(self, task: int, waiter: object, outcome: object) -> None:
        """A single task came back to its waiter, after its profile if it has one."""
        if self.profiles:
            profile = self.profiles.pop(task, None)
            if profile is not None:
                self.news.append(Profiled(waiter, profile))
        self.settled.append((waiter, outcome))

    def take(self) -> list[ClientEvent]:
        """Return what happened, and forget it.

        What tasks printed and took comes first, then what came back, then what follows from it.
        """
        events, self.news = self.news, []
        if self.settled:
            events.append(Settled(self.settled))
            self.settled = []
        if self.wanted:
            events += self.wanted
            self.wanted = []
        return events
