"""Where the time of tasks went, as a report has it: a flame graph of HTML, without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler_monitoring.flame import flame
from scaler_monitoring.flame_figure import ink_on
from scaler_monitoring.texts import plain, short
from scaler_monitoring.theme import look_of
from scaler_monitoring.view import duration, whole

if TYPE_CHECKING:
    from scaler_cluster.call_tree import CallTree
    from scaler_cluster.client.profile import Profile
    from scaler_monitoring.flame import Bar

ROW_EM = 1.5
ROWS_MAX = 30
"""Of the table of functions."""


def profile_section(profile: Profile) -> dict[str, Any] | None:
    """Return what the template needs to draw a profile; None: no task was sampled."""
    tree, total_s = profile.tree, profile.total_s
    if not profile.samples or not total_s:
        return None
    drawn = flame(tree)
    rows = max((bar.depth for bar in drawn.bars), default=0) + 1
    off = f"{100 / profile.samples**0.5:.1f} points"
    notes = [
        f"{whole(profile.samples)} samples of {duration(total_s)} of tasks.",
        f"A share is off by less than {off} in 19 of 20 cases.",
    ]
    if profile.skipped:
        notes.append(f"{whole(profile.skipped)} more found no room, or could not be read.")
    if drawn.left_out:
        notes.append(f"{whole(drawn.left_out)} more calls have no room in the picture.")
    return {
        "notes": notes,
        "height": rows * ROW_EM,
        "bars": [_bar(tree, bar, drawn.total_us) for bar in drawn.bars],
        "functions": [
            {
                "name": short(frame.name),
                "where": plain(f"{frame.file}:{frame.line}"),
                "own": f"{own_s / total_s:.1%}",
                "whole": f"{whole_s / total_s:.1%}",
                "own_time": duration(own_s),
                "whole_time": duration(whole_s),
            }
            for frame, own_s, whole_s in profile.top(ROWS_MAX)
        ],
    }


def _bar(tree: CallTree, bar: Bar, total_us: int) -> dict[str, Any]:
    frame = tree.frames[bar.node]
    colour = look_of(frame.name).colour
    where = f", {plain(frame.file)}:{frame.line}" if frame.file else ""
    return {
        "left": f"{bar.left * 100:.3f}",
        "width": f"{(bar.right - bar.left) * 100:.3f}",
        "top": bar.depth * ROW_EM,
        "colour": colour,
        "ink": ink_on(colour),
        "name": short(frame.name),
        "about": (
            f"{short(frame.name)}{where}: {bar.whole_us / total_us:.1%}, "
            f"{duration(bar.whole_us / 1e6)}; itself {bar.own_us / total_us:.1%}"
        ),
    }
