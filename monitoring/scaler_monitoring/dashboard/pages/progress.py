"""A bar for each function: how many of its tasks are done, failed, cancelled, or still to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_monitoring import view
from scaler_monitoring.dashboard.bars import BARS_MAX, TASK_STATES, Bar, Bars
from scaler_monitoring.dashboard.html import many
from scaler_monitoring.dashboard.links import function_url
from scaler_monitoring.theme import look_of

if TYPE_CHECKING:
    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Model
    from scaler_monitoring.theme import Theme

ACTIVE_S = 60.0
"""A function that had tasks so lately comes before others: in an order by the moment, bars jump."""

BARS_ON_PHONES = 5
_FEW = f"""
    @media (max-width: 40rem) {{
        .bars li:nth-child(n + {BARS_ON_PHONES + 1}) {{ display: none; }}
    }}
"""


class Progress:
    """The bars of those functions that did most lately."""

    def __init__(self, theme: Theme) -> None:
        self._bars = Bars(TASK_STATES, theme, _FEW)
        self.root = self._bars.root
        self._active: dict[str, float] = {}
        """When a function had tasks last."""
        self._of: Model | None = None

    def update(self, model: Model) -> None:
        """Show what is known now."""
        assert model.snapshot is not None
        functions, rates = model.snapshot.functions, model.rates.functions
        clock = model.snapshot.clock
        if model is not self._of:
            self._of, self._active = model, {}
        self._active = {
            one.name: clock if one.pending or rates.get(one.name) else self._active[one.name]
            for one in functions
            if one.pending or rates.get(one.name) or one.name in self._active
        }

        def rank(one: feed.Function) -> tuple[bool, float, str]:
            is_idle = clock - self._active.get(one.name, -ACTIVE_S) >= ACTIVE_S
            return is_idle, -one.busy_s, one.name

        bars = [_bar(one, rates.get(one.name, 0.0)) for one in sorted(functions, key=rank)]
        count = view.count_of(model.snapshot, "functions")
        about = f"{many(count, 'function')} in all" if count > BARS_ON_PHONES else ""
        self._bars.update(bars[:BARS_MAX], about if bars else "No function has been called yet.")


def _bar(one: feed.Function, per_s: float) -> Bar:
    told = [f"{view.whole(one.done)} of {view.whole(one.submitted)} done"]
    if one.cancelled:
        told.append(f"{view.whole(one.cancelled)} cancelled")
    if one.pending:
        told.append(f"{view.whole(one.pending)} pending")
    if one.each_s is not None:
        told.append(f"{view.duration(one.each_s)} each")
    if per_s >= 0.5:
        told.append(f"{view.whole(per_s)}/s")
    counts = {state: getattr(one, state) for state in TASK_STATES}
    name, note, look = view.function_name(one.name), " · ".join(told), look_of(one.name)
    return Bar(name, counts, note, function_url(one.name), look.css)
