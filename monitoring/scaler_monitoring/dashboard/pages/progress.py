"""A bar for each function: how many of its tasks are done, failed, cancelled, or still to do."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from scaler_monitoring import view
from scaler_monitoring.dashboard import words
from scaler_monitoring.dashboard.parts import show, text

if TYPE_CHECKING:
    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Model
    from scaler_monitoring.theme import Theme

BARS_MAX = 15
ACTIVE_S = 60.0
"""A function that had tasks so lately comes before others: in an order by the moment, bars jump."""
PARTS = (("done", "done"), ("failed", "failed"), ("cancelled", "cancelled"), ("left", "not ended"))
"""Of a bar, from the left: their classes, and what they are called."""

STYLE = """
    ul { list-style: none; margin: 0; padding: 0; display: grid; gap: .55rem 1.5rem;
        grid-template-columns: repeat(auto-fill, minmax(min(27rem, 100%), 1fr)); }
    li { min-width: 0; }
    .name { font-weight: 600; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    small { color: var(--muted); font-size: 12px; font-variant-numeric: tabular-nums; }
    .bar { display: flex; height: 12px; margin-top: 2px; border-radius: 3px; overflow: hidden;
        background: var(--panel); border: 1px solid var(--grid); }
    .bar i { display: block; min-width: 2px; }
    .done { background: var(--accent); }
    .failed { background:
        repeating-linear-gradient(45deg, var(--bad) 0 3px, var(--panel) 3px 5px); }
    .cancelled { background: var(--muted); }
    .left { background: repeating-linear-gradient(90deg, var(--grid) 0 6px, var(--panel) 6px 8px); }
    .bad { color: var(--bad); font-weight: 700; }
    .legend { color: var(--muted); font-size: 12px; margin: 0 0 .4rem; }
    .legend i { display: inline-block; width: 14px; height: 10px; border: 1px solid var(--grid);
        border-radius: 2px; margin: 0 .3rem 0 .8rem; }
    .legend i:first-child { margin-left: 0; }
"""
LEGEND = "".join(f'<i class="{kind}"></i>{name}' for kind, name in PARTS)


class Progress:
    """The bars of those functions that did most lately."""

    def __init__(self, theme: Theme) -> None:
        self.root = text("", theme, words.STYLE + STYLE)
        self._active: dict[str, float] = {}
        """When a function had tasks last."""

    def update(self, model: Model) -> None:
        """Show what is known now."""
        show(self.root, self._html(model))

    def _html(self, model: Model) -> str:
        snapshot = model.snapshot
        assert snapshot is not None
        rates = model.rates.functions
        functions = snapshot.functions
        if not functions:
            return words.nothing("No function has been called yet.")
        clock = snapshot.clock
        self._active = {
            one.name: clock if one.pending or rates.get(one.name) else self._active[one.name]
            for one in functions
            if one.pending or rates.get(one.name) or one.name in self._active
        }

        def rank(one: feed.Function) -> tuple[bool, float, str]:
            is_idle = clock - self._active.get(one.name, -ACTIVE_S) >= ACTIVE_S
            return is_idle, -one.busy_s, one.name

        ordered = sorted(functions, key=rank)
        bars = "".join(_bar(one, rates.get(one.name, 0.0)) for one in ordered[:BARS_MAX])
        more = len(functions) - BARS_MAX + snapshot.left_out.get("functions", 0)
        about = f"<p>and {words.many(more, 'function')} more</p>" if more > 0 else ""
        return f'<div class="legend">{LEGEND}</div><ul>{bars}</ul>{about}'


def _bar(one: feed.Function, per_s: float) -> str:
    name = view.function_name(one.name)
    counts = {
        "done": one.done,
        "failed": one.failed,
        "cancelled": one.cancelled + one.recalled,
        "left": one.pending,
    }
    told = [f"{view.whole(one.done)} of {view.whole(one.submitted)} done"]
    if one.failed:
        told.append(f'<span class="bad">{view.whole(one.failed)} failed</span>')
    if counts["cancelled"]:
        told.append(f"{view.whole(counts['cancelled'])} cancelled")
    if one.pending:
        told.append(f"{view.whole(one.pending)} left")
    if one.mean_s is not None:
        told.append(f"{view.duration(one.mean_s)} each")
    if per_s >= 0.5:
        told.append(f"{view.whole(per_s)}/s")
    parts = "".join(
        f'<i class="{kind}" style="flex:{counts[kind]} 0 0"></i>'
        for kind, _ in PARTS
        if counts[kind]
    )
    return (
        f'<li><div class="name" title="{escape(name)}">{escape(name)}</div>'
        f'<div class="bar">{parts}</div><small>{" · ".join(told)}</small></li>'
    )
