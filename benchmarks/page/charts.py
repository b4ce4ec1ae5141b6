"""The charts of the page, each a figure of Bokeh."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from bokeh.models import ColumnDataSource, HoverTool
from bokeh.models.annotations import Whisker
from bokeh.plotting import figure
from bokeh.transform import dodge

from benchmarks.page.data import TITLES
from benchmarks.report import number
from benchmarks.scenarios.ladders import COUNTS, WORKER_COUNTS
from benchmarks.scenarios.objects import ECHOES
from scaler_monitoring.theme import SERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.page.data import Data

DASHES = ("solid", "dashed", "dotted")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star", "hex", "plus")
ROW_HEIGHT, FRAME_HEIGHT, LINES_HEIGHT = 30, 110, 420


class Chart(NamedTuple):
    """A figure and what it shows."""

    title: str
    about: str
    figure: Any


class Dots(NamedTuple):
    """A chart of a row for each peer, or for each scenario, and a dot for each figure."""

    title: str
    about: str
    unit: str
    series: dict[str, tuple[str, str]]
    """Scenario and metric, by what the legend calls them."""
    is_log: bool = True
    value: Callable[[float], float] = float


def _us(rate: float) -> float:
    return 1e6 / rate


DOTS = (
    Dots(
        "Overhead",
        "Microseconds that a task costs which does nothing, by a map of many and by submits.",
        "µs per task",
        {"map": ("map_noop", "rate"), "map in chunks of 100": ("map_chunked", "rate"),
         "submit, then collect": ("submit_collect", "rate")},
        value=_us,
    ),
    Dots(
        "Latency",
        "From the submit of a lone task to its result: the median and the 99th percentile.",
        "µs",
        {"median": ("round_trip", "p50"), "99th percentile": ("round_trip", "p99")},
    ),
    Dots(
        "Short tasks",
        "How well two workers are kept busy, compared with a plain loop of half of the tasks.",
        "% of the ideal",
        {"1 ms, sleeping": ("tasks_1ms", "efficiency"),
         "10 ms, busy": ("tasks_10ms", "efficiency")},
        is_log=False,
    ),
    Dots(
        "Uneven tasks",
        "190 tasks of 10 ms and 10 of 200 ms: measured time / ideal time, where 1 is ideal.",
        "x ideal",
        {f"long ones: {order}": (f"uneven_{order}", "ideal")
         for order in ("block", "tail", "alternate")},
        is_log=False,
    ),
    Dots(
        "Start and end",
        "Seconds from the constructor to the first result, without imports, and of the shutdown.",
        "s",
        {"start to first result": ("lifecycle", "start"), "shutdown": ("lifecycle", "shutdown")},
    ),
    Dots(
        "Memory",
        "What all child processes hold for themselves when idle, and what 100 tasks add that share "
        "an array of 100 MB.",
        "MB",
        {"idle": ("lifecycle", "memory"), "100 MB shared": ("broadcast", "memory")},
    ),
    Dots(
        "Memory of queued tasks",
        "Bytes that a queued task takes in the client and in the cluster, of 10,000.",
        "bytes per task",
        {"client": ("queue_depth_1e4", "client_memory"),
         "cluster": ("queue_depth_1e4", "cluster_memory")},
    ),
    Dots(
        "An array of 100 MB",
        "Seconds until 100 tasks have used it, passed in the way that is best for each peer.",
        "s",
        {"shared by 100 tasks": ("broadcast", "seconds")},
    ),
    Dots(
        "Graphs",
        "Nodes a second of graphs whose tasks do next to nothing. More is better.",
        "nodes/s",
        {name: (f"graph_{name}", "rate") for name in ("tree", "chain", "fan", "stencil")},
    ),
    Dots(
        "Tasks that submit tasks",
        "Tasks a second of a tree where each waits for two more. More is better.",
        "tasks/s",
        {"fibonacci": ("nested_fibonacci", "rate")},
    ),
)  # fmt: skip


class Ladder(NamedTuple):
    """A chart of a line for each peer."""

    title: str
    about: str
    scenario: str
    across: str
    unit: str
    steps: dict[str, float]
    """Where on the axis a metric is."""


LADDERS = (
    Ladder(
        "Sizes",
        "An array there and back, by its size.",
        "echo",
        "bytes",
        "ms",
        {name: float(nbytes) for name, nbytes in ECHOES.items()},
    ),
    Ladder(
        "Number of tasks",
        "Tasks a second of a map, by the number of its tasks.",
        "many_tasks",
        "tasks",
        "tasks/s",
        {name: float(count) for name, count in COUNTS.items()},
    ),
    Ladder(
        "Number of workers",
        "40 sleeps of 10 ms for each worker: ideal time / measured time. There are more workers "
        "than cores: this shows what the engine costs, as sleep needs no core.",
        "many_workers",
        "workers",
        "% of the ideal",
        {name: float(count) for name, count in WORKER_COUNTS.items()},
    ),
)


def colour(place: int) -> str:
    """Return the colour of a series."""
    return SERIES[place % len(SERIES)]


def charts(data: Data, past: list[dict[str, Any]]) -> Iterator[Chart]:
    """Yield all charts for which there are figures."""
    for dots in DOTS:
        rows = [
            peer
            for peer in data.peers
            if any(data.figure(name, peer, metric) for name, metric in dots.series.values())
        ]
        if rows:
            points = {
                label: {TITLES[peer]: (name, peer, metric) for peer in rows}
                for label, (name, metric) in dots.series.items()
            }
            drawn = _dots(data, [TITLES[peer] for peer in rows], points, dots)
            yield Chart(dots.title, dots.about, drawn)
    workloads = [name for name in data.scenarios if name.startswith("workload_")]
    ran = [peer for peer in data.peers if any(data.figure(w, peer, "seconds") for w in workloads)]
    if ran:
        points = {TITLES[p]: {name: (name, p, "seconds") for name in workloads} for p in ran}
        about = "Seconds of computations of Dask, from compute to the value."
        dots = Dots("Workloads of Dask", about, "s", {})
        yield Chart(dots.title, about, _dots(data, workloads, points, dots))
    for ladder in LADDERS:
        if data.scenarios.get(ladder.scenario, {}).get("peers"):
            yield Chart(ladder.title, ladder.about, _lines(data, ladder))
    if past:
        about = "Our figures of all runs: how many times as good as in the first one."
        yield Chart("History", about, _history(past))


def _frame(unit: str, *, is_log: bool, height: int, **more: Any) -> Any:
    plot = figure(
        x_axis_type="log" if is_log else "linear",
        x_axis_label=unit,
        height=height,
        sizing_mode="stretch_width",
        tools="pan,wheel_zoom,box_zoom,reset,save",
        active_scroll=None,
        **more,
    )
    plot.toolbar.logo = None
    return plot


def _dots(
    data: Data, rows: list[str], points: dict[str, dict[str, tuple[str, str, str]]], dots: Dots
) -> Any:
    """Draw dots with their spread; the text of each says how it compares with ours."""
    height = FRAME_HEIGHT + ROW_HEIGHT * len(rows) + 10 * len(points)
    plot = _frame(dots.unit, is_log=dots.is_log, height=height, y_range=rows[::-1])
    width = 0.7 / len(points)
    for place, (label, by_row) in enumerate(points.items()):
        columns: dict[str, list[Any]] = {name: [] for name in ("row", "x", "low", "high", "text")}
        for row, (scenario, peer, metric) in by_row.items():
            found = data.figure(scenario, peer, metric)
            if found is None or (dots.is_log and found.low <= 0):
                continue
            low, high = sorted((dots.value(found.low), dots.value(found.high)))
            texts = (row, dots.value(found.median), low, high, _text(data, scenario, peer, metric))
            for column, value in zip(columns.values(), texts, strict=True):
                column.append(value)
        source = ColumnDataSource(columns)
        at = dodge("row", 0.35 - width * (place + 0.5), range=plot.y_range)
        ink = colour(place)
        plot.add_layout(
            Whisker(
                base=at, lower="low", upper="high", source=source, dimension="width", line_color=ink
            )
        )
        drawn = plot.scatter(
            "x", at, source=source, size=9, color=ink, legend_label=label,
            marker=MARKERS[place % len(MARKERS)],
        )  # fmt: skip
        tip = [(label, "@x{0,0.[000]} (@low{0,0.[000]} .. @high{0,0.[000]})"), ("", "@text")]
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=tip))
    plot.add_layout(plot.legend[0], "above")
    plot.legend.orientation, plot.legend.click_policy = "horizontal", "hide"
    return plot


def _text(data: Data, scenario: str, peer: str, metric: str) -> str:
    ratio = data.ratio(scenario, metric, peer)
    if peer == "ours" or ratio is None:
        return TITLES[peer]
    if ratio >= 1:
        return f"{TITLES[peer]}: ours is {number(ratio)} times as good"
    return f"{TITLES[peer]} is {number(1 / ratio)} times as good as ours"


def _lines(data: Data, ladder: Ladder) -> Any:
    """Draw a line for each peer, with the spread."""
    height, unit = LINES_HEIGHT, ladder.unit
    plot = _frame(ladder.across, is_log=True, height=height, y_axis_type="log", y_axis_label=unit)
    for place, peer in enumerate(data.peers):
        steps = ladder.steps.items()
        found = [(at, data.figure(ladder.scenario, peer, metric)) for metric, at in steps]
        known = [(at, one) for at, one in found if one is not None]
        if not known:
            continue
        source = ColumnDataSource(
            {
                "x": [at for at, _ in known],
                "y": [one.median for _, one in known],
                "low": [one.low for _, one in known],
                "high": [one.high for _, one in known],
            }
        )
        _line(plot, source, TITLES[peer], place, 3 if peer == "ours" else 1.5)
        plot.add_layout(
            Whisker(base="x", lower="low", upper="high", source=source, line_color=colour(place))
        )
    plot.add_layout(plot.legend[0], "right")
    plot.legend.click_policy = "hide"
    return plot


def _line(plot: Any, source: Any, label: str, place: int, width: float) -> None:
    """Draw a line that is told apart by colour, dashes and marks."""
    plot.line(
        "x", "y", source=source, color=colour(place), line_width=width, legend_label=label,
        line_dash=DASHES[place // len(SERIES) % len(DASHES)],
    )  # fmt: skip
    drawn = plot.scatter(
        "x", "y", source=source, color=colour(place), size=7, legend_label=label,
        marker=MARKERS[place % len(MARKERS)],
    )  # fmt: skip
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=[(label, "@y{0,0.[000]}"), ("", "@x")]))


def _history(past: list[dict[str, Any]]) -> Any:
    """Draw how the first metric of each scenario went, of ours, relative to its first run."""
    plot = _frame("", is_log=False, height=LINES_HEIGHT, y_axis_type="log")
    plot.yaxis.axis_label = "times as good as in the first run"
    runs: dict[str, list[tuple[float, float]]] = {}
    for number_of_run, run in enumerate(past, 1):
        seen = set()
        for one in run["benchmarks"]:
            better, median = one["extra_info"]["better"], one["stats"]["median"]
            if one["params"]["peer"] != "ours" or one["group"] in seen or not better or median <= 0:
                continue
            seen.add(one["group"])
            good = median if better == "more" else 1 / median
            runs.setdefault(one["group"], []).append((number_of_run, good))
    for place, (name, points) in enumerate(runs.items()):
        first = points[0][1]
        columns = {"x": [at for at, _ in points], "y": [good / first for _, good in points]}
        _line(plot, ColumnDataSource(columns), name, place, 1.5)
    when = [dt.datetime.fromisoformat(run["datetime"]) for run in past]
    plot.xaxis.ticker = list(range(1, len(past) + 1))
    plot.xaxis.major_label_overrides = {
        at: f"{one:%Y-%m-%d} {run['commit_info']['id']}"
        for at, (one, run) in enumerate(zip(when, past, strict=True), 1)
    }
    plot.xaxis.major_label_orientation = math.pi / 6
    plot.add_layout(plot.legend[0], "right")
    return plot
