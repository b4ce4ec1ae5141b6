"""What tasks demand and workers offer: who gets what, and what becomes of what nobody can run."""

from __future__ import annotations

import pytest

from scaler_cluster.core.records.credit import STALL_S
from scaler_cluster.core.records.limits import WINDOW_S
from scaler_cluster.core.records.placement import describe, has_all, uncounted
from scaler_cluster.core.scheduler.config import SchedulerConfig
from scaler_cluster.core.scheduler.scheduler import LAG_S
from scaler_cluster.core.scheduler.unplaced import NO_WORKER_S, STARTING_S
from scaler_cluster.testing.bench import PYTHON, SchedulerBench, hello
from scaler_cluster.wire import messages as m

GPU = (("gpu", 1),)
JAVASCRIPT = (("javascript", -1),)
ON_GPU = m.TaskOptions(capabilities=GPU)
SHORT_S = WINDOW_S / 100


@pytest.fixture
def mixed(one):
    """W1 offers nothing, W2 a GPU."""
    one.worker(b"W2", capabilities=GPU)
    return one


@pytest.fixture
def loaded(bench):
    """W1 runs task 0 and has 1 to 99 queued; who idles gets half of that."""
    bench.supervisor()
    bench.client()
    bench.worker()
    bench.submit(900)
    bench.done(900, each_s=SHORT_S)
    assert bench.submit(0, 100) == {"W1": ["Assign 1:0-99 f"]}
    return bench


# -- what fits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "demanded", "fits"),
    [
        ({}, (), True),
        ({"gpu": 1}, (), True),
        ({}, GPU, False),
        ({"gpu": 1}, GPU, True),
        ({"gpu": 1}, (("gpu", 2),), False),
        ({"gpu": -1}, (("gpu", 2),), True),
        ({"gpu": 1}, (("gpu", -1),), True),
        ({"gpu": 0}, (("gpu", 0),), True),
        ({"gpu": 0.5}, (("gpu", 0.5),), True),
        ({"gpu": 1}, (("gpu", 1), ("linux", -1)), False),
    ],
)
def test_a_demand_is_met_by_names_and_amounts(offered, demanded, fits):
    """A worker meets a demand that names only what it has, and no more of it; -1 is any amount."""
    assert has_all(offered, demanded) is fits


def test_a_demand_is_described_for_people():
    """The description of a demand leaves out amounts that are not used."""
    options = m.TaskOptions(capabilities=(("gpu", 2), ("linux", -1)), workers=("a", "b"))
    assert describe(options) == "gpu=2, linux, the name 'a' or 'b'"


# -- who gets what -----------------------------------------------------------------------------


def test_tasks_go_where_they_fit(mixed):
    """A task that demands a GPU goes to the only worker that has one."""
    assert list(mixed.submit(0, 2, options=ON_GPU)) == ["W2"]


def test_what_needs_nothing_leaves_the_gpu_free(mixed):
    """A task without demands goes to the idle worker that offers less."""
    assert list(mixed.submit(0)) == ["W1"]


def test_a_worker_with_a_gpu_helps_with_the_rest(mixed):
    """A worker with a GPU takes other tasks where there are more than the others can run."""
    assert sorted(mixed.submit(0, 2)) == ["W1", "W2"]


def foreign(bench):
    """Let W2 come, which speaks another language than Python."""
    message = hello(m.WORKER, supervisor=b"S1", capabilities=JAVASCRIPT)
    message.python = ""
    return bench.feed(b"W2", message)


def test_a_worker_without_python_gets_only_what_demands_something(one):
    """Others could be pickles, which it cannot read: they wait, or go elsewhere."""
    foreign(one)

    assert list(one.submit(0, 50)) == ["W1"]
    assert list(one.submit(50, options=m.TaskOptions(capabilities=JAVASCRIPT))) == ["W2"]
    assert "W2" not in one.submit(51, options=m.TaskOptions(workers=("host",)))


def test_nothing_is_asked_back_for_a_worker_without_python(loaded):
    """It idles, but may run none of what another one has queued."""
    assert "W1" not in foreign(loaded)
    assert loaded.wait(STALL_S * 0.9) == {}
    assert loaded.worker(b"W3")["W1"] == ["Revoke 1:50-99"]


def test_nobody_waits_behind_what_nobody_can_run(one):
    """A demand that no worker meets holds up no other task."""
    assert one.submit(0, options=ON_GPU) == {}
    assert one.submit(1)["W1"][-1] == "Assign 1:1 f"


def test_the_worker_that_was_missing_gets_what_waited(one):
    """A worker that comes later gets the tasks that only it can run."""
    one.submit(0, options=ON_GPU)
    assert one.worker(b"W2", capabilities=GPU)["W2"][-1] == "Assign 1:0 f"


def test_a_demand_comes_first_among_equals(mixed):
    """A worker takes what only it can run before equal tasks that others could run."""
    mixed.submit(900)
    mixed.submit(901)
    mixed.submit(0, 10)
    mixed.submit(100, options=ON_GPU)

    assert mixed.done(901, peer=b"W2")["W2"][0] == "Assign 1:100 f"


def test_priority_counts_more_than_a_demand(mixed):
    """A worker takes the more urgent of two tasks, whatever they demand."""
    mixed.submit(900, 4)
    mixed.submit(100, options=ON_GPU)
    mixed.submit(0, options=m.TaskOptions(priority=1))

    ran = mixed.core.table.workers[b"W2"].runs[0].first
    assert mixed.done(ran, peer=b"W2")["W2"][0] == "Assign 1:0 f"


def test_names_of_workers_and_machines_are_demands(bench):
    """A task may name the workers or machines on which it is to run."""
    bench.supervisor()
    bench.client()
    bench.worker(b"W1", name="anna")
    bench.worker(b"W2", name="berta")

    assert list(bench.submit(0, options=m.TaskOptions(workers=("berta",)))) == ["W2"]
    assert bench.submit(1, options=m.TaskOptions(workers=("carla",))) == {}
    assert bench.submit(2, options=m.TaskOptions(workers=("carla", "host"))) != {}


def test_spare_workers_offer_only_what_is_not_used_up(one):
    """A spare worker does not offer the GPU that the worker it stands in for still holds."""
    assert uncounted((("gpu", 1), ("linux", -1))) == (("linux", -1),)
    one.worker(b"W2", capabilities=(("gpu", 1), ("linux", -1)), spare=True)

    assert one.core.table.workers[b"W2"].pool.offered == {"linux": -1}


# -- moving ------------------------------------------------------------------------------------


def test_only_what_an_idle_worker_could_run_is_asked_back_for_it(mixed):
    """Tasks that an idle worker cannot run are not asked back for it."""
    mixed.submit(900, options=ON_GPU)
    mixed.done(900, peer=b"W2", each_s=SHORT_S)
    assert mixed.submit(0, 100, options=ON_GPU) == {"W2": ["Assign 1:0-99 f"]}
    assert mixed.submit(200)["W1"][-1] == "Assign 1:200 f"

    assert mixed.done(200, peer=b"W1", each_s=SHORT_S).get("W2") is None


def test_what_waits_behind_a_long_task_waits_for_one_that_can_run_it(mixed):
    """A task that was asked back does not go to a worker that cannot run it."""
    mixed.submit(900, options=ON_GPU)
    mixed.done(900, peer=b"W2", each_s=SHORT_S)
    mixed.submit(0, 100, options=ON_GPU)
    assert mixed.wait(STALL_S * 2) == {"W2": ["Revoke 1:1-99"]}

    assert mixed.feed(b"W2", m.Revoked(1, 1, 99, 0)) == {}
    given = mixed.worker(b"W3", capabilities=GPU)["W3"]
    assert "Assign 1:1-50 f" in given


# -- what nobody can run -----------------------------------------------------------------------


def test_the_client_is_told_of_a_demand_that_nobody_meets(one):
    """The client hears once of a demand that no worker meets, and again when it recurs."""
    one.submit(0, options=ON_GPU)
    told = {"C1": ["Unplaced: Tasks wait for a worker with gpu=1: none has it."]}
    assert one.wait(LAG_S / 2) == told
    assert one.wait(LAG_S / 2) == {}
    one.worker(b"W2", capabilities=GPU)
    one.wait(LAG_S / 2)
    one.died(0, worker=b"W2")

    assert one.submit(1, options=ON_GPU) == {}
    assert one.wait(LAG_S / 2) == told


def test_nobody_is_told_while_workers_are_on_their_way(bench):
    """A client is not told of an unmet demand while workers that may meet it are coming."""
    bench.supervisor(workers=2)
    bench.client()
    bench.worker(b"W1")
    bench.submit(0, options=ON_GPU)
    assert bench.wait(LAG_S) == {}
    bench.worker(b"W2")

    assert list(bench.wait(LAG_S)) == ["C1"]


def test_the_client_is_told_that_there_is_no_worker(bench):
    """The client hears, after a few seconds, that no worker is there, and when one is."""
    bench.client()
    bench.submit(0)
    bench.graph(100, "")
    told = {"C1": ["Unplaced: Tasks wait for a worker: there is none."]}
    assert bench.wait(NO_WORKER_S - 0.1) == {}
    assert bench.wait(LAG_S) == told
    assert bench.wait(60.0) == {}

    bench.supervisor()
    bench.worker()
    assert bench.wait(LAG_S)["C1"] == ["Unplaced"]
    bench.feed(b"S1", m.Goodbye())

    assert bench.wait(NO_WORKER_S + LAG_S) == told


def test_a_client_that_comes_later_is_told_at_once(bench):
    """A client that comes when there has been no worker for long is told at once."""
    bench.client()
    bench.submit(0)
    bench.wait(NO_WORKER_S + LAG_S)
    bench.client(b"C2")
    bench.submit(0, peer=b"C2")

    assert list(bench.wait(LAG_S)) == ["C2"]


def test_workers_on_their_way_are_waited_for_in_silence(bench):
    """Workers on their way are waited for in silence, but not for ever."""
    bench.supervisor(workers=3)
    bench.client()
    bench.submit(0)

    for _ in range(int(STARTING_S)):
        bench.feed(b"S1", m.Heartbeat())
        assert "C1" not in bench.wait(0.99)
    sentence = "Tasks wait for a worker: there is none. On their way: 3."
    assert bench.wait(2.0)["C1"] == [f"Unplaced: {sentence}"]


def test_workers_that_are_lost_are_not_on_their_way():
    """Workers that came and were lost do not count as on their way."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, workers_expected=1))
    bench.supervisor()
    bench.worker()
    bench.client()
    bench.feed(b"S1", m.Goodbye())
    bench.submit(0)

    assert bench.wait(NO_WORKER_S + LAG_S) == {
        "C1": ["Unplaced: Tasks wait for a worker: there is none."]
    }


def test_who_waits_hears_that_a_cluster_was_refused(bench):
    """A waiting client hears once of each reason why a cluster was refused."""
    bench.client()
    bench.submit(0)
    bench.wait(NO_WORKER_S + LAG_S)
    other = m.Hello(m.SUPERVISOR, m.PROTOCOL_VERSION, "2.7", 7, "there")
    bench.feed(b"S8", other)

    (sentence,) = bench.wait(LAG_S)["C1"]
    assert sentence.startswith(
        "Unplaced: Tasks wait for a worker: there is none. A cluster on there was refused: The "
        "cluster runs Python 2.7, this scheduler 3.11"
    )
    bench.feed(b"S9", other)
    assert bench.wait(60.0) == {}
    assert bench.snapshot().refused.startswith("A cluster on there was refused")
    bench.supervisor()
    bench.worker()
    assert not bench.snapshot().refused


def test_after_a_time_such_tasks_fail():
    """Tasks that no worker can run fail after the time that is set, with their dependants."""
    bench = SchedulerBench(SchedulerConfig(PYTHON, unplaced_timeout_s=10.0))
    bench.supervisor()
    bench.client()
    bench.worker()
    bench.submit(0, 2, options=ON_GPU)
    bench.graph(100, "", "", "0 1", options=[m.DEFAULT_OPTIONS, ON_GPU], kinds=[0, 1, 0])
    bench.wait(LAG_S)
    answers = bench.wait(10.0)["C1"]

    assert [one.split()[:3] for one in answers] == [
        ["Failed", "0", "unplaced"], ["Failed", "1", "unplaced"], ["Failed", "102", "unplaced"],
        ["Unplaced"],
    ]  # fmt: skip
    assert not any(queue.options.capabilities for queue in bench.core.table.backlog.queues())


# -- graphs ------------------------------------------------------------------------------------


def test_nodes_of_one_graph_go_where_each_fits(mixed):
    """Each node of a graph goes to a worker that meets its own demand."""
    given = mixed.graph(0, "", "0", "1", options=[m.DEFAULT_OPTIONS, ON_GPU], kinds=[0, 1, 0])
    assert list(given) == ["W1"]
    assert [one.split()[1] for one in given["W1"] if one.startswith("AssignNodes")] == ["1:0"]

    given = mixed.done(0, peer=b"W1")
    assert [one.split()[1] for one in given["W2"] if one.startswith("AssignNodes")] == ["1:1"]


def test_nodes_of_one_graph_have_their_own_priority(one):
    """The more urgent node of a graph runs first, whatever its number."""
    one.submit(900, 2)
    urgent = m.TaskOptions(priority=5)
    options, kinds = [m.DEFAULT_OPTIONS, urgent], [0, 1, 0]
    one.graph(0, "", "", "", wanted="0 1 2", options=options, kinds=kinds)

    given = one.done(900)["W1"]
    assert next(one.split()[1] for one in given if one.startswith("AssignNodes")) == "1:1"
