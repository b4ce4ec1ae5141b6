"""Where the time of tasks goes: a flame graph of what was sampled, and what runs now is at."""

from __future__ import annotations

from html import escape
from math import inf
from pathlib import PurePath
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bokeh.layouts import column
from bokeh.models.widgets.buttons import Button, Toggle
from bokeh.models.widgets.inputs import Select, TextInput

from scaler_cluster.call_tree import Frame
from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import html
from scaler_monitoring.dashboard.links import function_url, work_url, worker_url
from scaler_monitoring.dashboard.page import Page, in_one
from scaler_monitoring.dashboard.parts import (
    NUMBER,
    PERCENT,
    WHOLE,
    Column,
    Table,
    controls,
    inputs_style,
    panel,
    show,
    text,
)
from scaler_monitoring.dashboard.profiling import LEASE_S
from scaler_monitoring.dashboard.seen_figure import SeenFigure
from scaler_monitoring.dashboard.speedscope_file import PATH
from scaler_monitoring.flame import Flame, flame, node_of
from scaler_monitoring.flame_figure import FlameFigure
from scaler_monitoring.profiled import Profiled, Seen, functions
from scaler_monitoring.theme import look_of

if TYPE_CHECKING:
    from bokeh.models.ui.ui_element import UIElement

    from scaler_cluster.call_tree import CallTree
    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Model

WINDOWS: list[Any] = [
    ("15", "15 seconds"),
    ("60", "1 minute"),
    ("300", "5 minutes"),
    ("1800", "30 minutes"),
]
WINDOW = "60"
REDRAWN = 100
"""Long times change slowly: they are drawn anew after one part of so many."""
ALL = ""
EVERY: list[Any] = [(ALL, "all")]
FUNCTIONS_MAX = 100
"""To choose from."""
ROWS_MAX = 200
WIDTH = 1000
"""Of the figure, as long as nobody knows it."""
NOT_RECORDED = (
    "No samples were recorded up to this moment: scaler_record takes them in with --profile. A "
    "history has none."
)
WAITING = "Workers are being asked what their tasks are at."
NOTHING = "No task was seen in this time."


class Profile(Page):
    """Has tasks sampled as long as it is open and not paused; of a recording, shows the samples."""

    path = "/profile"
    is_quick = True

    def build(self) -> UIElement:
        """Return its parts."""
        theme = self.view.theme
        css: list[Any] = [inputs_style(theme)]
        self._window = Select(
            title="Time shown", options=WINDOWS, value=WINDOW, width=130, stylesheets=css
        )
        self._function = Select(
            title="Functions of tasks", options=[*EVERY], value=ALL, width=200,
            stylesheets=css,
        )  # fmt: skip
        self._find = TextInput(title="Functions with this stand out", width=220, stylesheets=css)
        self._out = Button(label="Zoom out", width=100, visible=False, stylesheets=css)
        self._follow = Button(label="Follow", width=90, visible=False, stylesheets=css)
        self._pause = Toggle(label="Pause", width=90, stylesheets=css)
        self._said, self._link, self._stack = (text("", theme, html.STYLE) for _ in range(3))
        self._figure = FlameFigure(theme)
        self._seen_figure = SeenFigure(theme, self._on_range)
        self._functions = Table(_FUNCTIONS, theme, nothing=NOTHING, label="functions")
        self._running = Table(
            _RUNNING, theme, key="key", nothing="No task runs.", label="tasks that run"
        )
        self._running.on_choose(self._on_task)
        self._path: tuple[Frame, ...] = ()
        """What is zoomed into, from the outermost call on."""
        self._range: tuple[float, float] | None = None
        """The time that somebody chose; None: the latest."""
        self._seen: Seen | None = None
        self._heard: tuple[object, ...] = ()
        """What the page has taken in."""
        self._is_old = True
        """There is more than what is drawn."""
        self._of: Profiled | None = None
        """What that is taken from."""
        self._shown = Flame([], 0, 0)
        self._drawn_at = -inf
        self._width = WIDTH
        self._rows: dict[str, feed.Running] = {}
        self._window.on_change("value", self._on_choice)
        self._function.on_change("value", self._on_function)
        self._find.on_change("value_input", self._on_choice)
        self._pause.on_change("active", self._on_choice)
        self._out.on_click(lambda: self._zoom(()))
        self._follow.on_click(lambda: self._on_range(None))
        self._figure.source.selected.on_change("indices", self._on_tap)
        self._figure.root.on_change("inner_width", self._on_width)
        return column(
            controls(
                self._window, self._function, self._find, self._out, self._follow, self._pause
            ),
            self._said,
            self._figure.root,
            panel(
                "When tasks were seen", theme, self._seen_figure.root,
                about="Choose a part of it to see the graph of that time.",
            ),
            self._link,
            panel(
                "Functions", theme, self._functions.root,
                about="Those that took the most time themselves.",
            ),
            panel(
                "What runs now", theme, self._running.root, self._stack,
                about="A task that is chosen shows what it is at.",
            ),
            sizing_mode="stretch_width",
        )  # fmt: skip

    # -- what is chosen --------------------------------------------------------------------

    def _on_choice(self, name: str, old: object, new: object) -> None:
        self._draw_now()

    def _on_width(self, name: str, old: object, new: int) -> None:
        self._width = new
        self._draw_now()

    def _on_function(self, name: str, old: object, new: str) -> None:
        if new != self._root_name():
            self._zoom((Frame.of(new, "", 0),) if new else ())

    def _on_tap(self, name: str, old: object, new: list[int]) -> None:
        if not new or self._seen is None:
            return
        tree, bars = self._seen.tree, self._shown.bars
        self._figure.source.selected.indices = []
        if new[0] < len(bars):
            self._zoom(tuple(tree.frames[one] for one in tree.path(bars[new[0]].node)))

    def _on_range(self, chosen: tuple[float, float] | None) -> None:
        self._range = chosen
        self._draw_now()

    def _zoom(self, path: tuple[Frame, ...]) -> None:
        self._path = path
        self._draw_now()

    def _root_name(self) -> str:
        return self._path[0].name if self._path else ALL

    def _draw_now(self) -> None:
        document = self.root.document
        if document is not None and self.view.watch.profiled is not None:
            in_one(document, self._draw)

    # -- what is shown ---------------------------------------------------------------------

    def update(self, model: Model) -> None:
        """Show what is known now."""
        watch = self.view.watch
        profiling, profiled = watch.profiling, watch.profiled
        if profiled is None or self._pause.active:
            return
        snapshot = model.snapshot
        assert snapshot is not None
        if profiling is not None:
            profiling.want(LEASE_S + 2 * snapshot.interval_s)
        heard = model, profiled, profiled.heard, profiling and profiling.refusal
        if heard != self._heard:
            self._heard = heard
            self._show_running(model, profiled)
            self._is_old = True
        self._on_task(self._running.chosen)
        step_s = float(self._window.value) / REDRAWN
        is_other = not watch.is_live or profiled is not self._of
        is_due = self._is_old and self._range is None and clock() - self._drawn_at >= step_s
        if is_other or is_due:
            self._draw()
        now = watch.now
        self._seen_figure.update(profiled, self._times(), watch.time_of(now) - now)

    def _times(self) -> tuple[float, float]:
        """Return the time that is shown, by our clock."""
        now = self.view.watch.now
        return self._range or (now - float(self._window.value), now)

    def _draw(self) -> None:
        watch = self.view.watch
        profiling, profiled = watch.profiling, watch.profiled
        assert profiled is not None
        if not self._pause.active or self._seen is None:
            self._drawn_at, self._of, self._is_old = clock(), profiled, False
            self._seen = profiled.seen(*self._times())
        seen = self._seen
        tree = seen.tree
        top = node_of(tree, self._path)
        # As far as it is there in this time: the rest of the path comes back with its calls.
        self._shown = flame(tree, top)
        found = self._find.value_input.strip().lower()
        self._figure.show(tree, self._shown, self._width, found)
        self._figure.root.visible = bool(self._shown.bars)
        self._out.visible = bool(self._path)
        self._follow.visible = self._range is not None
        names = functions(tree)[:FUNCTIONS_MAX]
        options: list[Any] = [*EVERY, *((one, texts.short(one)) for one in names)]
        if self._root_name() not in dict(options):
            options.append((self._root_name(), texts.short(self._root_name())))
        if self._function.options != options:
            self._function.options = options
        if self._function.value != self._root_name():
            self._function.value = self._root_name()
        self._functions.update(_function_rows(tree, top))
        sentences = said(seen, self._shown)
        if profiling is not None and profiling.refusal:
            sentences = profiling.refusal
        elif not profiled.by_time():
            sentences = WAITING if profiling is not None else NOT_RECORDED
        show(self._said, f"<p>{escape(texts.plain(sentences))}</p>")
        show(self._link, self._download() if seen.samples else "")

    def _download(self) -> str:
        """Return HTML of a link to the file of what is shown; the latest goes on until then."""
        start, end = self._times()
        asked = {"last": self._window.value}
        if self._range is not None:
            asked = {"start": f"{start:.0f}", "end": f"{end:.0f}"}
        home, _, query = self.view.links["/"].partition("?")
        where = f"{home.rstrip('/')}{PATH}?{urlencode(asked)}{'&' * bool(query)}{query}"
        return (
            f'<p><a href="{escape(where)}" download>Save this</a> as a file for speedscope.app</p>'
        )

    def _show_running(self, model: Model, profiled: Profiled) -> None:
        self._rows = {_key(one): one for one in profiled.running[:ROWS_MAX]}
        self._running.update([_running_row(model, key, one) for key, one in self._rows.items()])

    def _on_task(self, key: str) -> None:
        one = self._rows.get(key)
        show(self._stack, _stack(one) if one is not None else "")


def said(seen: Seen, shown: Flame) -> str:
    """Return what there is to say of what is shown."""
    if not seen.samples:
        return NOTHING
    whole_s, samples = view.duration(seen.tree.total_us / 1e6), seen.samples
    off = f"{100 / samples**0.5:.1f} points"
    parts = [
        f"{html.many(samples, 'sample')} of {whole_s} of tasks.",
        f"A share is off by less than {off} in 19 of 20 cases.",
    ]
    if seen.skipped:
        parts.append(f"{html.many(seen.skipped, 'more sample')} found no room.")
    if shown.left_out:
        parts.append(f"{html.many(shown.left_out, 'call')} more has no room: choose a bar above.")
    return " ".join(parts)


_FUNCTIONS = (
    Column("function", "function", width=220),
    Column("where", "where", width=200, is_minor=True),
    Column("own", "itself", PERCENT, 70),
    Column("whole", "with all it calls", PERCENT, 110),
    Column("own_s", "itself (s)", NUMBER, 80, is_minor=True),
    Column("whole_s", "with all it calls (s)", NUMBER, 130, is_minor=True),
)


def _function_rows(tree: CallTree, top: int) -> list[dict[str, Any]]:
    """Return the functions below a node that took the most time themselves."""
    total = tree.whole_us()[top]
    seen = {frame: us for frame, us in tree.by_frame(top).items() if frame.file}
    ordered = sorted(seen, key=lambda one: (-seen[one][0], -seen[one][1], one))
    return [
        {
            "function": texts.short(one.name),
            "where": _where(one),
            "own": seen[one][0] / total,
            "whole": seen[one][1] / total,
            "own_s": round(seen[one][0] / 1e6, 3),
            "whole_s": round(seen[one][1] / 1e6, 3),
        }
        for one in ordered[:ROWS_MAX]
    ]


def _where(frame: Frame) -> str:
    """Return the end of a path, which says most."""
    folder, file = PurePath(frame.file).parts[-2:-1], PurePath(frame.file).name
    return texts.plain(f"{'/'.join((*folder, file))}:{frame.line}")


_RUNNING = (
    Column("worker", "worker", width=150, link="worker_href", is_minor=True),
    Column("task", "task", width=130, link="task_href"),
    Column("function", "function", width=180, link="function_href", look="look"),
    Column("age", "for (s)", WHOLE, 70),
    Column("at", "is at", width=320),
)


def _key(one: feed.Running) -> str:
    return f"{one.worker.hex()} {one.session} {one.task}"


def _running_row(model: Model, key: str, one: feed.Running) -> dict[str, Any]:
    lines = [line.strip() for line in one.stack.strip().splitlines()]
    return {
        "key": key,
        "worker": model.label(one.worker),
        "worker_href": worker_url(one.worker),
        "task": view.task_name(one.session, one.task),
        "task_href": work_url(one.session, one.task),
        "function": view.function_name(one.function),
        "function_href": function_url(one.function) if one.function else "",
        "look": look_of(one.function).css,
        "age": int(one.age_s),
        "at": texts.short(lines[-1] if lines else one.reason),
    }


def _stack(one: feed.Running) -> str:
    """Return HTML of what a task is at."""
    about = {
        "task": view.task_name(one.session, one.task),
        "runs for": view.duration(one.age_s),
        "no stack": texts.plain(one.reason),
    }
    return html.facts(about) + html.printed("Stack", one.stack)
