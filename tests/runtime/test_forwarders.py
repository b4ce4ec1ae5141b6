"""Clients with keys whose way leads through forwarders: ssh, load balancers, containers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scaler_cluster.links import handshake
from scaler_cluster.objects.storage_dirs import StorageDirs
from scaler_cluster.security import key_files
from scaler_exec import Client, ClusterUnreachableError
from tests.runtime.helpers import BOUND_S, free_port, wait_until
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


def test_a_client_waits_for_a_scheduler_behind_a_forwarder(
    keys, shell, forward, monkeypatch
) -> None:
    """What accepts and closes is no scheduler that refuses this client: one may come yet."""
    monkeypatch.setattr(handshake, "REFUSED_S", 0.0)
    port = free_port(3)
    forwarder = forward(port)
    with ThreadPoolExecutor(1) as threads:
        coming = threads.submit(Client, forwarder.address, keys=keys, timeout_seconds=BOUND_S)
        wait_until(lambda: coming.done() or forwarder.turned_away > 2, "the client has gone")
        shell.start(f"scaler_scheduler --keys {keys} tcp://127.0.0.1:{port}")
        coming.result(BOUND_S).disconnect()


def test_a_client_that_waited_in_vain_says_what_it_met(keys, forward, monkeypatch) -> None:
    """It does not say that its key was refused."""
    monkeypatch.setattr(handshake, "REFUSED_S", 0.0)
    forwarder = forward(free_port())

    with pytest.raises(ClusterUnreachableError, match="nobody answers behind it"):
        Client(forwarder.address, keys=keys, timeout_seconds=1)

    assert forwarder.turned_away


def test_a_key_that_is_refused_behind_a_forwarder(keys, shell, forward, tmp_path) -> None:
    """A scheduler that is there refuses a wrong key through the forwarder as without it."""
    key_files.make_cluster(tmp_path / "others")
    port = free_port(3)
    shell.start(f"scaler_scheduler --keys {keys} tcp://127.0.0.1:{port}").wait_for("monitor")

    with pytest.raises(ClusterUnreachableError, match="does not let this key in"):
        Client(forward(port).address, keys=tmp_path / "others", timeout_seconds=1000)
