"""A client that breaks the protocol: it alone is dropped, and hears why; the scheduler logs it."""

from __future__ import annotations

import pytest

from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_exec import Client, ClusterBroken, SchedulerClusterCombo
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, wait_until

WRONG = m.TaskOptions(priority="high")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (m.RequestCredit(5), "asks for what it may do"),
        (m.Submit(0, bytes(16), 0, WRONG, Batch.single(b"")), "task options of the wrong type"),
        (m.Forget(bytes(16)), "a function that it has not sent"),
    ],
    ids=["forbidden", "undecodable", "unknown"],
)  # fmt: skip
def test_a_dropped_client_hears_why(cluster, client, flags, message, reason) -> None:
    """What it waits for fails with the reason, and so does what it submits later; others go on."""
    with Client(cluster) as other:
        held = other.submit(tasks.hold, flags.path("held"), flags.path("go"))
        flags.wait("held")
        pending = [client.submit(tasks.square, n) for n in range(10)]
        late = client.submit(tasks.sleep, flags.path("never"))
        said = rf"the scheduler at \S+ dropped this client: .*{reason}"
        session = client._session
        with session.connection.lock:
            session.core.say(message)
        session.wake()

        with pytest.raises(ClusterBroken, match=said):
            late.result(BOUND_S)
        assert all(future.done() for future in pending)
        with pytest.raises(ClusterBroken, match=said):
            client.submit(tasks.square, 3)
        flags.set("go")
        assert held.result(BOUND_S) > 0
        assert other.submit(tasks.square, 3).result(BOUND_S) == 9


PLANTED = """
import sys
if "scaler_cluster.runtime.scheduler" in sys.orig_argv:
    from scaler_cluster.core.scheduler import SchedulerCore
    def fail(core, peer, message, now):
        raise KeyError("planted")
    SchedulerCore._on_forget = fail
"""


def test_a_bug_of_the_scheduler_drops_nobody(tmp_path, monkeypatch) -> None:
    """It is logged with its traceback; the peer goes on, with what it said after that."""
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = tmp_path / "log"
    with SchedulerClusterCombo(1, logging_paths=[str(path)]) as cluster, Client(cluster) as client:
        with client._session.connection.lock:
            client._session.core.say(m.Forget(bytes(16)))
        assert client.submit(tasks.square, 3).result(BOUND_S) == 9

        wait_until(
            lambda: "failed by a bug of the scheduler" in path.read_text(), "nothing is logged"
        )
        assert "KeyError: 'planted'" in path.read_text()
        assert client.submit(tasks.square, 4).result(BOUND_S) == 16
        assert "dropped" not in path.read_text()
