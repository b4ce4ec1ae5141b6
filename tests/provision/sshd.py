"""A real sshd, which needs no installation."""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from tests.provision.debian import unpacked
from tests.runtime.helpers import environment, free_port, wait_until

if TYPE_CHECKING:
    from tests.runtime.machines import Machine

CONFIG = """
Port {port}
ListenAddress {host}
HostKey {root}/host_key
AuthorizedKeysFile {root}/me.pub
PidFile none
PasswordAuthentication no
StrictModes no
UsePAM no
"""


class SSHServer:
    """A real sshd at a port of this machine, or of others, and what a client needs to log in."""

    def __init__(self, root: Path, *machines: Machine) -> None:
        root.mkdir(mode=0o700)
        self._root = root
        self.hosts = [machine.there for machine in machines] or ["127.0.0.1"]
        self.port = free_port(1)
        for name in ("host_key", "me"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / name], check=True
            )
        known = (root / "host_key.pub").read_text()
        (root / "known").write_text("".join(f"[{host}]:{self.port} {known}" for host in self.hosts))
        self._privileges = Path("/run/sshd")
        self._has_made_it = not self._privileges.exists()
        self._privileges.mkdir(exist_ok=True)
        self._processes = [
            _start(self._command(host), machine)
            for host, machine in zip_longest(self.hosts, machines)
        ]
        for host, process in zip(self.hosts, self._processes, strict=True):
            wait_until(partial(self._is_up, host, process), "sshd does not listen")
            assert process.poll() is None, self._log(host)

    def _is_up(self, host: str, process: subprocess.Popen[bytes]) -> bool:
        return "listening" in self._log(host) or process.poll() is not None

    def _command(self, host: str) -> list[str]:
        packages = unpacked("openssh-server", "libwrap0")
        config, users = self._root / f"{host}.config", self._root / "passwd"
        config.write_text(CONFIG.format(host=host, port=self.port, root=self._root))
        users.write_text(
            f"{Path('/etc/passwd').read_text()}sshd:x:65533:65534::/run/sshd:/bin/false\n"
        )
        return [
            "env",
            f"LD_LIBRARY_PATH={packages}/usr/lib/x86_64-linux-gnu",
            # It wants a user of its own, which only its own view of this machine has.
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount --bind "$0" /etc/passwd && exec "$@"',
            str(users),
            str(packages / "usr/sbin/sshd"),
            "-D",
            "-f",
            str(config),
            "-E",
            str(self._root / f"{host}.log"),
        ]

    def _log(self, host: str) -> str:
        log = self._root / f"{host}.log"
        return log.read_text() if log.exists() else ""

    @property
    def flags(self) -> str:
        """Return the flags of a manager that logs in here."""
        options = f"UserKnownHostsFile={self._root}/known"
        return f"--ssh-port {self.port} --identity {self._root}/me --ssh-options {options}"

    def close(self) -> None:
        """End it."""
        for process in self._processes:
            process.terminate()
            process.wait(10)
        if self._has_made_it:
            self._privileges.rmdir()


def _start(command: list[str], machine: Machine | None) -> subprocess.Popen[bytes]:
    if machine is None:
        return subprocess.Popen(command, start_new_session=True)
    return machine.start(*command, start_new_session=True)


def make_python(directory: Path) -> Path:
    """Return an interpreter that knows this one's environment, as one that is installed there."""
    path = directory / "python"
    variables = environment()
    prefixes = "PYTHON", "XDG_", "SCALER_TEST", "SCALER_SHARED", "TMPDIR"
    names = [name for name in variables if name.startswith(prefixes)]
    told = " ".join(f"{name}={shlex.quote(variables[name])}" for name in names)
    path.write_text(f'#!/bin/sh\n{told} exec {shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o755)
    return path
