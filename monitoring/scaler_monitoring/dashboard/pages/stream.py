"""What each worker did when: how busy it was, with what, and what it runs now."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, cast

from bokeh.events import DoubleTap, Reset
from bokeh.layouts import column
from bokeh.models.ranges import Range1d
from bokeh.models.widgets.buttons import Button, Toggle
from bokeh.models.widgets.inputs import Select

from scaler_monitoring import texts, view
from scaler_monitoring.cells import seconds_of
from scaler_monitoring.dashboard import html
from scaler_monitoring.dashboard.page import Page, in_one
from scaler_monitoring.dashboard.parts import controls, inputs_style, show, text
from scaler_monitoring.dashboard.stream_figure import StreamFigure
from scaler_monitoring.dashboard.stream_layers import Layers
from scaler_monitoring.figures import axis_ms
from scaler_monitoring.theme import look_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.activity import Activity, Life
    from scaler_monitoring.model import Model

WORKERS_MAX = 100
"""Rows that are shown at once."""
FUNCTIONS_MAX = 100
"""To choose from."""
CHIPS_MAX = 12
"""Functions in the legend that took most of the time; as many more if they run for long."""
STRAGGLES_S = 1.0
"""A task that runs for so long has its function in the legend, whatever the others took."""
CROWD, CROWD_S = 50, 0.9
"""With so many rows it is drawn once a second: to draw them takes a browser a fifth of a second."""
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
"""Kinds of events that tell of work."""
LEGEND_CSS = """
    .chips { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .2rem 0; font-size: 13px; }
    .chips span { display: inline-flex; align-items: center; gap: .35rem; max-width: 24rem;
        overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    .chips i { flex: none; width: 14px; height: 14px; border-radius: 3px; }
    .chips small, p { color: var(--muted); }
    p { margin: 0; }
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
            title="Workers", options=[*_groups(0)], value="0", width=190, visible=False,
            stylesheets=[css],
        )  # fmt: skip
        self._follow = Button(label="Follow", width=90, stylesheets=[css])
        self._pause = Toggle(label="Pause", width=90, stylesheets=[css])
        self._said, self._chips = (text("", theme, html.STYLE + LEGEND_CSS) for _ in range(2))
        self._range = Range1d(start=START[0], end=START[1])
        self._figure = StreamFigure(theme, self.view.links, self._range)
        self._layers = Layers(self._figure, self._activity)
        self._is_following = True
        self._set = START
        """What we made of the range: else somebody moved it."""
        self._settling: Any = None
        """The call that waits until who zooms has paused."""
        self._streamed = 0
        """How many pieces of work were looked at."""
        self._lives: list[Life] = []
        """The workers that are shown."""
        self._drawn = 0.0
        """Until when it is drawn, by the scheduler's clock."""
        self._of: object = None
        """The model, and how often the scheduler had restarted, that it is drawn of."""
        for range_end in ("start", "end"):
            self._range.on_change(range_end, self._on_range)
        for event in (Reset, DoubleTap):
            self._figure.root.on_event(event, lambda _: self._resume())
        self._follow.on_click(self._resume)
        self._pause.on_change("active", self._on_choice)
        self._window.on_change("value", self._on_window)
        for select in (self._function, self._group):
            select.on_change("value", self._on_choice)
        return column(
            controls(self._window, self._function, self._group, self._follow, self._pause),
            self._said,
            self._chips,
            self._figure.root,
            sizing_mode="stretch_width",
        )

    @property
    def _activity(self) -> Activity:
        return self.view.watch.activity

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
        if self._of != (model, model.restarts):
            self._begin(model)
            return
        is_crowd = self.view.watch.is_live and len(self._lives) >= CROWD
        clock = self._activity.clock
        if clock - self._drawn <= (CROWD_S if is_crowd else 0.0):
            return
        self._drawn = clock
        # Each change reaches the browser by itself, which else would draw after the first one.
        with self._figure.root.hold(render=True):
            self._add(model)

    def _add(self, model: Model) -> None:
        """Show what is new."""
        added, self._streamed = model.streamed_since(self._streamed), model.streamed
        lives = self._lives
        self._follow_now(model)
        self._learn(model)
        if lives != self._lives or not self._layers.add(model, added):
            self._begin(model)
            return
        self._say(model)

    def _begin(self, model: Model) -> None:
        """Show everything anew."""
        self._of, self._streamed = (model, model.restarts), model.streamed
        self._layers, self._drawn = Layers(self._figure, self._activity), self._activity.clock
        self._follow_now(model)
        self._learn(model)
        start, end = self._seen(model)
        if not self._is_following:
            # So that there is something where somebody moves to.
            start, end = start - (end - start) / 2, end + (end - start) / 2
        only = self._function.value or None
        self._layers.begin(model, self._lives, start, end, only, is_still=not self._is_following)
        self._say(model)

    def _learn(self, model: Model) -> None:
        """Bring rows, and what there is to choose from, up to date."""
        snapshot = model.snapshot
        assert snapshot is not None
        lives = self._activity.rows(*self._seen(model))
        groups = _groups(len(lives))
        _offer(self._group, groups)
        self._group.visible = len(groups) > 1
        first = min(int(self._group.value), len(groups) - 1) * WORKERS_MAX
        self._lives = lives[first : first + WORKERS_MAX]
        names = sorted({one.name for one in snapshot.functions[:FUNCTIONS_MAX]} - {ALL})
        _offer(self._function, [*FUNCTIONS, *((name, texts.short(name)) for name in names)])

    def _follow_now(self, model: Model) -> None:
        if not self._is_following or self._pause.active:
            return
        clock, window_s = self._activity.clock, float(self._window.value)
        is_live = self.view.watch.is_live
        if (
            is_live
            and self._set != START
            and not any(
                life.running
                or any(track.end >= clock - window_s - 1 for track in life.tracks.values())
                for life in self._lives
            )
        ):
            # Who looks at the end of something may do so for long.
            return
        end = axis_ms(model.time_of(clock))
        start = end - window_s * 1e3
        self._set = start, end
        # Where the browser's reset leads to as well.
        self._range.update(start=start, end=end, reset_start=start, reset_end=end)

    def _seen(self, model: Model) -> tuple[float, float]:
        """Return the time that is seen, by the scheduler's clock."""
        clock = self._activity.clock
        offset = axis_ms(model.time_of(clock)) - clock * 1e3
        start, end = cast("float", self._range.start), cast("float", self._range.end)
        return (start - offset) / 1e3, (end - offset) / 1e3

    def _say(self, model: Model) -> None:
        activity, grid = self._activity, self._layers.grid
        start, end = self._seen(model)
        first, last = grid.cell_of(start), min(grid.cell_of(end) + 1, self._layers.end)
        seconds = seconds_of(self._lives, grid, first, last)
        running: dict[str, list[float]] = {}
        for life in self._lives:
            if life.running is not None and life.running.start <= end:
                age_s = activity.clock - life.running.start
                running.setdefault(life.running.function, []).append(age_s)
        show(self._chips, chips(seconds, running))
        said = [self._mode()]
        if not seconds and not running:
            said.append("No worker was busy in this time.")
        estimated_s = float(grid.read(activity.estimated, first, last).sum())
        said += _doubts(model, estimated_s, self._layers.left_out, activity.turned_away)
        show(self._said, f"<p>{escape(' '.join(said))}</p>")

    def _mode(self) -> str:
        if self._pause.active:
            return "It stands still, as it is paused."
        if self._is_following:
            is_live = self.view.watch.is_live
            return f"It follows {'what happens now' if is_live else 'the moment that is shown'}."
        return "It stands still where you have moved it: Follow goes on with now."


def _doubts(model: Model, estimated_s: float, left_out: int, turned_away: int) -> Iterable[str]:
    """Yield what is not certain of what is shown, or is not there."""
    snapshot = model.snapshot
    assert snapshot is not None
    skipped = sum(snapshot.skipped.get(kind, 0) for kind in ENDED)
    if estimated_s >= 1:
        yield (
            f"Of {view.duration(estimated_s)} of work, on all workers, single tasks were too many"
            " to be told: how busy workers were is exact, their colours are an estimate there."
        )
    elif skipped and not any(row.busy_s for row in snapshot.workers):
        yield (
            f"Only a sample is drawn: {view.whole(skipped)} of all events so far were too many to"
            " be told."
        )
    if left_out:
        yield f"{view.whole(left_out)} more that failed, were cancelled or retried have no room."
    if turned_away:
        yield f"{view.whole(turned_away)} workers have no row, as there are too many."


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


def chips(seconds: Mapping[str, float], running: Mapping[str, list[float]]) -> str:
    """Return HTML of the functions that took most of the time, in the order of their names.

    ``running`` is for how long tasks of each function have run that run now: who runs for long is
    never missing.
    """
    stragglers = sorted(
        (name for name, ages in running.items() if max(ages) >= STRAGGLES_S),
        key=lambda name: -max(running[name]),
    )
    most = sorted(seconds, key=lambda name: -seconds[name])[:CHIPS_MAX]
    shown = sorted({*most, *stragglers[:CHIPS_MAX]})
    more = len({*seconds, *stragglers}) - len(shown)
    drawn = "".join(_chip(name, seconds.get(name, 0.0), running.get(name, [])) for name in shown)
    return f'<div class="chips">{drawn}{f"and {more} more" if more > 0 else ""}</div>'


def _chip(function: str, seconds: float, ages: list[float]) -> str:
    name = escape(view.function_name(function))
    told = [view.duration(seconds)]
    if ages and max(ages) >= STRAGGLES_S:
        told.append(f"{view.whole(len(ages))} running, for up to {view.duration(max(ages))}")
    return (
        f'<span title="{name}"><i style="background:{look_of(function).css}"></i>{name}'
        f" <small>{', '.join(told)}</small></span>"
    )
