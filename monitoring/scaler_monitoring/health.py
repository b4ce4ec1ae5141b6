"""What is to be said of a cluster in sentences: how long it has to go, and what is wrong. Pure.

All that watch say the same: the dashboard, ``scaler_top``, its JSON, and the metrics.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_monitoring import view
from scaler_monitoring.forecast import worker_full_in_s
from scaler_monitoring.texts import plain, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler_cluster.wire import feed
    from scaler_monitoring.model import Model

ALARM, WARNING, NOTE = "alarm", "warning", "note"
"""How bad it is: somebody has to do something; somebody may have to; it is good to know."""
KINDS = {
    "silent_scheduler": ALARM,
    "no_workers": ALARM,
    "unplaced_tasks": ALARM,
    "failing_manager": ALARM,
    "full_memory": ALARM,
    "failing_function": ALARM,
    "filling_memory": WARNING,
    "some_failures": WARNING,
    "straggler": WARNING,
    "late_scheduler": WARNING,
    "late_monitor": WARNING,
    "missed_messages": WARNING,
    "silent_machine": WARNING,
    "not_shown": NOTE,
    "time_left": NOTE,
}
"""What there may be to say, the worst first."""

STRAGGLER_TIMES, STRAGGLER_S = 10.0, 5.0
"""A task that has run for so many times the mean of its function, and so long, is a straggler."""
MEASURED_MIN = 3
"""Of a function of which fewer tasks have ended, nobody knows what one takes."""
FILLING, FULL = 0.8, 0.9
"""Parts of its memory limit that a worker holds."""
LATE_S = 0.5
"""A scheduler whose work is so late has too much of it."""
OLD_S = 3.0
"""What is shown and so old is told to be: a monitor shows each second."""
FAILED_MIN, SOME_FAIL, MOST_FAIL = 3, 0.1, 0.5
"""Failures that are told, by their number and as a part of what ended."""
UNKNOWN_MAX = 0.1
"""If of more than this part of the tasks nobody knows how long one takes, no time is told."""
LEFT_MIN_S, LEFT_MAX_S = 1.0, 30 * 86400.0


@dataclass(frozen=True)
class Sentence:
    """One thing to be said."""

    kind: str
    """One of KINDS."""
    text: str

    @property
    def severity(self) -> str:
        """ALARM, WARNING or NOTE."""
        return KINDS[self.kind]


def health(model: Model, now: float) -> list[Sentence]:
    """Return what there is to say, the worst first; nothing if no scheduler was heard yet."""
    snapshot = model.snapshot
    if snapshot is None:
        return []
    found = [
        *_feed(model, now),
        *_workers(snapshot),
        *_managers(snapshot),
        *_memory(model, snapshot),
        *_failing(model),
        *_stragglers(model, snapshot),
        *_silent(snapshot),
    ]
    if snapshot.scheduler.lag_s >= LATE_S:
        late = view.duration(snapshot.scheduler.lag_s)
        found.append(Sentence("late_scheduler", f"the scheduler is late by {late}"))
    left_s = time_left_s(snapshot)
    if left_s is not None and not model.is_stale(now):
        found.append(Sentence("time_left", f"about {view.duration(left_s)} left"))
    order = list(KINDS)
    return sorted(found, key=lambda one: order.index(one.kind))


def worst(sentences: Sequence[Sentence]) -> str:
    """Return the severity of the worst of some sentences; NOTE if there is none."""
    return sentences[0].severity if sentences else NOTE


def kind_counts(sentences: Sequence[Sentence]) -> dict[str, int]:
    """Return how many sentences of each kind there are, time left apart."""
    found = Counter(one.kind for one in sentences)
    return {kind: found[kind] for kind in KINDS if kind != "time_left"}


def time_left_s(snapshot: feed.Snapshot) -> float | None:
    """Return in how many seconds the tasks that have not ended will have; None: who knows.

    That is what they take by the means of their functions, spread over the workers that take tasks,
    or the longest path of a graph, if that takes longer. Tasks that nobody can run count for ever.
    """
    workers = sum(not (row.is_blocked or row.is_leaving) for row in snapshot.workers)
    workers += snapshot.left_out.get("workers", 0)
    pending = sum(row.pending for row in snapshot.functions)
    unknown = sum(row.pending for row in snapshot.functions if row.mean_s is None)
    is_stuck = any(one.unmet_s is not None for one in snapshot.demands)
    if not workers or pending <= 0 or unknown > UNKNOWN_MAX * pending or is_stuck:
        return None
    means = {row.name: row.mean_s for row in snapshot.functions if row.mean_s is not None}
    work_s = sum(row.pending * means.get(row.name, 0.0) for row in snapshot.functions)
    work_s *= pending / (pending - unknown)
    # What runs has a part behind it.
    begun = [(row.age_s, means.get(row.function, 0.0)) for row in snapshot.workers if row.tasks]
    work_s -= sum(min(age_s, mean_s) for age_s, mean_s in begun)
    paths = [(one.chain_left or 0) * means.get(one.name, 0.0) for one in snapshot.graphs]
    left_s = max(work_s / workers, *paths, 0.0)
    return left_s if LEFT_MIN_S <= left_s <= LEFT_MAX_S else None


def _feed(model: Model, now: float) -> Iterator[Sentence]:
    snapshot = model.snapshot
    assert snapshot is not None
    if model.is_stale(now) and model.heard_at is not None:
        ago = view.duration(now - model.heard_at)
        yield Sentence("silent_scheduler", f"the scheduler was heard {ago} ago")
    if model.delay_s >= OLD_S:
        old = view.duration(model.delay_s)
        yield Sentence("late_monitor", f"what is shown is {old} old: this monitor does not keep up")
    if model.missed:
        told = f"{model.missed} messages of the feed were missed"
        yield Sentence("missed_messages", told)
    for table, count in snapshot.left_out.items():
        yield Sentence("not_shown", f"{count} {table} are not shown")


def _workers(snapshot: feed.Snapshot) -> Iterator[Sentence]:
    """Say which tasks nobody can run, or that nobody is there."""
    is_empty = not view.count_of(snapshot, "workers")
    ready = snapshot.tasks.ready
    if is_empty and ready:
        tasks = "1 task is" if ready == 1 else f"{view.whole(ready)} tasks are"
        pending = view.pending_workers(snapshot)
        more = f"; {view.whole(pending)} on the way" if pending else ""
        yield Sentence("no_workers", f"{tasks} ready and no worker is connected{more}")
    unmet = [
        f"{view.whole(one.tasks)} {'task waits' if one.tasks == 1 else 'tasks wait'} for a worker"
        f"{' with ' if one.what else ''}{short(one.what)}: "
        f"there has been none for {view.duration(one.unmet_s)}"
        for one in snapshot.demands
        if one.unmet_s is not None and (one.what or not is_empty)
    ]
    if snapshot.refused and (unmet or (is_empty and ready)):
        yield Sentence("unplaced_tasks", plain(snapshot.refused))
    for text in _first(unmet, "kinds of tasks wait"):
        yield Sentence("unplaced_tasks", text)


def _managers(snapshot: feed.Snapshot) -> Iterator[Sentence]:
    failing = [
        f"the manager {short(one.name)} gets no workers: {plain(one.reason)}"
        for one in snapshot.managers
        if one.reason
    ]
    for text in _first(failing, "managers get no workers"):
        yield Sentence("failing_manager", text)


def memory_state(worker: feed.Worker) -> str:
    """Return ALARM or WARNING if a worker is close to its memory limit, else nothing."""
    limit = worker.memory_limit_bytes
    share = (worker.rss_bytes or 0) / limit if limit else 0.0
    return ALARM if share >= FULL else WARNING if share >= FILLING else ""


def _memory(model: Model, snapshot: feed.Snapshot) -> Iterator[Sentence]:
    for state, kind in ((ALARM, "full_memory"), (WARNING, "filling_memory")):
        told = []
        for row in snapshot.workers:
            limit, rss = row.memory_limit_bytes, row.rss_bytes
            if not limit or rss is None or memory_state(row) != state:
                continue
            full_s = worker_full_in_s(model, row.worker, limit - rss)
            soon = "" if full_s is None else f", full in {view.duration(full_s)}"
            told.append(
                f"worker {model.label(row.worker)} holds {rss / limit:.0%} of its memory limit "
                f"of {view.binary(limit)}{soon}"
            )
        for text in _first(told, "workers are close to their memory limits"):
            yield Sentence(kind, text)


def _failing(model: Model) -> Iterator[Sentence]:
    """Say which functions failed in the last minutes."""
    for kind, low, high in (
        ("failing_function", MOST_FAIL, 2.0),
        ("some_failures", SOME_FAIL, MOST_FAIL),
    ):
        told = [
            f"{view.function_name(name)} fails: {view.whole(failed)} of {view.whole(ended)} tasks "
            f"in the last {view.duration(model.outcomes.span_s)}"
            for name, ended, failed in model.outcomes.lately()
            if failed >= FAILED_MIN and low <= failed / ended < high
        ]
        for text in _first(told, "functions fail"):
            yield Sentence(kind, text)


def _stragglers(model: Model, snapshot: feed.Snapshot) -> Iterator[Sentence]:
    means = {
        row.name: row.each_s for row in snapshot.functions
        if row.each_s and row.done + row.failed >= MEASURED_MIN
    }  # fmt: skip
    late = []
    for row in snapshot.workers:
        mean_s = means.get(row.function) if row.tasks and not row.is_blocked else None
        if mean_s and row.age_s >= max(STRAGGLER_S, STRAGGLER_TIMES * mean_s):
            late.append((row.age_s / mean_s, row))
    late.sort(key=lambda one: -one[0])
    told = [
        f"task {view.task_name(row.session, row.task)} of {view.function_name(row.function)} on "
        f"worker {model.label(row.worker)} has run for {view.duration(row.age_s)}, "
        f"{view.whole(times)} x its mean"
        for times, row in late
    ]
    for text in _first(told, "tasks run for much longer than others"):
        yield Sentence("straggler", text)


def _silent(snapshot: feed.Snapshot) -> Iterator[Sentence]:
    told = [
        f"the machine {short(one.host)} was heard {view.duration(one.silent_s)} ago"
        for one in snapshot.machines
        if one.silent_s > view.SILENT_S
    ]
    for text in _first(told, "machines are silent"):
        yield Sentence("silent_machine", text)


def _first(told: list[str], what: str) -> list[str]:
    more = len(told) - view.TROUBLES_MAX
    return [
        *told[: view.TROUBLES_MAX],
        *([f"{view.whole(more)} more {what}"] if more > 0 else []),
    ]
