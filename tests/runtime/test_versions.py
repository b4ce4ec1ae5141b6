"""Processes of two releases meet: who is refused says so in one sentence, with both releases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import scaler_cluster
import scaler_exec
from scaler_cluster import __version__
from scaler_cluster.wire.messages import PROTOCOL_VERSION
from scaler_exec import Client, ClusterUnreachableError, ConfigError, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, environment, free_port

NEXT = PROTOCOL_VERSION + 1
OURS, THEIRS = f"scaler-exec {__version__}", "scaler-exec 9.8.7"
WHAT_TO_DO = "install the same version of scaler-exec on both sides"
CLUSTER = "from scaler_cluster.cli.cluster import main; raise SystemExit(main(['-n', '1', {!r}]))"
COMBO = """
import sys
from scaler_exec import SchedulerClusterCombo
with SchedulerClusterCombo(1) as combo:
    print(combo.get_address(), flush=True)
    sys.stdin.read()
"""
SERVER = "from scaler_cluster.cli.storage import main; raise SystemExit(main([{!r}]))"


class Release:
    """Another release of the packages that this process imports, in a directory of its own."""

    def __init__(self, directory: Path, protocol: int) -> None:
        for package in (scaler_cluster, scaler_exec):
            found = Path(package.__path__[0])
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(found, directory / found.name, ignore=ignored)
        self._directory = directory
        self._change("__init__.py", f'"{__version__}"', '"9.8.7"')
        if protocol != PROTOCOL_VERSION:
            messages, release = "wire/messages.py", "    release: str = __version__\n"
            version = "PROTOCOL_VERSION = {}\n"
            self._change(messages, version.format(PROTOCOL_VERSION), version.format(protocol))
            # Its Hello says more than the other release knows.
            self._change(messages, release, f'{release}    more: str = "new"\n')

    def _change(self, name: str, old: str, new: str) -> None:
        path = self._directory / "scaler_cluster" / name
        source = path.read_text()
        assert source.count(old) == 1
        path.write_text(source.replace(old, new))

    def start(self, source: str) -> subprocess.Popen[str]:
        """Start a program with this release."""
        variables = environment()
        path = os.pathsep.join([str(self._directory), variables["PYTHONPATH"]])
        return subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def run(self, source: str) -> tuple[int, str, str]:
        """Run a program with this release; return its status, and what it printed."""
        with self.start(source) as process:
            out, err = process.communicate(timeout=3 * BOUND_S)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def newer(tmp_path_factory) -> Release:
    """Return a release that speaks another version of the protocol."""
    return Release(tmp_path_factory.mktemp("newer"), NEXT)


@pytest.fixture(scope="module")
def near(tmp_path_factory) -> Release:
    """Return a release that speaks the same version of the protocol."""
    return Release(tmp_path_factory.mktemp("near"), PROTOCOL_VERSION)


def sentence(who: str) -> str:
    """Return what a scheduler of ours says to a peer of the newer release."""
    return (
        f"The {who} ({THEIRS}) speaks protocol {NEXT}, this scheduler ({OURS}) "
        f"{PROTOCOL_VERSION}: {WHAT_TO_DO}."
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Client", "ScalerExecutor"])
def test_a_newer_client_is_refused(kind, newer, cluster) -> None:
    """It raises one sentence at once, and the cluster goes on."""
    address = cluster.get_address()

    status, out, err = newer.run(f"import scaler_exec\nscaler_exec.{kind}(address={address!r})")

    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == (
        "scaler_cluster.errors.ClusterUnreachableError: "
        f"the scheduler at {address} says: {sentence('client')}"
    )
    with Client(address) as client:
        assert client.submit(abs, -1).result(BOUND_S) == 1


@pytest.mark.slow
def test_newer_workers_are_refused(newer, cluster) -> None:
    """The command prints one line and ends with status 1."""
    status, _, err = newer.run(CLUSTER.format(cluster.get_address()))

    assert status == 1
    assert err.count("\n") == 1
    assert sentence("cluster") in err


@pytest.mark.slow
def test_an_older_client_is_refused(newer) -> None:
    """The newer scheduler says the same of the older client."""
    with newer.start(COMBO) as process:
        address = process.stdout.readline().strip()
        with pytest.raises(ClusterUnreachableError) as caught:
            Client(address)
        process.stdin.close()

    assert str(caught.value) == (
        f"the scheduler at {address} says: The client ({OURS}) speaks protocol {PROTOCOL_VERSION}, "
        f"this scheduler ({THEIRS}) {NEXT}: {WHAT_TO_DO}."
    )
    assert process.returncode == 0


@pytest.mark.slow
def test_a_scheduler_is_refused_by_a_newer_storage(newer) -> None:
    """An object storage that runs by itself says it to the scheduler, which does not start."""
    address = f"tcp://127.0.0.1:{free_port()}"
    with newer.start(SERVER.format(address)) as process:
        try:
            process.stdout.readline()
            with pytest.raises(ConfigError) as caught:
                SchedulerClusterCombo(1, object_storage_address=address)
        finally:
            process.terminate()

    assert str(caught.value).endswith(
        f"the object storage at {address}: The scheduler ({OURS}) speaks protocol "
        f"{PROTOCOL_VERSION}, this object storage ({THEIRS}) {NEXT}: {WHAT_TO_DO}."
    )


@pytest.mark.slow
def test_releases_of_one_protocol_work_together(near, cluster) -> None:
    """Only the protocol has to be the same: clusters are renewed one process after the other."""
    source = (
        "import scaler_exec\n"
        f"with scaler_exec.Client({cluster.get_address()!r}) as client:\n"
        "    print(scaler_exec.__version__, client.submit(abs, -1).result())\n"
    )

    assert near.run(source) == (0, "9.8.7 1\n", "")
