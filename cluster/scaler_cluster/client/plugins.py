"""Plugins that set a worker up before it runs tasks."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol

from scaler_cluster import arguments
from scaler_cluster.errors import CodeError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_cluster.client.present_workers import WorkerInfo

OUTPUT_CHARS_MAX = 4000
"""The end of what pip wrote says what went wrong."""
MARKS_CHARS_MAX = 100_000


class WorkerPlugin(Protocol):
    """What :func:`register_plugin` takes. ``teardown(worker)`` is called if there is one."""

    def setup(self, worker: WorkerInfo) -> object:
        """Called in each worker before it runs the next task of the client."""


class Environ:
    """Variables of the environment of workers, while they run tasks of the client.

    What a library reads only when it is imported, it may have read before.

    Args:
        variables: The variables, by name. Values that are no texts are turned into such.

    Raises:
        TypeError: This is no mapping with texts as keys.
        ConfigError: A name is none, or a value holds a null character.

    """

    def __init__(self, variables: Mapping[str, object]) -> None:
        arguments.having("variables", variables, ("items",), "a mapping of names to values")
        self.variables = {_text(name, value): str(value) for name, value in variables.items()}


def _text(name: object, value: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"variables must have texts as names, not {name!r}")
    if not name or "=" in name or "\0" in f"{name}{value}":
        raise ConfigError(f"{name!r} cannot be set in an environment to {value!r}")
    return name


class PipInstall:
    """Packages that ``pip install`` puts into the environment of each worker.

    It is run once for each environment, however many workers share it. All that run in this
    environment see the packages: other clients, too, and later ones.

    Args:
        packages: What pip is to install, as in ``["polars==1.9.0"]``.
        pip_options: Options of ``pip install``, as in ``["--no-deps"]``.

    Raises:
        TypeError: An argument has the wrong type.
        ConfigError: There is no package, or one begins with a dash.

    """

    def __init__(self, packages: Sequence[str], pip_options: Sequence[str] = ()) -> None:
        for name, given in (("packages", packages), ("pip_options", pip_options)):
            arguments.instance(name, given, (list, tuple), "a list of texts")
            for one in given:
                arguments.instance(f"each of {name}", one, str, "a text")
        if not packages or any(one[:1] in {"", "-"} for one in packages):
            raise ConfigError("packages must name some; options of pip go to pip_options")
        self._mark = f"{os.urandom(16).hex()}\n"
        """Says in an environment that this was installed; another instance looks again."""
        self.packages = list(packages)
        self.pip_options = list(pip_options)

    def setup(self, worker: WorkerInfo) -> None:
        """Install them, unless another worker of the environment has; raises CodeError."""
        import fcntl
        import importlib
        import tempfile
        from hashlib import sha256
        from pathlib import Path

        environment = sha256(f"{sys.prefix}|{sys.executable}".encode()).hexdigest()[:16]
        path = Path(tempfile.gettempdir(), f"scaler-pip-{os.getuid()}-{environment}.lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "r+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._mark not in lock.readlines():
                self._install(worker)
                if lock.tell() > MARKS_CHARS_MAX:
                    # Whose mark is lost, calls pip once more, which finds nothing to do.
                    lock.seek(0)
                    lock.truncate()
                lock.write(self._mark)
        importlib.invalidate_caches()

    def _install(self, worker: WorkerInfo) -> None:
        import subprocess

        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        command += ["--no-input", *self.pip_options, "--", *self.packages]
        made = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if made.returncode:
            raise CodeError(
                f"pip install {' '.join(self.packages)} ended with status {made.returncode} on "
                f"{worker.host} ({sys.executable}):\n{made.stdout[-OUTPUT_CHARS_MAX:]}"
            )
