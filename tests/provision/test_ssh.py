"""Units on machines that are reached by SSH: with a real sshd, of this machine."""

from __future__ import annotations

import getpass
import os
import shlex
import signal
from pathlib import Path

import psutil
import pytest

from scaler_cluster.config.ssh_settings import SSHSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.manager_process import offer_of, offer_that_fits
from scaler_cluster.provision.ssh import SSHBackend
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.guests import supervisors
from tests.provision.sshd import SSHServer, make_python
from tests.runtime import tasks
from tests.runtime.helpers import BOUND_S, free_port, wait_until

ADDRESS = "tcp://192.0.2.1:8516"


def backend(**given) -> SSHBackend:
    made = SSHSettings.of(scheduler_address=ADDRESS, **given)
    return SSHBackend(made, UnitCommand(made, "mine"))


def test_the_command_of_a_unit(tmp_path) -> None:
    """Everything is said that ssh needs, and no key."""
    hosts = tmp_path / "hosts"
    hosts.write_text("# all\nme@node1\nnode2 # slow\n")
    made = backend(
        hostfile=str(hosts),
        ssh_port=2222,
        identity="/id",
        ssh_options=("StrictHostKeyChecking=yes",),
        remote_python="/opt/my python",
        insecure=True,
    )
    line = shlex.split(made.dry_run("mine-1"))

    assert line[:4] == ["ssh", "-T", "-o", "StrictHostKeyChecking=yes"]
    assert line[-7:-1] == ["-p", "2222", "-i", "/id", "me@node1", "--"]
    assert shlex.split(line[-1])[:5] == [
        "exec",
        "/opt/my python",
        "-m",
        "scaler_cluster.cli.attached",
        ADDRESS,
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no machine is named"),
        ({"hostfile": "/nowhere"}, "cannot read /nowhere"),
        ({"hosts": ("-oProxyCommand=x",), "hostfile": "/dev/null"}, "not the name of a machine"),
    ],
)
def test_settings_that_cannot_work(given, message) -> None:
    """They are told before anything is started."""
    with pytest.raises(ConfigError, match=message):
        backend(**given)


def test_there_is_no_more_than_the_machines_have() -> None:
    """A machine has as many units as it was named times."""
    made = SSHSettings.of(
        scheduler_address=ADDRESS, hosts=("a", "b", "a"), workers_per_unit=4, max_workers=-1
    )
    offer = SSHBackend(made, UnitCommand(made, "mine")).offered(offer_of(made))

    assert (offer.most, offer.per_unit) == (12, 4)


def test_a_unit_needs_as_many_workers_as_it_has() -> None:
    """Nobody asks for units that could never start; without a limit there may be one of any size."""
    few = SSHSettings.of(
        scheduler_address=ADDRESS, hosts=("a",), workers_per_unit=999, max_workers=998
    )
    with pytest.raises(ConfigError, match="a unit has 999 workers, and there may be 998"):
        offer_that_fits(few, offer_of(few))
    any_ = SSHSettings.of(scheduler_address=ADDRESS, hosts=("a",), workers_per_unit=999)
    assert offer_that_fits(any_, offer_of(any_)).most == 999


def test_where_this_machine_logs_is_no_place_elsewhere() -> None:
    """How much is logged is told to the units, and not where."""
    made = SSHSettings.of(
        scheduler_address=ADDRESS,
        hosts=("a",),
        logging_paths=("/dev/stdout", "/here.log"),
        logging_level="DEBUG",
    )
    arguments = UnitCommand(made, "mine").arguments("mine-1")

    assert "--logging-level=DEBUG" in arguments
    assert "here" not in str(arguments)


# -- for real ----------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    """Return a real sshd."""
    made = SSHServer(tmp_path / "ssh")
    yield made
    made.close()


@pytest.fixture
def python(tmp_path):
    """Return an interpreter that knows this one's environment, as one that is installed there."""
    return make_python(tmp_path)


@pytest.mark.slow
def test_machines_are_units(server, python, shell, flags) -> None:
    """With keys: from none to two, one is cut off under load, and nothing is left at the end."""
    keys = os.environ["SCALER_KEYS"]
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    shell.start(f"scaler_scheduler --keys {keys} {address}")
    me = f"{getpass.getuser()}@127.0.0.1"
    manager = shell.start(
        f"scaler_worker_manager ssh {address} -wmi mine --keys {keys} --hosts {me},{me} "
        f"--max-workers 2 -his 0.2 -sdc 0.5 --remote-python {python} {server.flags}"
    )
    with Client(address, keys=f"{keys}/client.key") as client:
        futures = [client.submit(tasks.hold, flags.path(name), flags.path("go")) for name in "ab"]
        flags.wait("a")
        flags.wait("b")
        secret = Path(f"{keys}/worker.key").read_text().split()[3]
        assert secret not in str([one.info for one in psutil.process_iter(["cmdline"])])

        (first, *_) = [one for one in psutil.Process(manager.pid).children() if one.name() == "ssh"]
        first.kill()
        flags.set("go")
        assert all(one.result(BOUND_S) for one in futures)
        wait_until(lambda: not supervisors(), "units that have nothing to do do not end")
        assert sum(client.map(abs, range(-100, 0))) == 5050
        manager.process.send_signal(signal.SIGKILL)
        wait_until(lambda: not supervisors(), "units outlive their manager")


@pytest.mark.slow
def test_why_a_machine_cannot_be_used(server, tmp_path) -> None:
    """What ssh says last is the unit's reason."""
    made = backend(
        hosts=("127.0.0.1",),
        ssh_port=server.port,
        insecure=True,
        ssh_options=("StrictHostKeyChecking=yes", f"UserKnownHostsFile={tmp_path}/none"),
    )
    made.start(["mine-1"])
    with pytest.raises(BackendError, match="all machines have their units"):
        made.start(["mine-2"])
    found: dict[str, UnitStatus] = {}
    wait_until(lambda: found.update(made.look()) or found["mine-1"].is_over, "ssh does not end")
    made.close()

    assert "Host key verification failed" in found["mine-1"].reason


@pytest.mark.slow
def test_why_python_cannot_run_the_workers(server, capfd) -> None:
    """What it says last is the unit's reason as well; all it says is shown."""
    options = server.flags.split()
    made = backend(
        hosts=("127.0.0.1",),
        ssh_port=server.port,
        identity=options[3],
        ssh_options=(options[5],),
        remote_python="/nowhere/python",
        insecure=True,
    )
    made.start(["mine-1"])
    found: dict[str, UnitStatus] = {}
    wait_until(lambda: found.update(made.look()) or found["mine-1"].is_over, "ssh does not end")
    made.close()

    assert found["mine-1"].reason.startswith("127.0.0.1: ")
    assert "/nowhere/python: " in found["mine-1"].reason
    assert "/nowhere/python: " in capfd.readouterr().err
