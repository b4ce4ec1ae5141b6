"""What tasks are at, through the public API: profiles and stacks."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from typing import Any

import pytest

from scaler_cluster.client.profile import Profile, RunningTask
from scaler_cluster.core.scheduler.sampling import NO_ANSWER
from scaler_cluster.ids import SNAPSHOT
from scaler_cluster.wire.feed import Samples, Snapshot
from scaler_exec import Client, SchedulerClusterCombo
from scaler_monitoring.feed import Feed
from scaler_monitoring.recording import read
from tests.runtime.helpers import wait_until
from tests.runtime.shell import Shell

BOUND_S = 30.0
SHARES_BOUND_S = 300.0


def spin(cpu_s):
    """Use so much time of a CPU."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        sum(range(500))


def seven():
    """Take 70 %."""
    spin(0.007)


def three():
    """Take 30 %."""
    spin(0.003)


def ten(cpu_s):
    """Take all of it, in small pieces."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        seven()
        three()


def stay(path):
    """Run until there is a file."""
    while not path.exists():
        time.sleep(0.02)


@pytest.fixture
def client():
    """Return a client of a cluster with a worker."""
    combo = SchedulerClusterCombo(n_workers=1)
    with Client(combo.get_address()) as one:
        yield one
    combo.shutdown()


@pytest.fixture
def shell(tmp_path):
    """Return what runs commands."""
    one = Shell(tmp_path)
    yield one
    one.close()


def questions(client):
    """Return how often workers were asked for samples, as the scheduler counts."""
    with Feed(client.monitor_address, (SNAPSHOT,)) as feed:
        message = feed.next(BOUND_S)
    assert isinstance(message, Snapshot)
    return message.sent.get("Sample", 0)


SAMPLES = 3000
"""Of each such a sample is a throw of a coin that falls on one side 70 times of 100: that the share
of so many is 5 points off has a probability of 2e-9. Samples count by the time since the one before:
even if that made them worth half as many, it were 2e-5."""


@pytest.mark.slow
@pytest.mark.timeout(2 * SHARES_BOUND_S)
def test_a_profile_has_the_shares_of_the_time():
    """Of tasks that spend 70 % in one function, a profile shows that within 5 points."""
    whole = {"seven": 0.0, "three": 0.0}
    samples = 0
    deadline = time.monotonic() + SHARES_BOUND_S
    with SchedulerClusterCombo(n_workers=4) as cluster, Client(cluster.get_address()) as client:
        tasks = [client.submit(ten, 2 * SHARES_BOUND_S) for _ in range(4)]
        while samples < SAMPLES:
            assert time.monotonic() < deadline, f"only {samples} samples"
            profile = client.profile(5.0)
            samples += profile.samples
            for row in profile.top(100):
                if row.frame.name in whole:
                    whole[row.frame.name] += row.whole_s
        for task in tasks:
            task.cancel()

    assert whole["seven"] / (whole["seven"] + whole["three"]) == pytest.approx(0.7, abs=0.05)
    assert profile.functions == ["ten"]
    assert repr(profile).splitlines()[1].split() == ["own", "whole", "function"]


@pytest.mark.slow
def test_a_running_task_shows_its_stack(client, tmp_path):
    """The stack of a running task ends with the line that it is at; of an idle cluster, none."""
    end = tmp_path / "end"
    task = client.submit(stay, end)
    rows: list[RunningTask] = []
    deadline = time.monotonic() + BOUND_S
    # At first it is being unpickled, and later it may be between two lines.
    while not any("in stay\n    time.sleep(0.02)" in one.stack for one in rows):
        assert time.monotonic() < deadline, rows
        rows = client.stacks()
    end.touch()
    task.result(BOUND_S)

    (row,) = rows
    assert row.function == "stay"
    assert client.stacks() == []


def hang(path):
    """Hold the interpreter until there is a file: code in C that never gives it away."""
    libc = ctypes.PyDLL(None)
    while not path.exists():
        libc.usleep(300_000)
        libc.usleep(700_000)


@pytest.mark.slow
def test_a_task_that_holds_the_interpreter_says_so(client, tmp_path):
    """A task whose worker cannot answer is told of, with the reason, and with its age."""
    end = tmp_path / "end"
    task = client.submit(hang, end)
    reasons: set[str] = set()
    deadline = time.monotonic() + BOUND_S
    while NO_ANSWER not in reasons:
        assert time.monotonic() < deadline, reasons
        reasons |= {one.reason for one in client.stacks() if one.function == "hang"}
    end.touch()
    task.result(BOUND_S)


@pytest.mark.slow
def test_a_command_tells_the_same(client, shell, tmp_path):
    """scaler_profile prints the functions that take the time, writes the file, or prints stacks."""
    end = tmp_path / "end"
    task = client.submit(stay, end)
    wait_until(lambda: client.stacks(), "no task runs")
    address = client.monitor_address
    printed = shell.run(f"scaler_profile {address} x.speedscope.json --seconds 2")
    saved = json.loads((shell.directory / "x.speedscope.json").read_text())
    stacks = shell.run(f"scaler_profile {address} --stacks")
    others = shell.run(f"scaler_profile {address} --stacks --function other")
    refused = shell.run(f"scaler_profile {address} x.json --stacks")
    end.touch()
    task.result(BOUND_S)

    assert (printed.end(), printed.err) == (0, "")
    assert printed.out.splitlines()[2].split()[2] == "stay"
    assert printed.out.splitlines()[-1] == "x.speedscope.json"
    assert [one["name"] for one in saved["profiles"]] == ["stay"]
    assert stacks.out.startswith("stay on ")
    assert "in stay" in stacks.out
    assert others.out == "no task runs\n"
    assert (refused.end(), refused.err) == (
        2,
        "scaler_profile: stacks are printed: no file goes with them\n",
    )


@pytest.mark.slow
def test_who_asked_and_died_is_asked_for_no_more(client):
    """Sampling ends with the process that asked for it, and never begins before."""
    before = questions(client)
    code = (
        "import sys\nfrom scaler_exec import Client\n"
        "client = Client(sys.argv[1])\nprint(client.stacks(), flush=True)\nclient.profile(600)"
    )
    command = [sys.executable, "-c", code, client._address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        assert asker.stdout.readline() == b"[]\n"
        asker.kill()
    asked = questions(client)
    counts = [questions(client)]
    deadline = time.monotonic() + BOUND_S
    # Each look takes a snapshot: two a second apart with the same count mean that nobody asks.
    while len(counts) < 3 or counts[-1] != counts[-3]:
        assert time.monotonic() < deadline
        time.sleep(1.2)
        counts.append(questions(client))

    assert before < asked


def test_a_profile_is_a_file_of_speedscope(tmp_path):
    """A saved profile has what the schema of speedscope demands."""
    from scaler_cluster.call_tree import CallTree, Frame
    from scaler_cluster.wire import feed

    tree = CallTree()
    tree.add([], 5)
    tree.add([Frame("g", "x.py", 3), Frame("h", "y.py", 0)], 20)
    profile = Profile()
    profile.add(feed.Samples(sampled=[feed.Sampled(b"W", "f", 2, tree.packed())]))
    profile.save(tmp_path / "x.speedscope.json")
    saved = json.loads((tmp_path / "x.speedscope.json").read_text())

    assert saved["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert saved["shared"]["frames"] == [
        {"name": "f"},
        {"name": "g", "file": "x.py", "line": 3},
        {"name": "h", "file": "y.py"},
    ]
    (one,) = saved["profiles"]
    assert one == {
        "type": "sampled",
        "name": "f",
        "unit": "microseconds",
        "startValue": 0,
        "endValue": 25,
        "samples": [[0], [0, 1, 2]],
        "weights": [5, 20],
    }


def test_what_cannot_be_read_is_counted():
    """Bytes of a worker that are no tree spoil nothing of what the others say."""
    from scaler_cluster.call_tree import CallTree, Frame
    from scaler_cluster.wire import feed

    tree = CallTree()
    tree.add([Frame("g\x1b[2J", "x.py", 3)], 7_000_000)
    profile = Profile()
    rows = [feed.Sampled(b"V", "f", 3, b"no tree"), feed.Sampled(b"W", "f", 1, tree.packed())]
    profile.add(feed.Samples(sampled=rows))

    assert (profile.samples, profile.skipped, profile.total_s) == (1, 3, 7.0)
    assert repr(profile).splitlines()[2] == "100.0% 100.0%  g?[2J (x.py:3)"


def test_a_profile_is_bounded(monkeypatch):
    """However many functions tasks call, a profile has room for so much, and loses no time."""
    from scaler_cluster.call_tree import CallTree, Frame
    from scaler_cluster.wire import feed

    monkeypatch.setattr("scaler_cluster.client.profile.NODES_MAX", 10)
    tree = CallTree()
    tree.add([Frame("g", "x.py", 3)], 7)
    profile = Profile()
    for name in range(100):
        profile.add(feed.Samples(sampled=[feed.Sampled(b"W", f"f{name}", 1, tree.packed())]))
    saved: dict[str, Any] = profile.speedscope()
    names = [one["name"] for one in saved["profiles"]]

    assert len(profile.tree) == 10
    assert profile.tree.total_us == 700
    assert names == ["(other functions)", *(f"f{name}" for name in range(5))]


@pytest.mark.slow
def test_a_recording_has_samples_if_it_is_asked_to(client, shell, tmp_path):
    """The report about it shows where the time went; all that is said besides is not changed."""
    end = tmp_path / "end"
    task = client.submit(stay, end)
    recorder = shell.start(f"scaler_record --profile {client.monitor_address} feed.rec")
    path = str(shell.directory / "feed.rec")

    def sampled():
        return [one for _, message in read(path) if isinstance(message, Samples)
                for one in message.sampled]  # fmt: skip

    recorder.wait_for("recording to feed.rec")
    wait_until(sampled, "no task was sampled")
    end.touch()
    task.result(BOUND_S)
    assert recorder.interrupt() == 0
    assert {one.function for one in sampled()} == {"stay"}
    reported = shell.run("scaler_report feed.rec")
    assert (reported.end(), reported.err) == (0, "")
    assert "Where the time of tasks went" in (shell.directory / "feed.rec.html").read_text()
