"""Whether a worker that was killed was killed for lack of memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

SIGKILL = 9


@dataclass(frozen=True)
class OomKills:
    """How many processes the kernel has killed for lack of memory; -1: nobody counts."""

    group: int = -1
    """In the control group of the workers."""
    machine: int = -1
    """On the machine, also in control groups of others."""
    group_file: str = ""
    """Where the first of the two stands."""

    def after_one_more(self) -> OomKills:
        """Return the counts once another process of the group was killed."""
        return replace(self, group=self.group + (self.group >= 0), machine=self.machine + 1)

    def at_least(self, other: OomKills) -> OomKills:
        """Return the higher one of each count."""
        return replace(
            self, group=max(self.group, other.group), machine=max(self.machine, other.machine)
        )


def oom_reason(signal: int | None, before: OomKills, after: OomKills) -> str:
    """Return why a worker ended, and how that is known; empty: not for lack of memory.

    It ended by this signal, which its supervisor did not send, between the two counts. Where its
    group is counted, a kill elsewhere on the machine says nothing of it.
    """
    is_counted = before.group >= 0
    rose = before.group < after.group if is_counted else 0 <= before.machine < after.machine
    if signal != SIGKILL or not rose:
        return ""
    where = "on this machine: oom_kill in /proc/vmstat rose"
    if is_counted:
        where = f"in its control group: oom_kill in {after.group_file} rose"
    return f"out of memory: the kernel killed it, as memory was short {where} at that moment"
