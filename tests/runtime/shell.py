"""Commands as a user's shell runs them: each a process of its own, found by its name."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.runtime.helpers import BOUND_S, environment, wait_until

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCRIPTS = PROJECT["scripts"]
TEMPLATE = """\
#!{python}
from {module} import {function}
raise SystemExit({function}())
"""


class Command:
    """A command under way."""

    def __init__(self, arguments: list[str], out: Path, directory: Path, path: Path) -> None:
        self._out = out
        variables = environment()
        variables["PATH"] = f"{path}{os.pathsep}{variables.get('PATH', '')}"
        with out.open("w") as stdout, out.with_suffix(".err").open("w") as stderr:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=variables,
                cwd=directory,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def out(self) -> str:
        """Return what it has printed."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Return what it has printed to stderr."""
        return self._out.with_suffix(".err").read_text()

    def wait_for(self, text: str) -> None:
        """Wait until it has printed this."""
        wait_until(
            lambda: text in self.out or self.process.poll() is not None,
            lambda: f"{text!r} is not printed: {self.out}{self.err}",
        )
        assert text in self.out, f"{self.out}{self.err}"

    def address(self, what: str) -> str:
        """Return the address that it prints after this."""
        self.wait_for(what)
        return self.out.partition(what)[2].split()[0]

    def end(self) -> int:
        """Wait for its end; return its status."""
        return self.process.wait(BOUND_S)

    def terminate(self) -> int:
        """Send it SIGTERM, as `kill` does; return its status."""
        self.process.terminate()
        return self.end()

    def interrupt(self) -> int:
        """Press Ctrl-C in its terminal; return its status."""
        os.killpg(self.pid, signal.SIGINT)
        return self.end()


class Shell:
    """Starts commands, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "work"
        self.directory.mkdir()
        self.commands: list[Command] = []
        self.jobs: list[Command] = []
        """Those that were started by a line that ends in `&`: `%1` is the first."""
        self._path = directory / "bin"
        self._path.mkdir()
        for name, entry in SCRIPTS.items():
            module, _, function = entry.partition(":")
            script = self._path / name
            script.write_text(
                TEMPLATE.format(python=sys.executable, module=module, function=function)
            )
            script.chmod(0o755)

    def start(self, line: str) -> Command:
        """Start a command in the background."""
        name, *arguments = shlex.split(line)
        words = [sys.executable, str(self.script(name))] if name in SCRIPTS else [name]
        if name == "python3":
            words = [sys.executable]
        out = self.directory.parent / f"{len(self.commands)}.out"
        command = Command([*words, *arguments], out, self.directory, self._path)
        self.commands.append(command)
        return command

    def start_job(self, line: str) -> Command:
        """Start a command in the background, which `kill %N` ends."""
        self.jobs.append(self.start(line))
        return self.jobs[-1]

    def script(self, name: str) -> Path:
        """Return the program that a name stands for."""
        return self._path / name

    def run(self, line: str) -> Command:
        """Run a command to its end."""
        command = self.start(line)
        command.end()
        return command

    def python(self, program: str) -> str:
        """Run a program; return what it printed."""
        command = self.run(f"{sys.executable} -c {shlex.quote(program)}")
        assert command.process.returncode == 0, command.err
        return command.out

    def write(self, name: str, text: str) -> str:
        """Write a file where commands run; return its name."""
        (self.directory / name).write_text(text)
        return name

    def close(self) -> None:
        """End all commands that were started, in order."""
        for command in reversed(self.commands):
            if command.process.poll() is None:
                command.process.terminate()
                try:
                    command.end()
                except subprocess.TimeoutExpired:
                    command.process.kill()
                    command.end()
                    raise
