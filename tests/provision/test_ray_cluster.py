"""Units in a Ray cluster that is there: a real one, of processes of this machine."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile

import pytest

from scaler_cluster.config.guest_settings import RaySettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision import bridge
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.guest_unit import KEPT_S
from scaler_cluster.provision.ray_cluster import RayBackend
from scaler_cluster.provision.unit_command import UnitCommand
from tests.provision.guests import play, supervisors
from tests.runtime.helpers import BOUND_S, free_port, wait_until

ADDRESS = "tcp://127.0.0.1:8516"
START_S = 60.0
"""Ray starts half a dozen processes of its own."""
pytestmark = pytest.mark.timeout(300)


def backend(address: str = "127.0.0.1:6379", **given) -> RayBackend:
    made = RaySettings.of(scheduler_address=ADDRESS, ray_address=address, **given)
    return RayBackend(made, UnitCommand(made, "mine"))


def test_the_command_of_a_unit() -> None:
    """A dry run needs no Ray."""
    line = backend(dry_run=True, workers_per_unit=4).dry_run("mine-1")

    assert line == (
        f"python -m scaler_cluster.cli.attached {ADDRESS} --num-of-workers=4 "
        "--worker-manager-id=mine --unit=mine-1"
    )


@pytest.mark.parametrize("address", ["10.0.0.1", "tcp://10.0.0.1:6379", "any"])
def test_addresses_that_cannot_be(address) -> None:
    """They are told before anything is asked."""
    with pytest.raises(ConfigError, match="ray_address must be auto, or an address such as"):
        backend(address)


def test_without_the_library(monkeypatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'scaler-exec\[ray\]'"):
        backend()


# -- a real Ray --------------------------------------------------------------------------------


class Ray:
    """The nodes of a Ray cluster."""

    def __init__(self, shell, root: str) -> None:
        self._shell = shell
        self._root = root
        self.address = f"127.0.0.1:{free_port(1)}"

    def start_head(self, cpus: int):
        """Start the first node, and wait for it."""
        client, dashboard = free_port(1), free_port(1)
        return self._start(
            f"--head --port {self.address.rpartition(':')[2]} --temp-dir {self._root} "
            f"--ray-client-server-port {client} --dashboard-port {dashboard} "
            f"--include-dashboard=false --num-cpus {cpus}"
        )

    def add_node(self, cpus: int):
        """Start another node, and wait for it."""
        return self._start(f"--address {self.address} --num-cpus {cpus}")

    def _start(self, line: str):
        node = self._shell.start(
            f"python3 -m ray.scripts.scripts start {line} --block --node-ip-address 127.0.0.1 "
            "--min-worker-port 0 --max-worker-port 0 --disable-usage-stats"
        )
        wait_until(lambda: "Ray runtime started" in node.out, lambda: node.out + node.err, START_S)
        return node


@pytest.fixture
def ray(shell, monkeypatch):
    """Return what starts the nodes of a Ray cluster."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: tox run -e guests")
    # Its token would lie in this user's home.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    # Short: the paths of its sockets begin with it.
    root = tempfile.mkdtemp(prefix="r-", dir="/tmp")
    yield Ray(shell, root)
    shell.close()
    shutil.rmtree(root)


@pytest.fixture
def made(ray):
    """Return a manager's backend in that cluster."""
    one = backend(ray.address, workers_per_unit=2, death_timeout_seconds=600)
    yield one
    one.close()


@pytest.mark.slow
def test_actors_are_units(no_file_is_left, ray, shell, flags) -> None:
    """With keys: from none to three, an actor's process is killed, and so is the manager."""
    ray.start_head(2)
    play(shell, flags, f"ray --ray-address {ray.address}", lambda: ray.add_node(1))


@pytest.mark.slow
def test_an_actor_needs_room(ray, made) -> None:
    """One that Ray cannot place waits, with its reason; it is placed, or ended, later."""
    ray.start_head(2)
    found: dict[str, UnitStatus] = {}
    made.start(["mine-1"])
    wait_until(supervisors, "it does not start")
    made.start(["mine-2", "mine-3"])
    waits = UnitStatus(reason="Ray has not placed it yet: it needs 2 CPUs")
    wait_until(lambda: found.update(made.look()) or found["mine-1"] == UnitStatus(), str(found))
    assert found == {"mine-1": UnitStatus(), "mine-2": waits, "mine-3": waits}

    made.stop(["mine-3", "mine-4"])
    made.stop(["mine-1"])
    wait_until(lambda: made.look().get("mine-2") == UnitStatus(), "it is not placed")
    (supervisor,) = supervisors()
    supervisor.kill()
    wait_until(lambda: found.update(made.look()) or found["mine-2"].is_over, "it is not over")
    assert found["mine-2"].reason.startswith("its workers ended with status -9")
    wait_until(lambda: not made.look(), "an actor is left")


@pytest.mark.slow
def test_an_actor_ends_with_its_unit(ray, made) -> None:
    """Also if no manager asks for that: its CPUs are Ray's again."""
    ray.start_head(2)
    made.start(["mine-1"])
    wait_until(supervisors, "it does not start")
    (supervisor,) = supervisors()
    host = supervisor.parent()
    supervisor.kill()
    wait_until(lambda: not host.is_running(), "the actor stays", KEPT_S + BOUND_S)
    assert not any(not one.is_over for one in made.look().values())


@pytest.mark.slow
def test_a_ray_that_is_gone(ray, made, monkeypatch) -> None:
    """It is said in a sentence; once it is there again, it is asked again."""
    gone = f"Ray at {ray.address} does not answer"
    with monkeypatch.context() as patch:
        patch.setattr(bridge, "ANSWER_S", 3.0)
        with pytest.raises(BackendError, match=gone):
            made.look()
    head = ray.start_head(1)
    assert made.look() == {}
    head.process.terminate()
    head.end()
    with monkeypatch.context() as patch:
        patch.setattr(bridge, "ANSWER_S", 3.0)
        with pytest.raises(BackendError, match=gone):
            made.look()
    ray.start_head(1)
    assert made.look() == {}
