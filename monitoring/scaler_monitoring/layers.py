"""The layers of a graph, as watchers see them: what waits for what, and where each is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scaler_monitoring import texts, view

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler_cluster.wire import feed

STATES = ("done", "assigned", "ready", "waiting", "failed", "cancelled")
NAMED_MAX = 3
"""Layers that a sentence names."""


@dataclass
class Layers:
    """The layers of one graph."""

    rows: dict[str, feed.Layer] = field(default_factory=dict)
    """By name, in the order in which their first nodes came."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """Names of layers, and of layers that depend on these."""

    def ended(self) -> Layers:
        """Return the same after all nodes of the graph have returned."""
        rows = {
            name: replace(row, done=nodes_of(row), waiting=0, ready=0, assigned=0)
            for name, row in self.rows.items()
        }
        return Layers(rows, self.links)


def layers_of(snapshot: feed.Snapshot) -> dict[tuple[int, int], Layers]:
    """Return the layers of all graphs that run, by session and first task."""
    found: dict[tuple[int, int], Layers] = {}
    for row in snapshot.layers:
        found.setdefault((row.session, row.graph), Layers()).rows[row.name] = row
    for link in snapshot.links:
        layers = found.get((link.session, link.graph))
        if layers is not None and {link.source, link.target} <= layers.rows.keys():
            layers.links.append((link.source, link.target))
    return found


def nodes_of(row: feed.Layer) -> int:
    """Return how many nodes of a layer have come."""
    return sum(getattr(row, state) for state in STATES)


def left_of(row: feed.Layer) -> int:
    """Return how many nodes of a layer have not ended."""
    return row.waiting + row.ready + row.assigned


def progress(row: feed.Layer) -> str:
    """Return how far a layer has come, as ``12/36``."""
    return f"{view.whole(nodes_of(row) - left_of(row))}/{view.whole(nodes_of(row))}"


def waits_for(layers: Layers, name: str) -> str:
    """Return what the nodes of a layer wait for, in words; empty: for nothing."""
    row = layers.rows[name]
    if not left_of(row):
        return ""
    below = (layers.rows[one] for one, target in layers.links if target == name)
    open_ones = [one for one in below if left_of(one)]
    if row.waiting and open_ones:
        said = [f"{view.whole(left_of(one))} of {short(one.name)}" for one in open_ones]
        more = len(said) - NAMED_MAX
        said[NAMED_MAX:] = [f"{more} more"] if more > 0 else []
        return "waits for " + ", ".join(said)
    if row.waiting:
        return "waits for nodes of its own"
    return "runs" if row.assigned else "waits for a worker"


def state_of(row: feed.Layer) -> str:
    """Return the state that a layer is drawn in: what needs a look most comes first."""
    for state in ("failed", "assigned", "ready", "waiting"):
        if getattr(row, state):
            return state
    return "cancelled" if row.cancelled and not row.done else "done"


def short(name: str) -> str:
    """Return what a layer is called, as a line."""
    return texts.short(name) or view.NO_NAME


@dataclass(frozen=True)
class Plan:
    """Where the layers of a graph are drawn."""

    places: dict[str, tuple[int, int]]
    """For each layer its column, counted from the left, and its row in that."""
    longest: tuple[str, ...]
    """The longest path, from the left."""


def plan(names: Sequence[str], links: Iterable[tuple[str, str]]) -> Plan:
    """Put each layer to the right of those that it depends on.

    Names may depend on each other in a circle, as nodes of one name come before and after those of
    another. A link that closes a circle does not count.
    """
    below: dict[str, list[str]] = {name: [] for name in names}
    for source, target in links:
        below[target].append(source)
    columns: dict[str, int] = {}
    before: dict[str, str] = {}
    opened: dict[str, None] = {}
    for name in names:
        stack = [name]
        while stack:
            top = stack[-1]
            if top in columns:
                stack.pop()
                continue
            opened[top] = None
            fresh = [one for one in below[top] if one not in columns and one not in opened]
            if fresh:
                stack.append(fresh[0])
                continue
            known = [one for one in below[top] if one in columns]
            last = max(known, key=columns.__getitem__, default=None)
            columns[top] = 0 if last is None else columns[last] + 1
            if last is not None:
                before[top] = last
            del opened[top]
            stack.pop()
    used: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for name in names:
        column = columns[name]
        places[name] = column, used.get(column, 0)
        used[column] = places[name][1] + 1
    longest = [max(names, key=columns.__getitem__)] if names else []
    while longest and longest[-1] in before:
        longest.append(before[longest[-1]])
    return Plan(places, tuple(reversed(longest)))


def told(snapshot: feed.Snapshot, most: int) -> list[tuple[str, str, str]]:
    """Return of layers that have not ended what they are called, how far they are, what they await.

    At most so many, those of the graph first that came first.
    """
    lines = []
    for layers in layers_of(snapshot).values():
        for name, row in layers.rows.items():
            if left_of(row):
                lines.append((short(name), progress(row), waits_for(layers, name)))
                if len(lines) == most:
                    return lines
    return lines
