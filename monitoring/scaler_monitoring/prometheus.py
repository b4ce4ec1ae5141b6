"""What Prometheus is told of a model, by its conventions for names and units.

Counters begin with the scheduler, as its own do; another scheduler begins them anew, which
Prometheus takes for what it is. The number of series is bounded, whatever users call their
functions and however many machines there are.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from threading import Lock
from time import perf_counter as clock
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector
from toolz import groupby

from scaler_cluster.core.records.totals import OTHERS
from scaler_cluster.wire import feed
from scaler_monitoring.health import KINDS, health, kind_counts, time_left_s
from scaler_monitoring.model import Model
from scaler_monitoring.view import NO_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scaler_cluster.wire.feed_codec import Message

FUNCTIONS_MAX = 200
"""Functions that are told apart, those that came first; each makes a dozen series."""
MACHINES_MAX = 1000

STATES = ("waiting", "ready", "assigned", "running", "recalled")
OUTCOMES = ("done", "failed", "cancelled")

Family: TypeAlias = "CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily"


def _gauge(name: str, about: str, value: float | None) -> GaugeMetricFamily:
    """Return a family of one sample, or of none if nobody knows the value."""
    family = GaugeMetricFamily(name, about, labels=())
    if value is not None:
        family.add_metric((), value)
    return family


def _counter(name: str, about: str, value: float) -> CounterMetricFamily:
    family = CounterMetricFamily(name, about, labels=())
    family.add_metric((), value)
    return family


class ClusterCollector(Collector):
    """Makes metrics of what a scheduler said last; for any threads.

    While the scheduler is away there is ``scaler_up 0`` and nothing else: what is old would look
    like what is.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._model = Model()
        self._names = _Names()

    def apply(self, message: Message) -> None:
        """Take a message in that arrived just now."""
        with self._lock:
            self._model.apply(message, clock())

    def collect(self) -> Iterator[Family]:
        """Yield everything; called for each scrape."""
        with self._lock:
            model = self._model
            snapshot = None if model.is_stale(clock()) else model.snapshot
            is_up = snapshot is not None
            families: list[Family] = [_gauge("scaler_up", "1 while the scheduler is heard.", is_up)]
            if snapshot is not None:
                families += [
                    _counter("scaler_feed_missed", "Messages of the feed that did not arrive here.",
                             model.missed),
                    *_of_health(model, snapshot),
                    *_of_scheduler(snapshot),
                    *_of_tasks(snapshot),
                    *_of_functions(self._names.sum_up(snapshot)),
                    *_of_workers(snapshot),
                    *_of_machines(snapshot),
                    *_of_managers(snapshot),
                    *_of_objects(snapshot),
                ]  # fmt: skip
        yield from families


def _of_health(model: Model, snapshot: feed.Snapshot) -> Iterator[Family]:
    family = GaugeMetricFamily(
        "scaler_health", "What is wrong: sentences of a kind.", labels=["kind", "severity"]
    )
    for kind, count in kind_counts(health(model, clock())).items():
        family.add_metric((kind, KINDS[kind]), count)
    yield family
    yield _gauge("scaler_time_left_seconds", "How long the tasks have to go that have not ended.",
                 time_left_s(snapshot))  # fmt: skip


# -- the scheduler -------------------------------------------------------------------------------


def _of_scheduler(snapshot: feed.Snapshot) -> Iterator[Family]:
    process = snapshot.scheduler
    info = InfoMetricFamily("scaler_scheduler", "The scheduler process.", labels=())
    info.add_metric(
        (),
        {
            "address": process.address,
            "host": process.host,
            "release": process.release,
            "python": process.python,
        },
    )
    yield info
    yield _gauge("scaler_scheduler_start_time_seconds", "When it began, since 1970.",
                 round(snapshot.time - process.up_s, 1))  # fmt: skip
    yield _gauge("scaler_scheduler_busy_cpus", "CPUs that it keeps busy.", process.cpu)
    yield _gauge("scaler_scheduler_resident_memory_bytes", "Its memory.", process.rss_bytes)
    yield _gauge("scaler_scheduler_free_memory_bytes", "What its machine has left.",
                 process.free_bytes)  # fmt: skip
    yield _gauge("scaler_scheduler_lag_seconds",
                 "How late it was at most with what was due, in the last interval.",
                 process.lag_s)  # fmt: skip
    for name, about, counts in (
        ("sent", "Messages that it sent.", snapshot.sent),
        ("received", "Messages that it received.", snapshot.received),
    ):
        family = CounterMetricFamily(f"scaler_scheduler_messages_{name}", about, labels=["kind"])
        for kind, count in counts.items():
            family.add_metric((kind,), count)
        yield family


# -- tasks ---------------------------------------------------------------------------------------


def _of_tasks(snapshot: feed.Snapshot) -> Iterator[Family]:
    tasks = snapshot.tasks
    states = GaugeMetricFamily("scaler_tasks", "Tasks that have not ended.", labels=["state"])
    for name in STATES:
        states.add_metric((name,), getattr(tasks, name))
    ended = CounterMetricFamily("scaler_tasks_ended", "Tasks that ended.", labels=["outcome"])
    for name in OUTCOMES:
        ended.add_metric((name,), getattr(tasks, name))
    yield states
    yield _gauge("scaler_tasks_unplaced", "Tasks that demand what no worker has.",
                 sum(one.tasks for one in snapshot.demands if one.unmet_s is not None))  # fmt: skip
    yield _counter("scaler_tasks_submitted", "Tasks that were submitted.", tasks.submitted)
    yield ended
    yield _counter("scaler_tasks_retried", "Tasks that were begun again.", tasks.retried)
    yield _counter("scaler_tasks_inlined", "Tasks that were run by the task that waited for them.",
                   tasks.inlined)  # fmt: skip
    yield _counter("scaler_tasks_moved", "Tasks that were moved to another worker.", tasks.moved)


SUMMED = ("submitted", *OUTCOMES, "retried", "busy_s")


class _Names:
    """Which functions have series of their own, for as long as the scheduler counts them apart.

    One that once counted among the others stays there: counters only grow.
    """

    def __init__(self) -> None:
        self._run = ""
        self._own: dict[str, None] = {}
        self._others: set[str] = set()

    def sum_up(self, snapshot: feed.Snapshot) -> dict[str, feed.Function]:
        """Return the functions by their labels."""
        if snapshot.run != self._run:
            self._run, self._own, self._others = snapshot.run, {}, set()
        names = {row.name for row in snapshot.functions}
        self._own = {name: None for name in self._own if name in names}
        self._others &= names
        found: dict[str, feed.Function] = {}
        for row in snapshot.functions:
            label = self._label(row.name)
            function = found.setdefault(label, feed.Function(label))
            for name in SUMMED:
                setattr(function, name, getattr(function, name) + getattr(row, name))
            if label != OTHERS:
                function.mean_s = row.mean_s
        return found

    def _label(self, name: str) -> str:
        if name not in self._own:
            if name == OTHERS or name in self._others or len(self._own) >= FUNCTIONS_MAX:
                self._others.add(name)
                return OTHERS
            self._own[name] = None
        # To Prometheus, an empty label is none.
        return name or NO_NAME


def _of_functions(functions: dict[str, feed.Function]) -> Iterator[Family]:
    submitted = CounterMetricFamily(
        "scaler_function_tasks_submitted", "Tasks of a function.", labels=["function"]
    )
    ended = CounterMetricFamily(
        "scaler_function_tasks_ended", "Those that ended.", labels=["function", "outcome"]
    )
    retried = CounterMetricFamily(
        "scaler_function_tasks_retried", "Those that were begun again.", labels=["function"]
    )
    busy = CounterMetricFamily(
        "scaler_function_busy_seconds", "What they took in all.", labels=["function"]
    )
    mean = GaugeMetricFamily(
        "scaler_function_task_seconds", "What one takes, by the last ones.", labels=["function"]
    )
    for name, one in functions.items():
        submitted.add_metric((name,), one.submitted)
        for outcome in OUTCOMES:
            ended.add_metric((name, outcome), getattr(one, outcome))
        retried.add_metric((name,), one.retried)
        busy.add_metric((name,), one.busy_s)
        if one.mean_s is not None:
            mean.add_metric((name,), one.mean_s)
    yield from (submitted, ended, retried, busy, mean)


# -- workers, machines, clients ------------------------------------------------------------------


def _state(worker: feed.Worker) -> str:
    if worker.is_leaving:
        return "leaving"
    if worker.is_blocked:
        return "blocked"
    return "busy" if worker.tasks else "idle"


def _of_workers(snapshot: feed.Snapshot) -> Iterator[Family]:
    counts = Counter(map(_state, snapshot.workers))
    family = GaugeMetricFamily(
        "scaler_workers", "Workers; blocked: their task only waits for others.", labels=["state"]
    )
    for state in ("idle", "busy", "blocked", "leaving"):
        family.add_metric((state,), counts[state])
    yield family
    yield _counter("scaler_worker_deaths", "Workers that died, were killed or lost.",
                   snapshot.worker_deaths)  # fmt: skip
    ages = (row.age_s for row in snapshot.workers if row.tasks)
    yield _gauge("scaler_oldest_task_seconds", "How long the task has run that has run longest.",
                 max(ages, default=0.0))  # fmt: skip
    yield _gauge("scaler_clients", "Clients, and those inside of tasks.",
                 len(snapshot.clients) + snapshot.left_out.get("clients", 0))  # fmt: skip
    yield _gauge("scaler_graphs", "Graphs that are not over.",
                 len(snapshot.graphs) + snapshot.left_out.get("graphs", 0))  # fmt: skip


MACHINE_GAUGES = (
    ("scaler_machine_wanted_workers", "Workers that a machine is to have.", "wanted"),
    ("scaler_machine_workers", "Workers that it has, spare ones among them.", "workers"),
    ("scaler_machine_silent_seconds", "When it was last heard, so long ago.", "silent_s"),
    ("scaler_machine_lag_seconds", "How long a message takes to it.", "lag_s"),
    ("scaler_machine_cpus", "CPUs that it has.", "cpus"),
    ("scaler_machine_busy_cpus", "Those that are busy, whoever uses them.", "cpu"),
    ("scaler_machine_memory_bytes", "Memory that it has, or may use.", "memory_bytes"),
    ("scaler_machine_free_memory_bytes", "What it has left.", "free_bytes"),
)


def _of_machines(snapshot: feed.Snapshot) -> Iterator[Family]:
    machines = snapshot.machines[:MACHINES_MAX]
    label = ["host", "machine"]
    labels = [(one.host, one.machine.hex()) for one in machines]
    yield _gauge("scaler_machines", "Machines of the cluster.",
                 len(snapshot.machines) + snapshot.left_out.get("machines", 0))  # fmt: skip
    for name, about, field in MACHINE_GAUGES:
        values = (getattr(one, field) for one in machines)
        yield _gauges(name, about, label, zip(labels, values, strict=True))
    workers = groupby(attrgetter("machine"), snapshot.workers)
    of_each = [workers.get(one.machine, ()) for one in machines]
    for name, about, field in (
        ("scaler_machine_workers_busy_cpus", "CPUs that its workers keep busy.", "cpu"),
        ("scaler_machine_workers_resident_memory_bytes", "Memory of its workers.", "rss_bytes"),
    ):
        values = (sum(getattr(row, field) or 0 for row in rows) for rows in of_each)
        yield _gauges(name, about, label, zip(labels, values, strict=True))


MANAGER_GAUGES = (
    ("scaler_manager_wanted_workers", "Workers that a manager is to have.", "wanted"),
    ("scaler_manager_workers", "Workers of it that are here to stay.", "workers"),
    ("scaler_manager_running_units", "Units whose workers are here to stay.", "running"),
    ("scaler_manager_coming_units", "Units whose workers are not here yet.", "coming"),
    ("scaler_manager_ending_units", "Units on their way out.", "ending"),
)
MANAGER_COUNTERS = (
    ("scaler_manager_failed_units", "Units that never came, or died.", "failed"),
    ("scaler_manager_unit_seconds", "How long its units have lived together.", "unit_s"),
    ("scaler_manager_idle_worker_seconds", "How long its workers had nothing to do.", "idle_s"),
)


def _of_managers(snapshot: feed.Snapshot) -> Iterator[Family]:
    # The newest of those with one name counts.
    managers = {(one.name, one.system): one for one in snapshot.managers[:MACHINES_MAX]}
    label = ["manager", "system"]
    for name, about, field in MANAGER_GAUGES:
        values = ((key, float(getattr(one, field))) for key, one in managers.items())
        yield _gauges(name, about, label, values)
    for name, about, field in MANAGER_COUNTERS:
        family = CounterMetricFamily(name, about, labels=label)
        for key, one in managers.items():
            family.add_metric(key, getattr(one, field))
        yield family


def _gauges(
    name: str, about: str, labels: list[str], values: Iterable[tuple[tuple[str, ...], float | None]]
) -> GaugeMetricFamily:
    """Return a family with a sample for each value that is known."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for label, value in values:
        if value is not None:
            family.add_metric(label, value)
    return family


# -- objects -------------------------------------------------------------------------------------


def _of_objects(snapshot: feed.Snapshot) -> Iterator[Family]:
    yield _gauge("scaler_objects", "Large objects.", snapshot.objects)
    yield _gauge("scaler_objects_bytes", "Their size, each counted once.", snapshot.objects_bytes)
    stores = snapshot.stores[:MACHINES_MAX]
    labels = [(_store_name(one.machine),) for one in stores]
    for name, about, field in (
        ("scaler_store_objects", "Objects that lie in one place.", "objects"),
        ("scaler_store_bytes", "Their size.", "nbytes"),
        ("scaler_store_memory_limit_bytes", "What may be in memory; more goes to disk.",
         "memory_limit"),
        ("scaler_store_up", "1 if a process looks after that place.", "is_up"),
    ):  # fmt: skip
        values = (float(getattr(one, field)) for one in stores)
        yield _gauges(name, about, ["store"], zip(labels, values, strict=True))


def _store_name(key: bytes) -> str:
    """Return the address of a place where clients store, else the id of its machine."""
    if b"://" in key:
        return key.decode(errors="replace")
    return key.hex() or "home"
