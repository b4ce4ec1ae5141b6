"""Calls on all workers, of which one goes before it has answered: never an endless wait."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from scaler_cluster.client import present_workers
from scaler_cluster.client.session import Session
from scaler_exec import WorkerDiedError
from scaler_exec.code import run
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, cluster_process, wait_gone

pytestmark = pytest.mark.slow


def test_a_worker_that_dies_in_a_call_fails_it(make_executor):
    """The error tells how the process ended; the worker in its place answers the next call."""
    executor = make_executor(1)
    executor.submit(os.getpid).result(BOUND_S)

    with pytest.raises(WorkerDiedError, match="exited with code 7"):
        run(executor, os._exit, 7)
    pid = executor.submit(os.getpid).result(BOUND_S)
    assert list(run(executor, os.getpid).values()) == [pid]


def test_the_worker_in_place_of_one_that_leaves_answers(make_executor, flags, monkeypatch):
    """Who leaves takes the call no more; it goes to the one that is started in that place."""
    executor = make_executor(1, max_tasks_per_child=1)
    last = executor.submit(tasks.hold, flags.path("started"), flags.path("release"))
    flags.wait("started")
    looks = []
    list_workers = Session.list_workers

    def look(session: Session):
        looks.append(session)
        if len(looks) == 2:
            # By now the call is submitted: the worker may go.
            flags.set("release")
        return list_workers(session)

    monkeypatch.setattr(Session, "list_workers", look)
    monkeypatch.setattr(present_workers, "LOOK_S", 0.05)

    (answer,) = run(executor, os.getpid).values()
    assert answer not in {0, last.result(BOUND_S)}


def test_a_machine_that_dies_in_a_call_fails_it(make_executor, flags):
    """Its workers end with it, also the one that runs the call."""
    executor = make_executor(1)
    pid = executor.submit(os.getpid).result(BOUND_S)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(run, executor, tasks.hold, flags.path("a"), flags.path("b"))
        flags.wait("a")
        cluster_process("supervisor").kill()

        with pytest.raises(WorkerDiedError):
            call.result(BOUND_S)
    wait_gone(pid)
