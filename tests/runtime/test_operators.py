"""Operators act on a real cluster: with their key alone, by API and by command."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pty
import socket
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest

from scaler_cluster.security import key_files
from scaler_exec import (
    Client,
    ClusterUnreachableError,
    ConfigError,
    Met,
    OperationRefusedError,
    Operator,
    ScalerExecutor,
    SessionClosedError,
    SessionForkedError,
)
from tests.runtime import tasks
from tests.runtime.held_tasks import start
from tests.runtime.helpers import BOUND_S, free_port, wait_until
from tests.runtime.shell import Shell

if TYPE_CHECKING:
    from tests.runtime.shell import Command

pytestmark = [pytest.mark.system]


@dataclass
class Cluster:
    """A scheduler whose log can be read, with two workers that have names."""

    shell: Shell
    keys: Path
    address: str
    scheduler: Command
    workers: Command

    def key(self, name: str) -> Path:
        """Return the file of a key."""
        return self.keys / f"{name}.key"

    def control(self, line: str) -> Command:
        """Run scaler_control with the operator's key."""
        action, _, rest = line.partition(" ")
        return self.shell.run(
            f"scaler_control {self.address} {action} --keys {self.key('ann')} {rest}"
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, standing):
    directory = tmp_path_factory.mktemp("operators")
    keys, shell = directory / "keys", Shell(directory)
    key_files.make_cluster(keys)
    key_files.add(keys, "operator", "ann")
    address = f"tcp://127.0.0.1:{free_port(3)}"
    scheduler = shell.start(f"scaler_scheduler --keys {keys} {address}")
    scheduler.wait_for("monitor address")
    workers = shell.start(f"scaler_cluster --keys {keys} -n 2 --worker-names red,blue {address}")
    standing |= {scheduler.pid, workers.pid}
    workers.wait_for("started")
    yield Cluster(shell, keys, address, scheduler, workers)
    shell.close()


@pytest.fixture
def executor(cluster, flags):
    """Return an executor; what its tasks wait for comes at the end of the test at the latest."""
    with ScalerExecutor(address=cluster.address, keys=cluster.key("client")) as made:
        yield made
        flags.set("go")


@pytest.fixture
def operator(cluster):
    with Operator(cluster.address, keys=cluster.key("ann")) as made:
        yield made


def pids_of(executor) -> set[int]:
    """Return the processes that run twenty tasks."""
    return {one.result(BOUND_S) for one in [executor.submit(os.getpid) for _ in range(20)]}


def test_an_operator_cancels_the_work_of_others(cluster, executor, operator, flags, caplog):
    """Running and waiting tasks; their client hears who did that, and so does the log."""
    futures = start(executor, operator, flags, 6)

    with caplog.at_level(logging.WARNING, "scaler"):
        would = operator.cancel(function="hold", trial=True)
        assert not any(future.done() for future in futures)
        met = operator.cancel(function="hold")
        for future in futures:
            with pytest.raises(CancelledError):
                future.result(BOUND_S)
        said = "operator:ann has cancelled function hold: 6 tasks of 1 client"
        wait_until(lambda: said in caplog.text, "the client does not say who cancelled")

    assert would == met == Met(6, "6 tasks of 1 client")
    wait_until(lambda: said in cluster.scheduler.out, "no line in the log of the scheduler")
    # The workers are free again.
    assert list(executor.map(tasks.square, range(4))) == [0, 1, 4, 9]


def test_a_graph_is_cancelled(cluster, operator, flags):
    """The client that waits for it is told."""
    with Client(cluster.address, keys=cluster.key("client")) as client:
        graph = {
            "a": (partial(tasks.hold, flags.path("started"), flags.path("go")),),
            "b": (abs, "a"),
        }
        future = client.get(graph, ["b"], block=False)["b"]
        flags.wait("started")

        operator.cancel(client=client_number(operator))

        with pytest.raises(CancelledError):
            future.result(BOUND_S)


def client_number(operator) -> int:
    """Return the number of the one client that has work."""
    for number in range(1, 1000):
        try:
            operator.cancel(client=number, trial=True)
        except OperationRefusedError:
            continue
        return number
    raise AssertionError("no client has work")


def pid_of(worker: str, other: str, executor, operator) -> int:
    """Return the process of a worker, while the other one is paused."""
    operator.pause(worker=other)
    pid = executor.submit(os.getpid).result(BOUND_S)
    operator.resume(worker=other)
    return pid


def test_a_paused_worker_runs_nothing(executor, operator):
    """The other one runs all, until the paused one is resumed, or its machine."""
    operator.pause(worker="red")
    (blue,) = pids_of(executor)

    operator.pause(worker="blue")
    future = executor.submit(os.getpid)
    operator.resume(worker="red")
    assert future.result(BOUND_S) != blue

    assert operator.resume(machine=socket.gethostname()).count == 2
    assert pid_of("blue", "red", executor, operator) == blue


def test_a_worker_is_restarted(executor, operator, flags):
    """Another process takes its place; by force also if it runs a task that never ends."""
    before = pid_of("red", "blue", executor, operator)
    operator.restart(worker="red")
    wait_until(lambda: not psutil.pid_exists(before), "the worker is still there")

    operator.pause(worker="blue")
    (future,) = start(executor, operator, flags)
    running = flags.wait("started0")
    assert running != before
    operator.restart(worker="red", force=True)
    wait_until(lambda: not psutil.pid_exists(running), "the worker is still there")
    flags.set("go")
    assert future.result(BOUND_S) != running  # It began anew.
    operator.resume(worker="blue")


def test_who_has_no_operators_key_is_refused(cluster):
    """Other roles' keys, unknown keys, none, and addresses without keys."""
    for role in ("client", "monitor", "worker", "scheduler"):
        with pytest.raises(
            ConfigError, match=f"has the keys of a {role}; this needs those of an operator"
        ):
            Operator(cluster.address, keys=cluster.key(role))
    with pytest.raises(ConfigError, match="scaler_keys loopback-operator"):
        Operator(cluster.address)
    for address in ("ipc:///tmp/nothing", cluster.address):
        with pytest.raises(ConfigError, match="obeys nobody"):
            Operator(address, keys="insecure")


def test_an_unknown_operator_gets_no_answer(cluster, tmp_path):
    """Its key is of another cluster."""
    key_files.make_cluster(tmp_path / "others")
    key_files.add(tmp_path / "others", "operator", "eve")
    with (
        Operator(cluster.address, keys=tmp_path / "others" / "eve.key", timeout=1) as operator,
        pytest.raises(ClusterUnreachableError, match="no scheduler answered an operator"),
    ):
        operator.cancel(function="f")


def test_a_removed_operator_is_out(cluster):
    """Within moments, as for all keys."""
    key_files.add(cluster.keys, "operator", "old")

    def answers() -> bool:
        with Operator(cluster.address, keys=cluster.key("old"), timeout=1) as one:
            try:
                one.cancel(client=1, trial=True)
            except OperationRefusedError:
                return True
            except ClusterUnreachableError:
                return False
            return True

    copy = cluster.key("old").read_text()
    wait_until(answers, "the new key is not let in")
    key_files.remove(cluster.keys, "old")
    cluster.key("old").touch(mode=0o600)
    cluster.key("old").write_text(copy)
    wait_until(lambda: not answers(), "the removed key is still let in")


def fail_in_child(operator) -> None:
    """Use an operator of the parent."""
    with pytest.raises(SessionForkedError, match="make a new one here"):
        operator.pause(worker="red")
    operator.close()


def test_wrong_calls_are_refused_at_the_door(operator):
    """Nothing is sent."""
    for given in ({}, {"worker": "a", "machine": "b"}):
        with pytest.raises(TypeError, match="give one of worker, machine"):
            operator.pause(**given)
    with pytest.raises(TypeError, match="task must be a name"):
        operator.cancel(task=b"1:2")
    with pytest.raises(OperationRefusedError, match="there is no worker green"):
        operator.drain(worker="green")
    with pytest.raises(OperationRefusedError, match="there is no client 77"):
        operator.cancel(client=np.int64(77))
    with pytest.raises(ConfigError, match="255 characters at most"):
        operator.drain(worker="x" * 256)
    in_child = multiprocessing.get_context("fork").Process(target=fail_in_child, args=(operator,))
    in_child.start()
    in_child.join(BOUND_S)
    assert in_child.exitcode == 0
    operator.close()
    with pytest.raises(SessionClosedError):
        operator.pause(worker="red")


def test_the_command_does_the_same(cluster, executor, operator, flags):
    """It says what it would meet; without a terminal it wants --yes."""
    futures = start(executor, operator, flags, 3)

    asked = cluster.control("cancel function hold")
    assert asked.out.startswith("cancel function hold: 3 tasks of 1 client. Do it? [y/N]")
    assert (asked.end(), asked.err) == (
        2,
        "scaler_control: nobody is here to be asked: say --yes to do it\n",
    )
    done = cluster.control("cancel --yes function hold")
    assert (done.end(), done.out) == (0, "cancel function hold: 3 tasks of 1 client\n")
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(BOUND_S)

    wrong = cluster.control("pause --yes worker green")
    assert (wrong.end(), wrong.err) == (1, "scaler_control: there is no worker green\n")


def test_the_command_asks(cluster, executor, operator, flags, monkeypatch, capsys):
    """Whoever sits at the terminal says yes, or nothing is done."""
    from scaler_cluster.cli import control

    (future,) = start(executor, operator, flags)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        line = [cluster.address, "cancel", "--keys", str(cluster.key("ann")), "function", "hold"]
        os.write(ours, b"n\n")
        assert control.main(line) == 2
        assert "nothing was done" in capsys.readouterr().err
        assert not future.done()
        os.write(ours, b"y\n")
        assert control.main(line) == 0
    os.close(ours)
    with pytest.raises(CancelledError):
        future.result(BOUND_S)


def test_the_key_for_loopback_is_made_on_demand(shell, monkeypatch, tmp_path):
    """Schedulers that start after that know it; nobody is an operator before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = shell.run("scaler_keys loopback-operator")
    assert made.out.endswith("Schedulers that start from now on know it.\n")
    again = shell.run("scaler_keys loopback-operator")
    assert (again.end(), "is there already" in again.err) == (2, True)

    scheduler = shell.start(f"scaler_scheduler tcp://127.0.0.1:{free_port(3)}")
    address = scheduler.address("listen to scheduler address ")
    with Operator(address) as operator, pytest.raises(OperationRefusedError, match="no client 1"):
        operator.cancel(client=1)


def test_what_is_drained_leaves_for_good(cluster, executor, operator, flags):
    """A worker after what it runs, and no other comes; then the machine. The last test."""
    red = pid_of("red", "blue", executor, operator)
    operator.pause(worker="red")
    (future,) = start(executor, operator, flags)
    blue = flags.wait("started0")
    operator.resume(worker="red")
    operator.drain(worker="blue")
    assert pids_of(executor) == {red}
    assert psutil.pid_exists(blue)

    flags.set("go")
    assert future.result(BOUND_S) == blue
    wait_until(lambda: not psutil.pid_exists(blue), "the worker stays")
    assert pids_of(executor) == {red}

    # All that is left leaves in order, and the command ends.
    operator.drain(machine=socket.gethostname())
    assert cluster.workers.end() == 0
    assert not psutil.pid_exists(red)
