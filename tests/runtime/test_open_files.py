"""A scheduler with more peers than it may open files, or than it may at first."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest
import zmq

from scaler_cluster.core.delivery.exchange import Exchange
from scaler_cluster.ids import HUB
from scaler_cluster.links.link import new_incarnation
from scaler_cluster.process.process import PYTHON_VERSION, make_peer_id
from scaler_cluster.runtime.full_house import RESERVED_FILES
from scaler_cluster.wire import messages as m
from scaler_exec import Client
from tests.runtime.helpers import BOUND_S, free_port, show_keys, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")


@pytest.fixture
def address():
    """Return an address at which nobody listens, nor at those that follow it."""
    return f"tcp://127.0.0.1:{free_port(4)}"


class Crowd:
    """Many clients of a scheduler, which only say Hello."""

    def __init__(self, address: str, count: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4 * count)
        hello = m.Hello(m.CLIENT, m.PROTOCOL_VERSION, PYTHON_VERSION, os.getpid(), "crowd")
        self._waiting = []
        self._served: list[zmq.Socket[bytes]] = []
        for _ in range(count):
            one = self._context.socket(zmq.DEALER)
            one.linger = 0
            one.setsockopt(zmq.ROUTING_ID, make_peer_id("C"))
            one.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            show_keys(one, address)
            one.connect(address)
            (frames,) = Exchange(new_incarnation()).send(HUB, [hello], time.perf_counter())
            one.send_multipart(frames)
            self._waiting.append(one)

    @property
    def served(self) -> int:
        """How many have been answered."""
        found = [one for one in self._waiting if one.poll(0)]
        self._waiting = [one for one in self._waiting if one not in found]
        self._served += found
        return len(self._served)

    def leave(self) -> None:
        for one in (*self._waiting, *self._served):
            one.close()
        self._context.term()


@pytest.fixture
def crowd():
    """Return what makes a crowd, which leaves in the end."""
    made = []

    def make(address, count):
        made.append(Crowd(address, count))
        return made[-1]

    yield make
    for one in made:
        one.leave()


def limited(soft: int, hard: int, command: str) -> str:
    """Return a command that runs with limits of open files."""
    return f"prlimit --nofile={soft}:{hard} {command}"


@pytest.mark.slow
def test_the_soft_limit_is_no_limit(shell, address, crowd) -> None:
    """A scheduler serves as many peers as the hard limit allows."""
    scheduler = shell.start(limited(128, 1024, f"scaler_scheduler {address}"))
    scheduler.wait_for("monitor address")
    many = crowd(address, 200)

    wait_until(lambda: many.served == 200, "some are not served")
    assert "descriptor" not in scheduler.out


@pytest.mark.slow
def test_when_descriptors_run_out_it_is_said(shell, address, crowd) -> None:
    """Beyond the hard limit one line says so, who is in is served, and no CPU is kept busy."""
    scheduler = shell.start(limited(160, 160, f"scaler_scheduler {address}"))
    shell.start(f"scaler_cluster -n 1 {address}")
    with Client(address) as client:
        assert client.submit(abs, -1).result(BOUND_S) == 1
        many = crowd(address, 200)
        wait_until(lambda: "no file descriptor is left" in scheduler.out, "it is not said")
        process = psutil.Process(scheduler.process.pid)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        for number in range(100):
            assert client.submit(abs, -number).result(BOUND_S) == number
        # The storage starts now, with descriptors of its own.
        assert client.submit(len, os.urandom(1_000_000)).result(BOUND_S) == 1_000_000
        wait_until(lambda: time.monotonic() > began + 2.0, "time stands still")
        used_s, passed_s = sum(process.cpu_times()[:2]) - before, time.monotonic() - began
        assert 50 < many.served < 160 - RESERVED_FILES
        # Where nobody looks after it, this is 0.9 and more.
        assert used_s < passed_s / 2

        many.leave()
        with Client(address) as other:
            assert other.submit(abs, -3).result(BOUND_S) == 3
    assert scheduler.out.count("no file descriptor is left") == 1
