"""The line above every page: whether the scheduler is heard, and what is wrong."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from scaler_monitoring import view as words
from scaler_monitoring.dashboard.parts import show, text

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.page import View


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
        model, source = watch.model, escape(words.plain(watch.source))
        snapshot = model.snapshot
        if snapshot is None:
            return _line("waiting", f"Listening to {source}: no scheduler was heard yet.")
        if model.is_stale(watch.now):
            silent = words.duration(watch.now - (model.heard_at or watch.now))
            about = f"<b>Disconnected</b>: {source} was heard {silent} ago; what is shown is old."
            return _line("bad", about)
        workers = len(snapshot.workers) + snapshot.left_out.get("workers", 0)
        parts = [
            f"<b>Connected</b> to {source}",
            f"up {words.duration(snapshot.scheduler.up_s)}",
            f"{words.whole(workers)} worker{'s' * (workers != 1)}",
            f"{words.whole(model.rates.tasks.get('done', 0.0))} tasks/s",
        ]
        if model.restarts:
            times = "once" if model.restarts == 1 else f"{model.restarts} times"
            parts.append(f"scheduler restarted {times}")
        lines = [_line("good", " · ".join(parts))]
        lines += [_line("bad", escape(text)) for text in words.troubles(model, watch.now)]
        return "".join(lines)


def _line(kind: str, html: str) -> str:
    role = ' role="status"' if kind != "good" else ""
    return f'<p class="{kind}"{role}>{html}</p>'


_CSS = """
    p { margin: 0 0 .4rem; padding: .35rem .7rem; border-left: 5px solid var(--accent);
        background: var(--panel); overflow-wrap: anywhere; }
    .waiting { border-color: var(--muted); }
    .bad { border-color: var(--bad); }
"""
