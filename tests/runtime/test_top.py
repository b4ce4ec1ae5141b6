"""``scaler_top`` on a running cluster, in a terminal and out of one."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import select
import signal
import socket
import sys
import time
from operator import add

import psutil
import pytest

from scaler_cluster.process.embedded_cluster import EmbeddedCluster
from scaler_exec import ScalerExecutor
from tests.runtime.helpers import BOUND_S, environment, free_port, run_module, wait_workers
from tests.runtime.tasks import hold, raise_this

TOP = "scaler_monitoring.top"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def address():
    """Return the monitor address of a cluster in which 50 tasks were done and one has failed."""
    cluster = EmbeddedCluster(2)
    wait_workers(2)
    with ScalerExecutor(address=cluster.address) as executor:
        list(executor.map(add, range(50), range(50)))
        executor.submit(raise_this, "KeyError", "missing").exception(BOUND_S)
    yield cluster.monitor_address
    cluster.stop()


top = functools.partial(run_module, TOP)


class Terminal:
    """It runs in a terminal of so many lines."""

    def __init__(self, *arguments: str, width: int = 150, height: int = 40) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            size = {"TERM": "xterm", "COLUMNS": str(width), "LINES": str(height)}
            os.execve(sys.executable, [sys.executable, "-m", TOP, *arguments], environment() | size)
        self.shown = ""

    def press(self, keys: str) -> None:
        """Press keys; what was shown before is forgotten."""
        self.shown = ""
        os.write(self._fd, keys.encode())

    def wait(self, text: str) -> None:
        """Wait until something is shown."""
        deadline = time.monotonic() + BOUND_S
        while text not in CONTROL.sub("", self.shown):
            assert time.monotonic() < deadline, (text, CONTROL.sub("", self.shown))
            assert self._read(), (text, CONTROL.sub("", self.shown))

    def _read(self) -> bool:
        if select.select([self._fd], [], [], 1.0)[0]:
            try:
                self.shown += os.read(self._fd, 65536).decode(errors="replace")
            except OSError:
                # It has ended.
                return False
        return True

    def end(self) -> int:
        """Wait for its end; return its status."""
        while self._read():
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


# -- once --------------------------------------------------------------------------------------


def test_once_prints_the_documented_view(address):
    """--once prints the documented sections and columns, with the numbers of what was run."""
    done = top(address, "--once")

    assert (done.returncode, done.stderr) == (0, "")
    assert "Total 1 manager(s) with 2 worker(s)" in done.stdout
    words = re.sub(r"\s+", " ", done.stdout.replace("|", " "))
    for expected in ("scheduler object_manager task_manager scheduler_sent scheduler_received",
                     "done 50", "failed 1", "manager worker agt_cpu agt_rss [cpu] rss"):  # fmt: skip
        assert expected in words
    assert re.search(r"\badd +0 +50 +0 ", done.stdout)


def test_json_is_for_scripts(address):
    """--json prints everything as numbers, with what machines have said of themselves."""
    done = top(address, "--json")

    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["tasks"]["done"], told["tasks"]["failed"]) == (50, 1)
    assert {"add": 50, "raise_this": 0} == {row["name"]: row["done"] for row in told["functions"]}
    assert [row["wanted"] for row in told["machines"]] == [2]
    assert all(row["cpu"] is not None for row in told["machines"])
    assert [row["rss_bytes"] > 1_000_000 for row in told["workers"]] == [True, True]
    assert told["received"]["Done"] >= 1


def test_json_needs_no_extra(address):
    """--json works without the drawing library; the view says that this is missing."""
    without = f"import sys; sys.modules['rich'] = None; from {TOP} import main; sys.exit(main())"

    assert top(address, "--json", source=without).returncode == 0
    done = top(address, "--once", source=without)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'scaler-exec[monitor]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["tcp://127.0.0.1:{port}", "--once", "-t", "0.2"], 1, "is the scheduler running"),
        (["tcp://127.0.0.1:{port}", "--json", "--timeout", "0.2"], 1, "nothing was heard"),
        (["127.0.0.1", "--once"], 2, "monitor_address must begin with tcp:// or ipc://"),
        (["tcp://127.0.0.1:{port}"], 2, "use --once or --json"),
        (["tcp://127.0.0.1:{port}", "-t", "-1"], 2, "-t/--timeout must be greater than 0"),
        (["tcp://127.0.0.1:{port}", "--jsn"], 2, "did you mean '--json'?"),
        ([], 2, "in [top] of a --config file"),
    ],
)
def test_what_cannot_work_is_one_line(arguments, status, says):
    """A command that cannot work says what to do in one line, with a status."""
    done = top(*(one.format(port=free_port()) for one in arguments))

    assert done.returncode == status
    assert says in done.stderr
    assert done.stderr.startswith("scaler_top: ")
    assert done.stderr.count("\n") == 1


# -- beside the other commands -------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "ipc"])
def test_it_is_given_what_the_scheduler_printed(shell, host):
    """The monitor's address is as documented, and scaler_top takes it as it is printed."""
    port = free_port(3)
    where, expected = {
        "127.0.0.1": (f"tcp://127.0.0.1:{port}", rf"tcp://127\.0\.0\.1:{port + 2}"),
        "[::1]": ("tcp://[::1]:0", r"tcp://\[::1\]:[1-9]\d+"),
        "ipc": (
            f"ipc://{shell.directory}/s",
            rf"ipc://{re.escape(str(shell.directory))}/s_monitor",
        ),
    }[host]
    scheduler = shell.start(f"scaler_scheduler --object-report-limit 3 {where}")
    printed = scheduler.address("monitor address ")
    top = shell.start(f"scaler_top --json {printed}")

    assert re.fullmatch(expected, printed)
    assert top.end() == 0, top.err
    pid = json.loads(top.out)["scheduler"]["pid"]
    assert psutil.Process(pid).ppid() == scheduler.pid
    assert scheduler.interrupt() == 0


def test_all_may_stand_in_one_file(shell):
    """One file may have the address of the stack and the settings of scaler_top."""
    port = free_port(4)
    (shell.directory / "stack.toml").write_text(f"""
        [scheduler]
        scheduler_address = "tcp://127.0.0.1:{port}"
        monitor_address = "tcp://127.0.0.1:{port + 3}"
        status_report_interval_seconds = 0.25
        [cluster]
        num_of_workers = 1
        [top]
        monitor_address = "tcp://127.0.0.1:{port + 3}"
        json = true
        """)
    stack = shell.start("scaler stack.toml")
    top = shell.start("scaler_top -c stack.toml")

    assert top.end() == 0, top.err
    assert json.loads(top.out)["interval_s"] == 0.25
    assert stack.interrupt() == 0


def test_a_monitor_address_in_use_is_one_line(shell):
    """A monitor address in use is told in one line with the flag, and nothing is left."""
    with socket.socket() as taken:
        port = free_port(3)
        taken.bind(("127.0.0.1", port + 2))
        taken.listen()
        scheduler = shell.start(f"scaler_scheduler tcp://127.0.0.1:{port}")

        assert scheduler.end() == 2
    assert scheduler.err == (
        f"scaler_scheduler: cannot bind tcp://127.0.0.1:{port + 2}: Address already in use; that "
        "is for monitors: name another address with --monitor-address\n"
    )


# -- live --------------------------------------------------------------------------------------


def test_keys_sort_the_workers(address):
    """Each key sorts the workers by its column, and "x" ends the view."""
    terminal = Terminal(address)
    terminal.wait("[cpu]")
    for key, header in {
        "F": "[os_rss_free]",
        "q": "[queued]",
        "n": "[worker]",
        "c": "[cpu]",
    }.items():
        terminal.press(key)
        terminal.wait(header)
    terminal.press("\x1b[B\x1b[6~Z")
    terminal.wait("[cpu]")
    terminal.press("x")

    assert terminal.end() == 0
    # The terminal is as it was: its own screen, with a cursor.
    assert terminal.shown.rstrip().endswith("\x1b[?1049l")
    assert "\x1b[?25h" in terminal.shown


def test_ctrl_c_ends_it(address):
    """Ctrl-C ends the view without a word."""
    terminal = Terminal(address)
    terminal.wait("Total 1 manager(s)")
    os.kill(terminal.pid, signal.SIGINT)

    assert terminal.end() == 0
    assert "Traceback" not in terminal.shown


def test_it_shows_what_happens(flags):
    """The view shows a running task while it runs, and says when the scheduler is gone."""
    cluster = EmbeddedCluster(1)
    try:
        terminal = Terminal(cluster.monitor_address, "-t", "1.5", width=160)
        terminal.wait("Total 1 manager(s)")
        with ScalerExecutor(address=cluster.address) as executor:
            executor.submit(raise_this, "KeyError", "missing").exception(BOUND_S)
            executor.submit(hold, flags.path("begun"), flags.path("go"))
            try:
                terminal.wait("raise_this failed: KeyError")
                terminal.wait(" hold ")
            finally:
                flags.set("go")
    finally:
        cluster.stop()

    assert terminal.end() == 1
    assert "nothing was heard" in terminal.shown
