"""A client that breaks the protocol: it alone is dropped, and hears why; the scheduler logs it."""

from __future__ import annotations

import pytest

from scaler_cluster.wire import messages as m
from scaler_cluster.wire.batch import Batch
from scaler_exec import Client, ClusterBrokenError, SchedulerClusterCombo
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, plant, wait_until

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
    """A dropped client's tasks and later submissions fail with the reason; others go on."""
    with Client(cluster) as other:
        held = other.submit(tasks.hold, flags.path("held"), flags.path("go"))
        flags.wait("held")
        pending = [client.submit(tasks.square, n) for n in range(10)]
        late = client.submit(tasks.sleep, flags.path("never"))
        said = rf"the scheduler at \S+ dropped this client: .*{reason}"
        session = client._session
        session.connection.say(message)
        session.wake()

        with pytest.raises(ClusterBrokenError, match=said):
            late.result(BOUND_S)
        assert all(future.done() for future in pending)
        with pytest.raises(ClusterBrokenError, match=said):
            client.submit(tasks.square, 3)
        flags.set("go")
        assert held.result(BOUND_S) > 0
        assert other.submit(tasks.square, 3).result(BOUND_S) == 9


def test_the_first_reason_stays(client, caplog) -> None:
    """What the scheduler says to a client that it has dropped does not hide why it was dropped."""
    client._session._settler.handle([m.Broken("the first reason"), m.Unknown()])

    with pytest.raises(ClusterBrokenError, match="the first reason"):
        client.submit(tasks.square, 3)
    assert "asked for again" not in caplog.text


PLANTED = """
import sys
if "scaler_cluster.runtime.scheduler" in sys.orig_argv:
    from scaler_cluster.core.scheduler.client_handlers import ClientHandlers
    def fail(handlers, peer, message, now):
        raise KeyError("planted")
    ClientHandlers._on_forget = fail
"""


def test_a_bug_of_the_scheduler_drops_nobody(tmp_path, monkeypatch) -> None:
    """A bug of the scheduler is logged with its traceback, and the peer goes on."""
    plant(tmp_path, PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = tmp_path / "log"
    with SchedulerClusterCombo(1, logging_paths=[str(path)]) as cluster, Client(cluster) as client:
        client._session.connection.say(m.Forget(bytes(16)))
        assert client.submit(tasks.square, 3).result(BOUND_S) == 9

        wait_until(
            lambda: "failed by a bug of the scheduler" in path.read_text(), "nothing is logged"
        )
        assert "KeyError: 'planted'" in path.read_text()
        assert client.submit(tasks.square, 4).result(BOUND_S) == 16
        assert "dropped" not in path.read_text()
