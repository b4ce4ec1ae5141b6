"""Two runs side by side: what each came to, and by how much the second one differs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_cluster.wire import feed
from scaler_monitoring.view import binary, count_of, duration, function_name, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scaler_monitoring.period import Period

SAME = 0.005
"""What differs by less than this part is the same, as far as anybody can say."""
TIMES_MIN = 2.0
"""From so many times as much on it is told as times, and no longer in percent."""


@dataclass(frozen=True)
class Line:
    """One thing of both runs, as text."""

    name: str
    before: str
    after: str
    change: str


@dataclass(frozen=True)
class FunctionLine:
    """One function of both runs, as text; "-": it was not in use."""

    name: str
    done: tuple[str, str]
    each: Line
    in_all: Line


def compare(before: Period, after: Period) -> tuple[list[Line], list[FunctionLine]]:
    """Return what the two runs came to as a whole, then their functions.

    The function whose time differs most comes first.
    """
    return list(_totals(before, after)), _functions(before, after)


def change(before: float | None, after: float | None) -> str:
    """Return by how much a number differs, in percent or in times; "-": nobody can say."""
    if not before or after is None:
        return "same" if before == after == 0 else "-"
    ratio = after / before
    if abs(ratio - 1) < SAME:
        return "same"
    if ratio >= TIMES_MIN:
        return f"{ratio:.1f} x"
    return f"{(ratio - 1) * 100:+.0f} %".replace("-", "\N{MINUS SIGN}")


def _line(
    name: str, before: float | None, after: float | None, show: Callable[[float | None], str]
) -> Line:
    return Line(name, show(before), show(after), change(before, after))


def _totals(before: Period, after: Period) -> Iterator[Line]:
    one, two = before.meter.efficiency(), after.meter.efficiency()
    yield _line("time", one.passed_s, two.passed_s, duration)
    tasks, others = before.tasks(), after.tasks()
    for kind in ("done", "failed", "cancelled", "retried"):
        yield _line(f"tasks {kind}", getattr(tasks, kind), getattr(others, kind), whole)
    yield _line("work of workers", one.working_s, two.working_s, duration)
    yield _line("their overhead", one.overhead_s, two.overhead_s, duration)
    yield _line("their idling", one.idle_s, two.idle_s, duration)
    yield _line("time of CPUs", one.cpu_s, two.cpu_s, duration)
    yield _line("workers at the end", _workers(before), _workers(after), whole)
    yield _line("workers that died", before.deaths(), after.deaths(), whole)
    yield _line("their memory at most", before.rss_bytes_max, after.rss_bytes_max, binary)
    yield _line("objects at most", before.objects_bytes_max, after.objects_bytes_max, binary)


def _workers(period: Period) -> int:
    assert period.last is not None
    return count_of(period.last, "workers")


def _functions(before: Period, after: Period) -> list[FunctionLine]:
    ones = {row.name: row for row, _ in before.functions()}
    twos = {row.name: row for row, _ in after.functions()}

    def differs(name: str) -> tuple[float, str]:
        sides = [rows[name].busy_s if name in rows else 0.0 for rows in (ones, twos)]
        return -abs(sides[0] - sides[1]), name

    lines = []
    for name in sorted(ones.keys() | twos.keys(), key=differs):
        one, two = (rows.get(name, feed.Function()) for rows in (ones, twos))
        done = [whole(rows[name].done) if name in rows else "-" for rows in (ones, twos)]
        lines.append(
            FunctionLine(
                function_name(name),
                (done[0], done[1]),
                _line("each", one.each_s, two.each_s, duration),
                _line("in all", one.busy_s or None, two.busy_s or None, duration),
            )
        )
    return lines
