"""Clients and workers in JavaScript: examples/javascript, which knows nothing but the protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from scaler_cluster.security import key_files
from scaler_exec import (
    Client,
    DeserializeObjectError,
    NamedFunction,
    Operator,
    RemoteError,
    SchedulerClusterCombo,
    TaskTimeoutError,
    UnpicklableResultError,
    WorkerDiedError,
)
from tests.runtime.helpers import BOUND_S, Flags, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "javascript"
HERE = Path(__file__).parent / "javascript"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        NODE is None or shutil.which("npm") is None, reason="node or npm is not installed"
    ),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the example, the programs of these tests, and what they import."""
    directory = tmp_path_factory.mktemp("javascript")
    shutil.copytree(
        EXAMPLE, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules")
    )
    for program in ("client", "worker"):
        # The package has files of these names.
        shutil.copy(HERE / f"{program}.mjs", directory / f"{program}_of_tests.mjs")
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    done = subprocess.run(
        npm, cwd=directory, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the keys of a cluster."""
    directory = tmp_path_factory.mktemp("keys") / "keys"
    key_files.make_cluster(directory)
    key_files.add(directory, "operator", "ops")
    return directory


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> Flags:
    """Return files by which workers tell how far they are."""
    return Flags(tmp_path_factory.mktemp("flags"))


@pytest.fixture(scope="module")
def address(package: Path, keys: Path, flags: Flags, standing: set[int]) -> Iterator[str]:
    """Return the address of a scheduler with keys, a worker in Python and two in JavaScript."""
    with SchedulerClusterCombo(
        1,
        "tcp://127.0.0.1:0",
        keys=keys,
        per_worker_capabilities={"python": -1},
        protected=False,
        # Clients ask before they send what they submit.
        max_number_of_tasks_waiting=500,
    ) as cluster:
        address = cluster.get_address()
        program = _node(package, "worker_of_tests.mjs", address, keys, flags.directory)
        with subprocess.Popen(program) as worker:
            standing |= {child.pid for child in psutil.Process().children()}
            try:
                yield address
                with Client(address, keys=keys) as client:
                    client.shutdown()
                assert worker.wait(BOUND_S) == 0, "the end of the cluster is no error"
            finally:
                worker.kill()


@pytest.fixture
def client(address: str, keys: Path) -> Iterator[Client]:
    """Return a client whose tasks go to JavaScript."""
    with Client(address, keys=keys) as client:
        yield client.options(capabilities={"javascript": -1})


@pytest.fixture(scope="module")
def found(package: Path, address: str, keys: Path) -> dict[str, Any]:
    """Return what a client in JavaScript has found."""
    done = _run(package, "client_of_tests.mjs", address, keys)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _node(package: Path, program: str, *arguments: object) -> list[str]:
    return [str(NODE), str(package / program), *map(str, arguments)]


def _run(package: Path, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = _node(package, program, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)


def test_the_parts_that_do_no_io(package: Path) -> None:
    """Values, keys and the delivery of messages have tests of their own, in JavaScript."""
    done = subprocess.run(
        [str(NODE), "test/all.mjs"],
        cwd=package,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout


# -- Python calls JavaScript ---------------------------------------------------------------------


def test_python_calls_javascript(client: Client) -> None:
    """Values of all types come back as they were sent, from plain functions and async ones."""
    values = [None, True, 1, -(2**40), 2**63, 1.5, "é", b"\x80", [1, [2]], {"a": {"b": "c"}}]

    assert client.submit(NamedFunction("echo"), *values).result(BOUND_S) == values
    assert client.submit(NamedFunction("echo"), 1, a=2).result(BOUND_S) == [1, {"a": 2}]
    assert client.submit(NamedFunction("later"), 9).result(BOUND_S) == 3
    assert client.submit(NamedFunction("echo"), b"x" * 10**6).result(BOUND_S) == [b"x" * 10**6]


def test_ten_thousand_small_tasks(client: Client) -> None:
    """Each comes back, in its place."""
    assert client.map(NamedFunction("echo"), range(10_000)) == [[n] for n in range(10_000)]


@pytest.mark.parametrize("name", ["check", "later"])
def test_errors_of_javascript_have_their_stack(client: Client, name: str) -> None:
    """The remote traceback says in which function, and where that is."""
    error = client.submit(NamedFunction(name), -1).exception(BOUND_S)

    assert isinstance(error, RemoteError)
    assert str(error) == "RangeError: -1 is negative"
    assert "check (" in str(error.__cause__)
    assert "worker_of_tests.mjs" in str(error.__cause__)


def test_what_a_worker_cannot_do_it_says(client: Client) -> None:
    """It has no such function; it cannot unpickle; it cannot send what was returned."""
    unknown = client.submit(NamedFunction("nothing")).exception(BOUND_S)
    pickled = client.submit(len, "abc").exception(BOUND_S)
    node = client.get({"n": (abs, -1)}, ["n"], block=False)["n"].exception(BOUND_S)
    date = client.submit(NamedFunction("date")).exception(BOUND_S)

    assert "this worker has no function nothing; it has echo, check" in str(unknown)
    for error in (pickled, node):
        assert isinstance(error, DeserializeObjectError)
        assert "this worker speaks JavaScript and cannot unpickle" in str(error)
    assert isinstance(date, UnpicklableResultError)
    assert "a named call cannot carry a Date" in str(date)


def test_a_cancelled_task_is_told_so(client: Client, flags: Flags) -> None:
    """The function hears of it by its signal; what waits behind it goes to the other worker."""
    before = [client.submit(NamedFunction("echo"), n) for n in range(100)]
    waiting = client.submit(NamedFunction("wait"), "cancelled")
    behind = [client.submit(NamedFunction("echo"), n) for n in range(100)]
    flags.wait("cancelled-began")

    assert [one.result(BOUND_S) for one in before + behind] == 2 * [[n] for n in range(100)]
    assert not waiting.done()
    assert waiting.cancel()
    flags.wait("cancelled-stopped")
    assert client.map(NamedFunction("check"), [4, 9, 16]) == [2, 3, 4]


def test_a_task_ends_that_runs_too_long(client: Client, flags: Flags) -> None:
    """One that can be told is told; else its worker is killed, and another one starts."""
    late = client.options(timeout=0.2)
    told = late.submit(NamedFunction("wait"), "late")
    killed = late.submit(NamedFunction("spin"))

    assert isinstance(told.exception(BOUND_S), TaskTimeoutError)
    flags.wait("late-stopped")
    assert isinstance(killed.exception(BOUND_S), TaskTimeoutError)
    assert client.submit(NamedFunction("check"), 4).result(BOUND_S) == 2


def test_a_killed_worker_is_told_of(client: Client) -> None:
    """The task that it ran fails and says how; another worker takes its place."""
    error = client.submit(NamedFunction("die")).exception(BOUND_S)

    assert isinstance(error, WorkerDiedError)
    assert error.death.signal == 9
    pids = {client.submit(NamedFunction("pid")).result(BOUND_S) for _ in range(10)}
    assert error.death.pid not in pids


def test_an_operator_restarts_workers(
    address: str, client: Client, keys: Path, flags: Flags
) -> None:
    """Each ends as it was told, after what it runs, and another process takes its place."""
    held = client.submit(NamedFunction("wait"), "held")
    before = {flags.wait("held-began"), client.submit(NamedFunction("pid")).result(BOUND_S)}
    assert len(before) == 2
    held.cancel()
    flags.wait("held-stopped")

    with Operator(address, keys=keys / "ops.key") as operator:
        assert operator.restart(worker="from JavaScript").count == 2

    wait_until(lambda: not any(map(psutil.pid_exists, before)), "the workers stay")
    assert client.submit(NamedFunction("pid")).result(BOUND_S) not in before


def test_tasks_without_a_demand_stay_with_python(address: str, keys: Path) -> None:
    """However much there is to do, and though workers in JavaScript have nothing to do."""
    with Client(address, keys=keys) as client:
        assert client.map(abs, range(5000)) == list(range(5000))
        assert client.get({"n": (abs, -1)}, ["n"]) == {"n": 1}


# -- JavaScript calls ----------------------------------------------------------------------------


def test_javascript_calls_python(found: dict[str, Any]) -> None:
    """Values of all types come back as they were sent."""
    values = [None, True, 1, -1, 2**40, -(2**40), 1.5, "é", [1, [2]], {"a": {"b": "c"}}]

    assert found["python"] == {"values": values}
    assert found["bytes"] == "é"
    assert found["large"] == 10**6
    assert found["huge"] == str(2**62)
    assert found["many"]


def test_javascript_calls_javascript(found: dict[str, Any]) -> None:
    """No Python has anything to do with it but the scheduler."""
    assert found["javascript"] == found["python"]["values"]
    assert found["manyHere"]


def test_errors_arrive_in_javascript(found: dict[str, Any]) -> None:
    """With the type, the text and the traceback that they had, in either language."""
    raised, here, unknown = found["raised"], found["raisedHere"], found["unknown"]

    assert raised["message"].startswith("ValueError: ")
    assert "Traceback (most recent call last)" in raised["trace"]
    assert here["message"] == "RangeError: -1 is negative"
    assert "check (" in here["trace"]
    assert "there is no function 'no:such' here" in unknown["message"]


def test_what_ends_a_task_arrives_in_javascript(found: dict[str, Any]) -> None:
    """Its time is over, its worker died, it was cancelled, its client has left."""
    assert found["late"]["kind"] == "timeout"
    assert found["died"]["kind"] == "worker_died"
    assert "ended with exit code 3" in found["died"]["message"]
    assert found["cancelled"] == "AbortError"
    assert found["cancelledEarly"] == 1000
    assert found["refused"]["message"].startswith("argument 1 of echo: a named call cannot carry")
    assert found["afterwards"]["message"] == "this client has disconnected"


# -- keys and the example ------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["client_of_tests.mjs", "worker_of_tests.mjs"])
def test_a_wrong_key_is_refused(package: Path, address: str, tmp_path: Path, program: str) -> None:
    """A client and a worker with keys of another cluster end, and say why."""
    key_files.make_cluster(tmp_path / "keys")

    done = _run(package, program, address, tmp_path / "keys", tmp_path)

    assert done.returncode != 0
    assert "ClusterError" in done.stderr


def test_the_example_runs(package: Path) -> None:
    """Its client and its worker meet at a loopback address, by the keys of their user."""
    with SchedulerClusterCombo(0, "tcp://127.0.0.1:0") as cluster:
        address = cluster.get_address()
        with subprocess.Popen(_node(package, "example_worker.mjs", address)) as worker:
            done = _run(package, "example_client.mjs", address)
            worker.terminate()

    assert done.stdout == "the median is 2\nwords: [ 'to', 'be', 'or', 'not', 'to', 'be' ]\n", (
        done.stderr
    )
