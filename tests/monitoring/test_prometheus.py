"""What Prometheus is told, of snapshots made by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from scaler_cluster.core.records.totals import OTHERS
from scaler_cluster.wire import feed as f
from scaler_monitoring import prometheus as module
from scaler_monitoring.prometheus import FUNCTIONS_MAX, MACHINES_MAX, ClusterCollector

DOCS = Path(__file__).parents[2] / "docs"
UNITS = ("seconds", "bytes", "cpus", "total")


def snapshot(seq=1, run="run", **fields):
    return f.Snapshot(run, seq, clock=10.0, time=1010.0, interval_s=1.0, **fields)


FULL = snapshot(
    scheduler=f.Process("host", 7, "1.0", "3.11", "tcp://h:1", 5.0, 0.25, 1000, 2000, 0.001),
    tasks=f.Tasks(1, 2, 3, 4, 100, 60, 20, 5, 4, 7, 8),
    worker_deaths=2,
    sent={"Task": 5},
    received={"Done": 6},
    left_out={"clients": 3},
    machines=[f.Machine(b"\x01", "host", 4, 3, 1, 0.5, 0.002, 8, 2.5, 9000, 4000)],
    workers=[
        f.Worker(b"1", b"\x01", tasks=1, age_s=4.0, cpu=0.5, rss_bytes=10),
        f.Worker(b"2", b"\x01", cpu=0.25, rss_bytes=20),
        f.Worker(b"3", b"\x01", tasks=1, is_blocked=True),
        f.Worker(b"4", b"\x01", tasks=1, is_leaving=True),
    ],
    clients=[f.Client(1), f.Client(2)],
    functions=[f.Function("add", 50, 40, 3, 2, 1, 6, 0, 12.5, 0.25)],
    graphs=[f.Graph(1)],
    objects=3,
    objects_bytes=300,
    stores=[
        f.Store(b"", "", 1, 100, 500),
        f.Store(b"tcp://h:2", "tcp://h:2", 2, 200, 500, 0, True),
    ],
    demands=[f.Demand("gpu", 4, 1.0), f.Demand("cpu", 5)],
    managers=[f.Manager("cloud", "host", "slurm", 9, 7, 0, 20, 7, 2, 1, 3, "no", 7200.0, 60.0)],
)


def scrape(collector):
    """Return the samples by name and labels, as Prometheus reads them; nothing may come twice."""
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    found = {}
    for family in parse(text):
        for one in family.samples:
            key = one.name, *sorted(one.labels.items())
            assert key not in found
            found[key] = one.value
    # The newer format is stricter.
    list(parse_openmetrics(openmetrics.generate_latest(registry).decode()))
    return found


def told(*messages):
    """Return the samples of one that was told these."""
    collector = ClusterCollector()
    for message in messages:
        collector.apply(message)
    return scrape(collector)


def of(samples, name, label="function"):
    """Return the values of a metric by one of its labels."""
    return {dict(key[1:])[label]: value for key, value in samples.items() if key[0] == name}


def test_every_number_is_told():
    """Every number is exposed under a name with its unit."""
    samples = told(FULL)
    expected = {
        ("scaler_up",): 1,
        ("scaler_feed_missed_total",): 0,
        ("scaler_scheduler_start_time_seconds",): 1005,
        ("scaler_scheduler_busy_cpus",): 0.25,
        ("scaler_scheduler_resident_memory_bytes",): 1000,
        ("scaler_scheduler_free_memory_bytes",): 2000,
        ("scaler_scheduler_lag_seconds",): 0.001,
        ("scaler_scheduler_messages_sent_total", ("kind", "Task")): 5,
        ("scaler_scheduler_messages_received_total", ("kind", "Done")): 6,
        ("scaler_tasks", ("state", "waiting")): 1,
        ("scaler_tasks", ("state", "ready")): 2,
        ("scaler_tasks", ("state", "assigned")): 3,
        ("scaler_tasks", ("state", "running")): 4,
        ("scaler_tasks_unplaced",): 4,
        ("scaler_tasks_submitted_total",): 100,
        ("scaler_tasks_ended_total", ("outcome", "done")): 60,
        ("scaler_tasks_ended_total", ("outcome", "failed")): 20,
        ("scaler_tasks_ended_total", ("outcome", "cancelled")): 5,
        ("scaler_tasks", ("state", "recalled")): 4,
        ("scaler_tasks_inlined_total",): 0,
        ("scaler_tasks_retried_total",): 7,
        ("scaler_tasks_moved_total",): 8,
        ("scaler_function_tasks_submitted_total", ("function", "add")): 50,
        ("scaler_function_tasks_ended_total", ("function", "add"), ("outcome", "failed")): 3,
        ("scaler_function_tasks_retried_total", ("function", "add")): 6,
        ("scaler_function_busy_seconds_total", ("function", "add")): 12.5,
        ("scaler_function_task_seconds", ("function", "add")): 0.25,
        ("scaler_workers", ("state", "idle")): 1,
        ("scaler_workers", ("state", "busy")): 1,
        ("scaler_workers", ("state", "blocked")): 1,
        ("scaler_workers", ("state", "leaving")): 1,
        ("scaler_worker_deaths_total",): 2,
        ("scaler_oldest_task_seconds",): 4,
        ("scaler_clients",): 5,
        ("scaler_graphs",): 1,
        ("scaler_machines",): 1,
        ("scaler_machine_workers", ("host", "host"), ("machine", "01")): 3,
        ("scaler_machine_cpus", ("host", "host"), ("machine", "01")): 8,
        ("scaler_machine_busy_cpus", ("host", "host"), ("machine", "01")): 2.5,
        ("scaler_machine_memory_bytes", ("host", "host"), ("machine", "01")): 9000,
        ("scaler_machine_free_memory_bytes", ("host", "host"), ("machine", "01")): 4000,
        ("scaler_machine_workers_busy_cpus", ("host", "host"), ("machine", "01")): 0.75,
        ("scaler_machine_workers_resident_memory_bytes", ("host", "host"), ("machine", "01")): 30,
        ("scaler_manager_wanted_workers", ("manager", "cloud"), ("system", "slurm")): 9,
        ("scaler_manager_workers", ("manager", "cloud"), ("system", "slurm")): 7,
        ("scaler_manager_running_units", ("manager", "cloud"), ("system", "slurm")): 7,
        ("scaler_manager_coming_units", ("manager", "cloud"), ("system", "slurm")): 2,
        ("scaler_manager_ending_units", ("manager", "cloud"), ("system", "slurm")): 1,
        ("scaler_manager_failed_units_total", ("manager", "cloud"), ("system", "slurm")): 3,
        ("scaler_manager_unit_seconds_total", ("manager", "cloud"), ("system", "slurm")): 7200,
        ("scaler_manager_idle_worker_seconds_total", ("manager", "cloud"), ("system", "slurm")): 60,
        ("scaler_objects",): 3,
        ("scaler_objects_bytes",): 300,
        ("scaler_store_bytes", ("store", "home")): 100,
        ("scaler_store_bytes", ("store", "tcp://h:2")): 200,
        ("scaler_store_up", ("store", "home")): 0,
        ("scaler_store_up", ("store", "tcp://h:2")): 1,
    }

    assert {key: samples[key] for key in expected} == expected
    (info,) = (key for key in samples if key[0] == "scaler_scheduler_info")
    assert dict(info[1:]) == {
        "address": "tcp://h:1", "host": "host", "release": "1.0", "python": "3.11",
    }  # fmt: skip


def test_names_keep_to_the_conventions():
    """Metric names have one prefix, base units, ``_total`` for counters, and a help text."""
    collector = ClusterCollector()
    collector.apply(FULL)

    for family in collector.collect():
        assert re.fullmatch(r"scaler(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")
        assert not re.search(r"_(s|ms|mb|kb|percent|count)$", family.name)
        for one in family.samples:
            assert one.name.endswith("_total") == (family.type == "counter")
            assert set(one.labels) <= {"function", "host", "kind", "machine", "outcome", "state", "manager",
                                       "store", "address", "release", "python", "system", "severity"}  # fmt: skip


def test_what_is_not_known_is_not_told():
    """An unknown number is left out, not exposed as 0."""
    samples = told(snapshot(machines=[f.Machine(b"1", "host")], functions=[f.Function("f")]))
    names = {key[0] for key in samples}

    assert names.isdisjoint(
        {"scaler_scheduler_busy_cpus", "scaler_machine_busy_cpus", "scaler_function_task_seconds"}
    )
    assert "scaler_machine_cpus" in names


def test_nothing_is_told_of_a_scheduler_that_is_away(monkeypatch):
    """Nothing is exposed of a lost scheduler but that it is lost, until it is back."""
    now = 0.0
    monkeypatch.setattr(module, "clock", lambda: now)
    collector = ClusterCollector()
    assert scrape(collector) == {("scaler_up",): 0}

    collector.apply(FULL)
    assert len(scrape(collector)) > 50
    now = 60.0
    assert scrape(collector) == {("scaler_up",): 0}
    collector.apply(snapshot(1, "other"))
    assert scrape(collector)[("scaler_up",)] == 1


# -- what users call their functions -------------------------------------------------------------

NASTY = '<img src=x onerror="alert(1)">\n\\"{}, \r\t\u2028é\x00'


@given(st.lists(st.text(), max_size=10, unique=True))
def test_any_name_is_a_label(names):
    """Any name is read back from its label as it was, and disturbs no other sample."""
    rows = [f.Function(name, index + 1) for index, name in enumerate([*names, NASTY * 2])]
    samples = told(snapshot(functions=rows))
    found = of(samples, "scaler_function_tasks_submitted_total")

    assert sum(found.values()) == sum(row.submitted for row in rows)
    plain = {row.name: row.submitted for row in rows if row.name not in {"", OTHERS, "(no name)"}}
    assert {name: found[name] for name in plain} == plain


def test_names_that_mean_something_here_are_counted_together():
    """Functions named like the collective labels are counted together."""
    rows = [f.Function("", 1), f.Function("(no name)", 2), f.Function(OTHERS, 4)]

    assert of(told(snapshot(functions=rows)), "scaler_function_tasks_submitted_total") == {
        "(no name)": 3, OTHERS: 4,
    }  # fmt: skip


def test_the_number_of_functions_is_bounded():
    """Functions beyond the bound are counted together, and no counter ever falls."""
    first = [f.Function(f"f{index}", 1) for index in range(FUNCTIONS_MAX + 5)]
    collector = ClusterCollector()
    collector.apply(snapshot(1, functions=first))
    one = of(scrape(collector), "scaler_function_tasks_submitted_total")
    # A name is given up by the scheduler, and one comes that was not there before.
    rows = [f.Function("new", 9), *reversed(first[1:])]
    collector.apply(snapshot(2, functions=rows))
    other = of(scrape(collector), "scaler_function_tasks_submitted_total")

    assert len(one) == len(other) == FUNCTIONS_MAX + 1
    assert one[OTHERS] == other[OTHERS] == 5
    assert (other["new"], "f0" in other) == (9, False)


def test_the_number_of_machines_is_bounded():
    """Machines beyond the bound have no samples of their own, but are counted."""
    machines = [f.Machine(bytes([index >> 8, index & 255])) for index in range(MACHINES_MAX + 5)]
    samples = told(snapshot(machines=machines))

    assert samples["scaler_machines",] == MACHINES_MAX + 5
    assert len(of(samples, "scaler_machine_cpus", "machine")) == MACHINES_MAX


def test_the_page_names_what_there_is():
    """The documentation names each metric and its labels."""
    labels: dict[str, set[str]] = {}
    for name, *pairs in told(FULL):
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    shown: dict[str, set[str]] = {}
    for line in (DOCS / "metrics.md").read_text().splitlines():
        cells = line.split("|")
        if line.startswith("| `scaler_") and len(cells) == 5:
            for name in re.findall(r"`(\w+)`", cells[1]):
                shown[name] = set(re.findall(r"`(\w+)`", cells[2]))

    assert shown == labels


# -- Grafana ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dashboard():
    return json.loads((DOCS / "grafana.json").read_text())


def test_its_queries_name_what_there_is(dashboard):
    """The queries of the Grafana board name existing metrics and labels."""
    samples = told(FULL)
    labels: dict[str, set[str]] = {}
    for name, *pairs in samples:
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    queries = [one["expr"] for panel in dashboard["panels"] for one in panel.get("targets", [])]
    assert len(queries) >= 15
    used = set()
    for query in queries:
        names = re.findall(r"\bscaler_\w+", query)
        assert names, query
        assert set(names) <= set(labels), query
        used |= set(names)
        for by in re.findall(r"\bby \(([^)]*)\)", query):
            assert set(by.split(", ")) <= set().union(*(labels[one] for one in names)), query
        for name, chosen in re.findall(r"(\bscaler_\w+)\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+)[=!]", chosen)) <= labels[name] | {"job", "instance"}
        for name in re.findall(r"(\bscaler_\w+)(?:\{[^}]*\})?\[", query):
            assert name.endswith("_total"), f"only of counters: {query}"
    assert {"scaler_up", "scaler_tasks", "scaler_tasks_ended_total"} <= used


def test_its_panels_do_not_overlap(dashboard):
    """Each panel of the Grafana board has a place of its own, a title, a unit and a source."""
    taken: dict[tuple[int, int], str] = {}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["fieldConfig"]["defaults"]["unit"]
