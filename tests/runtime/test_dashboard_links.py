"""Where a cluster can be watched: what its clients and executors say."""

from __future__ import annotations

import html
import socket
import urllib.request
from urllib.parse import urlsplit

import psutil
import pytest

from scaler_cluster.cli.stack_file import StackFile
from scaler_cluster.config.load import read_file
from scaler_cluster.config.sections import WebSettings
from scaler_cluster.process import dashboard_listener
from scaler_cluster.process.dashboard_listener import DashboardListener
from scaler_cluster.process.monitor_config import DashboardProcessConfig
from scaler_cluster.security import key_files
from scaler_cluster.security.credentials import Credentials
from scaler_exec import Client, ConfigError, ScalerExecutor, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, free_port
from tests.runtime.shell import Shell


def places_of_client() -> tuple[str, str | None]:
    with Client() as client:
        return client.monitor_address, client.dashboard_link


def places_of_executor() -> tuple[str, str | None]:
    with ScalerExecutor() as executor:
        return executor.monitor_address, executor.dashboard_link


@pytest.mark.parametrize("ask", [places_of_client, places_of_executor])
def test_clients_know_where_the_cluster_is_watched(cluster, client, ask) -> None:
    """Clients and executors know their cluster's monitor address, also inside of tasks."""
    watched_at = cluster.get_monitor_address(), None

    with ScalerExecutor(address=cluster.get_address()) as executor:
        assert (executor.monitor_address, executor.dashboard_link) == watched_at
    assert (client.monitor_address, client.dashboard_link) == watched_at
    assert client.submit(ask).result() == watched_at


def test_an_embedded_cluster_is_watched_by_a_socket_file(executor) -> None:
    """An embedded cluster is watched by a socket file, and has no dashboard unasked."""
    assert executor.monitor_address.startswith("ipc://")
    assert executor.dashboard_link is None


def test_a_notebook_shows_what_something_is_and_its_dashboard() -> None:
    """A cluster, and an executor of its own, are shown with their dashboard while it is there."""
    with (
        SchedulerClusterCombo(1, dashboard=True) as cluster,
        ScalerExecutor(1, dashboard=True) as executor,
        ScalerExecutor(address=cluster.get_address()) as guest,
    ):
        for one in (cluster, executor):
            assert html.escape(repr(one)) in one._repr_html_()
            assert f'<iframe src="{html.escape(str(one.dashboard_link))}"' in one._repr_html_()
        # A notebook that is passed on has no link to what others run.
        assert guest.dashboard_link is not None
        assert guest._repr_html_() == f"<p><code>{html.escape(repr(guest))}</code></p>"
    for one in (cluster, executor):
        assert one._repr_html_() == f"<p><code>{html.escape(repr(one))}</code></p>"


def test_a_notebook_shows_a_cluster_without_a_dashboard(cluster, executor) -> None:
    """What has no dashboard is shown as it is anywhere."""
    for one in (cluster, executor):
        assert one._repr_html_() == f"<p><code>{html.escape(repr(one))}</code></p>"


def test_a_monitor_that_listens_everywhere_is_where_the_scheduler_is() -> None:
    """A monitor on all interfaces is named by the host at which a client reached the cluster."""
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
    """dashboard=True is refused for a cluster that is running already."""
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
    """The dashboard's port listens at once, and its link has a new token each time."""
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
    """The link of a dashboard on all interfaces leaves the host to the client."""
    door = open_door(host, token="a b", prefix="/scaler")
    rest = "/scaler/?token=a%20b"

    assert door.link == link.format(door.port) + rest
    assert door.link_to_tell == told.format(door.port) + rest


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_a_door_that_listens_everywhere_says_a_link_that_opens_elsewhere(open_door, host) -> None:
    """What is printed names an address of this machine that others have a route to."""
    door = open_door(host, token="a b")

    link, about = door.said.splitlines()

    found = urlsplit(link.removeprefix("dashboard at "))
    addresses = [one.address for them in psutil.net_if_addrs().values() for one in them]
    assert found.hostname in addresses
    others = [one for one in addresses if one not in {"127.0.0.1", "::1"} and "%" not in one]
    is_outward = found.hostname not in {"127.0.0.1", "::1"}
    assert is_outward is any(":" in one or "." in one for one in others)
    socket.create_connection((found.hostname, door.port)).close()
    assert (found.port, found.query) == (door.port, "token=a%20b")
    assert about == (
        "it listens at all addresses of this machine: any of them, its name "
        f"{socket.gethostname()}, or here localhost may stand in that link"
    )


def test_the_link_of_a_dashboard_that_listens_everywhere_opens(shell) -> None:
    """A browser that opens what is printed gets in by it, with the token as a cookie."""
    command = shell.start("scaler_ui tcp://127.0.0.1:1 --port 0 --address 0.0.0.0")
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    with browser.open(command.address("dashboard at "), None, BOUND_S) as page:
        assert page.status == 200
        assert b"<h1" in page.read()
    assert "it listens at all addresses of this machine" in command.out


def test_a_door_without_a_way_to_others_says_the_link_of_this_machine(
    open_door, monkeypatch
) -> None:
    """Where there is no route to any other machine, the link leads there from this one."""
    monkeypatch.setattr(dashboard_listener, "OTHERS", {"0.0.0.0": ()})
    door = open_door("0.0.0.0", token="a b")

    assert door.said.startswith(
        f"dashboard at http://127.0.0.1:{door.port}/?token=a%20b\nit listens"
    )


def test_a_door_that_listens_everywhere_is_reached_by_both_protocols(open_door) -> None:
    """[::] is reached by IPv4 and by IPv6."""
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
    """One sentence says why a port cannot be opened."""
    port = open_door().port

    with pytest.raises(ConfigError, match=rf"at {host}, port {port}: {reason}"):
        DashboardListener(host, port)


@pytest.mark.system
def test_the_token_is_in_the_link_alone(tmp_path) -> None:
    """No command line, no log and no feed has the token; a client has the link."""
    shell = Shell(tmp_path)
    port = free_port(3)
    file = shell.write(
        "stack.toml",
        f'[scheduler]\nscheduler_address = "tcp://127.0.0.1:{port}"\nlogging_level = "DEBUG"\n'
        '[cluster]\nnum_of_workers = 1\nlogging_level = "DEBUG"\n'
        '[webui]\nport = 0\nlogging_level = "DEBUG"\n',
    )
    command = shell.start(f"scaler {file}")
    link = command.address("dashboard at ")
    token = link.partition("token=")[2]
    with (
        Client(f"tcp://127.0.0.1:{port}") as client,
        socket.create_connection(("127.0.0.1", urlsplit(link).port or 0)) as browser,
    ):
        assert client.submit(abs, -1).result() == 1
        assert client.dashboard_link == link
        browser.sendall(f"GET /?token={token} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        assert browser.recv(12).endswith(b" 302")
        feed = shell.run(f"scaler_top {client.monitor_address} --json")
    processes = psutil.Process(command.pid).children(recursive=True)
    lines = [" ".join(one.cmdline()) for one in processes]

    assert any("dashboard" in line for line in lines)
    assert not any(token in line for line in lines)
    assert '"done":1' in feed.out.replace(" ", "")
    assert token not in feed.out
    assert command.interrupt() == 0
    assert (command.out + command.err).count(token) == 1
    shell.close()


def test_what_a_dashboard_is_told(open_door) -> None:
    """A dashboard process is told what it shows, where it is served, and its users' settings."""
    door = open_door(token="secret", prefix="/p")
    settings = WebSettings(monitor_address="tcp://head:8518", hosts=("proxy",), logging_paths=())

    told = DashboardProcessConfig.from_settings(settings, door)

    assert told == DashboardProcessConfig(
        monitor_address="tcp://head:8518",
        record=None,
        history=None,
        replay=None,
        fd=door.listener.fileno(),
        token="secret",
        prefix="/p",
        hosts=("127.0.0.1", socket.gethostname(), "proxy"),
        link=door.link,
        tls=None,
        credentials=Credentials(role="monitor"),
        interval_s=0.5,
        rows_max=50_000,
        logging=None,
        acting=None,
    )


def test_a_door_has_a_second_link_for_operators(open_door, tmp_path) -> None:
    """It has a token of its own, and only a door that is given an operator's key has it."""
    key_files.make_cluster(tmp_path / "keys")
    key_files.add(tmp_path / "keys", "operator", "ann")
    file = str(tmp_path / "keys" / "ann.key")
    plain, door = open_door(), open_door(token="a b", prefix="/p", operator_keys=file)

    assert (plain.acting, plain.said) == (None, f"dashboard at {plain.link}\n")
    assert door.acting is not None
    assert (door.acting.keys, len(door.acting.token) >= 32) == (file, True)
    assert door.said == (
        f"dashboard at http://127.0.0.1:{door.port}/p/?token=a%20b\n"
        f"for operators, at http://127.0.0.1:{door.port}/p/?token={door.acting.token}\n"
    )
    assert door.acting.token not in door.link_to_tell
    with pytest.raises(ConfigError, match="this needs those of an operator"):
        DashboardListener(operator_keys=str(tmp_path / "keys" / "client.key"))


# -- a stack of one file -----------------------------------------------------------------------


def stack_of(tmp_path, text: str) -> StackFile:
    (tmp_path / "stack.toml").write_text(text)
    return StackFile(read_file(str(tmp_path / "stack.toml")))


SCHEDULER = '[scheduler]\nscheduler_address = "tcp://127.0.0.1:0"\n'


def test_a_stack_whose_dashboard_finds_its_port_taken(tmp_path, open_door) -> None:
    """A stack says that its dashboard's port is taken before it starts anything."""
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
        ('[gui]\nreplay = "a"\noperator_keys = "b"', "nor operator_keys goes with it"),
        (f"{SCHEDULER}[webui]\n[gui]", r"line 4: \[gui\]: there may be only one dashboard"),
    ],
)
def test_a_stack_whose_dashboard_is_wrong(tmp_path, text, reason) -> None:
    """A stack names the line of a wrong setting of its dashboard."""
    with pytest.raises(ConfigError, match=reason):
        stack_of(tmp_path, text)
