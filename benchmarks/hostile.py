"""An honest client beside a hostile one: ``python -m benchmarks.hostile [FLOOD ...]``.

The cluster was started by our commands, with keys, at a loopback address. Measured is the round
trip of one task at a time, alone and while a process floods the scheduler as fast as it can, and
the most memory that the scheduler had meanwhile. The flood has a CPU to itself if there are enough.
With two, it also takes CPU from the others: ``busy`` shows what that alone does.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import pickle
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import zmq

from scaler_cluster.security import key_files
from scaler_exec import Client
from tests.runtime import hostile_peer as h
from tests.runtime.helpers import BOUND_S, free_port
from tests.runtime.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 5.0
SETTLES_S = 0.5
HEADER_BYTES = 400_000
"""Of the largest header that is read without a look at it; a longer one costs less."""
TASKS_AT_ONCE = 100


# -- the floods, each in a process of its own, until that is killed --------------------------------


def busy(_address: str, _keys: Path) -> None:
    """Take a CPU, and send nothing."""
    while True:
        pass


def handshakes(address: str, _keys: Path) -> None:
    """Connect without a key, again and again."""
    while True:
        with h.HostilePeer(address, None) as peer:
            peer.is_let_in()


def welcome(address: str, keys: Path) -> h.HostilePeer:
    """Return a peer that the scheduler knows."""
    peer = h.HostilePeer(address, h.Keys(keys / "mallory.key"))
    peer.socket.set_hwm(1000)
    assert peer.is_welcome()
    return peer


def empty_envelopes(address: str, keys: Path) -> None:
    """Send envelopes without messages."""
    peer = welcome(address, keys)
    frames = peer.packed(0)
    while True:
        peer.socket.send_multipart(frames)
        peer.drain()


def garbage(address: str, keys: Path) -> None:
    """Send what is no envelope."""
    peer = welcome(address, keys)
    while True:
        peer.socket.send_multipart([os.urandom(200)])
        peer.drain()


def large_headers(address: str, keys: Path) -> None:
    """Send headers of nothing but empty lists, each from a new client."""
    while True:
        with h.HostilePeer(address, h.Keys(keys / "mallory.key")) as peer:
            assert peer.is_welcome()
            peer.throw(b"\xdd" + HEADER_BYTES.to_bytes(4, "big") + b"\x90" * HEADER_BYTES)
            peer.hear(h.GOODBYE)


def submits(address: str, keys: Path) -> None:
    """Submit tasks that anybody may submit, a hundred at a time, and read the results."""
    peer = welcome(address, keys)
    payload = pickle.dumps(math.sqrt, 5)
    function, arguments = h.digest(payload), h.batch(*[pickle.dumps((4.0,))] * TASKS_AT_ONCE)
    peer.say([h.FUNCTION, function, payload, [], "sqrt"])
    first = 0
    while True:
        peer.say(h.submit(first, function, arguments))
        first += TASKS_AT_ONCE
        back = 0
        while back < TASKS_AT_ONCE:
            ends = peer.hear(h.RESULTS)[2][0]
            back += len(ends) // 4


def subscriptions(address: str, keys: Path) -> None:
    """Listen to all sorts of things, again and again."""
    host, _, port = address.rpartition(":")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    while True:
        with context.socket(zmq.SUB) as feed:
            feed.linger = 0
            place = h.show(feed, f"{host}:{int(port) + 2}", h.Keys(keys / "monitor.key"))
            feed.connect(place)
            for n in range(1000):
                feed.subscribe(b"%d" % n)
            feed.subscribe(b"snapshot")
            feed.poll(BOUND_S * 1000)


FLOODS = {
    flood.__name__: flood
    for flood in (
        busy, handshakes, empty_envelopes, garbage, large_headers, submits, subscriptions
    )
}  # fmt: skip


# -- the honest client -----------------------------------------------------------------------------


def round_trips(client: Client) -> list[float]:
    """Return how long each of the round trips of some seconds took, in microseconds."""
    end = time.perf_counter() + SECONDS
    took = []
    while (start := time.perf_counter()) < end:
        assert client.submit(math.sqrt, 4.0).result(BOUND_S) == 2.0
        took.append((time.perf_counter() - start) * 1e6)
    return took


@contextmanager
def flooded(name: str, address: str, keys: Path) -> Iterator[None]:
    """Let a flood run meanwhile."""
    command = [sys.executable, "-m", "benchmarks.hostile", "--flood", name, address, str(keys)]
    with subprocess.Popen(command) as process:
        time.sleep(SETTLES_S)
        try:
            yield
            assert process.poll() is None, f"{name} has ended"
        finally:
            process.send_signal(signal.SIGKILL)


def measure(names: list[str]) -> None:
    """Print a line for each flood."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keys, address = place / "keys", f"tcp://127.0.0.1:{free_port(3)}"
        key_files.make_cluster(keys)
        key_files.add(keys, "client", "mallory")
        shell = Shell(place)
        stack.callback(shell.close)
        command = shell.start(f"scaler_scheduler --keys {keys} {address}")
        command.wait_for("monitor address")
        shell.start(f"scaler_cluster --keys {keys} -n 2 {address}").wait_for("started")
        client = stack.enter_context(Client(address, keys=keys))
        assert client.submit(math.sqrt, 4.0).result(BOUND_S) == 2.0
        (scheduler,) = psutil.Process(command.pid).children()
        print("flood            median us   p99 us    ratio      p99   peak MB  scheduler CPU")
        base: tuple[float, float] | None = None
        for name in ("alone", *names):
            flood = contextlib.nullcontext() if name == "alone" else flooded(name, address, keys)
            with flood:
                # The most memory since now.
                Path(f"/proc/{scheduler.pid}/clear_refs").write_text("5")
                cpu, start = sum(scheduler.cpu_times()[:2]), time.perf_counter()
                took = round_trips(client)
                share = (sum(scheduler.cpu_times()[:2]) - cpu) / (time.perf_counter() - start)
            status = Path(f"/proc/{scheduler.pid}/status").read_text()
            peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
            median, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
            base = base or (median, p99)
            print(
                f"{name:<16} {median:9.0f} {p99:8.0f} {median / base[0]:8.2f} {p99 / base[1]:8.2f} "
                f"{peak:9.0f} {share:14.2f}",
                flush=True,
            )


def main() -> int:
    """Run what is named, or all."""
    if sys.argv[1:2] == ["--flood"]:
        name, address, keys = sys.argv[2:]
        FLOODS[name](address, Path(keys))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile")
    parser.add_argument("floods", nargs="*", choices=[[], *FLOODS], metavar="FLOOD")
    measure(parser.parse_args().floods or list(FLOODS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
