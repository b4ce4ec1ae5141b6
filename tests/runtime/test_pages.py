"""The pages about commands: what they say to type is typed, and what they show is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.runtime.helpers import TYPED, with_free_ports
from tests.runtime.shell import PROJECT, Command, Shell

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?:`([\w.]+)`:\n\n)?```(\w+)\n(.*?)```\n", re.DOTALL)
SHOWN = re.compile(r"# (.+)$", re.MULTILINE)
EXTRAS = re.compile(r"scaler-exec(?:\[(.+)])?")


def type_in(shell: Shell, block: str) -> None:
    """Run the lines after a prompt; the others are what these print, maybe not at once.

    Dots stand for anything.
    """
    running: Command | None = None
    for line in block.splitlines():
        if not line.startswith("$ "):
            assert running is not None
            for part in filter(None, line.split("...")):
                running.wait_for(part)
        elif line.startswith("$ pip install "):
            check_install(shlex.split(line)[3:])
        elif line.startswith("$ kill %"):
            for job in line.split()[2:]:
                shell.jobs[int(job[1:]) - 1].terminate()
        elif line.endswith(" &"):
            running = shell.start_job(line[2:-2])
        else:
            running = shell.run(line[2:])
            assert running.process.returncode == 0, running.err


def check_install(packages: list[str]) -> None:
    """Raise AssertionError unless ours is among them, with extras that it has.

    It is installed already, as this runs.
    """
    (ours,) = filter(None, map(EXTRAS.fullmatch, packages))
    extras = (ours[1] or "").split(",") if ours[1] else []
    assert set(extras) <= set(PROJECT["optional-dependencies"])


def run(shell: Shell, block: str) -> None:
    """Run a program, which prints what its comments show, up to dots."""
    out = shell.python(block).splitlines()
    for shown in SHOWN.findall(block):
        assert any(line.startswith(shown.removesuffix("...")) for line in out), (shown, out)


@pytest.mark.parametrize("page", TYPED)
def test_a_page_is_true(page, tmp_path) -> None:
    """The blocks of a page run in order, and print what the page shows."""
    shell = Shell(tmp_path)
    try:
        for name, kind, block in BLOCK.findall(with_free_ports((DOCS / page).read_text())):
            if name:
                shell.write(name, block)
            elif kind == "console":
                type_in(shell, block)
            elif kind == "python":
                run(shell, block)
            else:
                assert kind == "text", f"nobody runs {kind}"
    finally:
        shell.close()
    assert all(command.process.returncode == 0 for command in shell.commands)
