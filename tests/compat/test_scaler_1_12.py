"""The scheduler of the Scaler system itself, version 1.12.28, has workers started by our adapter.

It is installed beside, as its packages have the names of ours. Our workers speak another protocol
and do not join it, so what it knows of them is what the adapter answers.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runtime.helpers import free_port, wait_until

if TYPE_CHECKING:
    from tests.runtime.shell import Command, Shell

INSTALLED = os.environ.get("SCALER_1_12", "")
"""Where it is installed."""
CLIENT = """
import sys
from scaler import Client
with Client(address=sys.argv[1]) as client:
    futures = [client.submit(abs, -number) for number in range(30)]
    print(sum(future.result() for future in futures))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(INSTALLED, "scaler").is_dir(),
        reason="Scaler 1.12.28 is not installed: tox run -e companions",
    ),
]


class Upstream:
    """Starts its commands, and ends each with all its processes."""

    def __init__(self, shell: Shell) -> None:
        root = Path(INSTALLED)
        # The wheels of this version have the compiled parts beside the package.
        shutil.copytree(root / "src" / "scaler", root / "scaler", dirs_exist_ok=True)
        self._shell = shell
        self._started: list[Command] = []
        variables = {
            "PYTHONPATH": root,
            "LD_LIBRARY_PATH": root / "opengris_scaler.libs",
            "PYTHONUNBUFFERED": 1,
        }
        self._python = shlex.join(
            ["env", *(f"{name}={value}" for name, value in variables.items()), sys.executable]
        )

    def start(self, name: str, arguments: str) -> Command:
        """Start one of its commands."""
        return self._start(f"{shlex.quote(f'{INSTALLED}/bin/{name}')} {arguments}")

    def python(self, program: str, arguments: str) -> Command:
        """Start a program that uses it."""
        return self._start(f"-c {shlex.quote(program)} {arguments}")

    def _start(self, words: str) -> Command:
        self._started.append(self._shell.start(f"{self._python} {words}"))
        return self._started[-1]

    def close(self) -> None:
        """End them, by Ctrl-C first."""
        for command in reversed(self._started):
            for number in (signal.SIGINT, signal.SIGKILL):
                with suppress(ProcessLookupError, TimeoutError):
                    os.killpg(command.pid, number)
                    command.process.wait(10)


@pytest.fixture
def upstream(shell):
    """Return what starts its commands."""
    made = Upstream(shell)
    yield made
    made.close()


class Adapter:
    """Our adapter for two workers, as its command runs it."""

    def __init__(self, shell: Shell, address: str, death_timeout_s: int) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.command = shell.start(
            f"scaler_worker_adapter_native {address} --host 127.0.0.1 --port {port} "
            f"--max-workers 2 --death-timeout-seconds {death_timeout_s}"
        )
        self.command.wait_for("WorkerAdapter: answers at")

    @property
    def groups(self) -> list[str]:
        """Return the groups that live."""
        body = json.dumps({"action": "get_worker_adapter_info"}).encode()
        with urllib.request.urlopen(self.url, body) as answer:
            return json.load(answer)["worker_groups"]


def test_it_starts_groups_and_shuts_them_down(shell, upstream) -> None:
    """As many as we say that there may be, while it has tasks; none once a worker has done them."""
    address = f"tcp://127.0.0.1:{free_port(4)}"
    adapter = Adapter(shell, address, 300)
    flags = f"--scaling-controller-strategy VANILLA --adapter-webhook-urls {adapter.url}"
    scheduler = upstream.start("scaler_scheduler", f"{address} {flags}")
    client = upstream.python(CLIENT, address)
    wait_until(lambda: len(adapter.groups) == 2, lambda: f"{scheduler.out}{client.err}")
    started = adapter.groups
    for group in started:
        scheduler.wait_for(f"Started worker group: {group}")
    # Our workers and its scheduler do not understand each other, and say so.
    adapter.command.wait_for("does not answer yet")

    upstream.start("scaler_cluster", f"-n 1 {address}")
    client.wait_for("435")
    wait_until(lambda: not adapter.groups, lambda: scheduler.out)
    for group in started:
        scheduler.wait_for(f"Shutdown worker group: {group}")
    assert adapter.command.interrupt() == 0


def test_it_is_told_of_groups_that_have_left(shell, upstream) -> None:
    """Workers that get no answer end; who wants them shut down hears that they are not there."""
    address = f"tcp://127.0.0.1:{free_port(4)}"
    adapter = Adapter(shell, address, 1)
    flags = f"--scaling-controller-strategy VANILLA --adapter-webhook-urls {adapter.url}"
    scheduler = upstream.start("scaler_scheduler", f"{address} {flags}")
    client = upstream.python(CLIENT, address)
    wait_until(
        lambda: scheduler.out.count("Started worker group: ") == 2,
        lambda: f"{scheduler.out}{client.err}",
    )
    wait_until(lambda: not adapter.groups, lambda: adapter.command.out)

    upstream.start("scaler_cluster", f"-n 1 {address}")
    client.wait_for("435")
    scheduler.wait_for("not found in adapter")
    assert adapter.groups == []
    assert adapter.command.interrupt() == 0
