"""Machines that reach the scheduler, and are reached, through nothing but the ssh to them."""

from __future__ import annotations

import getpass
import os
import shlex

import numpy as np
import pytest

from scaler_cluster.config.ssh_settings import SSHSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.ssh import SSHBackend
from scaler_cluster.provision.tunnels import Tunnels
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.sshd import SSHServer, make_python
from tests.runtime.helpers import BOUND_S, free_port, wait_until
from tests.runtime.machines import Machine, can_make_machines

ADDRESS = "tcp://127.0.0.1:8516"
N = 1_000_000


def settings(**given) -> SSHSettings:
    told = {"scheduler_address": ADDRESS, "insecure": True, "hosts": ("a", "b"), "ssh_tunnel": True}
    return SSHSettings.of(**told | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scheduler_address": "ipc:///x"}, "needs a scheduler at tcp://, not at ipc:///x"),
        ({"worker_scheduler_address": ADDRESS}, "two ways to the scheduler"),
        ({"insecure": False}, "needs keys that the machines can be told"),
    ],
)
def test_settings_that_cannot_work(given, message) -> None:
    """They are told before anything is started."""
    with pytest.raises(ConfigError, match=message):
        SSHBackend(settings(**given), UnitCommand(settings(), "mine"))


def test_what_a_tunnel_leads_to() -> None:
    """To the scheduler, to its storages and to the other machines, and back to this one."""
    tunnels = Tunnels(settings(object_storage_address="tcp://127.0.0.1:1,tcp://127.0.0.1:2"))
    first, second = tunnels.open(0), tunnels.open(1)
    flags = first.flags
    ends = [flags[i + 1].rsplit(":", 2) for i, flag in enumerate(flags) if flag == "-R"]
    led_to = {f"tcp://{here}": f"tcp://{host}:{port}" for here, host, port in ends}
    (back,) = [flags[i + 1] for i, flag in enumerate(flags) if flag == "-L"]

    other = second.tunnel.known_as
    assert [led_to[first.scheduler], *(led_to[one] for one in first.tunnel.storages)] == [
        ADDRESS,
        "tcp://127.0.0.1:1",
        "tcp://127.0.0.1:2",
    ]
    assert led_to[first.tunnel.machines[other]] == other
    assert (f"tcp://{back}", first.tunnel.known_as != other) == (
        f"{first.tunnel.known_as}:{first.tunnel.listens.removeprefix('tcp://')}",
        True,
    )
    assert first.tunnel.detours(["x#key", "y"]) == {
        "x": first.tunnel.storages[0],
        "y": first.tunnel.storages[1],
        **first.tunnel.machines,
    }


def test_the_command_of_a_machine() -> None:
    """Its workers connect to their end of the tunnel."""
    made = settings()
    line = shlex.split(SSHBackend(made, UnitCommand(made, "mine")).dry_run("mine-1"))
    (scheduler,) = [one for one in line if one.endswith(":127.0.0.1:8516")]
    assert "ExitOnForwardFailure=yes" in line
    assert f"tcp://{scheduler.removesuffix(':127.0.0.1:8516')}" in shlex.split(line[-1])


# -- for real ----------------------------------------------------------------------------------


def make(n: int) -> np.ndarray:
    return np.ones(n)


def total(value: np.ndarray) -> tuple[str, float]:
    return where(), float(value.sum())


def where() -> str:
    return os.readlink("/proc/self/ns/net")


def hold(entered: str, go: str) -> str:
    """Say where this runs, and wait."""
    with open(entered, "w") as file:
        file.write("1")
    wait_until(lambda: os.path.exists(go), "nobody let go")
    return where()


@pytest.fixture
def server(tmp_path):
    """Return a real sshd on each of two machines."""
    machines = [Machine(), Machine()]
    sshd = None
    try:
        sshd = SSHServer(tmp_path / "ssh", *machines)
        yield sshd
    finally:
        if sshd is not None:
            sshd.close()
        for one in machines:
            one.stop()


@pytest.mark.system
@pytest.mark.skipif(not can_make_machines(), reason="making network namespaces needs root")
def test_machines_behind_tunnels(server, shell, flags, tmp_path) -> None:
    """With keys: large data goes to them, from one to the other, and back."""
    keys = os.environ["SCALER_KEYS"]
    # No other machine reaches this address.
    address = f"tcp://127.0.0.1:{free_port(4)}"
    shell.start(f"scaler_scheduler --keys {keys} {address}")
    names = ",".join(f"{getpass.getuser()}@{host}" for host in server.hosts)
    manager = shell.start(
        f"scaler_worker_manager ssh {address} -wmi mine --keys {keys} --hosts {names} "
        f"--max-workers 2 --min-workers 2 -his 0.2 --remote-python {make_python(tmp_path)} "
        f"--ssh-tunnel {server.flags}"
    )
    with Client(address, keys=f"{keys}/client.key") as client:
        # Both workers are held; then one is let go at a time.
        held = {one: client.submit(hold, flags.path(one), flags.path(f"{one}-go")) for one in "ab"}
        flags.wait("a")
        flags.wait("b")
        flags.set("a-go")
        first = held["a"].result(BOUND_S)
        place, n = client.submit(total, np.ones(N)).result(BOUND_S)
        assert (place, n) == (first, N)
        value = client.submit(make, N)
        assert value.result(BOUND_S).sum() == N

        again = client.submit(hold, flags.path("c"), flags.path("c-go"))
        flags.wait("c")
        flags.set("b-go")
        second = held["b"].result(BOUND_S)
        assert len({first, second, where()}) == 3
        assert client.submit(total, value).result(BOUND_S) == (second, N)
        flags.set("c-go")
        assert again.result(BOUND_S) == first
    assert manager.interrupt() == 0
