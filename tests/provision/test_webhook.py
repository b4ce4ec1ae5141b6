"""The webhook of version 1.12 from both sides: each row of its documents."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scaler_cluster.config.webhook_settings import NativeAdapterSettings, WebhookSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision import adapter as module
from scaler_cluster.provision.adapter import Adapter
from scaler_cluster.provision.adapters import make_adapter
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.manager_process import offer_of
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_cluster.provision.webhook import WebhookBackend
from scaler_cluster.wire.messages import MOST_MAX
from scaler_exec import Client
from tests.runtime.helpers import BOUND_S, free_port, wait_until

ADDRESS = "tcp://127.0.0.1:8516"


class Books:
    """A backend that only keeps the books of its units."""

    def __init__(self) -> None:
        self.units: dict[str, UnitStatus] = {}
        self.error = ""
        self.stopped: list[str] = []

    def start(self, units):
        if self.error:
            raise BackendError(self.error)
        self.units.update((unit, UnitStatus()) for unit in units)

    def look(self):
        return dict(self.units)

    def stop(self, units):
        if self.error:
            raise BackendError(self.error)
        self.stopped += units
        for unit in units:
            del self.units[unit]

    def close(self):
        self.units.clear()


class Served:
    """An adapter of ours with books behind it, asked as its route is."""

    def __init__(self, **settings) -> None:
        self.books = Books()
        self.managers: list[str] = []
        made = NativeAdapterSettings.of(scheduler_address=ADDRESS, **settings)
        self.adapter = Adapter(made, made.max_workers, self._backend)

    def _backend(self, command: UnitCommand) -> Books:
        self.managers.append(command.manager_id)
        return self.books

    def ask(self, body: object) -> tuple[int, dict]:
        return asyncio.run(self.adapter._answer(body))


def start(**fields) -> dict:
    return {"action": "start_worker_group", **fields}


def shut_down(group: object) -> dict:
    return {"action": "shutdown_worker_group", "worker_group_id": group}


# -- our adapter -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "groups"), [({"max_workers": 3}, 3), ({"max_workers": -1}, -1)]
)
def test_an_adapter_says_what_it_has(settings, groups) -> None:
    """Without a limit it says -1."""
    served = Served(per_worker_capabilities={"gpu": 1}, **settings)

    assert served.ask({"action": "get_worker_adapter_info"}) == (
        200,
        {
            "max_worker_groups": groups,
            "workers_per_group": 1,
            "base_capabilities": {"gpu": 1},
            "worker_groups": [],
        },
    )
    group = served.ask(start())[1]["worker_group_id"]
    assert served.adapter.info()["worker_groups"] == [group]


def test_groups_are_started_and_shut_down() -> None:
    """Each has an id, and says what its workers call themselves to the scheduler."""
    served = Served(max_workers=2)
    status, first = served.ask(start())

    assert status == 200
    assert first["status"] == "Worker group started"
    assert first["worker_group_id"].removeprefix("native-").isalnum()
    (worker,) = first["worker_ids"]
    assert worker.startswith("NAT|")
    assert served.ask(start())[0] == 200
    assert served.ask(start()) == (429, {"error": "there are 2 worker groups already"})

    assert served.ask(shut_down(first["worker_group_id"])) == (
        200,
        {"status": "Worker group shutdown"},
    )
    assert served.ask(shut_down(first["worker_group_id"]))[0] == 404
    assert served.ask(start())[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({}, 400, "No action specified"),
        (None, 400, "No action specified"),
        ([1], 400, "No action specified"),
        ({"action": ""}, 400, "No action specified"),
        ({"action": "dance"}, 400, "Unknown action"),
        ({"action": ["dance"]}, 400, "Unknown action"),
        ({"action": "shutdown_worker_group"}, 400, "No worker_group_id specified"),
        (shut_down(""), 400, "No worker_group_id specified"),
        (shut_down("native-x"), 404, "there is no worker group 'native-x'"),
    ],
)
def test_what_an_adapter_refuses(body, status, error) -> None:
    """Each refusal has the status and the words of the documents."""
    assert Served().ask(body) == (status, {"error": error})


def test_a_backend_that_fails_is_told() -> None:
    """A group that could not be started is none; one that could not be shut down still is one."""
    served = Served(max_workers=1)
    served.books.error = "no room"
    assert served.ask(start()) == (500, {"error": "no room"})
    served.books.error = ""
    group = served.ask(start())[1]["worker_group_id"]
    served.books.error = "busy"
    assert served.ask(shut_down(group)) == (500, {"error": "busy"})
    assert served.ask(start())[0] == 429


def test_a_group_whose_workers_have_left_makes_room() -> None:
    """They leave by themselves when their scheduler sends them off."""
    served = Served(max_workers=1)
    group = served.ask(start())[1]["worker_group_id"]
    served.books.units[group] = UnitStatus(is_over=True)

    assert served.ask(start())[0] == 200


def test_a_manager_of_ours_is_named_to_the_workers() -> None:
    """So the scheduler knows which unit drains."""
    served = Served()
    served.ask(start(worker_manager_id="mine", unit="mine-1"))

    assert (served.managers, list(served.books.units)) == (["", "mine"], ["mine-1"])


def test_an_adapter_that_ends_shuts_its_groups_down(caplog) -> None:
    """It says so if its system does not let it."""
    served = Served()
    group = served.ask(start())[1]["worker_group_id"]
    served.adapter.close()
    assert served.books.stopped == [group]

    served = Served()
    served.ask(start())
    served.books.error = "busy"
    served.adapter.close()
    assert "groups are left: busy" in caplog.text


def test_a_unit_is_started_once() -> None:
    """Its name is free again when it could not be started, or was shut down."""
    served = Served(max_workers=2)
    served.books.error = "no room"
    assert served.ask(start(unit="mine-1"))[0] == 500
    served.books.error = ""
    status, started = served.ask(start(unit="mine-1"))
    assert status == 200
    again = served.ask(start(unit="mine-1"))
    assert again == (500, {"error": "there is a unit 'mine-1' already"})

    assert served.ask(shut_down(started["worker_group_id"]))[0] == 200
    assert served.ask(start(unit="mine-1"))[0] == 200


def test_an_adapter_whose_workers_need_keys(monkeypatch, tmp_path) -> None:
    """It is told before anything is started."""
    monkeypatch.delenv("SCALER_KEYS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="keys"):
        make_adapter(NativeAdapterSettings.of(scheduler_address="tcp://192.0.2.1:8516"))


def test_an_adapter_without_its_library(monkeypatch) -> None:
    """Says which extra has it."""
    monkeypatch.setitem(__import__("sys").modules, "aiohttp", None)
    with pytest.raises(ConfigError, match=r"pip install 'scaler-exec\[adapter\]'"):
        module._web()


# -- our scheduler's side ----------------------------------------------------------------------


class Foreign:
    """An adapter of somebody else: answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.answers: list[tuple[int, bytes]] = []
        foreign = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                assert self.headers["Content-Type"] == "application/json"
                length = int(self.headers["Content-Length"])
                foreign.asked.append(json.loads(self.rfile.read(length)))
                status, body = foreign.answers.pop(0)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def will(self, answer: object, status: int = 200) -> None:
        self.answers.append((status, json.dumps(answer).encode()))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def foreign():
    """Return an adapter of somebody else."""
    made = Foreign()
    yield made
    made.close()


@pytest.fixture
def backend(foreign):
    """Return our side of it."""
    settings = WebhookSettings.of(scheduler_address=ADDRESS, url=foreign.url, max_workers=-1)
    return WebhookBackend(settings, UnitCommand(settings, "mine"))


def test_groups_of_an_adapter_are_units(backend, foreign) -> None:
    """A unit is its group, from its start to its shutdown."""
    foreign.will({"status": "Worker group started", "worker_group_id": "g", "worker_ids": ["w"]})
    backend.start(["mine-1"])
    foreign.will({"max_worker_groups": 1})
    assert backend.look() == {"mine-1": UnitStatus()}
    foreign.will({"status": "Worker group shutdown"})
    backend.stop(["mine-1", "mine-2"])

    assert backend.look() == {}
    assert foreign.asked == [
        {"action": "start_worker_group", "worker_manager_id": "mine", "unit": "mine-1"},
        {"action": "get_worker_adapter_info"},
        {"action": "shutdown_worker_group", "worker_group_id": "g"},
    ]


def test_an_adapter_of_ours_says_which_groups_live(backend, foreign) -> None:
    """One that has died is over, and is told once."""
    for group in "gh":
        foreign.will({"worker_group_id": group})
    backend.start(["mine-1", "mine-2"])
    foreign.will({"worker_groups": ["h"]})
    assert backend.look() == {"mine-1": UnitStatus(True), "mine-2": UnitStatus()}
    foreign.will({"worker_groups": ["h"]})
    assert backend.look() == {"mine-2": UnitStatus()}


def test_a_group_that_the_adapter_does_not_know_has_ended(backend, foreign) -> None:
    """It answers 404, and nothing is left to be done."""
    foreign.will({"worker_group_id": "g"})
    backend.start(["mine-1"])
    foreign.will({"error": "unknown"}, 404)
    backend.stop(["mine-1"])

    assert backend.look() == {}


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        ({"error": "full"}, 429, "answers 429: full"),
        ({"error": "it broke"}, 500, "answers 500: it broke"),
        ({}, 500, "answers 500: Internal Server Error"),
        ({"status": "Worker group started"}, 200, "names no worker_group_id"),
        ([], 200, "no JSON object"),
    ],
)
def test_what_goes_wrong_at_an_adapter(backend, foreign, answer, status, message) -> None:
    """The reason is the adapter's own, and no unit is there."""
    foreign.will(answer, status)
    with pytest.raises(BackendError, match=message):
        backend.start(["mine-1"])
    assert backend.look() == {}


def test_an_adapter_that_is_not_there() -> None:
    """A refused connection is a reason, too."""
    settings = WebhookSettings.of(scheduler_address=ADDRESS, url="http://127.0.0.1:9")
    with pytest.raises(BackendError, match="does not answer"):
        WebhookBackend(settings, UnitCommand(settings, "mine")).start(["mine-1"])


@pytest.mark.parametrize(
    ("groups", "per_group", "most"), [(3, 4, 12), (-1, 4, MOST_MAX), (0, 1, 0)]
)
def test_an_adapter_says_what_may_be_asked_of_it(backend, foreign, groups, per_group, most) -> None:
    """-1 is no limit, and not one below 0."""
    settings = WebhookSettings.of(scheduler_address=ADDRESS, url=foreign.url, max_workers=-1)
    info = {"max_worker_groups": groups, "workers_per_group": per_group}
    foreign.will(info | {"base_capabilities": {"gpu": 1}})
    offer = backend.offered(offer_of(settings))

    assert (offer.most, offer.per_unit, offer.capabilities) == (most, per_group, (("gpu", 1.0),))


def test_a_dry_run_shows_the_request(backend, foreign) -> None:
    """Nothing is sent."""
    assert '"unit": "mine-1"' in backend.dry_run("mine-1")
    assert foreign.asked == []


# -- both, by their commands -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    ["--adapter-webhook-url {url}", "-scs fixed_elastic --adapter-webhook-urls {url} {other}"],
)
def test_workers_come_by_the_webhook_and_go_again(shell, flags) -> None:
    """From no workers on, a map comes back; afterwards there are none."""
    pytest.importorskip("aiohttp")
    base = free_port(6)
    address, port = f"tcp://127.0.0.1:{base + 1}", base + 4
    url, other = (f"http://127.0.0.1:{one}" for one in (port, port + 1))
    native = f"scaler_worker_adapter_native {address} --host 127.0.0.1 --max-workers 1 --port"
    adapters = [shell.start(f"{native} {port}")]
    if "{other}" in flags:
        adapters.append(shell.start(f"{native} {port + 1}"))
    for one in adapters:
        one.wait_for("WorkerAdapter: answers at http://127.0.0.1:")
    scheduler = shell.start(f"scaler_scheduler {address} {flags.format(url=url, other=other)}")
    scheduler.wait_for("manager webhook-1")
    with Client(address) as client:
        assert sum(client.map(abs, range(-1000, 0))) == 500_500
    assert "starts webhook-1-" in scheduler.out
    wait_until(lambda: "draining cluster" in scheduler.out, "the workers do not leave")
    assert scheduler.interrupt() == 0


@pytest.mark.slow
def test_an_adapter_that_does_not_answer_is_waited_for(shell) -> None:
    """Monitors hear why there are no workers; what has waited runs once it answers."""
    pytest.importorskip("aiohttp")
    base = free_port(6)
    address, port, monitor = f"tcp://127.0.0.1:{base + 1}", base + 4, f"tcp://127.0.0.1:{base + 3}"
    url = f"http://127.0.0.1:{port}"
    scheduler = shell.start(
        f"scaler_scheduler {address} --adapter-webhook-url {url} --monitor-address {monitor}"
    )
    why = f"{url} does not answer: Connection refused"
    scheduler.wait_for(f"gets no workers: {why}")
    with Client(address) as client:
        future = client.submit(abs, -1)
        shown = shell.run(f"scaler_top {monitor} --once").out
        assert f"the manager webhook-1 gets no workers: {why}" in shown

        native = f"scaler_worker_adapter_native {address} --host 127.0.0.1 --port {port}"
        adapter = shell.start(f"{native} --max-workers 1")
        assert future.result(BOUND_S) == 1
    scheduler.wait_for("webhook-1 manages up to 1 workers")
    assert why not in shell.run(f"scaler_top {monitor} --once").out
    assert scheduler.interrupt() == 0
    assert adapter.interrupt() == 0


@pytest.mark.slow
def test_a_manager_that_nobody_answers_ends_when_it_is_told(shell) -> None:
    """Neither its adapter nor its scheduler is there."""
    port = free_port(2)
    manager = shell.start(
        f"scaler_worker_manager webhook http://127.0.0.1:{port} tcp://127.0.0.1:{port + 1}"
    )
    manager.wait_for(f"WorkerManager: http://127.0.0.1:{port} does not answer: Connection refused")
    assert manager.interrupt() == 0


@pytest.mark.slow
def test_workers_that_cannot_start_are_told_with_why(shell) -> None:
    """Scheduler and monitors hear it; once it is mended, the tasks that have waited run."""
    pytest.importorskip("aiohttp")
    base = free_port(6)
    address, port = f"tcp://127.0.0.1:{base + 1}", base + 4
    native = f"scaler_worker_adapter_native {address} --host 127.0.0.1 --port {port}"
    broken = shell.start(f"{native} --preload 'json:loads(\"x\")'")
    broken.wait_for("WorkerAdapter: answers at")
    scheduler = shell.start(
        f"scaler_scheduler {address} --adapter-webhook-url http://127.0.0.1:{port} "
        f"--monitor-address tcp://127.0.0.1:{base + 3}"
    )
    scheduler.wait_for("manager webhook-1")
    with Client(address) as client:
        future = client.submit(abs, -1)
        why = (
            "cannot start: json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
        )
        scheduler.wait_for("gets no workers: workers cannot start: json.")
        scheduler.wait_for(why)
        shown = shell.run(f"scaler_top tcp://127.0.0.1:{base + 3} --once")
        assert why in shown.out
        assert not future.done()

        assert broken.interrupt() == 0
        shell.start(native)
        assert future.result(BOUND_S) == 1
    assert scheduler.interrupt() == 0


@pytest.mark.slow
def test_a_file_runs_adapters(shell) -> None:
    """Tables of adapters are run like all others."""
    pytest.importorskip("aiohttp")
    port = free_port(2)
    shell.write(
        "stack.toml",
        f"""
        [scheduler]
        scheduler_address = "tcp://127.0.0.1:0"
        adapter_webhook_urls = ["http://127.0.0.1:{port}"]
        [native_worker_adapter]
        adapter_web_host = "127.0.0.1"
        adapter_web_port = {port}
        max_workers = 1
        [fixed_native_worker_adapter]
        max_workers = 1
        """,
    )
    stack = shell.start("scaler stack.toml")
    stack.wait_for("Worker[FIX|")
    stack.wait_for("manager webhook-1 (pid")
    with Client(stack.address("scheduler address ")) as client:
        assert client.submit(abs, -1).result(30) == 1
    assert stack.interrupt() == 0
    assert stack.err == ""
