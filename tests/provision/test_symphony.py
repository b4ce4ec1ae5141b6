"""Workers whose tasks IBM Symphony runs: a stand-in of its module runs the documents' service."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import threading
import time
import tokenize
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from scaler.worker_adapter.common import CapacityExceededError
from scaler.worker_adapter.symphony.worker_adapter import SymphonyWorkerAdapter
from scaler_cluster.config.proxy_settings import SymphonySettings
from scaler_cluster.errors import ConfigError, RemoteCallError
from scaler_cluster.provision.runners import make_runner
from scaler_cluster.runtime.remote_answer import Told
from scaler_cluster.runtime.remote_task import RemoteHost
from scaler_cluster.wire.messages import TaskOptions
from scaler_exec import (
    Client,
    CodeError,
    DeserializeObjectError,
    SchedulerClusterCombo,
    TaskTimeoutError,
    UnpicklableResultError,
)
from scaler_exec.code import Environ, register_plugin
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, cluster_process, free_port, wait_until

HERE = Path(__file__).parent / "symphony"
DOCUMENTS = sorted((Path(__file__).parents[3] / "shared" / "seeds").glob("*.txt"))
SERVICE = (HERE / "service.txt").read_text()
PROGRAM = "import array\nimport cloudpickle\nimport soamapi\n{}\nServiceContainer().run()\n"
ALONE = """
import sys
class Nowhere:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"scaler_cluster", "scaler_exec", "scaler"}:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)
sys.meta_path.insert(0, Nowhere())
"""
"""Ahead of a service: this engine is not installed there."""
pytestmark = pytest.mark.slow


def words(text: str) -> list[str]:
    """Return the tokens of a program, whose lines may have lost their indentation."""
    lines = "\n".join(line.strip() for line in text.splitlines())
    left_out = {tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    found = tokenize.generate_tokens(io.StringIO(lines).readline)
    return [one.string for one in found if one.type not in left_out]


@pytest.mark.skipif(not DOCUMENTS, reason="the documents are not at hand")
def test_the_service_is_as_printed() -> None:
    """The program that the stand-in runs is that of the documents."""
    printed = [one.read_text() for one in DOCUMENTS]
    begin, end = "class Message(soamapi.Message):", "def on_destroy_service(self):"
    found = [
        one[one.index(begin) : one.index("return", one.index(end)) + len("return")]
        for one in printed
        if begin in one
    ]
    assert len(found) > 1
    assert [words(SERVICE)] * len(found) == [words(one) for one in found]


@pytest.fixture
def symphony(tmp_path, monkeypatch):
    """Return the directory in which a test makes trouble for the stand-in."""
    trouble = tmp_path / "trouble"
    trouble.mkdir()
    service = tmp_path / "service.py"
    service.write_text(PROGRAM.format(SERVICE))
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{os.environ['PYTHONPATH']}")
    monkeypatch.setenv("SOAM_TROUBLE", str(trouble))
    monkeypatch.setenv("SOAM_SERVICE", str(service))
    monkeypatch.setenv("SOAM_SLOTS", "3")
    monkeypatch.setenv("SOAM_APPLICATION", "ScalerService")
    return trouble


@contextmanager
def workers(shell, count: int = 2, more: str = ""):
    """Start a scheduler and the command of version 1.9; yield a client."""
    address = f"tcp://127.0.0.1:{free_port(4)}"
    shell.start(f"scaler_scheduler {address}")
    shell.start(
        f"scaler_symphony_cluster {address} ScalerService --base-concurrency {count} {more}"
    )
    with Client(address) as client:
        yield client


def test_tasks_run_in_symphony(symphony, shell) -> None:
    """In processes of the service, as many at once as there may be; also maps and graphs."""
    with workers(shell) as client:
        assert client.submit(os.environ.get, "SOAM_SERVICE").result(BOUND_S) is not None
        assert client.map(tasks.square, range(40)) == [n * n for n in range(40)]
        assert client.submit(divmod, 7, 2).result(BOUND_S) == (3, 1)
        assert client.submit(int, "ff", base=16).result(BOUND_S) == 255
        pids = set(client.map(_pid, range(8)))
        assert shell.commands[1].pid not in pids
        graph = {"a": 1, "b": (tasks.square, "a"), "c": (_add, "b", "b")}
        assert client.get(graph, ["c"]) == [2] or client.get(graph, ["c"]) == {"c": 2}
    assert shell.commands[1].interrupt() == 0


def test_functions_of_a_program(symphony, shell) -> None:
    """They travel by value, with classes whose instances come back as the program's own."""
    with workers(shell) as client:
        program = f"""
from scaler_exec import Client
factor = 3
class Box:
    def __init__(self, value): self.value = value
class Odd(Exception):
    def __init__(self, one, two): self.two = two
def scale(box):
    if box.value < 0: raise Odd(1, two=box)
    return Box(box.value * factor)
with Client({client._address!r}) as client:
    box = client.submit(scale, Box(2)).result(30)
    print(type(box) is Box, box.value)
    try:
        client.submit(scale, Box(-1)).result(30)
    except Odd as error:
        print(error.two.value, "in scale" in str(error.__cause__))
"""
        assert shell.python(program).splitlines() == ["True 6", "-1 True"]


def test_large_arguments_and_results(symphony, shell) -> None:
    """They go through the objects of the cluster on its side, and through messages to Symphony."""
    data = os.urandom(3_000_000)
    with workers(shell) as client:
        assert client.submit(bytes.__add__, data, data).result(BOUND_S) == data + data
        assert client.map(len, [data] * 4) == [len(data)] * 4


def test_errors_come_back(symphony, shell) -> None:
    """As the exceptions that they are, with the traceback of the service."""
    with workers(shell) as client:
        future = client.submit(tasks.raise_this, "ValueError", "wrong")
        with pytest.raises(ValueError, match="wrong") as caught:
            future.result(BOUND_S)
        assert "in raise_this" in str(caught.value.__cause__)
        assert "on_invoke" not in str(caught.value.__cause__)
        with pytest.raises(UnpicklableResultError, match="ScalerService of IBM Symphony cannot p"):
            client.submit(threading.Lock).result(BOUND_S)
        # Its process is gone, without a word.
        with pytest.raises(RemoteCallError, match="service instance exited"):
            client.submit(os._exit, 3).result(BOUND_S)
        # The other system has only what it has, and the client goes on without the plugin.
        with pytest.raises(CodeError, match="do not reach the system behind a proxy"):
            register_plugin(client, Environ({"A": 1}))
        assert client.submit(abs, -1).result(BOUND_S) == 1


def test_where_this_engine_is_not_installed(symphony, shell, tmp_path) -> None:
    """A service needs nothing but cloudpickle."""
    (tmp_path / "service.py").write_text(ALONE + PROGRAM.format(SERVICE))
    with workers(shell) as client:
        assert client.map(_double, range(9)) == [2 * n for n in range(9)]
        with pytest.raises(KeyError, match="nothing") as caught:
            client.submit(_raise_key_error).result(BOUND_S)
        assert "in <lambda>" in str(caught.value.__cause__)
        with pytest.raises(UnpicklableResultError, match="cannot pickle"):
            client.submit(threading.Lock).result(BOUND_S)
        with pytest.raises(DeserializeObjectError, match="cannot unpickle the call: .*no module"):
            client.submit(_needs_the_engine).result(BOUND_S)


def test_an_answer_may_be_faster_than_the_id_of_its_task(symphony, shell) -> None:
    """It is not lost."""
    (symphony / "hasty").touch()
    with workers(shell) as client:
        assert client.map(tasks.square, range(5)) == [n * n for n in range(5)]


def test_no_more_tasks_at_once_than_there_may_be(symphony, shell, flags) -> None:
    """The others wait in the scheduler."""
    with workers(shell, count=2) as client:
        held = [client.submit(tasks.hold, flags.path(f"s{n}"), flags.path("go")) for n in range(3)]
        started = lambda: sum(flags.seen(f"s{n}") for n in range(3))  # noqa: E731
        wait_until(lambda: started() == 2, "two do not run at once")
        other = client.submit(abs, -1)
        time.sleep(0.3)
        assert (started(), other.done()) == (2, False)
        flags.set("go")
        assert other.result(BOUND_S) == 1
        assert len([one.result(BOUND_S) for one in held]) == 3


def test_a_task_that_is_cancelled_is_forgotten(symphony, shell, flags) -> None:
    """Its worker takes the next one, while Symphony runs it to its end."""
    with workers(shell, count=1) as client:
        held = client.submit(tasks.hold, flags.path("started"), flags.path("go"))
        flags.wait("started")
        assert held.cancel()
        assert client.submit(abs, -1).result(BOUND_S) == 1
        late = client.submit_verbose(tasks.hold, (flags.path("s2"), flags.path("go")), {})
        flags.set("go")
        late.result(BOUND_S)


def test_tasks_of_tasks_do_not_wait_for_the_places_of_their_parents(symphony, shell) -> None:
    """Deeper than there are places, and with more children than places."""
    with workers(shell, count=1) as client:
        assert client.submit(fibonacci, client, 6).result(2 * BOUND_S) == 8


def test_output_comes_back(symphony, shell, capsys) -> None:
    """What a task prints is printed where its client is."""
    with workers(shell) as client, Client(client._address, stream_output=True) as printing:
        printing.submit(print, "from there").result(BOUND_S)
        wait_until(lambda: "from there" in capsys.readouterr().out, "nothing is printed")


def test_a_lost_session(symphony, shell, flags) -> None:
    """Its tasks run again, once there is a new session."""
    with workers(shell, count=2) as client:
        held = client.submit(tasks.hold, flags.path("started"), flags.path("go"))
        flags.wait("started")
        (symphony / "no session").touch()
        (symphony / "lost").touch()
        shell.commands[1].wait_for("its tasks run again")
        shell.commands[1].wait_for("no session for you")
        (flags.directory / "started").unlink()
        (symphony / "no session").unlink()
        flags.wait("started")
        flags.set("go")
        held.result(BOUND_S)


def test_a_proxy_that_nobody_lets_in_ends_as_it_is_told_to(symphony, shell) -> None:
    """It is a session that it tries to open again and again."""
    with workers(shell) as client:
        assert client.submit(abs, -1).result(BOUND_S) == 1
        (symphony / "no session").touch()
        (symphony / "lost").touch()
        shell.commands[1].wait_for("no session for you")
        assert shell.commands[1].interrupt() == 0


def test_a_new_scheduler_adopts_what_runs(symphony, shell, flags) -> None:
    """The task goes on in Symphony, and its result comes to the client."""
    with workers(shell, count=2) as client:
        held = client.submit(tasks.hold, flags.path("started"), flags.path("go"))
        flags.wait("started")
        (flags.directory / "started").unlink()
        cluster_process("scheduler", shell.commands[0].pid).kill()
        shell.commands[1].wait_for("does not know this machine")
        assert client.submit(abs, -1).result(BOUND_S) == 1
        flags.set("go")
        held.result(BOUND_S)
        assert not flags.seen("started")


def test_a_task_whose_time_is_over(symphony, shell, flags) -> None:
    """It fails, and its worker takes the next one."""
    with workers(shell, count=1, more="--task-timeout-seconds 8") as client:
        held = client.submit(tasks.hold, flags.path("started"), flags.path("go"))
        with pytest.raises(TaskTimeoutError):
            held.result(BOUND_S)
        assert client.submit(abs, -1).result(BOUND_S) == 1
        flags.set("go")


def test_an_application_that_is_not_there(symphony, shell) -> None:
    """The command says so, and ends."""
    address = f"tcp://127.0.0.1:{free_port(4)}"
    cluster = shell.run(f"scaler_symphony_cluster {address} Wrong")
    assert cluster.process.returncode == 1
    assert "no session with the application Wrong: SoamException: applica" in cluster.err


def test_without_soamapi(monkeypatch) -> None:
    """The error says where it comes from."""
    monkeypatch.setitem(sys.modules, "soamapi", None)
    made = SymphonySettings.of(scheduler_address="tcp://127.0.0.1:1", service_name="x")
    with pytest.raises(ConfigError, match=r"comes with the product: source its profile"):
        make_runner(made, print)


def test_gpus_that_nobody_could_tell_tasks_of() -> None:
    """A machine's GPUs are shared out by its workers' environment, which ends at the proxy."""
    with pytest.raises(ConfigError, match="nobody tells tasks that run in IBM Symphony which GPUs"):
        SymphonySettings.of(
            scheduler_address="tcp://127.0.0.1:1",
            service_name="x",
            machine_capabilities={"gpu": 2},
        )


@pytest.mark.parametrize(
    ("demand", "may"),
    [
        ({}, True),
        ({"cores": 2}, False),
        ({"capabilities": (("gpu", 1.0),)}, False),
        ({"workers": ("a",)}, False),
        ({"timeout_s": 1.0}, False),
    ],
)
def test_what_a_task_may_run_of_its_own_tasks(demand, may) -> None:
    """Where it runs, nobody knows what there is, and nobody looks at the time."""
    host = RemoteHost(Told("tcp://127.0.0.1:1", b"W", 1, "host", 0, False, 0, False))
    assert host.may_run(TaskOptions(**demand)) is may


def test_the_adapter_of_version_1_12(symphony, shell) -> None:
    """It has one group, which a scheduler starts that is given its URL."""
    address, port = f"tcp://127.0.0.1:{free_port(4)}", free_port()
    adapter = shell.start(
        f"scaler_worker_adapter_symphony {address} --service-name ScalerService"
        f" --base-concurrency 4 --host 127.0.0.1 --port {port}"
    )
    url = f"http://127.0.0.1:{port}"
    adapter.wait_for(url)
    body = json.dumps({"action": "get_worker_adapter_info"}).encode()
    with urllib.request.urlopen(url, body) as answer:
        info = json.load(answer)
    assert (info["max_worker_groups"], info["workers_per_group"]) == (1, 4)
    shell.start(f"scaler_scheduler {address} --adapter-webhook-url {url}")
    with Client(address) as client:
        assert client.map(tasks.square, range(9)) == [n * n for n in range(9)]


def test_groups_by_method(symphony) -> None:
    """A program for version 1.12 makes the adapter itself."""
    with SchedulerClusterCombo(n_workers=0, address="tcp://127.0.0.1:0") as cluster:
        adapter = SymphonyWorkerAdapter(
            cluster.get_address(),
            service_name="ScalerService",
            base_concurrency=2,
            logging_paths=(),
        )
        group = asyncio.run(adapter.start_worker_group())
        try:
            with pytest.raises(CapacityExceededError):
                asyncio.run(adapter.start_worker_group())
            with Client(cluster.get_address()) as client:
                assert client.submit(abs, -1).result(BOUND_S) == 1
        finally:
            asyncio.run(adapter.shutdown_worker_group(group))


def test_the_managers_of_a_file(symphony, shell) -> None:
    """A table of newer versions starts the workers beside a scheduler."""
    port = free_port(4)
    shell.write("stack.toml", f"""
[scheduler]
scheduler_address = "tcp://127.0.0.1:{port}"
[[worker_manager]]
type = "symphony"
service_name = "ScalerService"
base_concurrency = 2
worker_manager_id = "sym"
""")  # fmt: skip
    stack = shell.start("scaler stack.toml")
    with Client(f"tcp://127.0.0.1:{port}") as client:
        assert client.map(tasks.square, range(9)) == [n * n for n in range(9)]
    assert stack.interrupt() == 0


# -- what runs there ---------------------------------------------------------------------------


def _pid(_: int) -> int:
    return os.getpid()


def _add(one: int, two: int) -> int:
    return one + two


_double = eval("lambda number: 2 * number")


_raise_key_error = eval("lambda: {}['nothing']")


def _needs_the_engine() -> str:
    return tasks.__name__


def fibonacci(client: Client, number: int) -> int:
    if number < 2:
        return number
    parts = [client.submit(fibonacci, client, number - n) for n in (1, 2)]
    return sum(one.result() for one in parts)
