"""A client asks which workers take tasks, and submits to one of them alone."""

from __future__ import annotations

from scaler_cluster.core.client.client import ClientCore
from scaler_cluster.ids import alias_of
from scaler_cluster.testing.bench import hello
from scaler_cluster.wire import messages as m


def ask(bench) -> m.WorkerList:
    """Return what the scheduler answers."""
    bench.core.receive(b"C1", [m.ListWorkers(7)], bench.now)
    (answer,) = bench.act_raw()[b"C1"]
    assert isinstance(answer, m.WorkerList)
    return answer


def test_the_workers_that_take_tasks_are_listed(one):
    """Not spare ones, nor those that are about to leave; by alias, name, machine and pid."""
    one.feed(b"W2", hello(m.WORKER, supervisor=b"S1", name="two"))
    one.feed(b"W3", hello(m.WORKER, supervisor=b"S1", spare=True))
    one.feed(b"W4", hello(m.WORKER, supervisor=b"S1"))
    one.core._pools.retire(one.core.table.workers[b"W4"])

    answer = ask(one)

    aliases = tuple(alias_of(peer).hex() for peer in (b"W1", b"W2"))
    assert answer == m.WorkerList(7, aliases, ("", "two"), ("host", "host"), (1, 1))


def test_machines_that_are_to_start_workers_are_named(one):
    """In place of one that died, or that is about to leave but is to stay in number."""
    assert ask(one).late == ()
    one.core.table.supervisors[b"S1"].workers_wanted = 2
    assert ask(one).late == ("host",)
    one.feed(b"W2", hello(m.WORKER, supervisor=b"S1"))
    assert ask(one).late == ()
    one.core._pools.retire(one.core.table.workers[b"W2"])
    assert ask(one).late == ("host",)
    one.core.table.supervisors[b"S1"].broken = "it has no memory"
    assert ask(one).late == ()


def test_the_place_of_an_actor_is_not_listed(one):
    """It would never come to the call."""
    one.submit(0, options=m.TaskOptions(creates="A1"))
    assert one.core.table.workers[b"W1"].actor == "A1"

    assert ask(one).aliases == ()


def test_a_task_goes_to_the_worker_with_its_alias(one):
    """Also if others are idle, and none of them has a name."""
    for peer in (b"W2", b"W3"):
        one.feed(peer, hello(m.WORKER, supervisor=b"S1"))
    for task, peer in enumerate((b"W3", b"W1", b"W3", b"W2")):
        one.submit(task, options=m.TaskOptions(workers=(alias_of(peer).hex(),)))

    counts = {peer: worker.count for peer, worker in one.core.table.workers.items()}
    assert counts == {b"W1": 1, b"W2": 1, b"W3": 2}


def test_the_answer_is_news_of_the_client():
    """The core hands it on, whatever else came."""
    core = ClientCore()
    answer = m.WorkerList(1, ("a",), ("",), ("host",), (1,))
    core.receive([answer], 0.0)

    assert core.events.take() == [answer]
