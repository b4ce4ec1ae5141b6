"""What a storage finds on its machine, and what of that is removed."""

from __future__ import annotations

import pytest

from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.ids import segment_prefix
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, hello, segment
from scaler_cluster.wire import messages as m

ASKED = "Welcome 0, 0 workers"


@pytest.fixture
def bench():
    """A scheduler with client C1 (session 1), supervisor S1, worker W1 and no storage."""
    made = SchedulerBench(SchedulerConfig(PYTHON))
    made.supervisor()
    made.client()
    made.worker()
    return made


def named(*segments):
    return " ".join(one.decode() for one in segments)


def store(bench, task, *numbers):
    """Let W1 return a large result, in segments of these numbers; return them."""
    bench.submit(task)
    names = tuple(segment(b"W1", number) for number in numbers)
    bench.feed(b"W1", m.Stored(1, task, 0.1, b"large", names, (1000,) * len(names)))
    return names


def test_what_a_storage_had_no_time_to_remove_is_removed_by_the_next(bench):
    """Of the segments of a worker that lives, what was announced and is not known is of no use."""
    bench.storage()
    first = store(bench, 0, 0, 1)
    third = store(bench, 1, 3)
    names = " ".join(one.decode() for one in first)
    assert bench.feed(b"C1", m.Release(first))["O1"] == [f"Release {names}"]
    written, draft = segment(b"W1", 2), b"draft-" + segment(b"W1", 4)

    told = bench.storage(b"O2", *first, written, *third, draft)

    assert told["O2"] == [ASKED, f"Release {named(*first)}"]


def test_what_clients_released_is_removed_as_well(bench):
    """An object is of no use once its client has let it go; what is being written stays."""
    bench.storage()
    bench.store("a", number=0)
    bench.release("a")
    old, written = segment(b"C1", 0), segment(b"C1", 1)

    told = bench.storage(b"O2", old, written)

    assert told["O2"] == [ASKED, f"Release {named(old)}"]


@pytest.mark.parametrize("is_said_to_live", [True, False])
def test_a_worker_that_comes_back_is_heard_first(is_said_to_live):
    """What it has not reported yet is not removed, and what it reported to another scheduler is."""
    bench = SchedulerBench(SchedulerConfig(PYTHON))
    roll = m.Roll((b"W1",), is_whole=True)
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=1, resume=1), roll)
    hi = hello(m.WORKER, supervisor=b"S1", resume=1)
    if not is_said_to_live:
        bench.feed(b"W1", hi)
    old, new, strange = segment(b"W1", 1), segment(b"W1", 2), segment(b"W2", 3)

    assert bench.storage(b"O1", old, new, strange)["O1"] == [ASKED, f"Release {named(strange)}"]
    said = [m.Held(b"", is_whole=True, first_segment=2)]
    assert bench.feed(b"W1", *([hi] if is_said_to_live else []), *said)["O1"] == [ASKED]
    assert bench.feed(b"O1", m.Inventory((old, new)))["O1"] == [f"Release {named(old)}"]


def test_what_a_client_released_meanwhile_is_removed():
    """Once all clients have come back, what one of them had stored and names no more goes.

    What it is about to offer stays.
    """
    bench = SchedulerBench(SchedulerConfig(PYTHON, adopts=True))
    bench.supervisor()
    bench.feed(b"C1", hello(m.CLIENT, resume=7), m.Resumed(2))
    old, new = segment(b"C1", 1), segment(b"C1", 2)
    bench.storage(b"O1", old, new)
    told = []
    while bench.core.table.objects.adopts:
        for peer in (b"C1", b"S1", b"O1"):
            bench.feed(peer, m.Heartbeat())
        told += bench.wait(1.0).get("O1", [])

    assert told == [ASKED]
    assert bench.feed(b"O1", m.Inventory((old, new)))["O1"] == [f"Release {named(old)}"]


def test_what_a_worker_stored_that_never_comes_back_is_removed():
    """What it had stored is kept until its supervisor says that it has died meanwhile."""
    bench = SchedulerBench(SchedulerConfig(PYTHON))
    roll = m.Roll((b"W1",), is_whole=True)
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=1, resume=1), roll)
    assert bench.storage(b"O1", segment(b"W1", 1))["O1"] == [ASKED]

    told = bench.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {"exit_code": -9}))

    assert told["O1"] == [f"Purge {segment_prefix(b'W1').decode()} but "]


def test_a_supervisor_speaks_for_its_own_workers_alone(bench):
    """What others stored is not removed because a supervisor says that they have died."""
    bench.storage()
    bench.feed(b"S1", m.Roll((b"C1",), is_whole=True))

    assert bench.feed(b"S1", m.WorkerLost(b"C1", 0, 0, {}), m.WorkerLost(b"W7", 0, 0, {})) == {}
