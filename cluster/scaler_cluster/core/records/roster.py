"""What a scheduler leaves to the one that takes its place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Roster:
    """Which machines may have tasks that the next scheduler is to hear of.

    Without it, the next scheduler cannot know whether all have come back: it waits for longer, and
    lets no task start that may have been started and must not start twice.
    """

    epochs: tuple[int, ...]
    """Schedulers whose clients' tasks can have been started on these machines only."""
    machines: frozenset[bytes]
    """Their supervisors."""
    is_whole: bool
    """False if there were others, which are gone, and nobody knows what they had started."""
