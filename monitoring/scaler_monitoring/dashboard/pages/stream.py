"""What each worker did when: a rectangle for each piece of work."""

from __future__ import annotations

from collections import Counter
from html import escape
from math import nan
from typing import TYPE_CHECKING, Any, cast

from bokeh.events import DoubleTap, Reset
from bokeh.layouts import column
from bokeh.models import HoverTool
from bokeh.models.ranges import Range1d
from bokeh.models.sources import ColumnDataSource
from bokeh.models.widgets.buttons import Button, Toggle
from bokeh.models.widgets.inputs import Select

from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import html
from scaler_monitoring.dashboard.page import Page, in_one
from scaler_monitoring.dashboard.parts import controls, inputs_style, show, text
from scaler_monitoring.figures import (
    ROW_PIXELS,
    STATES,
    TASK_STREAM_COLUMNS,
    axis_ms,
    stream_columns,
    task_stream,
)
from scaler_monitoring.theme import FunctionColours

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Reversible, Sequence

    from bokeh.models.ranges import FactorRange
    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.model import Model, Work

RECTANGLES_MAX = 5000
"""More would keep the browser busy, and could not be told apart."""
WORKERS_MAX = 40
"""Rows that are shown at once."""
FUNCTIONS_MAX = 100
"""To choose from."""
CHIPS_MAX = 12
WINDOWS: list[Any] = [
    ("10", "10 seconds"),
    ("30", "30 seconds"),
    ("60", "1 minute"),
    ("300", "5 minutes"),
    ("600", "10 minutes"),
    ("1800", "30 minutes"),
]
WINDOW = "60"
"""The one that it begins with."""
START = (0.0, 1.0)
"""The range before anything is known."""
SETTLED_MS = 300
"""When who zooms has paused for so long, it is looked what there is to see there."""
ALL = ""
FUNCTIONS: list[Any] = [(ALL, "all")]
ENDED = ("done", "failed", "cancelled", "retried")
"""Kinds of events that rectangles are made of."""
LEGEND_CSS = """
    .chips { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .2rem 0; font-size: 13px; }
    .chips span { display: inline-flex; align-items: center; gap: .35rem; max-width: 20rem;
        overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    .chips i { flex: none; width: 14px; height: 14px; border-radius: 3px; }
    p { color: var(--muted); margin: 0; }
"""


class Stream(Page):
    """Follows what happens, until somebody looks closer at something."""

    path = "/stream"
    is_quick = True

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        css = inputs_style(theme)
        self._window = Select(
            title="Time shown", options=WINDOWS, value=WINDOW, width=130,
            stylesheets=[css],
        )  # fmt: skip
        self._function = Select(
            title="Functions", options=[*FUNCTIONS], value=ALL, width=200, stylesheets=[css]
        )
        self._group = Select(
            title="Workers", options=[*_groups(0)], value="0", width=150, visible=False,
            stylesheets=[css],
        )  # fmt: skip
        self._follow = Button(label="Follow", width=90, stylesheets=[css])
        self._pause = Toggle(label="Pause", width=90, stylesheets=[css])
        self._said, self._chips = (text("", theme, html.STYLE + LEGEND_CSS) for _ in range(2))
        self._colours = FunctionColours()
        self._source = ColumnDataSource({name: [] for name in (*TASK_STREAM_COLUMNS, "memory")})
        self._range = Range1d(start=START[0], end=START[1])
        self._figure = task_stream(self._source, [], theme, x_range=self._range)
        for tool in self._figure.tools:
            if isinstance(tool, HoverTool):
                tool.tooltips = [*cast("Any", tool.tooltips), ("memory", "@memory{0.0 b}")]
        self._is_following = True
        self._set = START
        """What we made of the range: else somebody moved it."""
        self._settling: Any = None
        """The call that waits until who zooms has paused."""
        self._streamed = 0
        """How many pieces of work were looked at."""
        self._rows: list[str] = []
        """What the workers are called that are shown."""
        self._ended: dict[bytes, float] = {}
        """When a worker's last work ended, if it was in the time that is shown."""
        self._restarts = -1
        for range_end in ("start", "end"):
            self._range.on_change(range_end, self._on_range)
        for event in (Reset, DoubleTap):
            self._figure.on_event(event, lambda _: self._resume())
        self._follow.on_click(self._resume)
        self._pause.on_change("active", self._on_choice)
        self._window.on_change("value", self._on_window)
        for select in (self._function, self._group):
            select.on_change("value", self._on_choice)
        return column(
            controls(self._window, self._function, self._group, self._follow, self._pause),
            self._said,
            self._chips,
            self._figure,
            sizing_mode="stretch_width",
        )

    # -- what is chosen --------------------------------------------------------------------

    def _on_range(self, name: str, old: object, new: object) -> None:
        if new in self._set:
            return
        self._is_following = False
        document = self.root.document
        if document is None:
            return
        if self._settling is not None:
            document.remove_timeout_callback(self._settling)
        self._settling = document.add_timeout_callback(self._look_there, SETTLED_MS)

    def _look_there(self) -> None:
        """Load what there is to see where somebody has moved to."""
        self._settling = None
        self._begin_now()

    def _resume(self) -> None:
        self._is_following = True
        self._pause.active = False
        self._begin_now()

    def _on_window(self, name: str, old: object, new: object) -> None:
        self._resume()

    def _on_choice(self, name: str, old: object, new: object) -> None:
        self._begin_now()

    def _begin_now(self) -> None:
        document = self.root.document
        if document is not None and self.view.model.snapshot is not None:
            in_one(document, lambda: self._begin(self.view.model))

    # -- what is shown ---------------------------------------------------------------------

    def update(self, model: Model) -> None:
        """Show what is known now."""
        if self._pause.active:
            return
        if model.restarts != self._restarts:
            self._begin(model)
            return
        added, self._streamed = model.streamed_since(self._streamed), model.streamed
        self._learn(model, added)
        self._follow_now(model)
        works = self._seen(model, added)
        if works:
            self._add(self._columns(model, works))
        self._say(model)

    def _begin(self, model: Model) -> None:
        """Show everything anew."""
        self._restarts, self._streamed = model.restarts, model.streamed
        self._ended.clear()
        self._learn(model, model.stream)
        self._follow_now(model)
        self._source.data = self._columns(model, self._seen(model, model.stream))
        self._say(model)

    def _add(self, columns: dict[str, list[Any]]) -> None:
        if self._is_following:
            self._source.stream(cast("Any", columns), rollover=RECTANGLES_MAX)
            return
        # Nothing of what somebody looks at goes to make room.
        room = RECTANGLES_MAX - len(self._source.data["left"])
        if room > 0:
            columns = {name: values[:room] for name, values in columns.items()}
            self._source.stream(cast("Any", columns))

    def _learn(self, model: Model, works: Iterable[Work]) -> None:
        """Bring rows, and what there is to choose from, up to date."""
        snapshot = model.snapshot
        assert snapshot is not None
        for work in works:
            if work.worker:
                self._ended[work.worker] = work.end
        since = snapshot.clock - float(self._window.value)
        self._ended = {worker: end for worker, end in self._ended.items() if end >= since}
        alive = [one.worker for one in snapshot.workers]
        labels = list(dict.fromkeys(model.label(one) for one in (*alive, *self._ended)))
        groups = _groups(len(labels))
        _offer(self._group, groups)
        self._group.visible = len(groups) > 1
        first = min(int(self._group.value), len(groups) - 1) * WORKERS_MAX
        self._rows = labels[first : first + WORKERS_MAX]
        factors, axis = self._rows[::-1], cast("FactorRange", self._figure.y_range)
        if factors != axis.factors:
            axis.factors = factors
            self._figure.height = 90 + ROW_PIXELS * max(len(factors), 3)
        names = sorted({one.name for one in snapshot.functions[:FUNCTIONS_MAX]} - {ALL})
        _offer(self._function, [*FUNCTIONS, *((name, texts.short(name)) for name in names)])

    def _follow_now(self, model: Model) -> None:
        assert model.snapshot is not None
        if not self._is_following or self._pause.active:
            return
        clock = max(model.snapshot.clock, model.stream[-1].end if model.stream else 0.0)
        window_s = float(self._window.value)
        is_idle = not model.stream or model.stream[-1].end < clock - window_s - 1
        if is_idle and self._set != START:
            return
        end = axis_ms(model.time_of(clock))
        start = end - window_s * 1e3
        self._set = start, end
        # Where the browser's reset leads to as well.
        self._range.update(start=start, end=end, reset_start=start, reset_end=end)

    def _seen(self, model: Model, works: Reversible[Work]) -> list[Work]:
        """Return those that are to be drawn, the last ones if they are too many."""
        assert model.snapshot is not None
        clock, function, rows = model.snapshot.clock, self._function.value, set(self._rows)
        offset = axis_ms(model.time_of(clock)) - clock * 1e3
        start, end = cast("float", self._range.start), cast("float", self._range.end)
        # So that there is something where somebody moves to.
        margin = 0.0 if self._is_following else (end - start) / 2
        first, last = (start - margin - offset) / 1e3, (end + margin - offset) / 1e3
        found: list[Work] = []
        for work in reversed(works):
            if work.end < first or len(found) == RECTANGLES_MAX:
                break
            if (
                work.worker
                and work.start <= last
                and function in (ALL, work.function)
                and model.label(work.worker) in rows
            ):
                found.append(work)
        return found[::-1]

    def _columns(self, model: Model, works: Sequence[Work]) -> dict[str, list[Any]]:
        columns = stream_columns(works, model.label, model.time_of, self._colours)
        columns["memory"] = memory_then(model, works)
        return columns

    def _say(self, model: Model) -> None:
        snapshot = model.snapshot
        assert snapshot is not None
        data = self._source.data
        colours = dict(zip(data["function"], data["colour"], strict=True))
        counts = Counter(data["function"])
        show(self._chips, chips(counts, colours))
        states = set(data["state"])
        items: list[Any] = list(self._figure.legend[0].items)
        for item, state in zip(items, STATES, strict=True):
            if item.visible != (state in states):
                item.visible = state in states
        if self._pause.active:
            said = ["It stands still, as it is paused."]
        elif self._is_following:
            said = ["It follows what happens now."]
        else:
            said = ["It stands still where you have moved it: Follow goes on with now."]
        if not counts:
            said.append("No task has ended in this time.")
        elif len(data["left"]) >= RECTANGLES_MAX:
            said.append(f"The last {RECTANGLES_MAX:,} rectangles are drawn, and no more.")
        skipped = sum(snapshot.skipped.get(kind, 0) for kind in ENDED)
        if skipped:
            said.append(
                f"Only a sample is drawn: {view.whole(skipped)} of all events so far"
                " were too many to be told."
            )
        show(self._said, f"<p>{escape(' '.join(said))}</p>")


def _groups(count: int) -> list[Any]:
    """Return which of so many workers can be shown at once."""
    firsts = range(0, max(count, 1), WORKERS_MAX)
    return [
        (str(place), f"{first + 1} to {min(first + WORKERS_MAX, count)} of {count}")
        for place, first in enumerate(firsts)
    ]


def _offer(select: Select, options: list[Any]) -> None:
    """Let somebody choose from these, and from what is chosen, as long as it is."""
    if select.value not in dict(options):
        before: Any = select.options
        options = [*options, *(one for one in before if one[0] == select.value)]
    if select.options != options:
        select.options = options


def chips(counts: Mapping[str, int], colours: Mapping[str, str]) -> str:
    """Return HTML of the functions that are drawn most, in the order of their names."""
    most = sorted(sorted(counts, key=lambda name: -counts[name])[:CHIPS_MAX])
    shown = "".join(
        f'<span title="{escape(name)}"><i style="background:{colours[name]}"></i>'
        f"{escape(name)}</span>"
        for name in most
    )
    more = len(counts) - len(most)
    return f'<div class="chips">{shown}{f"and {more} more" if more else ""}</div>'


def memory_then(model: Model, works: Sequence[Work]) -> list[float]:
    """Return the memory of the worker of each work, by the last sample before its end.

    ``works`` are in the order in which they ended. nan: not known.
    """
    found = [nan] * len(works)
    samples = iter(reversed(model.worker_samples.taken))
    sample = next(samples, None)
    index: dict[bytes, int] = {}
    for place in range(len(works) - 1, -1, -1):
        work = works[place]
        while sample is not None and sample.clock > work.end:
            sample, index = next(samples, None), {}
        if sample is None:
            break
        index = index or {key: at for at, key in enumerate(sample.keys)}
        if work.worker in index:
            found[place] = sample.columns[1][index[work.worker]]
    return found
