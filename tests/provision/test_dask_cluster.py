"""Units in a Dask cluster that is there: a real one, of processes of this machine."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from scaler_cluster.config.guest_settings import DaskSettings
from scaler_cluster.errors import ConfigError
from scaler_cluster.provision import bridge
from scaler_cluster.provision.backend import BackendError, UnitStatus
from scaler_cluster.provision.dask_cluster import DaskBackend
from scaler_cluster.provision.guest_unit import Order
from scaler_cluster.provision.unit_command import UnitCommand
from scaler_exec import Client
from tests.provision.guests import play, supervisors
from tests.runtime.helpers import certificate, free_port, wait_until

ADDRESS = "tcp://127.0.0.1:8516"
PAGE = Path(__file__).parents[2] / "docs" / "managers-guests.md"


def backend(address: str = "tcp://127.0.0.1:8786", name: str = "mine", **given) -> DaskBackend:
    made = DaskSettings.of(scheduler_address=ADDRESS, dask_scheduler=address, **given)
    return DaskBackend(made, UnitCommand(made, name))


def test_the_command_of_a_unit() -> None:
    """A dry run needs no Dask."""
    line = backend(dry_run=True, workers_per_unit=4).dry_run("mine-1")

    assert line == (
        f"python -m scaler_cluster.cli.attached {ADDRESS} --num-of-workers=4 "
        "--worker-manager-id=mine --unit=mine-1"
    )


@pytest.mark.parametrize("address", ["10.0.0.1:8786", "tcp://10.0.0.1", "tcp://a b:1"])
def test_addresses_that_cannot_be(address) -> None:
    """They are told before anything is asked."""
    with pytest.raises(ConfigError, match="dask_scheduler must be an address such as tcp://"):
        backend(address)


def test_without_the_library(monkeypatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'scaler-exec\[distributed\]'"):
        backend()


def test_an_order_shows_no_keys() -> None:
    """Dask logs the arguments of what fails."""
    assert "secret" not in repr(Order("mine", 1, ("x",), "secret"))


# -- a real Dask -------------------------------------------------------------------------------


class Dask:
    """A scheduler of Dask, and workers without nannies."""

    def __init__(self, shell) -> None:
        self._shell = shell
        self.port = free_port(1)
        self.address = f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self):
        """Start the scheduler."""
        return self._shell.start(
            f"python3 -m dask scheduler --host {self.address.rpartition(':')[0]} "
            f"--port {self.port} --no-dashboard --no-show"
        )

    def start_worker(self, threads: int, python: str = "python3"):
        """Start a worker."""
        return self._shell.start(
            f"{python} -m dask worker {self.address} --host {self.address.rpartition(':')[0]} "
            f"--no-dashboard --no-nanny --nthreads {threads} "
            f"--local-directory {self._shell.directory}"
        )


@pytest.fixture
def dask(shell):
    """Return what starts the processes of a Dask cluster."""
    pytest.importorskip("distributed", reason="Dask's is not installed: tox run -e guests")
    return Dask(shell)


@pytest.fixture
def made(dask):
    """Return a manager's backend in that cluster."""
    one = backend(dask.address, workers_per_unit=2, death_timeout_seconds=600)
    yield one
    one.close()


def look_for(made: DaskBackend, unit: str, status: UnitStatus) -> None:
    """Wait until this is said of a unit."""
    found: dict[str, UnitStatus] = {}
    wait_until(lambda: found.update(made.look()) or found.get(unit) == status, lambda: str(found))


@pytest.mark.slow
def test_workers_of_dask_have_units(no_file_is_left, dask, shell, flags) -> None:
    """With keys: from none to three, a Dask worker is killed, and so is the manager."""
    dask.start_scheduler()
    dask.start_worker(2)
    play(shell, flags, f"dask --dask-scheduler {dask.address}", lambda: dask.start_worker(2))


@pytest.mark.slow
def test_the_page_shows_a_file_that_runs(no_file_is_left, dask, shell) -> None:
    """``scaler`` has workers run in Dask, and ends them, by the file as it is printed."""
    dask.start_scheduler()
    dask.start_worker(2)
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    address = f"tcp://127.0.0.1:{free_port(4) + 1}"
    text = text.replace(ADDRESS, address).replace("tcp://127.0.0.1:8786", dask.address)
    scaler = shell.start(f"scaler {shell.write('cluster.toml', text)}")
    with Client(address) as client:
        assert sum(client.map(abs, range(-200, 0))) == 20100
    assert scaler.interrupt() == 0
    assert not supervisors()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_dask_with_tls(dask, tmp_path, monkeypatch, request) -> None:
    """Dask's own configuration names the certificates."""
    cert, key = certificate(tmp_path, "dask")
    before = "DASK_DISTRIBUTED__COMM"
    monkeypatch.setenv(f"{before}__TLS__CA_FILE", cert)
    monkeypatch.setenv(f"{before}__REQUIRE_ENCRYPTION", "True")
    for one in ("CLIENT", "SCHEDULER", "WORKER"):
        monkeypatch.setenv(f"{before}__TLS__{one}__CERT", cert)
        monkeypatch.setenv(f"{before}__TLS__{one}__KEY", key)
    dask.address = dask.address.replace("tcp://", "tls://")
    made = request.getfixturevalue("made")
    dask.start_scheduler()
    dask.start_worker(2)
    made.start(["mine-1"])
    wait_until(lambda: made.look() and supervisors(), "it does not start")
    made.stop(["mine-1"])
    assert not supervisors()


@pytest.mark.slow
def test_a_unit_needs_room(dask, made) -> None:
    """A Dask worker has as many workers of all managers as it has threads; what is left waits."""
    dask.start_scheduler()
    dask.start_worker(2)
    dask.start_worker(1)
    waits = "none has 2 threads without workers of ours"
    other = backend(dask.address, "other", workers_per_unit=2, death_timeout_seconds=600)
    made.start(["mine-1"])
    look_for(made, "mine-1", UnitStatus())
    # Who has not started it knows it from a heartbeat of its Dask worker.
    again = backend(dask.address, workers_per_unit=2, death_timeout_seconds=600)
    look_for(again, "mine-1", UnitStatus())
    again.close()
    other.start(["other-1"])
    look_for(other, "other-1", UnitStatus(reason=f"of 2 Dask workers, {waits}"))

    assert list(made.look()) == ["mine-1"]
    made.stop(["mine-1"])
    wait_until(lambda: made.look()["mine-1"].is_over, "it does not end")
    look_for(other, "other-1", UnitStatus())
    other.start(["other-2"])
    assert other.look()["other-2"].reason.endswith(waits)
    other.stop(["other-2", "other-1", "other-3"])
    assert not supervisors()
    assert "other-2" not in other.look()
    other.close()


@pytest.mark.slow
def test_why_a_unit_cannot_start(dask, made, shell) -> None:
    """A Dask worker that lacks the package is named with the reason, and then taken last."""
    bare = shell.directory / "bare" / "scaler_cluster"
    bare.mkdir(parents=True)
    (bare / "__init__.py").touch()
    dask.start_scheduler()
    made.start(["mine-1"])
    dask.start_worker(4, f"env PYTHONPATH={bare.parent} {sys.executable}")
    found: dict[str, UnitStatus] = {}
    wait_until(lambda: found.update(made.look()) or found["mine-1"].is_over, lambda: str(found))
    assert "No module named 'scaler_cluster.provision'" in found["mine-1"].reason

    dask.start_worker(2)
    names = (f"mine-{number}" for number in itertools.count(2))

    def has_started() -> bool:
        if not supervisors():
            with contextlib.suppress(BackendError):
                made.start([next(names)])
        return bool(supervisors())

    wait_until(has_started, "the other Dask worker is not taken")
    made.stop(list(made.look()))
    assert not supervisors()


@pytest.mark.slow
def test_a_scheduler_of_dask_that_is_gone(dask, made) -> None:
    """It is said in a sentence; once it is there again, it is asked again."""
    gone = f"the Dask scheduler at {dask.address} does not answer: "
    with pytest.raises(BackendError, match=gone):
        made.look()
    scheduler = dask.start_scheduler()
    assert made.look() == {}
    scheduler.process.kill()
    scheduler.end()
    with pytest.raises(BackendError, match=gone):
        made.look()
    dask.start_scheduler()
    wait_until(lambda: made.look() == {}, "it is not asked again")


@pytest.mark.slow
def test_a_child_that_is_gone_or_silent(dask, made, monkeypatch) -> None:
    """Another one takes its place, and what was started is found again."""
    dask.start_scheduler()
    dask.start_worker(2)
    made.start(["mine-1"])
    look_for(made, "mine-1", UnitStatus())
    wait_until(supervisors, "it does not start")
    made._child.process.kill()
    with pytest.raises(BackendError, match="the connection to Dask has ended"):
        made.look()
    look_for(made, "mine-1", UnitStatus())
    made._child.process.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(bridge, "ANSWER_S", 0.5)
        with pytest.raises(BackendError, match=f"Dask at {dask.address} does not answer"):
            made.look()
    made.stop(["mine-1"])
    assert not supervisors()
