"""Clients with keys whose way leads through forwarders: ssh, load balancers, containers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scaler_cluster.links.handshake import REFUSED_S
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.security import key_files
from scaler_exec import Client
from tests.runtime.helpers import BOUND_S, free_port, wait_until
from tests.runtime.shell import Shell
from tests.runtime.test_client_settings import Forwarder

pytestmark = [pytest.mark.system]
COUNT = 1_000_000


@pytest.fixture
def keys(tmp_path):
    """Return a directory with the keys of a cluster."""
    directory = tmp_path / "keys"
    key_files.make_cluster(directory)
    return directory


@pytest.fixture
def shell(tmp_path):
    """Return a shell; what still runs in it at the end of the test must end when it is told to."""
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def forward():
    """Return what makes a forwarder to a port of this machine."""
    made: list[Forwarder] = []

    def forward(port: int) -> Forwarder:
        made.append(Forwarder(port))
        return made[-1]

    yield forward
    for one in made:
        one.close()


def test_a_storage_behind_a_forwarder_keeps_its_key(keys, shell, forward, monkeypatch) -> None:
    """The address that a client was given for a storage leads to the one whose key it knows."""
    # As in a container.
    monkeypatch.setattr(StorageDirs, "is_here", property(lambda _: False))
    port = free_port(4)
    address, storage = (f"tcp://127.0.0.1:{one}" for one in (port, port + 3))
    shell.start(f"scaler_object_storage_server --keys {keys} {storage}").wait_for("up to")
    scheduler = f"scaler_scheduler --keys {keys} --object-storage-address {storage} {address}"
    shell.start(scheduler).wait_for("monitor address")
    shell.start(f"scaler_cluster --keys {keys} -n 1 {address}").wait_for("started")
    forwarder = forward(port + 3)

    with Client(address, keys=keys, object_storage_address=forwarder.address) as client:
        assert client.submit(np.sum, np.ones(COUNT)).result(BOUND_S) == COUNT

    assert forwarder.nbytes > 8 * COUNT


def test_a_client_waits_for_a_scheduler_behind_a_forwarder(keys, shell, forward) -> None:
    """Whoever accepts before the scheduler is there, and closes, does not refuse anybody."""
    port = free_port(3)
    forwarder = forward(port)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(Client, forwarder.address, keys=keys, timeout_seconds=BOUND_S)
        # Longer than a client is patient with somebody who is there, and refuses.
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() > begun + REFUSED_S + 1, "time stands still")
        assert forwarder.turned_away
        assert not coming.done()
        address = f"tcp://127.0.0.1:{port}"
        shell.start(f"scaler_scheduler --keys {keys} {address}").wait_for("monitor address")
        with coming.result(BOUND_S) as client:
            shell.start(f"scaler_cluster --keys {keys} -n 1 {address}")
            assert client.submit(abs, -3).result(BOUND_S) == 3
