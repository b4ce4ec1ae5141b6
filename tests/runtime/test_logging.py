"""Logging inside of tasks: as in the standard library's pool."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from scaler_exec import Client, SchedulerClusterCombo
from tests.runtime.helpers import BOUND_S, environment
from tests.runtime.shell import Shell

TALK = """
import logging, sys, warnings

def state():
    root = logging.getLogger()
    return root.level, list(map(str, root.handlers)), root.disabled, root.filters, root.manager.disable

def talk():
    found = [state()]
    logging.getLogger("mine").error("by the last resort")
    logging.getLogger("mine").info("not shown")
    warnings.warn("beware")
    logging.warning("a warning")
    logging.error("an error")
    found.append(len(logging.getLogger().handlers))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s! %(message)s", force=True)
    logging.info("a piece of news")
    return found

def set_up():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s of a task: %(message)s")
"""
BY_EXECUTOR = (
    TALK
    + """
if __name__ == "__main__":
    if sys.argv[1] == "standard":
        from concurrent.futures import ProcessPoolExecutor
        from functools import partial
        from multiprocessing import get_context
        make = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))
    else:
        from scaler_exec import ScalerExecutor as make
    with make(1) as executor:
        print(executor.submit(talk).result())
    with make(1, initializer=set_up) as executor:
        executor.submit(logging.info, "told").result()
"""
)
BY_CLIENT = (
    TALK
    + """
from scaler_exec import Client
with Client(sys.argv[1]) as client:
    print(client.submit(talk).result())
"""
)
SHOWN = [
    "by the last resort",
    'warnings.warn("beware")',
    "WARNING:root:a warning",
    "ERROR:root:an error",
    "INFO! a piece of news",
]
FOUND = "[(30, [], False, [], 0), 1]\n"


def run(tmp_path, source: str, *arguments: str) -> tuple[str, str]:
    """Run a script; return what it printed, and what it wrote to stderr."""
    script = tmp_path / "program.py"
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * BOUND_S,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_tasks_log_as_in_the_standard_librarys_pool(tmp_path) -> None:
    """The root logger of tasks is as in ProcessPoolExecutor, so stderr shows the same lines."""
    standard = run(tmp_path, BY_EXECUTOR, "standard")
    ours = run(tmp_path, BY_EXECUTOR, "ours")

    assert standard[0] == FOUND
    assert all(line in standard[1] for line in [*SHOWN, "INFO of a task: told"])
    assert ours == standard


@pytest.mark.parametrize("paths", [(), ("engine.log",)], ids=["quiet", "logging"])
def test_tasks_of_a_local_cluster_log_so_too(tmp_path, monkeypatch, capfd, paths) -> None:
    """A cluster's own logging leaves the root logger of its workers alone."""
    monkeypatch.chdir(tmp_path)
    with SchedulerClusterCombo(1, logging_paths=paths) as cluster:
        out, _ = run(tmp_path, BY_CLIENT, cluster.get_address())
    written = capfd.readouterr().err.splitlines()

    assert out == FOUND
    assert [line.strip() for line in written if "UserWarning" not in line] == SHOWN


def test_tasks_of_a_cluster_by_command_log_so_too(tmp_path) -> None:
    """Tasks of a cluster by command write their log lines to its stderr."""
    shell = Shell(tmp_path)
    try:
        scheduler = shell.start("scaler_scheduler tcp://127.0.0.1:0")
        address = scheduler.address("Scheduler: listen to scheduler address")
        cluster = shell.start(f"scaler_cluster -n 1 {address}")
        cluster.wait_for("Worker[0] started")
        out, _ = run(tmp_path, BY_CLIENT, address)
        assert cluster.interrupt() == 0
    finally:
        shell.close()
    written = cluster.err.splitlines()

    assert out == FOUND
    assert [line.strip() for line in written if "UserWarning" not in line] == SHOWN


ROOT_TO_FILE = """
[loggers]
keys = root
[handlers]
keys = file
[formatters]
keys = short
[logger_root]
level = INFO
handlers = file
[handler_file]
class = FileHandler
formatter = short
args = ("{path}",)
[formatter_short]
format = %(levelname)s of %(name)s: %(message)s
"""


def test_a_file_for_file_config_holds_for_what_tasks_log(tmp_path) -> None:
    """A root logger in ``logging_config_file`` is the one that tasks find."""
    path, config = tmp_path / "all.log", tmp_path / "logging.ini"
    config.write_text(ROOT_TO_FILE.format(path=path))
    with (
        SchedulerClusterCombo(1, logging_config_file=str(config)) as cluster,
        Client(cluster.get_address()) as client,
    ):
        client.submit(_log, "mine", logging.INFO, "from a task").result(BOUND_S)

    assert "INFO of mine: from a task" in path.read_text().splitlines()


def _log(name: str, level: int, text: str) -> None:
    logging.getLogger(name).log(level, text)
