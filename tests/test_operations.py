"""What the pages for administrators say is so: log lines, units for systemd, tests of faults."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scaler_cluster.config.load import load
from scaler_cluster.config.sections import SchedulerSettings, StorageSettings
from scaler_cluster.config.worker_settings import ClusterSettings
from tests.log_lines import lines_in_source

ROOT = Path(__file__).parents[1]
UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))
COMMANDS = {
    "scaler_scheduler": SchedulerSettings,
    "scaler_cluster": ClusterSettings,
    "scaler_object_storage_server": StorageSettings,
}
HOME = "/opt/scaler/bin/"


def rows(page: str) -> list[list[str]]:
    """Return the rows of all tables of a page, each as its cells."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]


def test_each_log_line_is_explained() -> None:
    """The table has each line that the engine may log, and no line that nothing logs."""
    logged = {line.strip() for line in lines_in_source()}
    explained = {row[0].strip("`") for row in rows("operations.md") if len(row) == 4}
    explained -= {"line", "---"}

    assert logged - explained == set(), "explain these in docs/operations.md"
    assert explained - logged == set(), "nothing logs these"


def test_each_fault_has_a_test() -> None:
    """Each row of the table of faults names a test that exists."""
    named = [row[3] for row in rows("faults.md") if row[0] not in ("fault", "---")]
    assert len(named) > 40
    for cell in named:
        for test in cell.removeprefix("*open:* ").split(", "):
            found = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", test)
            assert found, test
            tree = ast.parse((ROOT / "tests" / found[1]).read_text())
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert found[2] in functions, test


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_understands_it(unit: Path, monkeypatch) -> None:
    """A unit's command takes its flags, with settings of its environment and without."""
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, *arguments = shlex.split(line)
    command = program.removeprefix(HOME)
    address = "tcp://127.0.0.1:8516"
    # What systemd makes of variables: $A is any number of words, ${A} is one.
    words = [re.sub(r"\$\{\w+\}", address, one) for one in arguments if one[:2] != "$S"]

    monkeypatch.chdir(ROOT)
    settings: Any = load(COMMANDS[command], command, "", words)

    given = [getattr(settings, name) for name in vars(settings) if name.endswith("_address")]
    assert address in given


def test_no_task_can_read_the_keys_of_the_scheduler() -> None:
    """Tasks run as the user of the workers: it has nothing of the scheduler's, also in the page."""
    page = (ROOT / "docs" / "operations.md").read_text()
    whose: dict[str, dict[str, str]] = {}
    for unit in UNITS:
        text = unit.read_text()
        (user,) = re.findall(r"^User=(.*)$", text, re.MULTILINE)
        (keys,) = re.findall(r"^Environment=SCALER_KEYS=(.*)$", text, re.MULTILINE)
        whose[unit.stem] = {"user": user, "keys": keys}
        assert f"useradd --system --create-home {user}\n" in page
    scheduler, workers = whose["scaler-scheduler"], whose["scaler-cluster"]

    assert not scheduler.items() & workers.items()
    assert "root" not in (scheduler["user"], workers["user"])
    assert f"chown -R {scheduler['user']}: {scheduler['keys']} " in page
    assert f"install -d -m 700 -o {workers['user']} {workers['keys']}\n" in page
    # What else runs there maps the same files as the workers, and is given their directory.
    assert whose["scaler-object-storage"] == workers


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_units_are_right(tmp_path: Path) -> None:
    """systemd has nothing to say about the units, once their commands are installed."""
    for unit in UNITS:
        there = unit.read_text().replace(HOME, f"{Path(sys.executable).parent}/")
        (tmp_path / unit.name).write_text(there)

    command = ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
