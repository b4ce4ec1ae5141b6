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
        (m.Want(5), "asks for what it may do"),
        (m.Submit(0, bytes(16), 0, WRONG, Batch.single(b"")), "task options of the wrong type"),
        (m.Forget(bytes(16)), "Forget: KeyError"),
    ],
    ids=["forbidden", "undecodable", "unforeseen"],
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


def test_what_was_not_foreseen_is_logged_with_its_traceback(tmp_path) -> None:
    """So that it can be mended; what a peer must not say is one line."""
    path = tmp_path / "log"
    with SchedulerClusterCombo(1, logging_paths=[str(path)]) as cluster:
        for message, line in ((m.Want(5), "asks for what"), (m.Forget(bytes(16)), "KeyError")):
            client = Client(cluster)
            with client._session.connection.lock:
                client._session.core.say(message)
            client._session.wake()
            wait_until(lambda line=line: line in path.read_text(), "nothing is logged")
            assert ("Traceback" in path.read_text()) is (line == "KeyError")
            client.disconnect()
