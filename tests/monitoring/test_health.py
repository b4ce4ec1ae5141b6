"""What is said of a cluster: how long it has to go, and what is wrong, each by its figures."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scaler_cluster.wire import feed as f
from scaler_monitoring.health import ALARM, KINDS, WARNING, health, memory_state, time_left_s
from scaler_monitoring.model import Model

RULES = Path(__file__).parents[2] / "docs" / "prometheus-alerts.yml"
MB = 1 << 20


def snapshot(seq=1, **fields):
    """Return a cluster of one worker, one second after the one before."""
    whole = {"workers": [f.Worker(b"W1", host="host", pid=7)], "interval_s": 1.0}
    return f.Snapshot("run", seq, clock=float(seq), **whole | fields)


def told(*snapshots, now=None):
    """Return what is said at last, by kind."""
    model = Model()
    for one in snapshots:
        model.apply(one, one.clock)
    sentences = health(model, snapshots[-1].clock if now is None else now)
    return {one.kind: one.text for one in sentences if one.kind != "missed_messages"}


def test_nothing_is_said_of_what_is_well():
    """A cluster without tasks has nothing to say, and one that was never heard neither."""
    assert told(snapshot()) == {}
    assert health(Model(), 0.0) == []


def test_no_workers_are_an_alarm():
    """Tasks that are ready while no worker is connected are an alarm, once."""
    machine = f.Machine(b"S1", "host", wanted=2)
    demand = f.Demand("", 50, 3.0)
    empty = snapshot(workers=[], tasks=f.Tasks(ready=50), demands=[demand])

    assert told(empty) == {"no_workers": "50 tasks are ready and no worker is connected"}
    empty.machines = [machine]
    assert told(empty)["no_workers"].endswith("connected; 2 on the way")
    assert KINDS["no_workers"] == ALARM


def test_the_time_left_is_told():
    """What is left takes as long as its functions say, spread over the workers."""
    functions = [f.Function("f", 100, 48, mean_s=1.0), f.Function("g", 4, 2, 2, mean_s=9.0)]
    workers = [f.Worker(b"W%d" % n) for n in range(2)]

    assert told(snapshot(functions=functions, workers=workers)) == {"time_left": "about 26.0s left"}


def test_a_long_path_takes_longer():
    """However many workers there are, nodes of a path run one after the other."""
    one = snapshot(functions=[f.Function("g", 20, mean_s=2.0)],
                   workers=[f.Worker(b"W%d" % n) for n in range(20)],
                   graphs=[f.Graph(name="g", nodes=20, chain_left=15)])  # fmt: skip

    assert time_left_s(one) == 30.0


@pytest.mark.parametrize(
    "fields",
    [
        {"functions": [f.Function("f", 100)]},
        {"functions": [f.Function("f", 9, mean_s=1.0), f.Function("g", 2)]},
        {"functions": [f.Function("f", 100, mean_s=1.0)], "workers": []},
        {"functions": [f.Function("f", 100, mean_s=1.0)], "demands": [f.Demand("gpu", 1, 2.0)]},
        {"functions": [f.Function("f", 100, 100, mean_s=1.0)]},
        {"functions": [f.Function("f", 1, mean_s=1e9)]},
    ],
)
def test_nothing_is_said_rather_than_nonsense(fields):
    """Without means, workers or an end in sight, no time is told."""
    assert time_left_s(snapshot(**fields)) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.none() | st.floats(0, 1e6)), max_size=4
    ),
    st.integers(0, 5),
)  # fmt: skip
def test_the_time_left_is_a_time(rows, workers):
    """Whatever the figures, the time is at least a second, or none is told."""
    functions = [f.Function(str(n), count, mean_s=mean) for n, (count, mean) in enumerate(rows)]
    left = time_left_s(snapshot(functions=functions, workers=[f.Worker()] * workers))

    assert left is None or left >= 1.0


def test_a_straggler_is_named():
    """A task that runs for much longer than others of its function is named; others are not."""
    function = f.Function("f", 10, 3, busy_s=3.0, mean_s=20.0)
    long = f.Worker(b"W1", host="host", pid=7, tasks=1, session=3, task=17, function="f", age_s=40)

    assert told(snapshot(workers=[long], functions=[function]))["straggler"] == (
        "task 3:17 of f on worker 7|host has run for 40.0s, 40 x its mean"
    )
    for change in ({"age_s": 9.0}, {"is_blocked": True}, {"tasks": 0}, {"function": "g"}):
        for name, value in change.items():
            before = getattr(long, name)
            setattr(long, name, value)
            assert "straggler" not in told(snapshot(workers=[long], functions=[function]))
            setattr(long, name, before)
    assert "straggler" not in told(
        snapshot(workers=[long], functions=[f.Function("f", 10, 2, busy_s=2.0)])
    )


def filling(seq, rss):
    row = f.Worker(b"W1", host="host", pid=7, rss_bytes=rss * MB, memory_limit_bytes=1000 * MB)
    return snapshot(seq, workers=[row])


def test_memory_in_danger_is_told():
    """A worker close to its limit is told, with when it is full if it grows."""
    assert told(filling(1, 930)) == {
        "full_memory": "worker 7|host holds 93% of its memory limit of 1.0 GiB"
    }
    assert "filling_memory" in told(filling(1, 800))
    assert told(filling(1, 790)) == {}
    growing = [filling(seq, 800 + 10 * seq) for seq in range(1, 11)]
    assert told(*growing)["full_memory"].endswith(", full in 10.0s")
    assert not told(*growing, filling(11, 805))["filling_memory"].endswith("0s")
    assert memory_state(f.Worker(rss_bytes=10)) == ""


def test_failing_functions_are_told():
    """A function of which many tasks failed in the last minutes is told, and then no more."""
    calm = [snapshot(1, functions=[f.Function("f", 1000, 1000)])]
    bad = snapshot(60, functions=[f.Function("f", 1020, 1008, 12)])
    some = snapshot(60, functions=[f.Function("f", 1020, 1017, 3)])

    assert told(*calm, bad)["failing_function"] == "f fails: 12 of 20 tasks in the last 59.0s"
    assert told(*calm, some)["some_failures"] == "f fails: 3 of 20 tasks in the last 59.0s"
    later = [snapshot(60 + 50 * n, functions=bad.functions) for n in range(1, 9)]
    assert told(*calm, bad, *later) == {}


def test_what_is_late_is_told():
    """A scheduler that lags is told, and a monitor that shows what is old."""
    assert told(snapshot(scheduler=f.Process(lag_s=1.2))) == {
        "late_scheduler": "the scheduler is late by 1.2s"
    }
    model = Model()
    model.apply(snapshot(1), 1.0)
    model.apply(snapshot(2), 6.0)
    (sentence,) = health(model, 6.0)
    assert (sentence.kind, sentence.severity) == ("late_monitor", WARNING)
    assert sentence.text == "what is shown is 4.0s old: this monitor does not keep up"


def test_the_alert_rules_name_what_there_is():
    """Each alarm and warning is in the rules for Prometheus, by metrics that exist."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    text = RULES.read_text()

    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning"}
    assert all(rule["annotations"]["summary"] and rule["expr"] for rule in rules)
    # A silent scheduler has no metrics but scaler_up.
    told = {kind for kind, severity in KINDS.items() if severity in {ALARM, WARNING}}
    missing = {kind for kind in told if f'kind="{kind}"' not in text}
    assert missing == {"silent_scheduler"}
