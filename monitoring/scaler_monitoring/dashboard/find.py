"""What the command palette finds: pages, functions, workers, and tasks by their number."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tornado.web import RequestHandler

from scaler_monitoring import view
from scaler_monitoring.dashboard.links import function_url, task_url, worker_url
from scaler_monitoring.dashboard.slider import AT, seen
from scaler_monitoring.dashboard.template import LINKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler_monitoring.dashboard.watch import Watch
    from scaler_monitoring.model import Model

FOUND_MAX = 20


@dataclass(frozen=True)
class Found:
    """What can be jumped to."""

    kind: str
    name: str
    url: str


def find(model: Model, wanted: str) -> list[Found]:
    """Return what has a text in its name, those that begin with it first."""
    text = wanted.strip().lower()
    found = [one for one in _all(model) if text in one.name.lower()]
    found.sort(key=lambda one: not one.name.lower().startswith(text))
    if view.task_number(wanted) is not None:
        found.insert(0, Found("task", wanted.strip(), task_url(wanted.strip())))
    return found[:FOUND_MAX]


def _all(model: Model) -> Iterator[Found]:
    for path, name in LINKS:
        yield Found("page", name, path.lstrip("/") or ".")
    if model.snapshot is not None:
        for row in model.snapshot.functions:
            yield Found("function", view.function_name(row.name), function_url(row.name))
    for worker, label in reversed(model.labels.items()):
        yield Found("worker", label, worker_url(worker))


class FindHandler(RequestHandler):
    """Answers the palette."""

    def initialize(self, watch: Watch) -> None:
        self._watch = watch

    def get(self) -> None:
        """Answer with what was found, as JSON."""
        watch = seen(self._watch, self.get_query_argument(AT, ""))
        found = find(watch.model, self.get_query_argument("q", ""))
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps([asdict(one) for one in found]))
