"""What a scheduler says of who comes and goes."""

from __future__ import annotations

import pytest

from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.journal import LINES_PER_S
from scaler_cluster.core.scheduler.scheduler import LAG_S, LAST_WORDS_S
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, hello
from scaler_cluster.wire import messages as m

HERE = "this boot:1"


@pytest.fixture
def bench():
    """A scheduler that can see the processes of its machine."""
    return SchedulerBench(SchedulerConfig(PYTHON, pid_space=HERE))


def lines(bench):
    """Return what was written since the last time; warnings begin with a mark."""
    return [
        "! " * is_warning + line for is_warning, line in bench.core.table.journal.take(bench.now)
    ]


# -- who comes and goes --------------------------------------------------------------------------


def test_who_comes_and_leaves_is_said(bench):
    """Clients and clusters are logged when they come and leave; workers and tasks are not."""
    bench.supervisor(workers=2)
    bench.client()
    bench.worker()
    bench.submit(0, 5)
    assert lines(bench) == [
        "cluster of 2 workers (pid 1 on host) came",
        "client 1 (pid 1 on host) came",
    ]

    bench.feed(b"C1", m.Goodbye())
    bench.feed(b"S1", m.Goodbye())
    assert lines(bench) == [
        "client 1 (pid 1 on host) left",
        "cluster of 2 workers (pid 1 on host) left",
    ]


def test_who_is_silent_is_lost(bench):
    """A peer that fell silent is logged as lost, with a warning that says for how long."""
    bench.supervisor()
    bench.client()
    lines(bench)
    for _ in range(40):
        bench.wait(15.0)

    assert lines(bench) == [
        "! lost cluster of 1 worker (pid 1 on host): it was silent for 15 s",
        "! lost client 1 (pid 1 on host): it was silent for 600 s",
    ]


def test_who_breaks_the_protocol_is_lost(bench):
    """A peer that breaks the protocol is logged as lost, with a warning."""
    bench.client()
    lines(bench)
    bench.lose(b"C1")

    assert lines(bench) == ["! lost client 1 (pid 1 on host): it broke the protocol"]


def test_who_is_refused_is_said(bench):
    """A refused peer is logged with a warning that says why."""
    bench.feed(b"S9", m.Hello(m.SUPERVISOR, m.PROTOCOL_VERSION, "2.7", 7, "there"))

    (line,) = lines(bench)
    assert line.startswith("! refused a cluster (pid 7 on there): The cluster runs Python 2.7,")


def test_sessions_of_tasks_are_no_news(one):
    """Sessions of tasks are not logged: there may be one for each worker."""
    one.core.table.journal.take(one.now)
    one.feed(b"C2", hello(m.CLIENT, worker=b"W1"))
    one.feed(b"C2", m.Goodbye())

    assert lines(one) == []


@pytest.mark.slow
def test_thousands_are_summed_up(bench):
    """Some lines of each second are written, and then how many more there would have been."""
    for number in range(1000):
        bench.client(b"C%d" % number)
    written = lines(bench)
    assert len(written) == LINES_PER_S

    bench.feed(b"S9", m.Hello(m.SUPERVISOR, m.PROTOCOL_VERSION, "2.7", 7, "there"))
    # Warnings have room of their own.
    assert len(lines(bench)) == 1

    bench.now += 1.0
    assert bench.core.table.journal.has_lines
    assert lines(bench) == [f"{1000 - LINES_PER_S} such lines more are left out"]
    assert not bench.core.table.journal.has_lines


# -- processes that end --------------------------------------------------------------------------


def test_the_process_of_a_supervisor_nearby_is_watched(bench):
    """The process of a supervisor is watched once, if it is on the scheduler's machine."""
    bench.supervisor(b"S1")
    bench.feed(b"S2", hello(m.SUPERVISOR, workers=1, pid_space="another boot:1"))
    bench.feed(b"S3", hello(m.SUPERVISOR, workers=1, pid_space=HERE))
    bench.feed(b"S3", hello(m.SUPERVISOR, workers=1, pid_space=HERE))

    assert bench.core.table.to_watch == [(b"S3", 1)]


def test_a_supervisor_whose_process_ends_is_lost_soon(bench):
    """A supervisor whose process ended loses its tasks to others before its silence shows."""
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=1, pid_space=HERE))
    bench.supervisor(b"S2")
    bench.client()
    bench.worker(b"W1", b"S1")
    bench.submit(0)
    bench.worker(b"W2", b"S2")
    lines(bench)

    bench.core.process_over(b"S1", bench.now)

    sent = bench.wait(LAST_WORDS_S + LAG_S)
    assert "Assign 1:0 f" in sent["W2"]
    assert lines(bench) == ["! lost cluster of 1 worker (pid 1 on host): its process has ended"]
    assert bench.core.table.deaths == 1


def test_a_goodbye_may_come_after_the_end(bench):
    """A Goodbye may arrive after the news that its process has ended."""
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=1, pid_space=HERE))
    bench.worker()
    lines(bench)
    bench.core.process_over(b"S1", bench.now)
    bench.feed(b"S1", m.Goodbye())
    bench.wait(5.0)

    assert lines(bench) == ["cluster of 1 worker (pid 1 on host) left"]
    assert bench.core.table.deaths == 0


def test_a_process_that_nobody_knows_may_end(bench):
    """The end of an unknown process changes nothing."""
    bench.core.process_over(b"S1", bench.now)

    assert bench.wait(5.0) == {}
