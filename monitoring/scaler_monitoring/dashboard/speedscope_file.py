"""What the dashboard saw of tasks, as a file of https://www.speedscope.app."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tornado.web import RequestHandler

from scaler_cluster.client.profile import speedscope
from scaler_monitoring.profiled import WINDOW_S, Profiled

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.watch import Watch

PATH = "/profile.speedscope.json"


class SpeedscopeHandler(RequestHandler):
    """Gives away what was seen in a range of time, as a file of https://www.speedscope.app."""

    def initialize(self, watch: Watch) -> None:
        self._watch = watch

    def get(self) -> None:
        """Answer with the file of the ``last`` seconds, or from ``start`` to ``end``."""
        profiled = self._watch.profiled or Profiled()
        now = self._watch.now
        start = self._seconds("start", now - self._seconds("last", WINDOW_S))
        seen = profiled.seen(start, self._seconds("end", now))
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Disposition", 'attachment; filename="profile.speedscope.json"')
        self.finish(json.dumps(speedscope(seen.tree)))

    def _seconds(self, name: str, default: float) -> float:
        try:
            return float(self.get_query_argument(name, ""))
        except ValueError:
            return default
