"""A flame graph: where each call of a tree is drawn, the outermost on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scaler_cluster.call_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.call_tree import CallTree, Frame

BARS_MAX = 2000
"""More than anybody sees at once."""
SHARE_MIN = 0.0007
"""What is narrower than a pixel is not drawn."""
DEPTH_MAX = 60
"""Rows; who chooses a bar sees what is below it."""


class Bar(NamedTuple):
    """A call, as it is drawn; whole and own are microseconds."""

    node: int
    depth: int
    """Its row, from the top."""
    left: float
    right: float
    """Of 1."""
    own_us: int
    whole_us: int
    is_above: bool
    """It is a caller of what is shown, and has its width."""


class Flame(NamedTuple):
    """All that is drawn."""

    bars: list[Bar]
    total_us: int
    """What the whole width stands for."""
    left_out: int
    """Calls that are too many or too deep; what is too narrow does not count."""


def node_of(tree: CallTree, path: Sequence[Frame]) -> int:
    """Return where a path of frames ends in a tree, as far as it is there."""
    node = ROOT
    below = _children(tree)
    for frame in path:
        found = [one for one in below[node] if tree.frames[one] == frame]
        if not found:
            break
        node = found[0]
    return node


def flame(tree: CallTree, top: int = ROOT) -> Flame:
    """Return the flame graph of what is below ``top``, with its callers above.

    Calls stand in the order of their names: they stay where they are while a tree grows.
    """
    whole, below, frames = tree.whole_us(), _children(tree), tree.frames
    total = whole[top]
    path = tree.path(top)
    bars = [
        Bar(node, depth, 0.0, 1.0, tree.own_us[node], whole[node], node != top)
        for depth, node in enumerate(path)
    ]
    if not total:
        return Flame([], 0, 0)
    left_out = 0
    row = [(top, 0.0)]
    for depth in range(len(path), len(path) + DEPTH_MAX):
        placed: list[tuple[int, float]] = []
        for parent, left in row:
            for node in sorted(below[parent], key=frames.__getitem__):
                share = whole[node] / total
                if share >= SHARE_MIN:
                    if len(bars) < BARS_MAX:
                        ends = left, left + share
                        own_us = tree.own_us[node]
                        bars.append(Bar(node, depth, *ends, own_us, whole[node], False))
                        placed.append((node, left))
                    else:
                        left_out += 1
                left += share  # noqa: PLW2901
        row = placed
    left_out += sum(bool(below[node]) for node, _ in row)
    return Flame(bars, total, left_out)


def _children(tree: CallTree) -> list[list[int]]:
    below: list[list[int]] = [[] for _ in tree.frames]
    for node in range(1, len(tree.frames)):
        below[tree.parents[node]].append(node)
    return below
