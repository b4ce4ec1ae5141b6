"""How processes and machines are, as Linux tells it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from scaler_cluster.runtime import vitals
from scaler_cluster.runtime.vitals import BASELINE_S, FRESH_S, Examiner, Memory
from scaler_cluster.wire import messages as m

NOW = 1000.0


def test_a_process_is_measured():
    """Its resident set and the CPU that it has used, as others see them."""
    start = time.process_time()
    while time.process_time() - start < 0.1:
        pass
    seen = psutil.Process()

    assert vitals.rss_bytes(os.getpid()) == pytest.approx(seen.memory_info().rss, rel=0.2)
    used = seen.cpu_times()
    assert vitals.cpu_seconds(os.getpid()) == pytest.approx(used.user + used.system, abs=0.5)
    assert vitals.machine_cpu_seconds() > 0


def test_a_process_that_is_gone_has_nothing():
    """It may end at any moment."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert (vitals.rss_bytes(ended.pid), vitals.cpu_seconds(ended.pid)) == (0, 0.0)


def test_a_name_with_parentheses_is_no_trap(tmp_path):
    """What a process calls itself stands among the figures."""
    program = tmp_path / "a) b (c 1 2"
    program.symlink_to(sys.executable)
    running = subprocess.Popen([str(program), "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert 0 <= vitals.cpu_seconds(running.pid) < 60
    finally:
        running.communicate(b"\n")


def test_the_machine_has_memory():
    """As psutil sees it, unless a control group allows less."""
    total, free = Memory().total_and_free()

    assert 0 < free < total <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("line", "root", "files", "expected"),
    [
        (
            "0::/outer/inner",
            "",
            {"outer/memory.max": "1000000", "outer/memory.current": "700000",
             "outer/memory.stat": "anon 5\ninactive_file 200000\n",
             "outer/inner/memory.max": "max", "outer/inner/memory.current": "5"},
            (1_000_000, 500_000),
        ),
        (
            "4:cpu,memory:/job",
            "memory",
            {"job/memory.limit_in_bytes": "3000000", "job/memory.usage_in_bytes": "1000000",
             "job/memory.stat": "total_inactive_file 0\n"},
            (3_000_000, 2_000_000),
        ),
    ],
)  # fmt: skip
def test_control_groups_allow_less(monkeypatch, tmp_path, line, root, files, expected):
    """The tightest of those that this process is in, what was read from files left out."""
    for name, text in files.items():
        path = tmp_path / root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    read = vitals._read
    monkeypatch.setattr(vitals, "GROUPS", tmp_path)
    monkeypatch.setattr(
        vitals, "_read", lambda path: line.encode() if path == "/proc/self/cgroup" else read(path)
    )

    assert Memory().total_and_free() == expected


def test_the_first_answer_takes_a_moment():
    """So that there is something to measure; later ones go on from the one before."""
    examiner = Examiner(lambda: {b"W1": os.getpid()}, 5_000_000_000)
    examiner.ask(m.Examine(5.0), NOW)
    first_due = examiner.due
    answer = examiner.answer(NOW + BASELINE_S, 3)
    examiner.ask(m.Examine(6.0), NOW + 1.0)

    assert first_due == NOW + BASELINE_S
    assert examiner.due == NOW + 1.0
    assert (answer.sent_at, answer.cpus, answer.workers) == (5.0, os.cpu_count(), (b"W1",))
    assert answer.worker_rss_bytes[0] > 1_000_000
    assert answer.agent_rss_bytes > 1_000_000
    assert (answer.memory_limit_bytes, answer.restarts) == (5_000_000_000, 3)


def test_what_was_measured_long_ago_is_measured_anew():
    """Nobody has watched meanwhile: a mean over that time would say nothing."""
    examiner = Examiner(dict)
    examiner.ask(m.Examine(5.0), NOW)
    examiner.answer(NOW + BASELINE_S, 0)
    later = NOW + 2 * FRESH_S
    examiner.ask(m.Examine(6.0), later)

    assert examiner.due == later + BASELINE_S


def test_how_busy_is_counted_in_thousandths(monkeypatch):
    """Of one CPU, over the time since it was looked at before; a new worker since it began."""
    used = {1: 10.0, 2: 0.5}
    monkeypatch.setattr(vitals, "cpu_seconds", used.__getitem__)
    monkeypatch.setattr(vitals, "rss_bytes", lambda pid: 7)
    processes = {b"W1": 1}
    examiner = Examiner(lambda: dict(processes))
    examiner.ask(m.Examine(5.0), NOW)
    used[1] += 0.125
    processes[b"W2"] = 2

    answer = examiner.answer(NOW + BASELINE_S, 0)
    assert answer.workers == (b"W1", b"W2")
    assert answer.worker_cpu_milli == (500, 2000)
    assert answer.worker_rss_bytes == (7, 7)


def test_elsewhere_nothing_is_known(monkeypatch):
    """Where there is no /proc, an answer says so and nothing fails."""
    monkeypatch.setattr(vitals, "_read", lambda path: b"")
    examiner = Examiner(lambda: {b"W1": 1})
    examiner.ask(m.Examine(5.0), NOW)

    answer = examiner.answer(NOW + BASELINE_S, 0)
    assert (answer.memory_bytes, answer.free_bytes) == (0, 0)
    assert answer.worker_rss_bytes == (0,)
