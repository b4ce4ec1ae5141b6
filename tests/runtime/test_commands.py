"""The commands: each a process of its own, in the arrangements that users make of them."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from scaler_cluster.wire.feed import Events, Snapshot
from scaler_exec import (
    Client,
    MissingObjectsError,
    QuotaExceededError,
    ScalerExecutor,
    TaskLostError,
    TaskTimeoutError,
)
from scaler_monitoring.feed import Feed
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, is_gone, wait_gone, wait_until

SQUARES = """
import math
from scaler import Client
with Client(address="{address}") as client:
    print(sum(client.map(math.sqrt, range(100))))
    print(sorted(set(client.map(lambda _: __import__("os").getpid(), range(200)))))
"""
SUM = "661.4629471031477"


@pytest.fixture
def address():
    """Return an address at which nobody listens, nor at those around it."""
    return f"tcp://127.0.0.1:{free_port(4) + 1}"


def after(address: str, steps: int) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + steps}"


# -- arrangements ------------------------------------------------------------------------------


def test_a_scheduler_two_clusters_and_a_client(shell, address) -> None:
    """The four commands of the quickstart work in order, and end with status 0 when told to."""
    scheduler = shell.start(f"scaler_scheduler {address}")
    first = shell.start(f"scaler_cluster -n 2 {address}")
    second = shell.start(f"scaler_worker -n 1 {address}")

    program = SQUARES.format(address=address)
    wait_until(lambda: shell.python(program).count(",") == 2, "not all workers work")
    assert shell.python(program).startswith(SUM)

    for line in (
        "logging to ('/dev/stdout',)",
        "use event loop: builtin",
        f"Scheduler: listen to scheduler address {address}",
        f"Scheduler: connect to object storage server {after(address, 1)}",
        f"Scheduler: listen to scheduler monitor address {after(address, 2)}",
    ):
        assert f": {line}\n" in scheduler.out
    for line in (
        "ClusterProcess: starting 2 workers, heartbeat_interval_seconds=2",
        "Worker[0] started",
        "Worker[1] started",
    ):
        assert f": {line}\n" in first.out
    assert all(line.startswith("[INFO]") for line in (scheduler.out + first.out).splitlines())

    workers = psutil.Process(first.pid).children(recursive=True)
    assert first.interrupt() == 0
    wait_gone(*(one.pid for one in workers))
    assert shell.python(program).count(",") == 0
    second.process.terminate()
    assert second.end() == 0
    assert scheduler.interrupt() == 0
    assert scheduler.err + first.err + second.err == ""


def test_a_cluster_may_come_before_its_scheduler(shell, address) -> None:
    """A cluster tries until there is a scheduler, which may be named by its host's name."""
    named = address.replace("127.0.0.1", "localhost")
    shell.start(f"scaler_cluster -n 1 {named}")
    shell.start(f"scaler_scheduler {named}")

    assert shell.python(SQUARES.format(address=named)).startswith(SUM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_cluster_that_leaves_has_not_died(shell, address, number) -> None:
    """Workers of a cluster that is told to end are told as left, not as dead."""
    shell.start(f"scaler_scheduler {address}")
    cluster = shell.start(f"scaler_cluster -n 2 {address}")
    with Client(address) as client, Feed(client.monitor_address) as feed:
        begun = shell.directory / "begun"
        client.submit(begin_and_stay, begun)
        wait_until(begun.exists, "the task does not start")
        cluster.process.send_signal(number)
        assert cluster.end() == 0

        deadline = time.monotonic() + BOUND_S
        events: set[str] = set()
        deaths = None
        while deaths is None or "machine_left" not in events:
            message = feed.next(max(deadline - time.monotonic(), 0.0))
            assert message is not None, "nobody says that it has left"
            if isinstance(message, Events):
                events |= {event.kind for event in message.events}
            elif isinstance(message, Snapshot) and not message.machines:
                deaths = message.worker_deaths
    assert "worker_left" in events
    assert "worker_died" not in events
    assert deaths == 0


@pytest.mark.parametrize("host", ["[::1]", "ipc"])
def test_other_addresses(shell, host) -> None:
    """IPv6 addresses, free ports and socket files are addresses."""
    where = f"ipc://{os.environ['TMPDIR']}/socket" if host == "ipc" else f"tcp://{host}:0"
    scheduler = shell.start(f"scaler_scheduler {where}")
    address = scheduler.address("scheduler address ")
    shell.start(f"scaler_cluster -n 1 {address}")

    with Client(address) as client:
        assert client.submit(abs, -3).result(BOUND_S) == 3


def test_another_event_loop(shell, address) -> None:
    """The event loop is uvloop where that is asked for and installed."""
    pytest.importorskip("uvloop")
    scheduler = shell.start(f"scaler_scheduler --event-loop uvloop {address}")
    shell.start(f"scaler_cluster -n 1 {address}")

    assert shell.python(SQUARES.format(address=address)).startswith(SUM)
    assert "use event loop: uvloop" in scheduler.out
    assert scheduler.interrupt() == 0
    assert scheduler.err == ""


def test_the_tables_of_one_file_are_one_stack(shell, address) -> None:
    """Commands read their own tables of one file, and a flag wins over it."""
    shell.write(
        "stack.toml",
        f"""
        [scheduler]
        scheduler_address = "{address}"
        object_storage_address = "{after(address, 1)}"
        monitor_address = "{after(address, 2)}"
        allocate_policy = "even"
        logging_level = "INFO"
        logging_paths = ["/dev/stdout", "log/scheduler.log"]

        [cluster]
        scheduler_address = "{address}"
        num_of_workers = 8
        per_worker_capabilities = "linux,cpu=8"
        task_timeout_seconds = 600

        [object_storage_server]
        object_storage_address = "{after(address, 1)}"

        [webui]
        monitor_address = "{after(address, 2)}"
        web_port = 8081
        """,
    )
    storage = shell.start("scaler_object_storage_server --config stack.toml")
    storage.wait_for("object storage at")
    scheduler = shell.start("scaler_scheduler --config stack.toml")
    cluster = shell.start("scaler_cluster --config stack.toml --num-of-workers 2")

    program = SQUARES.format(address=address)
    wait_until(lambda: shell.python(program).count(",") == 1, "not all workers work")
    assert "starting 2 workers" in cluster.out
    logged = (shell.directory / "log" / "scheduler.log").read_text()
    assert f"listen to scheduler address {address}" in logged
    assert logged.count("\n") == scheduler.out.count("\n")


def test_one_command_runs_a_whole_stack(shell) -> None:
    """``scaler`` runs a stack on free ports, which ends with Ctrl-C or with any of its parts."""
    shell.write(
        "stack.toml",
        """
        [object_storage_server]
        object_storage_address = "tcp://127.0.0.1:0"
        [scheduler]
        scheduler_address = "tcp://127.0.0.1:0"
        [cluster]
        num_of_workers = 1
        [[worker_manager]]
        type = "baremetal_native"
        max_task_concurrency = 1
        worker_manager_id = "other"
        mode = "fixed"
        """,
    )
    stack = shell.start("scaler stack.toml")
    program = SQUARES.format(address=stack.address("scheduler address "))
    wait_until(lambda: shell.python(program).count(",") == 1, "not all workers work")
    parts = psutil.Process(stack.pid).children(recursive=True)
    assert stack.interrupt() == 0
    assert stack.err == ""
    wait_gone(*(one.pid for one in parts))

    stack = shell.start("scaler -c stack.toml")
    stack.wait_for("Worker[0] started")
    parts = psutil.Process(stack.pid).children()
    parts[2].kill()
    assert stack.end() == 128 + signal.SIGKILL
    wait_gone(*(one.pid for one in parts))


def test_two_clients_at_once_and_one_is_killed(shell, address) -> None:
    """The tasks of a killed client are given up, and another client's run on."""
    shell.start(f"scaler_scheduler -ct 2 {address}")
    shell.start(f"scaler_cluster -n 2 {address}")
    (shell.directory / "here").touch()
    doomed = shell.start(
        "python3 -c 'from scaler import Client; import os, time;"
        f'client = Client("{address}");'
        "fs = [client.submit(time.sleep, 1000) for _ in range(2)];"
        'client.submit(abs, 1); os.rename("here", "there"); time.sleep(1000)\''
    )
    wait_until(lambda: (shell.directory / "there").exists(), "the client does not start")
    with Client(address) as client:
        future = client.submit(abs, -3)
        doomed.process.kill()
        doomed.end()

        assert future.result(BOUND_S) == 3


def test_a_cluster_that_leaves_while_it_works(shell, address) -> None:
    """Tasks of a cluster that leaves run on another one."""
    shell.start(f"scaler_scheduler {address}")
    first = shell.start(f"scaler_cluster -n 1 {address}")
    with Client(address) as client:
        pid = client.submit(os.getpid).result(BOUND_S)
        shell.write("hold", str(pid))
        (shell.directory / "tries").mkdir()
        future = client.submit(held_by, str(shell.directory))
        wait_until(lambda: any((shell.directory / "tries").iterdir()), "the task does not start")
        shell.start(f"scaler_cluster -n 1 {address}")
        assert first.interrupt() == 0

        assert future.result(BOUND_S) != pid
        assert is_gone(pid)


def begin_and_stay(begun: Path) -> None:
    """Make a directory, and then nothing more."""
    import time

    begun.mkdir()
    time.sleep(1000)


def held_by(directory: str) -> int:
    """Return this process's id, unless that is the one in the file ``hold``: then never."""
    import time
    from pathlib import Path

    (Path(directory) / "tries" / str(os.getpid())).touch()
    while (Path(directory) / "hold").read_text() == str(os.getpid()):
        time.sleep(0.01)
    return os.getpid()


def test_a_worker_manager_is_a_cluster(shell, address) -> None:
    """The worker manager of newer versions starts a cluster, by flags or by a file."""
    shell.write(
        "manager.toml",
        f"""
        [[worker_manager]]
        type = "baremetal_native"
        scheduler_address = "{address}"
        worker_manager_id = "mine"
        mode = "fixed"
        """,
    )
    shell.start(f"scaler_scheduler {address}")
    manager = "scaler_worker_manager baremetal_native"
    shell.start(f"{manager} {address} --mode fixed -wmi other --max-task-concurrency 1")
    shell.start(f"{manager} -c manager.toml -mtc 1")

    program = SQUARES.format(address=address)
    wait_until(lambda: shell.python(program).count(",") == 1, "not all workers work")


def test_a_client_ends_everything(shell, address) -> None:
    """A client's shutdown() ends scheduler, clusters and storages, each with status 0."""
    storage = shell.start(f"scaler_object_storage_server {after(address, 1)}")
    # A scheduler that found nobody there would keep one itself.
    storage.wait_for("object storage at")
    scheduler = shell.start(f"scaler_scheduler -osa {after(address, 1)} {address}")
    cluster = shell.start(f"scaler_cluster -n 1 {address}")
    client = Client(address)
    assert client.submit(abs, -3).result(BOUND_S) == 3
    client.shutdown()

    assert [part.end() for part in (storage, scheduler, cluster)] == [0, 0, 0]


def test_a_client_that_has_its_quota_is_told_so(shell, address, flags) -> None:
    """Its further tasks fail with the name of the setting; those that it has are not affected."""
    shell.start(f"scaler_scheduler --max-tasks-per-client 2 {address}")
    shell.start(f"scaler_cluster -n 1 {address}")

    with Client(address) as client:
        first = client.submit(tasks.hold, flags.path("begun"), flags.path("go"))
        flags.wait("begun")
        second = client.submit(abs, -3)
        with pytest.raises(QuotaExceededError, match="max_tasks_per_client"):
            client.submit(abs, -4).result(BOUND_S)
        flags.set("go")
        first.result(BOUND_S)
        assert second.result(BOUND_S) == 3
        assert client.submit(abs, -5).result(BOUND_S) == 5


def test_a_protected_scheduler_is_not_ended_by_clients(shell, address) -> None:
    """A protected scheduler tells a client that it cannot end it, and goes on."""
    shell.start(f"scaler_scheduler --protected {address}")
    shell.start(f"scaler_cluster -n 1 {address}")

    with pytest.raises(ValueError, match="protected mode"):
        Client(address).shutdown()
    with Client(address) as client:
        assert client.submit(abs, -3).result(BOUND_S) == 3


def test_a_cluster_s_preload_fails(shell, address) -> None:
    """A cluster whose preload fails says so and ends; tasks run on others."""
    shell.write("preloaded.py", "def fail():\n    raise LookupError('nothing is there')\n")
    scheduler = shell.start(f"scaler_scheduler {address}")
    shell.start(f"scaler_cluster -n 1 {address}")
    with Client(address) as client:
        assert client.submit(abs, -3).result(BOUND_S) == 3
        failed = shell.run(f"scaler_cluster -n 2 --preload preloaded:fail {address}")
        assert client.submit(abs, -3).result(BOUND_S) == 3

    assert failed.process.returncode == 1
    sentence = "LookupError: nothing is there"
    assert failed.err == f"scaler_cluster: the workers cannot start: {sentence}\n"
    assert failed.out.count(sentence) == 1
    assert scheduler.err == ""


def test_a_cluster_stops_tasks_that_run_too_long(shell, address) -> None:
    """A cluster by command stops long tasks, and has the settings of the other flags."""
    shell.start(f"scaler_scheduler {address}")
    shell.start(f"scaler_cluster -n 1 -tts 0.2 -gc 0.1 -tm 1 -wtqs 2 -wn mine {address}")
    with Client(address) as client:
        with pytest.raises(TaskTimeoutError, match="longer than 0.2 s"):
            client.submit(time.sleep, 1000).result(BOUND_S)
        assert client.map(abs, range(100)) == list(range(100))
    shell.commands[-1].wait_for("Worker[mine] started")


# -- what goes wrong ---------------------------------------------------------------------------


WRONG = [
    ("scaler_scheduler", "scheduler_address is missing"),
    ("scaler_scheduler localhost:80", "must begin with tcp:// or ipc://"),
    ("scaler_scheduler tcp://203.0.113.1:80", "cannot bind tcp://203.0.113.1:80"),
    ("scaler_scheduler tcp://127.0.0.1:0 --no-such", "--no-such is not an option"),
    ("scaler_scheduler tcp://127.0.0.1:0 -mt 0", "must be 1 or more, or -1"),
    ("scaler_scheduler tcp://127.0.0.1:0 -pc allocate=odd", "must have allocate= with one of"),
    ("scaler_scheduler tcp://127.0.0.1:0 -lcf nosuch.ini", "cannot use nosuch.ini"),
    ("scaler_scheduler tcp://127.0.0.1:0 -osa here", "must begin with tcp:// or ipc://"),
    ("scaler_scheduler -c nosuch.toml", "cannot read nosuch.toml"),
    ("scaler_scheduler -c bad.toml", "bad.toml is not TOML: "),
    ("scaler_scheduler -c typo.toml", "typo.toml, line 2: [scheduler] protectd is not a setting"),
    ("scaler_cluster -n 0 tcp://127.0.0.1:8516", "--num-of-workers must be 1 or more, not 0"),
    ("scaler_cluster -n -2 tcp://127.0.0.1:8516", "--num-of-workers must be 1 or more, not -2"),
    ("scaler_cluster -pwc gpu=x tcp://127.0.0.1:8516", "must be numbers, such as gpu=1"),
    ("scaler_cluster --preload x tcp://127.0.0.1:8516", "names no module and function"),
    ("scaler_cluster tcp://127.0.0.1:0", "must have the port at which the scheduler listens"),
    ("scaler_object_storage_server ipc:///tmp/x", "tcp://host:port"),
    ("scaler_worker_manager", "the type comes first"),
    ("scaler_worker_manager slurn tcp://127.0.0.1:8516", "did you mean 'slurm'?"),
    ("scaler", "name one file"),
    ("scaler nosuch.toml", "cannot read nosuch.toml"),
    ("scaler empty.toml", "nothing else to run"),
    ("scaler typo.toml", "typo.toml, line 2: [scheduler] protectd is not a setting"),
    ("scaler lonely.toml", "lonely.toml, line 1: [cluster] scheduler_address is missing"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[line for line, _ in WRONG])
def test_what_is_wrong_is_said_in_one_line(shell, line, message) -> None:
    """A command that cannot work says why in one line with a status, without a traceback."""
    shell.write("bad.toml", "[scheduler]\nprotected = maybe\n")
    shell.write("typo.toml", "[scheduler]\nprotectd = true\n")
    shell.write("empty.toml", "")
    shell.write("lonely.toml", "[cluster]\nnum_of_workers = 1\n")

    command = shell.run(line)

    assert command.process.returncode == 2
    assert message in command.err
    assert command.err.count("\n") == 1
    assert command.err.startswith(line.split()[0] + ": ")
    assert "Traceback" not in command.out


def test_an_address_is_bound_once(shell, address) -> None:
    """A second scheduler or storage at an address says that it is taken."""
    shell.start(f"scaler_scheduler {address}").wait_for("monitor address")

    second = shell.run(f"scaler_scheduler {address}")
    assert (second.process.returncode, second.err.count("\n")) == (2, 1)
    assert f"cannot bind {address}" in second.err
    # Once; in a file that others read later it stands as well.
    assert "cannot bind" not in second.out
    shell.run(f"scaler_scheduler {address} --logging-paths {shell.directory}/log")
    assert f"cannot bind {address}" in (shell.directory / "log").read_text()
    third = shell.run(f"scaler_scheduler {after(address, -1)}")
    assert f"cannot listen at {address}, for the object storage" in third.err
    assert "--object-storage-address" in third.err


def test_a_cluster_gives_up_a_scheduler_that_is_silent(shell, address) -> None:
    """A cluster gives up a scheduler that never was there, or is gone."""
    alone = shell.run(f"scaler_cluster -n 1 -dts 0.5 {address}")
    assert alone.process.returncode == 1
    assert f"the scheduler at {address} has not answered for" in alone.err
    assert alone.err.count("\n") == 1

    scheduler = shell.start(f"scaler_scheduler {address}")
    scheduler.wait_for("monitor address")
    left = shell.start(f"scaler_cluster -n 1 -his 0.1 -dts 3 {address}")
    assert shell.python(SQUARES.format(address=address)).startswith(SUM)
    scheduler.process.kill()
    scheduler.end()
    assert left.end() == 1
    assert "has not answered for" in left.err
    # The next one clears away what the killed one left, and its own although it is told to end
    # before it has said that it is ready.
    shell.start(f"scaler_scheduler {address}").wait_for("monitor address")


def test_a_cluster_works_for_the_scheduler_that_follows(shell, address) -> None:
    """A cluster whose scheduler was killed serves the next one at that address."""
    scheduler = shell.start(f"scaler_scheduler {address}")
    cluster = shell.start(f"scaler_cluster -n 2 -his 0.1 {address}")
    with Client(address) as client:
        pid = client.submit(os.getpid).result(BOUND_S)
        scheduler.process.kill()
        scheduler.end()
        shell.start(f"scaler_scheduler {address}").wait_for("monitor address")
        pids = set(client.map(lambda _: os.getpid(), range(100)))
    assert pid not in pids
    assert shell.python(SQUARES.format(address=address)).startswith(SUM)
    wait_gone(pid)
    assert cluster.interrupt() == 0
    wait_gone(*pids)


def wait_at(gate: str, number: int) -> int:
    """Leave a mark in a directory, and wait until that is called open."""
    Path(gate, f"{number}.{os.getpid()}").touch()
    while not Path(gate, "open").exists():
        time.sleep(0.01)
    return number


def test_a_scheduler_may_be_killed(shell, address, tmp_path, caplog) -> None:
    """The next scheduler is asked for tasks, maps and graphs; what may not run twice is lost."""
    gate = tmp_path / "gate"
    gate.mkdir()
    scheduler = shell.start(f"scaler_scheduler {address}")
    shell.start(f"scaler_cluster -n 2 -his 0.1 {address}")
    with ScalerExecutor(address=address) as executor, Client(address) as client:
        done = executor.submit(abs, -1)
        assert done.result(BOUND_S) == 1
        futures = [executor.submit(wait_at, str(gate), number) for number in range(2)]
        wait_until(lambda: len(list(gate.iterdir())) == 2, "no task runs")
        once = executor.options(at_most_once=True).submit(os.getpid)
        numbers = executor.map(divmod, range(5000), [7] * 5000)
        graph = client.get({"a": (abs, -1), "b": (abs, "a")}, ["b"], block=False)["b"]
        linked = executor.submit(divmod, futures[1], done)
        stored = executor.submit(len, os.urandom(1_000_000))

        try:
            scheduler.process.kill()
            scheduler.end()
            shell.start(f"scaler_scheduler {address}").wait_for("monitor address")
            wait_until(lambda: len(list(gate.iterdir())) == 4, "they do not run again")
        finally:
            # Whatever went wrong, who leaves the executor does not wait for ever.
            (gate / "open").touch()

        assert [future.result(BOUND_S) for future in futures] == [0, 1]
        assert list(numbers) == [divmod(number, 7) for number in range(5000)]
        assert isinstance(once.exception(BOUND_S), TaskLostError)
        assert graph.result(BOUND_S) == 1
        assert linked.result(BOUND_S) == (1, 0)
        assert isinstance(stored.exception(BOUND_S), MissingObjectsError)
        assert executor.submit(len, os.urandom(1_000_000)).result(BOUND_S) == 1_000_000
    said = [record.message for record in caplog.records if record.name == "scaler_cluster.client"]
    assert sum("does not know this client" in line for line in said) == 2
    assert sum(line.endswith("is back") for line in said) == 2


OTHER_USER = "setpriv --bounding-set=-dac_override,-dac_read_search"
"""Takes from root what lets it into directories of others."""
NOBODY = 65534
"""User id of a user who owns nothing."""
LARGE = """
import numpy as np
from scaler import Client
with Client(address="{address}") as client:
    home = client._session.connection.welcome.homes[0]
    print(client.submit(np.add, np.ones(1_000_000), 1).result().sum(), home.disk)
"""


@pytest.mark.skipif(
    not shutil.which("setpriv") or os.geteuid() != 0, reason="needs root, who plays two users"
)
def test_another_user_of_the_machine_is_served(shell, address) -> None:
    """Large values of who may not see the scheduler's directories go through its storage's port."""
    shell.start(f"scaler_scheduler {address}").wait_for("monitor address")
    with Client(address) as client:
        home = client._session.connection.welcome.homes[0]
    for directory in (home.memory, home.disk, Path(home.disk).parent):
        os.chown(directory, NOBODY, -1)
    cluster = shell.start(f"{OTHER_USER} scaler_cluster -n 1 {address}")
    program = shlex.quote(LARGE.format(address=address))

    done = shell.run(f"{OTHER_USER} {sys.executable} -c {program}")
    assert (done.out, done.err) == (f"2000000.0 {home.disk}\n", "")
    assert cluster.interrupt() == 0
    assert cluster.err == ""


SLEEPER = """
from pathlib import Path
from scaler import Client
from tests.runtime.test_commands import wait_at
with Client(address="{address}", heartbeat_interval_seconds=1) as client:
    future = client.submit(wait_at, "{gate}", 1)
    print("submitted", flush=True)
    print("returned", future.result(), client.submit(abs, -2).result())
"""


def test_a_client_may_be_stopped(shell, address, tmp_path) -> None:
    """A client that was stopped until it was given up gets what it asked for."""
    gate = tmp_path / "gate"
    gate.mkdir()
    scheduler = shell.start(f"scaler_scheduler -ct 2 {address}")
    shell.start(f"scaler_cluster -n 1 {address}")
    program = shlex.quote(SLEEPER.format(address=address, gate=gate))
    client = shell.start(f"{sys.executable} -c {program}")
    client.wait_for("submitted")
    client.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: "it was silent for 2 s" in scheduler.out, "the scheduler waits")
        (gate / "open").touch()
    finally:
        client.process.send_signal(signal.SIGCONT)

    assert client.end() == 0
    assert "returned 1 2" in client.out


def test_a_cluster_that_was_given_up_comes_back(shell, address) -> None:
    """A cluster that was stopped for longer than the scheduler waits comes back with its workers."""
    scheduler = shell.start(f"scaler_scheduler -wt 1 {address}")
    cluster = shell.start(f"scaler_cluster -n 1 -his 0.1 {address}")
    with Client(address) as client:
        pid = client.submit(os.getpid).result(BOUND_S)
        cluster.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: "was silent for 1 s" in scheduler.out, "the scheduler waits")
            future = client.submit(os.getpid)
        finally:
            cluster.process.send_signal(signal.SIGCONT)

        assert future.result(BOUND_S) == pid


def quiet_parent(client, seconds: int) -> int:
    first = client.submit(abs, -1).result()
    # It keeps the interpreter's lock, so that no thread of this process can speak.
    ctypes.PyDLL(None).sleep(seconds)
    # The scheduler has time to say that it does not know this client any more.
    time.sleep(0.5)
    return first + client.submit(abs, -1).result()


def test_a_task_with_child_tasks_may_be_silent(shell, address) -> None:
    """A task that keeps its process from speaking for long has its client afterwards."""
    shell.start(f"scaler_scheduler -ct 1 {address}")
    shell.start(f"scaler_cluster -n 1 {address}")
    with Client(address, heartbeat_interval_seconds=0.1) as client:
        assert client.submit(quiet_parent, client, 3).result(BOUND_S) == 2


def test_a_host_that_is_not_there(shell) -> None:
    """A command does not wait for a host that does not exist."""
    command = shell.run("scaler_cluster -n 1 tcp://no.such.invalid:8516")

    assert command.process.returncode == 1
    assert "there is no host 'no.such.invalid'" in command.err


def test_what_is_stopped_twice_ends_at_once(shell, address) -> None:
    """A command that is stopped twice ends at once, also while it is ending."""
    cluster = shell.start(f"scaler_cluster -n 2 {address}")
    cluster.wait_for("starting 2 workers")
    for _ in range(3):
        if cluster.process.poll() is None:
            cluster.process.send_signal(signal.SIGTERM)

    assert cluster.end() in (0, -signal.SIGTERM)
