"""Where a cluster can be watched: what its clients and executors say."""

from __future__ import annotations

import pytest

from scaler_exec import Client, ScalerExecutor, SchedulerClusterCombo
from tests.runtime.helpers import free_port


def places_of_client() -> tuple[str, str | None]:
    with Client() as client:
        return client.monitor_address, client.dashboard_link


def places_of_executor() -> tuple[str, str | None]:
    with ScalerExecutor() as executor:
        return executor.monitor_address, executor.dashboard_link


@pytest.mark.parametrize("ask", [places_of_client, places_of_executor])
def test_clients_know_where_the_cluster_is_watched(cluster, client, ask) -> None:
    """Client and executor say the monitor address of their cluster, outside and inside of tasks."""
    watched_at = cluster.get_monitor_address(), None

    with ScalerExecutor(address=cluster.get_address()) as executor:
        assert (executor.monitor_address, executor.dashboard_link) == watched_at
    assert (client.monitor_address, client.dashboard_link) == watched_at
    assert client.submit(ask).result() == watched_at


def test_an_embedded_cluster_is_watched_by_a_socket_file(executor) -> None:
    """Its executor says which; there is no dashboard unless one was asked for."""
    assert executor.monitor_address.startswith("ipc://")
    assert executor.dashboard_link is None


def test_a_monitor_that_listens_everywhere_is_where_the_scheduler_is() -> None:
    """Who reached the scheduler at a host is told to watch it there."""
    port = free_port()
    wildcard = f"tcp://0.0.0.0:{port}"

    with (
        SchedulerClusterCombo(1, "tcp://127.0.0.1:0", monitor_address=wildcard) as cluster,
        Client(cluster.get_address()) as client,
    ):
        assert cluster.get_monitor_address() == wildcard
        assert client.monitor_address == f"tcp://127.0.0.1:{port}"
        assert client.submit(places_of_client).result() == (client.monitor_address, None)
