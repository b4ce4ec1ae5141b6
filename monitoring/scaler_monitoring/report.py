"""A report: one page that says what happened in a while, and opens anywhere without a server."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from heapq import nlargest
from importlib import resources
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bokeh.embed import json_item
from bokeh.models import ColumnDataSource
from bokeh.resources import Resources
from jinja2 import Environment

from scaler_cluster.errors import ConfigError
from scaler_monitoring.comparison import compare
from scaler_monitoring.figures import (
    STATES,
    axis_ms,
    curves,
    stream_columns,
    task_stream,
)
from scaler_monitoring.report_profile import profile_section
from scaler_monitoring.texts import plain, worker_name
from scaler_monitoring.theme import DARK, FAILED, LIGHT, SERIES, Theme, look_of
from scaler_monitoring.view import (
    binary,
    clock_time,
    count_of,
    death,
    duration,
    function_name,
    manager_names,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bokeh.plotting import figure

    from scaler_cluster.wire import feed
    from scaler_monitoring.efficiency import Efficiency
    from scaler_monitoring.model import Failures, Figures
    from scaler_monitoring.period import Period

FUNCTIONS_MAX = 200
"""Rows of the table of functions: what took longest."""
ROWS_MAX = 100
"""Workers of the task stream, those that had most to do: more rows, nobody can tell apart."""
COLOURS = ("background", "panel", "text", "muted", "grid", "accent")
"""What a theme is made of."""
PARTS = {
    "working": "running tasks, with their arguments unpickled and their results pickled",
    "overhead": "had tasks and ran none to its end: messages and objects were on their way, or the "
    "work was lost, as it was cancelled or its worker died",
    "idle": "had no tasks",
}


def write(path: str, period: Period, base: tuple[str, Period] | None = None) -> None:
    """Write the page of a period of which there was a snapshot; what was at ``path`` is replaced.

    With a ``base``, which has a name, the page says how the period differs from that. Raises
    ConfigError if it cannot be written; then nothing has changed there.
    """
    page = render(period, base)
    with _draft(path) as draft:
        draft.write_text(page, encoding="utf-8", errors="replace")
        draft.replace(_target(path))


def try_path(path: str) -> None:
    """Raise ConfigError if no page can be written there."""
    with _draft(path) as draft:
        if _target(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        draft.touch()


def _target(path: str) -> Path:
    # A link goes on leading where it leads.
    return Path(path).resolve()


@contextmanager
def _draft(path: str) -> Iterator[Path]:
    """Yield where a page may be written until it is whole; nothing is left there."""
    target = _target(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield draft
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink()


def render(period: Period, base: tuple[str, Period] | None = None) -> str:
    """Return the page of a period of which there was a snapshot, and how it differs from a base."""
    assert period.first is not None
    assert period.last is not None
    functions = period.functions()
    busy_s = sum(row.busy_s for row, _ in functions)
    figures = dict(_figures(period))
    efficiency = period.meter.efficiency()
    environment = Environment(autoescape=True)
    environment.filters["variables"] = _variables
    source = resources.files("scaler_monitoring").joinpath("report.html").read_text("utf-8")
    return environment.from_string(source).render(
        light=LIGHT,
        dark=DARK,
        failed=FAILED,
        series=SERIES,
        colours={f'"{getattr(LIGHT, name)}"': f'"{getattr(DARK, name)}"' for name in COLOURS},
        bokeh=Resources(mode="inline", components=["bokeh"]).render_js(),
        figures=figures,
        # No text in it may end the script that it stands in.
        figures_json=json.dumps(figures).replace("<", "\\u003c"),
        began=_when(period.first.time),
        ended=_when(period.last.time, period.first.time),
        passed=duration(efficiency.passed_s),
        about=_about(period.last),
        tiles=_tiles(period, efficiency),
        notes=list(_notes(period)),
        comparison=_comparison(base, period) if base is not None else None,
        parts=_parts(efficiency),
        efficiency_notes=_efficiency_notes(efficiency),
        stream_about=_stream_about(period),
        functions=[_function(row, pending, busy_s) for row, pending in functions[:FUNCTIONS_MAX]],
        function_notes=list(_function_notes(period, len(functions) - FUNCTIONS_MAX)),
        profile=profile_section(period.profile),
        curves=CURVES,
        failures=[_failure(period, row) for row in _failures(period)],
        deaths=[_death(period, row) for row in reversed(period.model.deaths)],
        machines=_machines(period.last),
        release=period.last.scheduler.release,
    )


# -- figures ---------------------------------------------------------------------------------

CURVES = (
    ("rate", "Tasks per second"),
    ("queue", "Tasks that wait or run"),
    ("memory", "Memory"),
    ("cpu", "CPUs and workers"),
)


def _figures(period: Period) -> Iterator[tuple[str, Any]]:
    """Yield what BokehJS is told of each figure, after the id of its place."""
    stream = _stream(period)
    if stream is not None:
        yield "task-stream", json_item(stream)
    curve = _apart(period)
    if len(curve) < 2:
        return
    steps = [(a.tasks, b.tasks, b.clock - a.clock) for a, b in pairwise(curve)]
    times = [axis_ms(period.model.time_of(one.clock)) for one in curve]
    states = ("waiting", "ready", "assigned", "running")
    # Nobody knows CPUs and memory before machines have said how they are.
    figures: tuple[tuple[str, str, Sequence[str], dict[str, Sequence[float]]], ...] = (
        # Of each step its rate stands at its end, and that of the first one at its beginning too.
        ("rate", "tasks/s", (SERIES[2], FAILED), {
            "done": [(after.done - before.done) / s for before, after, s in steps[:1] + steps],
            "failed": [
                (after.failed - before.failed) / s for before, after, s in steps[:1] + steps
            ],
        }),
        ("queue", "tasks", SERIES, {
            state: [getattr(one.tasks, state) for one in curve] for state in states
        }),
        ("memory", "bytes", SERIES, {
            "workers": [one.workers_rss_bytes or nan for one in curve],
            "objects": [one.objects_bytes for one in curve],
        }),
        ("cpu", "CPUs", SERIES, {
            "busy with workers": [
                one.workers_cpu if one.workers_rss_bytes else nan for one in curve
            ],
            "workers": [one.workers for one in curve],
        }),
    )  # fmt: skip
    for name, unit, palette, columns in figures:
        source = ColumnDataSource({"time": times, **columns})
        yield name, json_item(curves(source, {one: one for one in columns}, unit, LIGHT, palette))


def _apart(period: Period) -> list[Figures]:
    """Return the points of curves without those that stand so close that rates are but noise."""
    assert period.last is not None
    apart = period.curve[:1]
    for one in period.curve[1:]:
        if one.clock - apart[-1].clock >= period.last.interval_s / 2:
            apart.append(one)
        elif one is period.curve[-1] and len(apart) > 1:
            apart[-1] = one
    return apart


def _stream(period: Period) -> figure | None:
    """Return the task stream; None if no worker had any task."""
    model = period.model
    busy_s: defaultdict[str, float] = defaultdict(float)
    for work in model.stream:
        if work.worker:
            busy_s[model.label(work.worker)] += work.end - work.start
    if not busy_s:
        return None
    rows = set(nlargest(ROWS_MAX, busy_s, key=busy_s.__getitem__))
    # What ran while another waited is drawn above that.
    works = sorted(
        (work for work in model.stream if model.label(work.worker) in rows),
        key=lambda work: work.start,
    )
    columns = stream_columns(works, model.label, model.time_of)
    states = [state for state in STATES if state in columns["state"]]
    return task_stream(ColumnDataSource(columns), sorted(rows), LIGHT, states)


# -- what stands in the page, as text --------------------------------------------------------


def _variables(theme: Theme) -> str:
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in COLOURS)


def _when(at: float, before: float = 0.0) -> str:
    """Return a moment; without its date, if that is the same as of the one before."""
    day, of_day = (time.strftime(form, time.localtime(at)) for form in ("%Y-%m-%d", "%H:%M:%S"))
    is_same = before and time.strftime("%Y-%m-%d", time.localtime(before)) == day
    return of_day if is_same else f"{day} {of_day}"


def _about(last: feed.Snapshot) -> str:
    process = last.scheduler
    where = f"{process.address} on {process.host}" if process.host else process.address
    return plain(f"scheduler {where}, scaler-exec {process.release}, Python {process.python}")


def _tiles(period: Period, efficiency: Efficiency) -> list[tuple[str, str]]:
    tasks, passed_s = period.tasks(), efficiency.passed_s
    last = period.last
    assert last is not None
    return [
        ("tasks done", whole(tasks.done)),
        ("failed", whole(tasks.failed)),
        ("cancelled", whole(tasks.cancelled)),
        ("retried", whole(tasks.retried)),
        ("tasks per second", _rate(tasks.done / passed_s) if passed_s else "-"),
        ("of workers' time was work", _percent(efficiency, efficiency.working_s)),
        ("workers at the end", whole(count_of(last, "workers"))),
        ("workers that died", whole(period.deaths())),
        ("workers' memory at most", binary(period.rss_bytes_max or None)),
        ("objects at most", binary(period.objects_bytes_max)),
    ]


def _comparison(base: tuple[str, Period], period: Period) -> dict[str, Any]:
    name, before = base
    totals, functions = compare(before, period)
    left_out = len(functions) - FUNCTIONS_MAX
    return {
        "name": plain(name),
        "totals": totals,
        "functions": functions[:FUNCTIONS_MAX],
        "note": f"And {whole(left_out)} functions that differ less." if left_out > 0 else "",
    }


def _rate(per_s: float) -> str:
    return whole(per_s) if per_s >= 100 else f"{per_s:.1f}"


def _percent(efficiency: Efficiency, part_s: float) -> str:
    return f"{efficiency.share(part_s) * 100:.1f} %" if efficiency.available_s else "-"


def _parts(efficiency: Efficiency) -> list[dict[str, str]]:
    if not efficiency.available_s:
        return []
    seconds = (efficiency.working_s, efficiency.overhead_s, efficiency.idle_s)
    return [
        {
            "name": name,
            "about": about,
            "seconds": f"{part_s:,.1f}",
            "percent": f"{efficiency.share(part_s) * 100:.1f}",
        }
        for (name, about), part_s in zip(PARTS.items(), seconds, strict=True)
    ]


def _efficiency_notes(efficiency: Efficiency) -> Iterator[str]:
    if efficiency.cpu_s is not None:
        yield f"Workers used {efficiency.cpu_s:,.1f} seconds of CPUs."
    if efficiency.blocked_s:
        yield (
            f"For {efficiency.blocked_s:,.1f} s, in all, tasks only waited for others, while other "
            "workers had their place."
        )
    yield (
        "Work is measured by workers. Whether one had tasks was looked at about once a second, so "
        "in a short time overhead and idling are told apart roughly."
    )


def _notes(period: Period) -> Iterator[str]:
    """Yield what the page does not tell, and why."""
    model = period.model
    if period.is_cut_off:
        yield "The scheduler was not heard at the end: what happened last is missing."
    if model.restarts:
        yield (
            f"The scheduler was started again ({whole(model.restarts)} times): what it did in the "
            "last second before may be missing."
        )
    if model.missed:
        yield f"{whole(model.missed)} messages of the feed were missed."
    assert period.last is not None
    for table, count in period.last.left_out.items():
        yield f"{whole(count)} {table} had no room in what the scheduler told."


def _stream_about(period: Period) -> str:
    model = period.model
    told = len(model.stream)
    untold = period.untold() + model.streamed - told
    about = "A rectangle is a task, or tasks of one function that followed each other."
    if untold:
        about += (
            f" It shows {whole(told)} of {whole(told + untold)} such pieces of work, as there were "
            "too many; all numbers are of all of them."
        )
    return about + " Scroll to magnify, drag to move; under the pointer it says more."


def _function_notes(period: Period, left_out: int) -> Iterator[str]:
    if left_out > 0:
        yield f"And {whole(left_out)} functions that took less."
    inlined = period.tasks().inlined
    if inlined:
        yield (
            f"{whole(inlined)} of the tasks were run by the tasks that waited for them, and have "
            "no rectangles of their own."
        )


def _function(row: feed.Function, pending: int, busy_s: float) -> dict[str, str]:
    return {
        "look": look_of(row.name).css,
        "name": function_name(row.name),
        "done": whole(row.done),
        "failed": whole(row.failed),
        "cancelled": whole(row.cancelled),
        "retried": whole(row.retried),
        "pending": whole(pending),
        "busy": duration(row.busy_s or None),
        "each": duration(row.each_s),
        "share": f"{row.busy_s / busy_s * 100:.1f} %" if busy_s else "-",
    }


def _failures(period: Period) -> list[Failures]:
    """Return the most frequent one first; of two, the later one."""
    return sorted(period.model.failures.values(), key=lambda row: (-row.count, -row.last.at))


def _failure(period: Period, failures: Failures) -> dict[str, str]:
    last, label = failures.last, period.model.label
    title = f"{function_name(last.function)}: {plain(last.error or last.reason)}"
    where = f", on {label(last.worker)}" if last.worker else ""
    count = f"{whole(failures.count)} tasks; the last one " if failures.count > 1 else ""
    return {
        "title": f"{title}{': ' if last.message else ''}{plain(last.message)}",
        "about": f"{count}at {clock_time(period.model, last.at)}, attempt {last.attempt}, "
        f"{last.reason}{where}",
        "traceback": last.traceback,
    }


def _death(period: Period, event: feed.WorkerDied) -> dict[str, str]:
    peak = event.peak_rss_bytes
    # Of one that was out of memory, the title says it.
    is_told = peak and not event.out_of_memory
    memory = f", {binary(peak)} of memory at most" if is_told else ""
    return {
        "title": f"{worker_name(event)}: {death(event)}",
        "about": f"{clock_time(period.model, event.at)}, on {plain(event.host)}{memory}",
        "stderr": event.stderr_tail,
    }


def _machines(last: feed.Snapshot) -> list[dict[str, str]]:
    names = manager_names(last.machines)
    return [
        {
            "name": names[row.machine],
            "workers": whole(row.workers),
            "cpus": whole(row.cpus or None),
            "cpu": "-" if row.cpu is None else f"{row.cpu:.1f}",
            "memory": binary(row.memory_bytes),
            "free": binary(row.free_bytes),
        }
        for row in last.machines
    ]
