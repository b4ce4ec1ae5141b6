"""Clients get the workers in turn, however much one of them asks for."""

from __future__ import annotations

from collections import Counter

import pytest

from scaler_cluster.testing.bench import function_id, payloads_of
from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch

FLOOD, HONEST = 100_000, 2_000
TURN_S = 0.01


def submitted(
    first: int, count: int, options: m.TaskOptions = m.DEFAULT_OPTIONS
) -> list[m.Message]:
    """Return what a client says that submits so many tasks, 1,000 a message."""
    said: list[m.Message] = [m.Function(function_id("f"), b"f")]
    for start in range(first, first + count, 1000):
        batch = payloads_of(start, min(1000, first + count - start))
        said.append(m.Submit(start, function_id("f"), m.CALL_ARGS, options, batch))
    return said


def run(bench, wanted: int) -> Counter[int]:
    """Let workers finish what they were given, so many tasks in all; return whose those were."""
    done: Counter[int] = Counter()
    waiting: list[tuple[bytes, m.Assign]] = []
    while sum(done.values()) < wanted:
        for peer, sent in bench.act_raw().items():
            waiting += [(peer, one) for one in sent if isinstance(one, m.Assign)]
        assert waiting
        now, waiting = waiting, []
        bench.now += TURN_S
        for peer, work in now:
            count = len(work.batch)
            done[work.session] += count
            results = Batch.of([b"r"] * count)
            bench.core.receive(
                peer, [m.Done(work.session, work.first, 0.001 * count, results)], bench.now
            )
    return done


@pytest.mark.parametrize("sessions", [1, 5])
def test_a_flood_takes_no_more_than_its_turn(two, sessions) -> None:
    """Each session has the same share of the workers while all have tasks."""
    floods = [b"F%d" % number for number in range(sessions)]
    for flood in floods:
        two.client(flood)
    for flood in floods:
        two.core.receive(flood, submitted(0, FLOOD // sessions), two.now)
    two.core.receive(b"C1", submitted(0, HONEST), two.now)

    done = run(two, HONEST)

    fair = HONEST / (sessions + 1)
    assert done[1] == pytest.approx(fair, rel=0.2)
