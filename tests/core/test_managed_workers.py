"""What the scheduler asks of managers, and how it lets workers and units go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scaler_cluster.config.scaling_policy import read_policy
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.errors import RemoteProtocolError
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, hello, segment
from scaler_cluster.wire import messages as m

QUIET = m.Units(0, 0, 0, "", 0.0)


def offer(most: int = 4, *, least: int = 0, cooldown_s: float = 5.0, capabilities=()) -> m.Offer:
    return m.Offer("slurm", least, most, 1, cooldown_s, capabilities)


def manager(bench: SchedulerBench, peer: bytes = b"M1", name: str = "cloud", **fields) -> None:
    bench.feed(peer, hello(m.MANAGER, name=name), offer(**fields))


def unit(bench: SchedulerBench, number: int, *workers: bytes, name: str = "cloud") -> None:
    """Let a unit come, with its workers."""
    supervisor = f"S{number}".encode()
    who = {"manager": name, "unit": f"{name}-{number}"}
    bench.feed(supervisor, hello(m.SUPERVISOR, workers=len(workers), **who))
    for worker in workers:
        bench.worker(worker, supervisor)


def wants(sent: dict[str, list[str]], peer: str = "M1") -> list[str]:
    return [line for line in sent.get(peer, []) if line.startswith("Wanted")]


@pytest.fixture
def cloud(bench):
    """A client, and a manager that could have four workers."""
    bench.client()
    manager(bench)
    return bench


def test_a_manager_is_told_what_is_wanted_at_once(cloud):
    """The first task of a cluster without workers asks for one within a moment."""
    cloud.submit(0, 3)

    assert wants(cloud.wait(0.3)) == ["Wanted 3"]
    assert wants(cloud.wait(3.0)) == []


def test_workers_without_python_are_no_help(cloud):
    """They are not given tasks that demand nothing, so others are wanted for these."""
    cloud.feed(b"S1", hello(m.SUPERVISOR, workers=1))
    message = hello(m.WORKER, supervisor=b"S1", capabilities=(("javascript", -1),))
    message.python = ""
    cloud.feed(b"W1", message)

    assert "W1" not in cloud.submit(0)
    assert wants(cloud.wait(0.3)) == ["Wanted 1"]


def test_a_heartbeat_is_answered_with_the_number_and_the_units(cloud):
    """An absolute number, repeated: so a manager that missed one is none the worse."""
    cloud.submit(0, 3)
    cloud.wait(0.3)
    unit(cloud, 1, b"W1")

    assert wants(cloud.feed(b"M1", QUIET)) == ["Wanted 3: cloud-1 has 2"]


def test_a_function_that_is_slow_this_time_is_noticed(cloud):
    """It was quick before; what has run for longer than that is not done yet."""
    unit(cloud, 1, b"W1")
    cloud.submit(0)
    cloud.done(0, each_s=0.01)
    cloud.wait(0.3)
    cloud.submit(1, 15)

    assert [line.split(":")[0] for line in wants(cloud.wait(0.3))] == ["Wanted 1"]
    assert wants(cloud.wait(1.0))[-1].startswith("Wanted 4: ")


def test_a_function_nobody_runs_is_as_quick_as_before(cloud):
    """That no worker has come yet says nothing of it."""
    unit(cloud, 1, b"W1")
    cloud.submit(0)
    cloud.done(0, each_s=0.01)
    cloud.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {"exit_code": 0}))
    cloud.feed(b"S1", m.Goodbye())
    cloud.submit(1, 15)

    assert wants(cloud.wait(10.0)) == ["Wanted 1"]


def test_fewer_are_wanted_once_the_cooldown_is_over(cloud):
    """Nothing to do for less than the cooldown ends no worker."""
    cloud.submit(0)
    cloud.wait(0.3)
    unit(cloud, 1, b"W1")
    cloud.done(0)

    assert wants(cloud.wait(4.0)) == []
    assert wants(cloud.wait(2.0)) == ["Wanted 0: cloud-1 has 0"]


def test_a_unit_that_drains_gets_nothing_and_leaves_with_its_last_task(cloud):
    """What it has not begun goes to others; the supervisor is sent off when it has nothing."""
    cloud.submit(0, 40)
    unit(cloud, 1, b"W1")
    unit(cloud, 2, b"W2")

    sent = cloud.feed(b"M1", m.Drain(("cloud-1",)))
    assert sent["S1"] == ["Wanted 0"]
    revoke = next(line for line in sent["W1"] if line.startswith("Revoke"))
    assert revoke.startswith("Revoke 1:1")
    count = len(cloud.core.table.workers[b"W1"].runs[-1].batch.ends)
    cloud.feed(b"W1", m.Revoked(1, 1, count, 0))
    assert "Assign" not in str(cloud.wait(0.3).get("W1", ""))

    cloud.done(0)
    assert cloud.wait(0.3)["W1"] == ["Retire"]
    sent = cloud.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {"exit_code": 0}))
    assert cloud.wait(0.3)["S1"] == ["Goodbye: its manager ends it, and nobody needs what it has"]


def test_a_worker_that_joins_a_draining_unit_leaves_at_once(cloud):
    """Its supervisor had started it before it heard."""
    unit(cloud, 1, b"W1")
    cloud.feed(b"M1", m.Drain(("cloud-1",)))
    cloud.wait(0.3)
    sent = cloud.worker(b"W2", b"S1")
    assert sent["W2"][-1] == "Retire"

    cloud.submit(0)
    assert "W2" not in cloud.wait(0.3)
    assert not cloud.core.table.in_flight


def test_a_machine_leaves_once_its_results_were_fetched(bench):
    """A result lies on the machine where it was made until its client has it."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, homes=(m.StorageEndpoint("tcp://home"),)))
    bench.client()
    manager(bench)
    who = {"manager": "cloud", "unit": "cloud-2"}
    bench.feed(b"S2", hello(m.SUPERVISOR, workers=1, **who))
    bench.worker(b"W2", b"S2", disk="/elsewhere")
    bench.storage(b"O2", supervisor=b"S2")
    bench.submit(0)
    result = segment(b"W2", 0)
    bench.feed(b"W2", m.Stored(1, 0, 0.1, b"", (result,), (1000,)))
    bench.feed(b"M1", m.Drain(("cloud-2",)))
    bench.wait(0.3)
    bench.feed(b"S2", m.WorkerLost(b"W2", 0, 0, {"exit_code": 0}))

    assert "S2" not in bench.wait(2.0)
    bench.feed(b"C1", m.Release((result,)))
    assert bench.wait(0.3)["S2"][-1].startswith("Goodbye")


def test_a_supervisor_that_offers_is_told_and_its_surplus_drains(bench):
    """Workers with the least to do go first, and those that drain may stay after all."""
    bench.client()
    bench.supervisor(b"S1", workers=3)
    bench.feed(b"S1", offer(8, cooldown_s=0.0))
    for worker in (b"W1", b"W2", b"W3"):
        bench.worker(worker)
    bench.submit(0)
    busy = next(one for one in bench.core.table.workers.values() if one.count)

    sent = bench.wait(0.5)
    assert wants(sent, "S1") == ["Wanted 1"]
    assert sum(lines == ["Retire"] for lines in sent.values()) == 2
    assert not busy.retiring

    # It has none by itself then.
    bench.feed(b"S1", offer(0, cooldown_s=0.0))
    assert wants(bench.wait(0.25), "S1") == []
    assert busy.retiring
    bench.feed(b"S1", offer(8, cooldown_s=0.0))
    assert wants(bench.wait(0.25), "S1") == ["Wanted 1"]
    assert not busy.retiring


def test_a_supervisor_that_comes_back_says_how_many_it_has(bench):
    """A scheduler that is new goes by that, not by how many it had at first."""
    bench.client()
    bench.supervisor(b"S1", workers=2)
    for worker in (b"W1", b"W2", b"W3"):
        bench.worker(worker)
    three = offer(8, least=2, cooldown_s=0.0)
    three.wanted = 3
    bench.feed(b"S1", three)

    assert wants(bench.wait(0.25), "S1") == ["Wanted 2"]


def test_a_supervisor_that_offers_may_have_an_id(bench):
    """By that, the rules of a waterfall name it."""
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=0, name="metal"), offer())

    assert [one.name for one in bench.core.table.managers.values()] == ["metal"]


def test_the_second_manager_of_an_id_takes_its_place(cloud):
    """A manager that was killed and started anew need not wait until it was silent for long."""
    sent = cloud.feed(b"M2", hello(m.MANAGER, name="cloud"), offer())

    assert sent["M1"] == ["Refused: another manager with its id has come"]
    assert list(cloud.core.table.managers) == [b"M2"]


def test_a_supervisor_of_its_name_stays(bench):
    """It is no manager of units, and has workers of its own."""
    bench.feed(b"S1", hello(m.SUPERVISOR, workers=0, name="cloud"), offer())
    manager(bench)

    assert list(bench.core.table.managers) == [b"S1", b"M1"]


def test_workers_to_come_are_counted_once(cloud):
    """A unit that is here without its workers is among those that its manager is to have."""
    cloud.submit(0, 3)
    cloud.wait(0.3)
    cloud.feed(b"S1", hello(m.SUPERVISOR, workers=1, manager="cloud", unit="cloud-1"))

    assert cloud.core.table.workers_to_come == 3


def test_a_manager_that_is_gone_leaves_its_units(cloud):
    """They work on, and count as workers that nobody scales."""
    unit(cloud, 1, b"W1")
    cloud.feed(b"M1", m.Goodbye())
    manager(cloud, b"M2", "other")
    cloud.submit(0, 2)

    assert wants(cloud.wait(0.3), "M2") == ["Wanted 1"]


def test_broken_units_break_no_client_while_a_manager_could_help(cloud):
    """Their initializer may work elsewhere."""
    unit(cloud, 1)
    cloud.submit(0)

    assert "C1" not in cloud.feed(b"S1", m.InitializerFailed("no such module"))


def test_a_unit_is_named_once_a_worker_of_it_was_here(cloud):
    """A supervisor alone is none: its workers may be such as can never start."""
    unit(cloud, 1)
    assert wants(cloud.feed(b"M1", QUIET)) == ["Wanted 0"]

    cloud.worker(b"W1", b"S1")
    cloud.feed(b"S1", m.WorkerLost(b"W1", 0, 0, {"exit_code": 0}))
    assert wants(cloud.feed(b"M1", QUIET)) == ["Wanted 0: cloud-1 has 0"]


def test_a_unit_that_comes_back_is_named_with_its_workers(cloud):
    """They lived on while the scheduler was restarted, and are on their way."""
    who = {"manager": "cloud", "unit": "cloud-1", "resume": 1}
    cloud.feed(b"S1", hello(m.SUPERVISOR, workers=1, **who), m.Roll((b"W1",), is_whole=True))

    assert wants(cloud.feed(b"M1", QUIET)) == ["Wanted 0: cloud-1 has 0"]


def test_the_manager_hears_why_workers_of_a_unit_cannot_start(cloud):
    """The last line of the traceback says it; managers of other units hear nothing."""
    manager(cloud, b"M2", "other")
    unit(cloud, 1)
    failed = m.InitializerFailed("Traceback ...\nModuleNotFoundError: No module named 'x'\n")

    assert cloud.feed(b"S1", failed, m.Goodbye()) == {
        "M1": ["UnitBroken cloud-1: cannot start: ModuleNotFoundError: No module named 'x'"]
    }


def test_the_manager_hears_why_a_unit_was_refused(cloud):
    """A unit with another Python never comes."""
    other = replace(hello(m.SUPERVISOR, manager="cloud", unit="cloud-1"), python="2.7")
    sent = cloud.feed(b"S1", other)

    (line,) = sent["M1"]
    assert line.startswith("UnitBroken cloud-1: were refused: The cluster runs Python 2.7")


def test_reasons_are_in_the_log_once(cloud):
    """Why a manager gets no workers is told when it changes."""
    failed = m.Units(0, 0, 1, "no such image", 0.0)
    cloud.core.table.journal.take(cloud.now)
    for _ in range(3):
        cloud.feed(b"M1", failed)

    lines = [line for _, line in cloud.core.table.journal.take(cloud.now + 2)]
    assert lines == ["manager cloud (pid 1 on host) gets no workers: no such image"]


def test_watchers_see_managers(cloud):
    """What is wanted, what is here, how its units are, and what idles costs."""
    cloud.submit(0)
    cloud.wait(0.3)
    unit(cloud, 1, b"W1")
    # Its workers are not here yet: its manager says that it is coming.
    unit(cloud, 2)
    cloud.feed(b"M1", m.Units(2, 1, 4, "no room", 90.0))
    cloud.wait(0.3)
    (row,) = cloud.snapshot().managers

    assert (row.name, row.system, row.wanted, row.workers) == ("cloud", "slurm", 1, 1)
    assert (row.running, row.coming, row.ending, row.failed) == (1, 2, 1, 4)
    assert row.reason == "no room"
    assert (row.least, row.most, row.unit_s, row.idle_s) == (0, 4, 90.0, 0.0)
    cloud.done(0)
    cloud.wait(2.0)
    (row,) = cloud.snapshot().managers
    assert row.idle_s > 1.0


def test_a_manager_without_a_rule_is_warned_of(bench):
    """It is asked for nothing, which nobody would understand else; said once."""
    policy = read_policy("waterfall_v1", "1,cloud")
    bench = SchedulerBench(SchedulerConfig(PYTHON, scaling=policy))
    bench.client()
    manager(bench)
    manager(bench, b"M2", "metal")
    bench.feed(b"M2", offer(5), QUIET)
    bench.submit(0, 10)
    bench.wait(1.0)

    lines = [line for is_warning, line in bench.core.table.journal.take(bench.now) if is_warning]
    assert lines == [
        "manager metal (pid 1 on host) has no rule in policy_content: its workers stay as they are"
    ]


def test_a_cluster_that_drains_is_said_to(cloud):
    """Its number of workers says nothing any more."""
    unit(cloud, 1, b"W1")
    unit(cloud, 2)
    cloud.core.table.journal.take(cloud.now)
    cloud.feed(b"M1", m.Drain(("cloud-1",)))
    cloud.feed(b"S1", m.Goodbye())
    cloud.feed(b"S2", m.InitializerFailed("no"), m.Goodbye())

    lines = [line for _, line in cloud.core.table.journal.take(cloud.now + 2)]
    assert lines == [
        "draining cluster (pid 1 on host) left",
        "cluster whose workers cannot start (pid 1 on host) left",
    ]


def test_a_policy_that_sends_nothing(bench):
    """With scaling=no a manager keeps what it has, within its bounds."""
    policy = read_policy("simple", "allocate=even; scaling=no")
    bench = SchedulerBench(SchedulerConfig(PYTHON, scaling=policy))
    bench.client()
    manager(bench, least=1)
    bench.submit(0, 10)

    assert wants(bench.wait(1.0)) == ["Wanted 1"]


def test_a_silent_manager_is_given_up(cloud):
    """Another one may take its place then, under another id as well."""
    cloud.wait(cloud.core.config.supervisor_timeout_s + 1)

    assert not cloud.core.table.managers


@pytest.mark.parametrize(
    "message", [offer(0, least=1), m.Drain(("x",)), QUIET, m.Offer("x", 0, 1, 0, 0.0, ())]
)
def test_what_only_managers_may_say(one, message):
    """Clients have no workers started, and no offer is of none."""
    with pytest.raises(RemoteProtocolError):
        one.feed(b"C1", message)
