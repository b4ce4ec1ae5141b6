"""All that is known of one task: its attempts, where it waited and ran, and how it failed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from scaler_cluster.ids import session_label
from scaler_monitoring import texts, view
from scaler_monitoring.dashboard import html

if TYPE_CHECKING:
    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Failures, Model
    from scaler_monitoring.work import Work


def failure_detail(model: Model, failures: Failures) -> str:
    """Return HTML of the last failure of a kind."""
    last = failures.last
    head = f"<h3>{html.many(failures.count, 'task')} failed so; this is the last</h3>"
    task = html.work_link(last.session, last.first, last.count)
    at = view.clock_time(model, last.at)
    return head + _detail(model, last, {"task": task, "at": at})


def task_detail(model: Model, name: str) -> str:
    """Return HTML of a task, by its name or that of contiguous ones, whose first it is."""
    number = view.task_number(name)
    head = f"<h2>Task {escape(name)}</h2>"
    if number is None:
        return head + html.nothing("That is no number of a task: they look like 3:17.")
    label, task = number
    sessions = {one.session for one in model.stream} | {one.session for one in model.ledger.failed}
    assert model.snapshot is not None
    sessions |= {one.session for one in model.snapshot.workers if one.tasks}
    parts = [
        part
        for session in sorted(sessions)
        if session_label(session) == label
        for part in _task(model, session, task)
    ]
    if not parts:
        parts = [
            html.nothing(
                "No event told of it in the last half hour: it has not begun, ended before, or was "
                "one of those that the scheduler left out, as there were too many."
            )
        ]
    return head + "".join(parts)


def _task(model: Model, session: int, task: int) -> list[str]:
    """Return HTML of each attempt of a task, the last one first."""
    assert model.snapshot is not None
    parts = [
        "<h3>Running now</h3>"
        + html.facts(
            {
                "function": html.function_link(one.function),
                "worker": html.worker_link(model, one.worker),
                "running": f"for {view.duration(one.age_s)}, at most",
            }
        )
        for one in model.snapshot.workers
        if one.tasks and (one.session, one.task) == (session, task)
    ]
    assigned = model.ledger.assignments(session, task)
    for work in reversed(model.ledger.attempts(model.stream, session, task)):
        title = f"<h3>Attempt {work.attempt}: {escape(work.state)}</h3>"
        parts.append(title + _detail(model, work, _stages(model, work, assigned)))
    return parts


def _stages(model: Model, work: Work, assigned: list[feed.Assigned]) -> dict[str, html.Text]:
    """Return when what happened, as far as events told."""
    took_s = work.end - work.start
    before = [one.at for one in assigned if one.worker == work.worker and one.at <= work.end]
    each = ""
    if work.count > 1:
        name = view.task_name(work.session, work.first, work.count)
        each = f", as one of {name}, {view.duration(took_s / work.count)} each"
    waited = "not told"
    if before:
        waited = (
            f"at {view.clock_time(model, before[-1])}, "
            f"{view.duration(max(work.start - before[-1], 0.0))} before it began"
        )
    return {
        "assigned": waited if work.worker else "",
        "ran": f"{view.clock_time(model, work.start)} to {view.clock_time(model, work.end)}",
        "took": view.duration(took_s) + each,
    }


def _detail(model: Model, one: Work | feed.Failed, about: dict[str, html.Text]) -> str:
    """Return HTML of what is known of tasks, after what there is to say about them first."""
    more: dict[str, html.Text] = {
        "function": html.function_link(one.function),
        "worker": html.worker_link(model, one.worker),
        "attempt": view.whole(one.attempt),
        "why": texts.plain(f"{one.reason} {one.error}".strip()),
    }
    return html.facts(about | more) + _said(model, one)


def _said(model: Model, failed: Work | feed.Failed) -> str:
    """Return HTML of its message and traceback, and of what its worker printed, if that died."""
    parts = [
        html.printed("Arguments", failed.arguments),
        html.printed("Message", failed.message),
        html.printed("Remote traceback", failed.traceback),
    ]
    for death in model.deaths:
        if death.worker == failed.worker and failed.worker and failed.reason == "worker_died":
            parts.append(html.facts({"the worker died of": view.death(death)}))
            parts.append(html.printed("The worker's last lines", death.stderr_tail))
    if not any(parts) and failed.reason:
        parts.append(html.nothing("There is no message; those of long ago are forgotten."))
    return "".join(parts)
