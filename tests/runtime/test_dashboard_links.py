"""Where a cluster can be watched: what its clients and executors say."""

from __future__ import annotations

import socket

import pytest

from scaler_cluster.cli.stack_file import StackFile
from scaler_cluster.config.load import read_file
from scaler_cluster.config.sections import WebSettings
from scaler_cluster.runtime.dashboard_listener import DashboardListener
from scaler_cluster.runtime.process_config import dashboard_process_config
from scaler_exec import Client, ConfigError, ScalerExecutor, SchedulerClusterCombo
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


def test_a_running_cluster_has_its_own_dashboard(cluster) -> None:
    """Who joins it, or works inside of it, cannot ask for another."""
    with pytest.raises(ConfigError, match="see dashboard_link"):
        ScalerExecutor(address=cluster.get_address(), dashboard=True)


# -- where a dashboard is served ---------------------------------------------------------------


@pytest.fixture
def open_door():
    """Return what makes doors; at the end of the test all are closed."""
    doors: list[DashboardListener] = []

    def open_door(*args, **options) -> DashboardListener:
        doors.append(DashboardListener(*args, **options))
        return doors[-1]

    yield open_door
    for door in doors:
        door.close()


def test_a_door_listens_before_there_is_a_dashboard(open_door) -> None:
    """At any free port; the link has that and a token, which is another each time."""
    door = open_door()

    assert door.link == f"http://127.0.0.1:{door.port}/?token={door.token}"
    socket.create_connection(("127.0.0.1", door.port)).close()
    assert len(door.token) >= 32
    assert open_door().token != door.token


@pytest.mark.parametrize(
    ("host", "link", "told"),
    [
        ("localhost", "http://localhost:{}", "http://localhost:{}"),
        ("[::1]", "http://[::1]:{}", "http://[::1]:{}"),
        ("::1", "http://[::1]:{}", "http://[::1]:{}"),
        ("0.0.0.0", "http://127.0.0.1:{}", "http://0.0.0.0:{}"),
        ("[::]", "http://[::1]:{}", "http://[::]:{}"),
    ],
)
def test_a_link_names_the_host(open_door, host, link, told) -> None:
    """If it listens everywhere, clients are left to put in the host that they know."""
    door = open_door(host, token="a b", prefix="/scaler")
    rest = "/scaler/?token=a%20b"

    assert door.link == link.format(door.port) + rest
    assert door.link_to_tell == told.format(door.port) + rest


def test_a_door_that_listens_everywhere_is_reached_by_both_protocols(open_door) -> None:
    """[::] is for IPv4 as well."""
    port = open_door("::").port

    for host in ("127.0.0.1", "::1"):
        socket.create_connection((host, port)).close()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "the port is in use; choose another"),
        ("192.0.2.1", "that is no address of this machine"),
        ("nowhere.invalid", "there is no host 'nowhere.invalid'"),
    ],
)
def test_a_door_that_cannot_be_opened(open_door, host, reason) -> None:
    """One sentence says why."""
    port = open_door().port

    with pytest.raises(ConfigError, match=rf"at {host}, port {port}: {reason}"):
        DashboardListener(host, port)


def test_what_a_dashboard_is_told(open_door) -> None:
    """What it shows, where it is served, and what its users set."""
    door = open_door(token="secret", prefix="/p")
    settings = WebSettings(monitor_address="tcp://head:8518", hosts=("proxy",), logging_paths=())

    told = dashboard_process_config(settings, door)

    assert told == {
        "monitor_address": "tcp://head:8518",
        "record": None,
        "replay": None,
        "fd": door.listener.fileno(),
        "token": "secret",
        "prefix": "/p",
        "hosts": ["127.0.0.1", socket.gethostname(), "proxy"],
        "link": door.link,
        "interval_s": 0.5,
        "rows_max": 50_000,
    }


# -- a stack of one file -----------------------------------------------------------------------


def stack_of(tmp_path, text: str) -> StackFile:
    (tmp_path / "stack.toml").write_text(text)
    return StackFile(read_file(str(tmp_path / "stack.toml")))


SCHEDULER = '[scheduler]\nscheduler_address = "tcp://127.0.0.1:0"\n'


def test_a_stack_whose_dashboard_finds_its_port_taken(tmp_path, open_door) -> None:
    """It says so before it has started anything."""
    port = open_door().port
    stack = stack_of(tmp_path, f"{SCHEDULER}[webui]\nport = {port}\n")

    with pytest.raises(ConfigError, match="the port is in use"):
        stack.start()
    assert stack._children == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[webui]", r"line 1: \[webui\]: nothing to show"),
        ('[gui]\nreplay = "a"\nrecord = "b"', r"line 1: \[gui\]: replay shows a recording"),
        (f"{SCHEDULER}[webui]\n[gui]", r"line 4: \[gui\]: one dashboard is enough"),
    ],
)
def test_a_stack_whose_dashboard_is_wrong(tmp_path, text, reason) -> None:
    """It says in which line."""
    with pytest.raises(ConfigError, match=reason):
        stack_of(tmp_path, text)
