"""Another machine, made of namespaces: its own network, reached by a cable, its own memory."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from scaler_cluster.objects.storage_dirs import SHARED_MEMORY_VARIABLE
from scaler_cluster.process.directories import ClusterDirs
from scaler_cluster.process.process import write_config
from scaler_cluster.process.process_config import SupervisorOptions, SupervisorProcessConfig
from tests.runtime.helpers import BOUND_S, environment, wait_until

SUPERVISOR = sys.executable, "-m", "scaler_cluster.runtime.supervisor"
UP = 'for one in "$@"; do mount -t tmpfs none "$one" || exit 1; done; echo up; exec cat'


def can_make_machines() -> bool:
    """Return True if this process may make namespaces and cables."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount"))):
        return False
    probe = ["unshare", "--net", "--mount", "ip", "link", "add", "probe", "type", "veth"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def can_slow_down() -> bool:
    """Return True if cables can be made that are slow."""
    command = "ip link add probe0 type veth && tc qdisc add dev probe0 root tbf rate 1mbit burst 16kb latency 1s"
    probe = ["unshare", "--net", "sh", "-c", command]
    return (
        bool(shutil.which("tc"))
        and not subprocess.run(probe, capture_output=True, check=False).returncode
    )


class Machine:
    """A machine whose directories for temporary files and shared memory are not this one's."""

    def __init__(self) -> None:
        net = f"198.{18 + secrets.randbelow(2)}.{secrets.randbelow(256)}"
        quarter = 4 * secrets.randbelow(64)
        self.here, self.there = f"{net}.{quarter + 1}", f"{net}.{quarter + 2}"
        """Addresses of both ends of the cable."""
        self.cable = f"sc{secrets.token_hex(5)}"
        self.hidden = [os.environ[SHARED_MEMORY_VARIABLE], tempfile.gettempdir()]
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", UP, "sh",
             *self.hidden],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self._started: list[subprocess.Popen[bytes]] = []
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n"
        pid = str(self._holder.pid)
        _ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", pid)
        _ip("address", "add", f"{self.here}/30", "dev", self.cable)
        _ip("link", "set", self.cable, "up")
        inside = f"ip link set lo up; ip address add {self.there}/30 dev eth0; ip link set eth0 up"
        subprocess.run(self._inside("sh", "-c", inside), check=True)

    def _inside(self, *command: str) -> list[str]:
        return ["nsenter", "--target", str(self._holder.pid), "--net", "--mount", *command]

    def start(self, *command: str, **options) -> subprocess.Popen[bytes]:
        """Start a program there."""
        started = subprocess.Popen(self._inside(*command), env=environment(), **options)
        self._started.append(started)
        return started

    def start_supervisor(self, address: str, workers: int) -> subprocess.Popen[bytes]:
        """Let the machine join a cluster."""
        supervisor = self.start(*SUPERVISOR, stdin=subprocess.PIPE)
        send_config(supervisor, address, workers)
        return supervisor

    def storage(self) -> psutil.Process | None:
        """Return its storage process, if it runs."""
        for started in self._started:
            found = find_storage(started.pid)
            if found is not None:
                return found
        return None

    @property
    def root(self) -> Path:
        """Return its root directory, as seen from here."""
        return Path(f"/proc/{self._holder.pid}/root")

    def segments(self) -> list[str]:
        """Return the names of the segments that lie there."""
        places = [self.root / place.lstrip("/") for place in self.hidden]
        found = [path for place in places for path in place.glob("scaler-*/**/*-*")]
        return [path.name for path in found]

    @property
    def nbytes_sent_to(self) -> int:
        """Return how many bytes have gone to it."""
        return int(Path(f"/sys/class/net/{self.cable}/statistics/tx_bytes").read_text())

    @property
    def nbytes_sent_from(self) -> int:
        """Return how many bytes have come from it."""
        return int(Path(f"/sys/class/net/{self.cable}/statistics/rx_bytes").read_text())

    def slow_down(self, rate: str) -> None:
        """Let the cable carry so much in each direction, such as ``1mbit``."""
        bucket = ["root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"]
        subprocess.run(["tc", "qdisc", "replace", "dev", self.cable, *bucket], check=True)
        there = self._inside("tc", "qdisc", "replace", "dev", "eth0", *bucket)
        subprocess.run(there, check=True)

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        """Plug the cable in."""
        _ip("link", "set", self.cable, "up")

    def mute(self) -> None:
        """Lose whatever is sent over the cable, in both directions; nobody is told."""
        nowhere = ["lladdr", "02:00:00:00:00:01", "nud", "permanent"]
        _ip("neighbour", "replace", self.there, "dev", self.cable, *nowhere)
        there = self._inside("ip", "neighbour", "replace", self.here, "dev", "eth0", *nowhere)
        subprocess.run(there, check=True)

    def unmute(self) -> None:
        """Deliver what is sent again."""
        _ip("neighbour", "delete", self.there, "dev", self.cable)
        there = self._inside("ip", "neighbour", "delete", self.here, "dev", "eth0")
        subprocess.run(there, check=True)

    def slow(self, kbit_s: int) -> None:
        """Let the cable carry so much a second, in each direction."""
        rate = f"root tbf rate {kbit_s}kbit burst 64kbit latency 400ms".split()
        subprocess.run(["tc", "qdisc", "replace", "dev", self.cable, *rate], check=True)
        there = self._inside("tc", "qdisc", "replace", "dev", "eth0", *rate)
        subprocess.run(there, check=True)

    def hasten(self) -> None:
        """Let the cable carry as much as it can again."""
        subprocess.run(["tc", "qdisc", "delete", "dev", self.cable, "root"], check=True)
        there = self._inside("tc", "qdisc", "delete", "dev", "eth0", "root")
        subprocess.run(there, check=True)

    def reach_others(self) -> None:
        """Send what is for other machines over the cable: this one must pass it on."""
        subprocess.run(self._inside("ip", "route", "add", "default", "via", self.here), check=True)

    def stop(self) -> None:
        """End what was started there, then the machine."""
        for started in self._started:
            if started.stdin is not None:
                started.stdin.close()
            try:
                started.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
            if started.stdout is not None:
                started.stdout.close()
        self._holder.communicate()


@contextlib.contextmanager
def workers_of(address: str, workers: int, **options):
    """Let more workers of this machine join a cluster, with SupervisorOptions of their own."""
    supervisor = subprocess.Popen(SUPERVISOR, stdin=subprocess.PIPE, env=environment())
    try:
        send_config(supervisor, address, workers, **options)
        yield
    finally:
        supervisor.communicate()


def send_config(supervisor: subprocess.Popen[bytes], address: str, workers: int, **options) -> None:
    """Tell a supervisor that was started what to do."""
    config = SupervisorProcessConfig(
        address=address,
        workers=workers,
        dirs=ClusterDirs.named(),
        sys_path=tuple(sys.path),
        options=SupervisorOptions(**options),
    )
    assert supervisor.stdin is not None
    write_config(supervisor.stdin, config)


def find_storage(parent: int) -> psutil.Process | None:
    """Return the storage process below another one, if it runs."""
    for child in psutil.Process(parent).children(recursive=True):
        try:
            if "scaler_cluster.runtime.storage" in child.cmdline():
                return child
        except psutil.Error:
            continue
    return None


def wait_storage(find, other_than: psutil.Process | None = None) -> psutil.Process:
    """Wait until a storage runs, or another one; return it."""
    wait_until(lambda: find() not in (None, other_than), "there is no storage")
    return find()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
