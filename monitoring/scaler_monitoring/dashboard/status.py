"""The line above every page: whether the scheduler is heard, and what is wrong."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from scaler_monitoring.dashboard.html import many
from scaler_monitoring.dashboard.parts import show, text
from scaler_monitoring.dashboard.watch import Replay
from scaler_monitoring.health import ALARM, NOTE, WARNING, health, worst
from scaler_monitoring.texts import plain
from scaler_monitoring.theme import SERIES
from scaler_monitoring.view import count_of, duration, whole

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.tab_view import View


class Status:
    """Says so in words, as colours alone tell not everybody."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.root = text("", view.theme, _CSS)

    def update(self) -> None:
        """Show how it is now."""
        show(self.root, self._text())

    def _text(self) -> str:
        watch = self._view.watch
        model, source = watch.model, escape(plain(watch.source))
        snapshot = model.snapshot
        if isinstance(watch, Replay) and watch.failure:
            return _line("bad", f"<b>Not shown</b>: {escape(plain(watch.failure))}")
        if snapshot is None:
            return _line("waiting", watch.said_of_nothing(source))
        if model.is_stale(watch.now):
            ago = duration(watch.now - (model.heard_at or watch.now))
            return _line("bad", watch.said_of_silence(source, ago))
        parts = [
            watch.said_of(source),
            f"up {duration(snapshot.scheduler.up_s)}",
            many(count_of(snapshot, "workers"), "worker"),
            f"{whole(model.rates.tasks.get('done', 0.0))} tasks/s",
        ]
        if model.restarts:
            times = "once" if model.restarts == 1 else f"{model.restarts} times"
            parts.append(f"scheduler restarted {times}")
        told = health(model, watch.now)
        parts += [escape(one.text) for one in told if one.severity == NOTE]
        kind = "bad" if worst(told) == ALARM else "good"
        lines = [_line(kind, " · ".join(parts), is_told=False)]
        lines += [
            _line(_CLASSES[one.severity], f"<b>{one.severity.capitalize()}</b>: {escape(one.text)}")
            for one in told
            if one.severity != NOTE
        ]
        return "".join(lines)


_CLASSES = {ALARM: "bad", WARNING: "warning"}


def _line(kind: str, html: str, *, is_told: bool = True) -> str:
    role = ' role="status"' if is_told else ""
    return f'<p class="{kind}"{role}>{html}</p>'


_CSS = """
    p { display: var(--status, block); margin: 0 0 .4rem; padding: .35rem .7rem;
        border-left: 5px solid var(--accent); background: var(--panel); overflow-wrap: anywhere; }
    .waiting { border-color: var(--muted); }
    .bad { border-color: var(--bad); }
"""
_CSS += f".warning {{ border-color: {SERIES[1]}; }}"
