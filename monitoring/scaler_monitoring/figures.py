"""Figures that the dashboard and the report have in common, made with Bokeh.

None has code in it that a browser would have to evaluate: it may be forbidden by the page. What
users have named reaches the page as data, and is shown as text.
"""

from __future__ import annotations

import time
from itertools import cycle
from typing import TYPE_CHECKING, Any

from bokeh.models import (
    AdaptiveTicker,
    BoxZoomTool,
    CDSView,
    ColumnDataSource,
    DataRange1d,
    DatetimeTicker,
    DatetimeTickFormatter,
    FactorRange,
    GroupFilter,
    HoverTool,
    NoOverlap,
    NumeralTickFormatter,
    PanTool,
    ResetTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Title
from bokeh.plotting import figure

from scaler_monitoring.texts import short
from scaler_monitoring.theme import FAILED, look_of
from scaler_monitoring.view import NO_NAME, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bokeh.models.renderers import DataRenderer

    from scaler_monitoring.theme import Theme
    from scaler_monitoring.work import Work

TASK_STREAM_COLUMNS = (
    "left", "right", "worker", "function", "colour", "pattern", "tasks", "took", "state", "attempt",
    "why",
)  # fmt: skip
TIMES = 5
"""Written along the axis of a curve: there is room for more, but not on a phone."""
ROW_PIXELS = 26
"""What the row of a worker is high."""
ROWS_PIXELS_MIN, ROWS_PIXELS_MAX = 130, 800
"""Of all of them together: there is room for the tools, and the figure fits a screen."""
CLOCK: dict[str, Any] = dict.fromkeys(("microseconds", "milliseconds"), "%H:%M:%S.%3N")
CLOCK |= dict.fromkeys(("seconds", "minsec"), "%H:%M:%S")
CLOCK |= dict.fromkeys(("minutes", "hourmin", "hours"), "%H:%M") | {"days": "%d %b"}
"""How moments are written, the closer together the more precisely."""

STATES = {
    "done": ("pattern", None),
    "failed": ("x", FAILED),
    "cancelled": ("/", None),
    "retried": (".", None),
}
"""How work is drawn that ended so: its pattern, or that of its function, and its edge's colour."""
HATCH = "#000000"
"""Of patterns: the colours of functions are between black and white on any background."""
DASHES = ("solid", "dashed", "dotted", "dotdash")
"""Of curves, whose colours not everybody can tell apart."""
UNITS = {
    "bytes": "0.0 b",
    "CPUs": "0.[0000]",
    "s": "0.[000]",
    "tasks": "0,0",
    "tasks/s": "0,0.[0]",
    "%": "0 %",
}
"""How numbers of a unit are written."""


def axis_ms(at: float) -> float:
    """Return seconds since 1970 as a time axis wants them: it knows no time zones but UTC."""
    return (at + time.localtime(at).tm_gmtoff) * 1e3


def stream_columns(
    works: Iterable[Work],
    name_of_worker: Callable[[bytes], str],
    time_of: Callable[[float], float],
) -> dict[str, list[Any]]:
    """Return the columns of :func:`task_stream`, of what workers had.

    ``name_of_worker`` and ``time_of`` are ``label`` and ``time_of`` of the model.
    """
    columns: dict[str, list[Any]] = {name: [] for name in TASK_STREAM_COLUMNS}
    add = [column.append for column in columns.values()]
    for work in works:
        if not work.worker:
            continue
        took_s = work.end - work.start
        took = duration(took_s)
        if work.count > 1:
            took += f", {duration(took_s / work.count)} each"
        name = short(work.function) or NO_NAME
        look = look_of(work.function)
        row = (
            axis_ms(time_of(work.start)), axis_ms(time_of(work.end)), name_of_worker(work.worker),
            name, look.colour, look.pattern, work.count, took, work.state, work.attempt,
            short(work.error or work.reason) or "-",
        )  # fmt: skip
        for append, value in zip(add, row, strict=True):
            append(value)
    return columns


def task_stream(
    source: ColumnDataSource,
    workers: Sequence[str],
    theme: Theme,
    states: Iterable[str] = tuple(STATES),
    **options: Any,
) -> figure:
    """Return what workers did when: a rectangle for each piece of work, colours by function.

    ``source`` has TASK_STREAM_COLUMNS, ``workers`` are the rows from the top: for others later on,
    set ``y_range.factors``, the first one at the bottom. ``states`` are those that may come up,
    ``options`` the figure's own.
    """
    rows_pixels = min(max(ROW_PIXELS * len(workers), ROWS_PIXELS_MIN), ROWS_PIXELS_MAX)
    page = figure(
        x_axis_type="datetime",
        y_range=FactorRange(factors=list(reversed(workers))),
        tools=[],
        **({"height": 90 + rows_pixels} | LOOK | options),
    )
    shown: list[DataRenderer] = []
    for state in states:
        pattern, edge = STATES[state]
        rectangles = page.hbar(
            y="worker", left="left", right="right", height=0.82, source=source,
            view=CDSView(filter=GroupFilter(column_name="state", group=state)),
            fill_color="colour", fill_alpha=0.85,
            # So that what is thinner than a pixel is seen.
            line_color=edge or "colour", line_width=2 if edge else 1,
            hatch_pattern=pattern, hatch_color=edge or HATCH, hatch_alpha=0.7, hatch_scale=7,
            legend_label=state,
        )  # fmt: skip
        shown.append(rectangles)
    page.add_tools(
        HoverTool(
            renderers=shown,
            point_policy="follow_mouse",
            tooltips=[
                ("function", "@function"),
                ("tasks", "@tasks{0,0}"),
                ("took", "@took"),
                ("worker", "@worker"),
                ("state", "@state"),
                ("attempt", "@attempt"),
                ("why", "@why"),
            ],
        )
    )
    page.ygrid.grid_line_color = None
    page.yaxis.major_label_policy = NoOverlap()
    page.toolbar.active_scroll = add_time(page)
    dress(page, theme)
    return page


def curves(
    source: ColumnDataSource,
    series: Mapping[str, str],
    unit: str,
    theme: Theme,
    colours: Sequence[str],
    **options: Any,
) -> figure:
    """Return lines over time.

    ``source`` has the column "time", by :func:`axis_ms`, and those of ``series``, whose values are
    what the lines are called; ``unit`` is one of UNITS. ``options`` are the figure's own.
    """
    page = figure(
        x_axis_type="datetime",
        y_range=DataRange1d(start=0),
        y_axis_label=unit,
        tools=[],
        **({"height": 240} | LOOK | options),
    )
    lines: list[DataRenderer] = [
        page.line(
            "time", column, source=source, color=colour, line_dash=dash, line_width=2,
            legend_label=label,
        )
        for (column, label), colour, dash in zip(
            series.items(), cycle(colours), cycle(DASHES), strict=False
        )
    ]  # fmt: skip
    form = UNITS[unit]
    page.add_tools(
        HoverTool(
            # Each would show the same.
            renderers=lines[:1],
            mode="vline",
            line_policy="nearest",
            point_policy="follow_mouse",
            tooltips=[
                ("at", "@time{%H:%M:%S}"),
                *((label, f"@{{{column}}}{{{form}}}") for column, label in series.items()),
            ],
            formatters={"@time": "datetime"},
        )
    )
    page.yaxis.formatter = NumeralTickFormatter(format=form)
    if unit == "bytes":
        page.yaxis.axis_label = None
        page.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=[1, 2, 4, 8, 16, 32, 64, 128, 256])
    elif unit == "tasks":
        page.yaxis.ticker = AdaptiveTicker(min_interval=1)
    page.xaxis.ticker = DatetimeTicker(desired_num_ticks=TIMES)
    add_time(page)
    dress(page, theme)
    return page


# Else most of what it shows would be gone, and grey, while it is moved.
LOOK: dict[str, Any] = {"sizing_mode": "stretch_width", "lod_threshold": None}


def add_time(page: figure) -> WheelZoomTool:
    """Let a figure be moved and magnified along its time axis; return what the wheel may do."""
    wheel = WheelZoomTool(dimensions="width")
    page.add_tools(PanTool(dimensions="width"), BoxZoomTool(dimensions="width"), wheel, ResetTool())
    page.toolbar.logo = None
    page.xaxis.formatter = DatetimeTickFormatter(**CLOCK)
    page.xaxis.major_label_policy = NoOverlap()
    return wheel


def dress(page: figure, theme: Theme) -> None:
    """Give a figure the colours of a theme."""
    page.background_fill_color = page.border_fill_color = theme.panel
    page.outline_line_color = theme.grid
    page.min_border_right = 20
    if isinstance(page.title, Title):
        page.title.text_color = theme.text
    for axis in page.axis:
        axis.axis_label_text_color = axis.major_label_text_color = theme.muted
        axis.axis_label_text_font_style = "normal"
        axis.major_label_text_font_size = "12px"
        axis.axis_line_color = axis.major_tick_line_color = theme.muted
        axis.minor_tick_line_color = None
    for grid in page.grid:
        if grid.grid_line_color is not None:
            grid.grid_line_color = theme.grid
    for legend in page.legend:
        page.add_layout(legend, "above")
        legend.orientation = "horizontal"
        legend.label_text_color = theme.text
        legend.label_text_font_size = "12px"
        legend.background_fill_color = legend.border_line_color = None
        legend.click_policy = "hide"
        legend.update(padding=2, margin=2, spacing=10)
