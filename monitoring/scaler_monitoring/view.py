"""What a terminal shows of a model, in words and numbers: which columns, in which order."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from scaler_cluster.ids import CALL_BITS, INDEX_MASK, session_label
from scaler_cluster.wire import feed
from scaler_monitoring.memory_use import by_function
from scaler_monitoring.model import SchedulerRestarted
from scaler_monitoring.texts import client_name, plain, short, worker_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_monitoring.model import Model

NO_NAME = "(no name)"
TROUBLES_MAX = 5
"""Kinds of tasks, and machines, of which each is named with what is wrong."""
MAKERS_MAX, MAKER_CHARS_MAX = 3, 20
"""Functions that made most of what is stored, and how long their names may be there."""
SILENT_S = 5.0
"""Of a machine that was heard longer ago, it is said when."""
UNITS = ("", "k", "m", "g", "t")
_TASK_NAME = re.compile(
    r"\s*(?P<client>\d+):(call (?P<call>\d+), items? )?(?P<item>\d+)(-\d+)?\s*", re.ASCII
)

Line: TypeAlias = "tuple[str, ...]"


# -- numbers as text -------------------------------------------------------------------------


def percent(cpus: float | None) -> str:
    """Return how busy something is, one whole CPU being 100 %."""
    return "-" if cpus is None else f"{cpus * 100:.1f}%"


def size(nbytes: float | None) -> str:
    """Return a number of bytes, as ``37.1m``."""
    if nbytes is None:
        return "-"
    power = 0
    while nbytes >= 1000 and power < len(UNITS) - 1:
        nbytes /= 1024
        power += 1
    return f"{nbytes:.1f}{UNITS[power]}" if power else f"{nbytes:.0f}"


def binary(nbytes: float | None) -> str:
    """Return a number of bytes where there is room for it, as ``37.1 MiB``."""
    if nbytes is None:
        return "-"
    number = size(nbytes)
    unit = number[-1]
    return f"{number} B" if unit.isdigit() else f"{number[:-1]} {unit.upper()}iB"


def duration(seconds: float | None) -> str:
    """Return a time in the unit that fits: ``0.7ms``, ``3.1s``, ``4m10s``, ``2h05m``."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes_of = divmod(minutes, 60)
    return f"{minutes}m{rest:02}s" if hours == 0 else f"{hours}h{minutes_of:02}m"


def whole(number: float | None) -> str:
    """Return a count, its thousands apart."""
    return "-" if number is None else f"{number:,.0f}"


def clock_time(model: Model, at: float) -> str:
    """Return a moment of the scheduler's clock as people say it, ``14:05:09``."""
    return time.strftime("%H:%M:%S", time.localtime(model.time_of(at)))


# -- names -----------------------------------------------------------------------------------


def function_name(function: str) -> str:
    """Return the name of a function, on one line."""
    return plain(function) or NO_NAME


def task_name(session: int, first: int, count: int = 1) -> str:
    """Return what contiguous tasks are called in the whole cluster.

    That is ``3:17`` for a submit of client 3, ``3:call 2, items 17-20`` for items of its second
    map or graph; items count from 0, as in the list that was given.
    """
    call, item = first >> CALL_BITS, first & INDEX_MASK
    numbers = f"{item}-{item + count - 1}" if count > 1 else f"{item}"
    if call:
        numbers = f"call {call}, item{'s' * (count > 1)} {numbers}"
    return f"{session_label(session)}:{numbers}"


def task_number(name: str) -> tuple[int, int] | None:
    """Return the client, and the first task, that a :func:`task_name` names; None: it is none."""
    found = _TASK_NAME.fullmatch(name)
    if found is None:
        return None
    return int(found["client"]), (int(found["call"] or 0) << CALL_BITS) + int(found["item"])


def manager_names(machines: Sequence[feed.Machine]) -> dict[bytes, str]:
    """Return names of machines: that of the host, and what tells two of one host apart."""
    hosts = Counter(machine.host for machine in machines)
    return {
        one.machine: short(one.host) + (f"|{one.machine[1:3].hex()}" if hosts[one.host] > 1 else "")
        for one in machines
    }


# -- the worker table ------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A worker and its machine."""

    worker: feed.Worker
    machine: feed.Machine
    manager: str

    @property
    def task(self) -> str:
        """The function that runs; empty: none."""
        return plain(self.worker.function) if self.worker.tasks else ""

    @property
    def doing(self) -> str:
        """The function that runs, and whether an operator has paused it."""
        return " ".join([*([self.task] * bool(self.task)), *(["(paused)"] * self.worker.is_paused)])

    @property
    def age_s(self) -> float | None:
        """How long it has run; None: none runs."""
        return self.worker.age_s if self.worker.tasks else None

    @property
    def queued(self) -> int:
        """How many tasks wait behind it."""
        return max(self.worker.tasks - 1, 0)

    @property
    def itl(self) -> str:
        """Three digits: the worker is up; it has a task; it gets no more for now."""
        return f"1{self.worker.tasks > 0:d}{self.worker.free == 0:d}"


@dataclass(frozen=True)
class Column:
    """A column of the worker table."""

    name: str
    key: str
    """Sorts by it."""
    value: Callable[[Row], Any]
    """What is sorted; None: unknown."""
    show: Callable[[Any], str] = str
    """Makes text of that."""
    rank: int = 0
    """Where there is no room, those of a higher rank go first."""
    is_text: bool = False


def _lag(row: Row) -> tuple[float, float] | None:
    lag_s, silent_s = row.machine.lag_s, row.machine.silent_s
    return None if lag_s is None else (silent_s if silent_s > SILENT_S else 0.0, lag_s)


def _show_lag(lag: tuple[float, float] | None) -> str:
    """Say how long a message takes; if its machine is silent, for how long it has been, too."""
    if lag is None:
        return "-"
    return f"({duration(lag[0])}) {duration(lag[1])}" if lag[0] else duration(lag[1])


COLUMNS = (
    Column("manager", "g", lambda row: row.manager, rank=5, is_text=True),
    Column("worker", "n", lambda row: worker_name(row.worker), is_text=True),
    Column("agt_cpu", "C", lambda row: row.machine.agent_cpu, percent, 8),
    Column("agt_rss", "M", lambda row: row.machine.agent_rss_bytes, size, 7),
    Column("cpu", "c", lambda row: row.worker.cpu, percent),
    Column("rss", "m", lambda row: row.worker.rss_bytes, size),
    Column("os_rss_free", "F", lambda row: row.machine.free_bytes, size, 6),
    Column("free", "f", lambda row: row.worker.free, rank=3),
    Column("sent", "w", lambda row: row.worker.tasks),
    Column("queued", "d", lambda row: row.queued, rank=1),
    Column("suspended", "s", lambda row: int(row.worker.is_blocked), rank=4),
    Column("lag", "l", _lag, _show_lag, 2),
    Column("ITL", "i", lambda row: row.itl, rank=9),
    Column("age", "a", lambda row: row.age_s, duration),
    Column("task", "t", lambda row: row.doing, rank=1, is_text=True),
)
KEYS = {column.key: column for column in COLUMNS} | {
    "q": next(column for column in COLUMNS if column.name == "queued")
}
"""Columns by the key that sorts by them; "q" is from the first generation of this view."""


@dataclass
class Order:
    """By what the worker table is sorted."""

    column: Column = KEYS["c"]
    descending: bool = True

    def press(self, key: str) -> bool:
        """Sort by the column of a key, or the other way round; False: it has none."""
        column = KEYS.get(key)
        if column is None:
            return False
        self.descending = not self.descending if column is self.column else not column.is_text
        self.column = column
        return True

    def sort(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in order; of which nothing is known comes last."""
        value = self.column.value
        known = [row for row in rows if value(row) is not None]
        known.sort(key=value, reverse=self.descending)
        return known + [row for row in rows if value(row) is None]


def worker_rows(snapshot: feed.Snapshot) -> list[Row]:
    """Return the workers, each with its machine."""
    machines = {machine.machine: machine for machine in snapshot.machines}
    names = manager_names(snapshot.machines)
    return [
        Row(
            worker,
            machines.get(worker.machine, _NOWHERE),
            names.get(worker.machine, plain(worker.host)),
        )
        for worker in snapshot.workers
    ]


_NOWHERE = feed.Machine()


# -- what stands above and below it ----------------------------------------------------------


def sections(model: Model) -> dict[str, list[Line]]:
    """Return the upper tables: their lines by title."""
    snapshot = model.snapshot
    assert snapshot is not None
    process, tasks, per_s = snapshot.scheduler, snapshot.tasks, model.rates.tasks
    stores = [
        f"{size(store.nbytes)} at {plain(store.address) or 'home'}" for store in snapshot.stores
    ]
    counted: list[Line] = [
        (name, whole(getattr(tasks, name)), _rate(per_s.get(name))) for name in TASK_LINES
    ]
    rare: list[Line] = [
        (name, whole(getattr(tasks, name)), _rate(per_s.get(name))) for name in RARE_LINES
    ]
    return {
        "scheduler": [
            ("cpu", percent(process.cpu)),
            ("rss", size(process.rss_bytes)),
            ("rss_free", size(process.free_bytes)),
            ("lag", duration(process.lag_s)),
            ("up", duration(process.up_s)),
        ],
        "object_manager": [
            ("num_of_objs", whole(snapshot.objects)),
            ("size", size(snapshot.objects_bytes)),
            *(("stored", store) for store in stores),
            *(
                (f"by {short(name, MAKER_CHARS_MAX) if name else 'clients'}", size(made.nbytes))
                for name, made in islice(by_function(snapshot.owners).items(), MAKERS_MAX)
            ),
        ],
        "task_manager": counted + [line for line in rare if line[1] != "0"],
        "scheduler_sent": _messages(snapshot.sent, model.rates.sent),
        "scheduler_received": _messages(snapshot.received, model.rates.received),
    }


TASK_LINES = ("waiting", "ready", "assigned", "running", "done", "failed", "cancelled")
RARE_LINES = ("recalled", "inlined", "retried", "moved")


def _rate(per_s: float | None) -> str:
    return f"{per_s:,.0f}/s" if per_s and per_s >= 0.5 else ""


def _messages(counts: dict[str, int], per_s: dict[str, float]) -> list[Line]:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [(kind, whole(count), _rate(per_s.get(kind))) for kind, count in ordered]


def shortcuts() -> str:
    """Return which key sorts by which column."""
    keys = " ".join(f"{column.name}[{column.key}]" for column in COLUMNS)
    return f"Shortcuts: {keys}, quit[x]"


def totals(snapshot: feed.Snapshot) -> str:
    """Return how many machines and workers there are, and how many workers are on their way."""
    workers, managers = count_of(snapshot, "workers"), count_of(snapshot, "machines")
    pending = pending_workers(snapshot)
    more = f", {pending} pending" if pending else ""
    return f"Total {managers} manager(s) with {workers} worker(s){more}"


def count_of(snapshot: feed.Snapshot, table: str) -> int:
    """Return how many rows a table of a snapshot has, with those that had no room in it."""
    return len(getattr(snapshot, table)) + snapshot.left_out.get(table, 0)


def pending_workers(snapshot: feed.Snapshot) -> int:
    """Return how many workers are on their way."""
    return sum(max(one.wanted - (one.workers - one.spares), 0) for one in snapshot.machines)


def clients(snapshot: feed.Snapshot) -> list[Line]:
    """Return the clients, and how many tasks of theirs have not ended."""
    ordered = sorted(snapshot.clients, key=lambda row: -row.pending)
    return [
        (client_name(row) + (" (nested)" if row.worker else ""), whole(row.pending))
        for row in ordered
    ]


def functions(model: Model) -> list[Line]:
    """Return the functions: tasks that have not ended, done, failed, and what one takes."""
    assert model.snapshot is not None
    ordered = sorted(model.snapshot.functions, key=lambda row: (-row.pending, -row.submitted))
    return [
        (
            function_name(row.name),
            whole(row.pending),
            whole(row.done),
            whole(row.failed),
            duration(row.each_s),
            _rate(model.rates.functions.get(row.name)),
        )
        for row in ordered
    ]


FUNCTION_COLUMNS = ("function", "tasks", "done", "failed", "each", "")


MANAGER_COLUMNS = (
    "worker_manager", "wanted", "workers", "units", "coming", "ending", "failed", "unit hours",
    "idle",
)  # fmt: skip


def managers(snapshot: feed.Snapshot) -> list[Line]:
    """Return who has workers started: how many are wanted and here, its units, what they cost."""
    return [
        (
            f"{short(one.name)} ({short(one.system)})",
            whole(one.wanted),
            whole(one.workers),
            whole(one.running),
            whole(one.coming),
            whole(one.ending),
            whole(one.failed),
            f"{one.unit_s / 3600:.2f}",
            duration(one.idle_s or None),
        )
        for one in snapshot.managers
    ]


def news(model: Model, count: int) -> list[str]:
    """Return the latest events as lines, the latest first."""
    lines: list[str] = []
    for event in reversed(model.news):
        if len(lines) == count:
            break
        text = _tell(event)
        if text:
            lines.append(f"{clock_time(model, event.at)} {plain(text)}")
    return lines


def _tell(event: feed.Event) -> str:
    tell = _TELLERS.get(type(event))
    return tell(event) if tell is not None else ""


def _tasks(event: feed.Failed | feed.Cancelled) -> str:
    return f"{task_name(event.session, event.first, event.count)} {event.function}"


def cause(event: feed.WorkerDied) -> str:
    """Return how a worker died."""
    if event.out_of_memory:
        peak = event.peak_rss_bytes
        said = f"out of memory, with {binary(peak)}" if peak else "out of memory"
        why = plain(event.reason).removeprefix("out of memory: ")
        return f"{said}: {why}" if why else said
    exited = f"signal {event.signal}" if event.signal else f"exit code {event.exit_code}"
    return plain(event.reason) or exited


def last_words(event: feed.WorkerDied) -> str:
    """Return the last line that a worker printed; not that by which faulthandler always ends."""
    lines = [line for line in event.stderr_tail.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("Extension modules:")]
    return said[-1] if said else ""


def death(event: feed.WorkerDied) -> str:
    """Return how a worker died, and what it ran."""
    ran = f"{task_name(event.session, event.task)} {plain(event.function)}"
    return f"{cause(event)}, running {ran}" if event.session else cause(event)


_OPERATED = {
    "cancel": "cancelled", "pause": "paused", "resume": "resumed", "drain": "drained",
    "restart": "restarted",
}  # fmt: skip


def operation(event: feed.Operated) -> str:
    """Return what an operator did, and how many tasks or workers that met."""
    done = _OPERATED.get(event.action, event.action)
    what = "task" if event.action == "cancel" else "worker"
    counted = f"{whole(event.count)} {what}{'s' * (event.count != 1)}"
    return f"{event.user} has {done} {event.target}: {counted}"


_TELLERS: dict[type[feed.Event], Callable[..., str]] = {
    feed.Failed: lambda x: f"task {_tasks(x)} failed: {x.error or x.reason} {x.message}".rstrip(),
    feed.Retried: lambda x: (
        f"task {task_name(x.session, x.task)} {x.function} runs again: {x.error or x.reason}"
    ),
    feed.Cancelled: lambda x: f"task {_tasks(x)} cancelled",
    feed.WorkerJoined: lambda x: f"worker {x.pid}|{x.host} came",
    feed.WorkerLeft: lambda x: f"worker {x.pid}|{x.host} ended",
    feed.WorkerDied: lambda x: f"worker {x.pid}|{x.host} died: {death(x)}",
    feed.MachineJoined: lambda x: f"machine {x.host} came, for {x.workers} workers",
    feed.MachineLeft: lambda x: f"machine {x.host} is gone",
    feed.ClientJoined: lambda x: f"client {client_name(x)} came",
    feed.Operated: operation,
    feed.ClientLeft: lambda x: f"client {client_name(x)} left",
    SchedulerRestarted: lambda _: "the scheduler was started again",
}


def fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[Column]:
    """Return the columns that fit into so many characters, with a space between two."""
    chosen = list(zip(columns, widths, strict=True))
    while len(chosen) > 1 and sum(width + 1 for _, width in chosen) - 1 > room:
        worst = max(range(len(chosen)), key=lambda index: chosen[index][0].rank)
        if chosen[worst][0].rank == 0:
            break
        del chosen[worst]
    return [column for column, _ in chosen]
