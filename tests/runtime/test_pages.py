"""The pages about commands: what they say to type is typed, and what they show is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runtime.helpers import with_free_ports
from tests.runtime.shell import Shell

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?:`([\w.]+)`:\n\n)?```(\w+)\n(.*?)```\n", re.DOTALL)
SHOWN = re.compile(r"# (.+)$", re.MULTILINE)


def type_in(shell: Shell, block: str) -> None:
    """Run the lines after a prompt; the others are what these print, maybe not at once."""
    running = None
    for line in block.splitlines():
        if not line.startswith("$ "):
            assert running is not None
            running.wait_for(line)
        elif line.endswith(" &"):
            running = shell.start(line[2:-2])
        else:
            running = shell.run(line[2:])
            assert running.process.returncode == 0, running.err


def run(shell: Shell, block: str) -> None:
    """Run a program, which prints what its comments show, up to dots."""
    out = shell.python(block).splitlines()
    for shown in SHOWN.findall(block):
        assert any(line.startswith(shown.removesuffix("...")) for line in out), (shown, out)


@pytest.mark.parametrize("page", ["commands.md", "configuration.md"])
def test_a_page_is_true(page, tmp_path) -> None:
    """The blocks of a page run in order, and print what the page shows."""
    shell = Shell(tmp_path)
    try:
        for name, kind, block in BLOCK.findall(with_free_ports((DOCS / page).read_text())):
            if kind == "toml":
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
